"""/healthz, /livez and /readyz tell the truth: the oldest change counts, not the last attempt (R019, R064, R097)."""

import pytest

from pykubeproxy.serving.health import ProxierHealth

STALE_AFTER = 180.0


class TestHealth:
    def setup_method(self):
        self.now = 1000.0
        self.wall = 1_700_000_000 * 10**9
        self.ages = {"services": 0.0}
        self.health = ProxierHealth(
            ["IPv4"], 30.0, monotonic=lambda: self.now, wall_ns=lambda: self.wall, watch_ages=lambda: self.ages
        )

    def synced(self):
        self.health.queued_update("IPv4")
        self.health.sync_started("IPv4")
        self.health.updated("IPv4")

    def test_not_ready_before_the_first_sync(self):
        assert self.health.readyz()[0] == 503

    def test_every_sync_fails_and_changes_keep_coming(self):
        """R019: what counts is the oldest change, not the last attempt."""
        self.synced()
        for _ in range(30):
            self.health.queued_update("IPv4")
            self.health.sync_started("IPv4")
            self.now += 2.0
        assert self.health.oldest_change_age("IPv4") == 60.0
        assert self.health.healthz()[0] == self.health.livez()[0] == self.health.readyz()[0] == 503
        self.health.updated("IPv4")
        assert self.health.healthz()[0] == self.health.readyz()[0] == 200

    def test_nothing_to_do_is_well_for_ever(self):
        self.synced()
        self.now += 1e7
        assert self.health.healthz()[0] == self.health.readyz()[0] == 200

    @pytest.mark.parametrize("step", [-86400, -3600, 3600, 86400, 10**9])
    def test_the_wall_clock_decides_nothing(self, step):
        """R097."""
        self.synced()
        self.wall += step * 10**9
        self.health.queued_update("IPv4")
        assert self.health.healthz()[0] == self.health.readyz()[0] == 200
        self.health.sync_started("IPv4")
        self.health.updated("IPv4")
        assert self.health.oldest_change_age("IPv4") == 0.0

    def test_a_watch_that_is_silent_makes_it_not_ready_and_alive(self):
        self.synced()
        self.ages["services"] = STALE_AFTER + 1
        assert self.health.readyz()[0] == 503
        assert self.health.livez()[0] == self.health.healthz()[0] == 200

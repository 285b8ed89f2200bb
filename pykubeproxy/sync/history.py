"""What the last syncs of one family did: a bounded memory for people who ask. It decides nothing.

Threads: any.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from pykubeproxy.model.service import ServiceKey
from pykubeproxy.sync.telling import Outcome

LENGTH = 120


@dataclass(frozen=True, slots=True)
class Record:
    """One sync. ``at``: wall clock."""

    at: float
    reason: str
    seconds: float
    is_full: bool
    restores: int
    chains_written: int
    chains_deleted: int
    healed: int
    """Places put back that others had changed."""
    refused: int
    """Services that the kernel refused."""


class SyncHistory:
    """The last syncs, when each service's last change was applied, and how much drift was healed."""

    def __init__(
        self,
        is_known: Callable[[ServiceKey], bool],
        *,
        length: int = LENGTH,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Make an empty one; ``is_known`` tells whether a service still exists."""
        self._is_known = is_known
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        self._records: deque[Record] = deque(maxlen=length)
        self._applied: dict[ServiceKey, Record] = {}
        self._healed: dict[str, int] = {}
        self._healed_at: float | None = None

    def add(self, outcome: Outcome) -> None:
        """Take one sync that has succeeded."""
        record = Record(
            at=self._wall_clock(),
            reason=outcome.reason,
            seconds=outcome.seconds,
            is_full=outcome.is_full,
            restores=outcome.restores,
            chains_written=sum(outcome.written.values()),
            chains_deleted=outcome.deleted,
            healed=sum(outcome.drifted.values()),
            refused=len(outcome.refused),
        )
        with self._lock:
            self._records.append(record)
            for key in outcome.rendered:
                if self._is_known(key):
                    self._applied[key] = record
                else:
                    self._applied.pop(key, None)
            for table, count in outcome.drifted.items():
                self._healed[table] = self._healed.get(table, 0) + count
                self._healed_at = record.at

    def records(self) -> list[Record]:
        """Return the last syncs, the oldest first."""
        with self._lock:
            return list(self._records)

    def applied(self, key: ServiceKey) -> Record | None:
        """Return the sync that applied a service's last change."""
        with self._lock:
            return self._applied.get(key)

    def healed(self) -> tuple[dict[str, int], float | None]:
        """Return how many drifted places were put back, by table, and when (wall clock) the last one was."""
        with self._lock:
            return dict(self._healed), self._healed_at

"""Rules of others stand untouched; and a table that iptables-nft cannot read does not stop the proxy."""

from __future__ import annotations

from e2e.demo.foreign import MIXED_CHAIN, MIXED_RULE
from e2e.demo.stage import NGINX, PODS, Stage

TITLE = "Rules of others stand untouched"


def run(stage: Stage) -> None:
    """Look after them, before, during and after; and prove that the comparer would notice."""
    now = stage.foreign.snapshot()
    stage.show.table(
        ["read by", "lines of flannel, Docker, administrator, native nft"],
        [(tool, str(len(lines))) for tool, lines in stage.baseline.items()],
    )
    for what, noticed in stage.controls.items():
        stage.check(noticed, f"control: the comparer notices {what}")
    stage.check(
        not stage.report(stage.baseline, now), "after the proxy's start and all changes so far: not a line has changed"
    )
    if stage.lab.backend == "nft":
        _mixed_table(stage)


def _mixed_table(stage: Stage) -> None:
    """Put a native rule into a table that iptables-nft uses, and change services meanwhile."""
    handle = stage.foreign.add_mixed()
    stage.show.say("a native rule in the table of iptables-nft itself:")
    stage.show.command(f"nft add rule {' '.join(MIXED_CHAIN)} '{MIXED_RULE}'")
    try:
        stage.check("filter" in stage.lab.save().unreadable, "control: iptables-nft-save cannot read filter any more")
        before = stage.foreign.snapshot()["nft"]
        stage.apply_and_await("03-three-pods", "default/nginx-svc", [f"{ip}:80" for ip in PODS.values()])
        stage.check(
            set(stage.curl.http(NGINX, 80, n=60).pods) == set(PODS), "the proxy still works: three pods where one was"
        )
        stage.apply("09-no-endpoints")
        stage.await_kernel(
            lambda: stage.curl.http("10.101.0.9", 80, timeout=0.5).verdict() == "refused", "a REJECT in that very table"
        )
        stage.check(True, "and writes to that very table: a service without endpoints is refused")
        after = stage.foreign.snapshot()["nft"]
        stage.check(
            stage.foreign.mixed() == [handle] and not stage.report({"nft": before}, {"nft": after}),
            f"the native rule still stands, with the same handle {handle}",
        )
    finally:
        stage.foreign.remove_mixed(handle)
        stage.withdraw("orphan-service.yaml")
    stage.apply_and_await("00-cluster", "default/nginx-svc", [f"{PODS['nginx-1']}:80"])
    stage.await_kernel(lambda: not stage.lab.save().find('"default/orphan', table="filter"), "the orphan is gone")

"""Make the watch of a backend. Apart from watch.py, which both watches import."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from pykubeproxy.errors import EnvironmentProblem
from pykubeproxy.model.addresses import Family
from pykubeproxy.netfilter.backend import Kind
from pykubeproxy.netfilter.watch import Notice, NoWatch, Watch

log = structlog.get_logger()


def make_watch(
    kind: Kind, families: Sequence[Family], notice: Notice, on_crash: Callable[[BaseException], None]
) -> Watch:
    """Make the watch of this backend; where the kernel allows none, one that suspects everything."""
    try:
        if kind == "nft":
            from pykubeproxy.netfilter.nftwatch import NftWatch  # noqa: PLC0415 - each host needs one of the two

            return NftWatch(notice, on_crash, families=families)
        from pykubeproxy.netfilter.legacywatch import LegacyWatch  # noqa: PLC0415

        return LegacyWatch(notice, on_crash, families=families)
    except EnvironmentProblem as exc:
        log.warning("drift unwatched", backend=kind, why=str(exc), consequence="all is read again each sync period")
        return NoWatch()

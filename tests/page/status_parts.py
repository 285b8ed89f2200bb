"""A NodeStatus over parts that stand still: a state, what is wanted for it, and no daemon."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pykubeproxy.errors import NetfilterError
from pykubeproxy.insight.status import AboutNode, NodeStatus
from pykubeproxy.model.state import ClusterState
from pykubeproxy.sync.desired import Desired
from tests.support.builders import settings, state


class NothingRead:
    """A reader that cannot read."""

    def read(self, places: Any, *, with_memory: bool = False) -> Any:
        raise NetfilterError("nothing is read here")


def part(found: ClusterState, *, quarantined: Any = None, **more: Any) -> Any:
    wanted = Desired(settings(found.family), dispatch=more.pop("dispatch", "flat"))
    with found.lock:
        wanted.update(found, found.take_dirty())
    engine = SimpleNamespace(wanted=wanted, quarantined=quarantined or {}, has_synced=True)
    given = {"history": None, "connections": None, "failures": 0} | more
    return SimpleNamespace(family=found.family, state=found, engine=engine, **given)


def node_status(*objects: Any, reader: Any = None, **more: Any) -> NodeStatus:
    """One family, IPv4, of these objects."""
    about = AboutNode("node-a", "1", "iptables-nft 1.8.9", list, list, dict)
    one = part(state(*objects), **more)
    return NodeStatus(about, {"IPv4": one}, {"IPv4": reader or NothingRead()})

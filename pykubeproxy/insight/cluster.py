"""One IP family of a cluster as this node sees it: what the objects mean, and the rules that follow from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pykubeproxy.model.addresses import Family
from pykubeproxy.model.endpoint import Endpoint
from pykubeproxy.model.service import Problem, ServiceKey, ServicePort, ServicePortName
from pykubeproxy.model.state import ClusterState
from pykubeproxy.model.topology import Categories, categorize
from pykubeproxy.rules.service import PortRules, render
from pykubeproxy.rules.settings import RuleSettings
from pykubeproxy.sync.desired import Desired
from pykubeproxy.watch.objects import EndpointSlice, Node, Service


@dataclass(slots=True)
class Picture:
    """See the module's docstring."""

    settings: RuleSettings
    state: ClusterState
    wanted: Desired
    node: Node | None = None

    @property
    def family(self) -> Family:
        """The IP family."""
        return self.settings.family

    @property
    def node_name(self) -> str:
        """The node that this is seen from."""
        return self.settings.here.node

    def endpoints(self, name: ServicePortName) -> tuple[Endpoint, ...]:
        """Return every endpoint that the slices name for a service port, usable or not."""
        return self.state.endpoints(name.key).get(name, ())

    def categories(self, port: ServicePort) -> Categories:
        """Sort a service port's endpoints by the traffic that they serve here."""
        settings = self.settings
        return categorize(self.endpoints(port.id), port, settings.here, node_hints=settings.uses_node_hints)

    def rules(self, port: ServicePort) -> PortRules:
        """Return the rules of one service port."""
        return render(port, self.categories(port), self.settings, endpoint_comments=not self.wanted.is_large)

    def problems(self, key: ServiceKey) -> list[Problem]:
        """Return what is odd in a service's objects, or between them and others, whoever has the better claim."""
        return [
            *self.state.problems_of(key),
            *(one for one in self.wanted.problems() if key in ((one.namespace, one.name), one.rival)),
        ]

    def keys(self) -> list[ServiceKey]:
        """Return the services of this family, sorted."""
        return sorted(self.state.keys())

    def own_addresses(self) -> frozenset[str]:
        """Return the addresses of the own Node object in this family."""
        status = self.node.status if self.node is not None else None
        found = [one.address for one in (status.addresses or ())] if status is not None else []
        return frozenset(one for one in found if _is_of(self.family, one))


def _is_of(family: Family, text: str) -> bool:
    if family == "IPv6":
        return ":" in text
    return text.count(".") == 3 and text.replace(".", "").isdigit()


def picture(
    settings: RuleSettings,
    services: Iterable[Service],
    slices: Iterable[EndpointSlice],
    *,
    dispatch: str,
    stands_as_tree: bool = False,
    node: Node | None = None,
) -> Picture:
    """Take all objects at once. ``stands_as_tree``: the form in the kernel, which a daemon would keep."""
    state = ClusterState(settings.family)
    state.replace_services(services)
    state.replace_slices(slices)
    wanted = Desired(settings, dispatch=dispatch, stands_as_tree=stands_as_tree)
    with state.lock:
        wanted.update(state, state.take_dirty())
    return Picture(settings, state, wanted, node)

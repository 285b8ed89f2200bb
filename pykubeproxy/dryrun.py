"""``--dry-run``: print what would be restored into empty tables. Opens no netfilter socket and needs no rights.

The text is the plan that the daemon would apply to a kernel without any of our chains, so restoring it into an empty
network namespace gives exactly what the daemon would leave there.
"""

from __future__ import annotations

from collections.abc import Iterator

import structlog

from pykubeproxy.config.options import Options
from pykubeproxy.model.addresses import FAMILIES, Family
from pykubeproxy.model.service import Problem
from pykubeproxy.model.state import ClusterState
from pykubeproxy.node.addresses import interface_addresses
from pykubeproxy.node.sysctl import tcp_be_liberal
from pykubeproxy.rules.ruleset import Ruleset
from pykubeproxy.rules.settings import RuleSettings
from pykubeproxy.sync.derive import Facts, rule_settings
from pykubeproxy.sync.desired import Desired
from pykubeproxy.sync.diff import difference
from pykubeproxy.sync.plan import Plan, make_plan
from pykubeproxy.watch.manifests import ClusterObjects
from pykubeproxy.watch.objects import Node

log = structlog.get_logger()


def own_node(objects: ClusterObjects, name: str) -> Node | None:
    """Return the Node of that name."""
    return next((node for node in objects.nodes if node.metadata.name == name), None)


def local_facts(options: Options) -> Facts:
    """Read the facts that need no rights from the network namespace that this runs in."""
    return Facts(tuple(interface_addresses()), tcp_be_liberal=tcp_be_liberal(), nfacct=options.assume_nfacct)


def desired(family: Family, objects: ClusterObjects, settings: RuleSettings, *, dispatch: str) -> Desired:
    """Render all objects of one family at once."""

    def tell(problem: Problem) -> None:
        log.warning("object problem", family=family, object=f"{problem.kind} {problem.namespace}/{problem.name}",
                    field=problem.field, problem=problem.message)  # fmt: skip

    state = ClusterState(family, on_problem=tell)
    state.replace_services(objects.services)
    state.replace_slices(objects.slices)
    wanted = Desired(settings, dispatch=dispatch)
    with state.lock:
        wanted.update(state, sorted(state.take_dirty()))
    for problem in wanted.problems():
        tell(problem)
    return wanted


def plan(wanted: Desired) -> Plan:
    """Return the plan from empty tables."""
    return make_plan(difference(Ruleset(), wanted.ruleset, None), wanted.owner.get, batch=None)


def documents(
    options: Options, objects: ClusterObjects, node_name: str, families: tuple[Family, ...] = FAMILIES
) -> Iterator[str]:
    """Yield the restore inputs; where there is more than one, each is headed by a comment that names its family."""
    facts = local_facts(options)
    node = own_node(objects, node_name)
    for family in families:
        settings = rule_settings(family, options, node_name, node, facts)
        text = plan(desired(family, objects, settings, dispatch=options.service_dispatch)).text()
        yield text if len(families) == 1 else f"# {family}\n{text}"

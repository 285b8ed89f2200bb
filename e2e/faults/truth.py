"""What the kernel should hold: the same objects, rendered by a fresh start, compared chain by chain."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from e2e.netlab import Lab
from pykubeproxy.config.flags import options_from_flags
from pykubeproxy.config.options import Options
from pykubeproxy.dryrun import desired
from pykubeproxy.model.addresses import FAMILIES
from pykubeproxy.netfilter.read import parse, standing
from pykubeproxy.rules.dispatch import leads_to_tree
from pykubeproxy.sync.derive import Facts, rule_settings
from pykubeproxy.sync.diff import difference
from pykubeproxy.watch.manifests import ClusterObjects
from pykubeproxy.watch.objects import EndpointSlice, Node, Service

KINDS = {"Service": Service, "EndpointSlice": EndpointSlice, "Node": Node}


class Lost(NamedTuple):
    """Chains and jumps that are missing or differ, and chains that nobody wants."""

    missing: list[str]
    surplus: list[str]

    @property
    def count(self) -> int:
        """Return how many there are."""
        return len(self.missing) + len(self.surplus)


def lost(lab: Lab, objects: Iterable[dict[str, Any]], flags: dict[str, str], *, comments: bool = True) -> Lost:
    """Compare the node's rules of both families with what these objects mean under these flags."""
    found: dict[type[Any], list[Any]] = {kind: [] for kind in KINDS.values()}
    for obj in objects:
        kind = KINDS[obj["kind"]]
        found[kind].append(msgspec.convert(obj, kind))
    cluster = ClusterObjects(found[Service], found[EndpointSlice], found[Node], [])
    options = _options(tuple(flags.items()))
    missing: list[str] = []
    surplus: list[str] = []
    for family in FAMILIES:
        saved = _save(lab, f"{'iptables' if family == 'IPv4' else 'ip6tables'}-{lab.backend}-save")
        facts = Facts(nfacct="-m nfacct" in saved, comments=comments)
        settings = rule_settings(family, options, options.hostname_override, found[Node][0], facts)
        stands = standing(parse(saved))
        meant = desired(family, cluster, settings, dispatch=options.service_dispatch)
        meant.take_form(stands_as_tree=bool(leads_to_tree(stands.chains["nat"])))
        differs = difference(stands, meant.ruleset, None)
        missing += [f"{table}/{chain}" for table, chains in differs.write.items() for chain in chains]
        missing += [f"{rule.table}/{rule.chain} {rule.rule}" for rule in differs.ensure]
        surplus += [f"{table}/{chain}" for table, chains in differs.delete.items() for chain in chains]
        surplus += [f"{rule.table}/{rule.chain} {rule.rule}" for rule in differs.remove]
    return Lost(missing, surplus)


@lru_cache
def _options(flags: tuple[tuple[str, str], ...]) -> Options:
    return options_from_flags(dict(flags))


def _save(lab: Lab, program: str) -> str:
    """Save the rules; iptables-nft-save may catch a table in the middle of somebody's commit, and calls it strange."""
    for _ in range(20):
        saved = lab.node.run([program]).stdout
        if "incompatible" not in saved:
            break
    return saved

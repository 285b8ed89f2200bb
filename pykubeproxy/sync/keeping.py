"""What stands of services that are not known yet, read back into the form in which it can be wanted.

It exists for a start at which not all objects could be read (a manifest file that is broken): the rest is served, and
what stands of services that may be in the part that was not read stays as it is, until it has been read. Pure. It must
not guess: what a rule's comment does not tell to be a service's is nobody's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from pykubeproxy.model.service import ServiceKey, ServicePortName
from pykubeproxy.rules.names import (
    DISPATCH_PREFIX,
    EXTERNAL_SERVICES,
    FILTER,
    NAT,
    NODEPORTS,
    PORT_DISPATCH_PREFIX,
    PROXY_FIREWALL,
    SERVICES,
    PortChains,
)
from pykubeproxy.rules.naming import service_of
from pykubeproxy.rules.ruleset import Ruleset
from pykubeproxy.rules.service import Portal, PortRules

Kept = dict[ServiceKey, dict[ServicePortName, PortRules]]


def standing_services(standing: Ruleset) -> Kept:
    """Return what each service that is named in the standing rules contributed to them, port by port."""
    found: dict[str, defaultdict[ServicePortName, list[str]]] = {}
    for place, lines in (
        ("portals", _lines(standing, NAT, SERVICES, DISPATCH_PREFIX)),
        ("nodeports", _lines(standing, NAT, NODEPORTS, PORT_DISPATCH_PREFIX)),
        ("services", _lines(standing, FILTER, SERVICES)),
        ("external", _lines(standing, FILTER, EXTERNAL_SERVICES)),
        ("firewall", _lines(standing, FILTER, PROXY_FIREWALL)),
        ("checks", _lines(standing, FILTER, NODEPORTS)),
    ):
        found[place] = defaultdict(list)
        for rule in lines:
            name = _port_of(rule)
            if name is not None:
                found[place][name].append(rule)
    kept: Kept = {}
    for name in sorted({name for named in found.values() for name in named}):
        kept.setdefault(name.key, {})[name] = PortRules(
            _chains(name, standing.chains[NAT]),
            tuple(Portal(_after(rule, "-d").partition("/")[0], rule) for rule in found["portals"][name]),
            tuple(Portal(f"{_after(rule, '-p')}/{_after(rule, '--dport')}", rule) for rule in found["nodeports"][name]),
            tuple(found["services"][name]),
            tuple(found["external"][name]),
            tuple(found["firewall"][name]),
            tuple(found["checks"][name]),
        )
    return kept


def _lines(standing: Ruleset, table: str, chain: str, prefix: str = "") -> Iterator[str]:
    """Yield the rules, without ``-A CHAIN ``, of a chain and of the tree below it."""
    for name, text in standing.chains[table].items():
        if name == chain or (prefix and name.startswith(prefix)):
            yield from (line.split(" ", 2)[2] for line in text.splitlines() if line.count(" ") > 1)


def _port_of(rule: str) -> ServicePortName | None:
    service, _, port = service_of(rule).partition(":")
    namespace, slash, name = service.partition("/")
    protocol = _after(rule, "-p").upper()
    return ServicePortName(namespace, name, port, protocol) if slash and protocol else None


def _chains(name: ServicePortName, chains: dict[str, str]) -> dict[str, str]:
    names = PortChains(name)
    own = {one: chains[one] for one in (names.external, names.firewall, names.cluster, names.local) if one in chains}
    ends = {end for text in own.values() for end in _targets(text) if end.startswith("KUBE-SEP-") and end in chains}
    return own | {end: chains[end] for end in sorted(ends)}


def _targets(text: str) -> Iterable[str]:
    return (line.rpartition(" -j ")[2].split(" ")[0] for line in text.splitlines())


def _after(rule: str, option: str) -> str:
    """Return the word behind an option, "" without it."""
    return f" {rule}".partition(f" {option} ")[2].split(" ")[0]

"""Chain names: which are ours, and how a service port's chains are called.

Names and hashes are kube-proxy's (pkg/proxy/iptables/proxier.go): the first 16 characters of the base32 text of a
SHA-256, behind a prefix, so that a returning kube-proxy finds the chains under the names that it would have chosen
itself.
"""

from __future__ import annotations

from hashlib import sha256

from pykubeproxy.model.service import ServicePortName

NAT, FILTER, MANGLE = "nat", "filter", "mangle"
TABLES = (MANGLE, FILTER, NAT)

SERVICES = "KUBE-SERVICES"
NODEPORTS = "KUBE-NODEPORTS"
EXTERNAL_SERVICES = "KUBE-EXTERNAL-SERVICES"
PROXY_FIREWALL = "KUBE-PROXY-FIREWALL"
FORWARD = "KUBE-FORWARD"
FIREWALL = "KUBE-FIREWALL"
POSTROUTING = "KUBE-POSTROUTING"
MARK_MASQ = "KUBE-MARK-MASQ"
CANARY = "KUBE-PROXY-CANARY"

HOOKS = ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")
"""The chains that the kernel calls, in the order of its numbers (enum nf_inet_hooks in netfilter.h)."""
BUILTIN = frozenset(HOOKS)

STATIC_CHAINS: dict[str, tuple[str, ...]] = {
    MANGLE: (CANARY,),
    FILTER: (SERVICES, EXTERNAL_SERVICES, FORWARD, NODEPORTS, PROXY_FIREWALL, CANARY),
    NAT: (SERVICES, NODEPORTS, POSTROUTING, MARK_MASQ, CANARY),
}
"""The chains with fixed names that this program owns, by table. KUBE-FIREWALL is kubelet's as well: not among them."""

_OWNED = {table: frozenset(chains) for table, chains in STATIC_CHAINS.items()}
SERVICE_PREFIXES = ("KUBE-SVC-", "KUBE-SVL-", "KUBE-SEP-", "KUBE-FW-", "KUBE-EXT-")
DISPATCH_PREFIX, PORT_DISPATCH_PREFIX = "KUBE-SVC-IP-", "KUBE-SVC-NP-"
"""Prefixes of the dispatch trees' chains, below KUBE-SERVICES and below KUBE-NODEPORTS: kube-proxy takes them for stale
service chains and collects them."""
DISPATCH_PREFIXES = (DISPATCH_PREFIX, PORT_DISPATCH_PREFIX)

UNORDERED = frozenset((SERVICES, NODEPORTS, EXTERNAL_SERVICES, PROXY_FIREWALL))
"""Chains in which the order of rules that cannot match the same packet is no difference."""

MAX_LENGTH = 28
"""Longest chain name that iptables takes (XT_EXTENSION_MAXNAMELEN - 1)."""


def is_ours(table: str, chain: str) -> bool:
    """Tell whether a chain belongs to a service proxy of this kind (this program or kube-proxy).

    One with a name that iptables does not take was made by something else, and iptables cannot delete it either.
    """
    if chain in _OWNED.get(table, ()):
        return True
    return table == NAT and len(chain) <= MAX_LENGTH and chain.startswith(SERVICE_PREFIXES)


def callers_first(chain: str) -> tuple[int, int]:
    """Sort key that puts a chain before all chains that it may jump to: the order in which chains can be deleted."""
    if chain.startswith(DISPATCH_PREFIXES):
        is_of_ports = chain.startswith(PORT_DISPATCH_PREFIX)
        numbers = [int(part) if part.isdigit() else 0 for part in chain.split("-")[-2:]]
        # The smaller range is the one with the longer prefix.
        return (3, numbers[0] - numbers[1]) if is_of_ports else (1, numbers[1])
    for rank, prefix in enumerate(("KUBE-FW-", "KUBE-EXT-", "KUBE-SV", "KUBE-SEP-"), 4):
        if chain.startswith(prefix):
            return rank, 0
    return (9, 0) if chain == MARK_MASQ else (2, 0) if chain == NODEPORTS else (0, 0)


_BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_PAIRS = tuple(one + other for one in _BASE32 for other in _BASE32)
"""Two characters for ten bits: base64.b32encode takes ten times as long, and there is a hash for each endpoint."""


def short_hash(text: str) -> str:
    """Return the 16 characters that stand for a text in a chain name: 80 bits of its SHA-256 in base32."""
    bits = int.from_bytes(sha256(text.encode()).digest()[:10], "big")
    pairs = _PAIRS
    return (
        f"{pairs[bits >> 70]}{pairs[bits >> 60 & 1023]}{pairs[bits >> 50 & 1023]}{pairs[bits >> 40 & 1023]}"
        f"{pairs[bits >> 30 & 1023]}{pairs[bits >> 20 & 1023]}{pairs[bits >> 10 & 1023]}{pairs[bits & 1023]}"
    )


class PortChains:
    """The chain names of one service port."""

    __slots__ = ("_seed", "_suffix")

    def __init__(self, port: ServicePortName) -> None:
        self._seed = str(port) + port.protocol.lower()
        self._suffix = short_hash(self._seed)

    @property
    def cluster(self) -> str:
        """Chain that spreads over the endpoints of policy Cluster."""
        return "KUBE-SVC-" + self._suffix

    @property
    def local(self) -> str:
        """Chain that spreads over the endpoints of policy Local."""
        return "KUBE-SVL-" + self._suffix

    @property
    def external(self) -> str:
        """Chain that traffic to external destinations enters."""
        return "KUBE-EXT-" + self._suffix

    @property
    def firewall(self) -> str:
        """Chain that checks load balancer source ranges."""
        return "KUBE-FW-" + self._suffix

    def endpoint(self, target: str) -> str:
        """Chain of one endpoint, ``target`` being its ``ip:port`` text."""
        return "KUBE-SEP-" + short_hash(self._seed + target)

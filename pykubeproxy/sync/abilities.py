"""What the kernel and iptables of one family can do, as facts that the rules depend on.

Found out at the start, again when the kernel refuses something, and every ten minutes while something is missing: its
module may have been loaded since. It tries and tells; it must not decide what follows for the rules (sync.derive does),
nor read anything else that a machine says.

Threads: any, one at a time for each family.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import replace

from pykubeproxy.errors import PykubeproxyError
from pykubeproxy.netfilter.backend import Backend
from pykubeproxy.netfilter.probe import FEATURES, Features, probe, tell
from pykubeproxy.netfilter.process import Runner
from pykubeproxy.netfilter.read import Reader
from pykubeproxy.node import nfacct
from pykubeproxy.rules.names import FILTER, FORWARD
from pykubeproxy.sync.derive import Facts

INTERVAL = 600.0
"""Seconds until a match that the kernel lacks is tried again."""


class Abilities:
    """See the module's docstring."""

    def __init__(
        self,
        backend: Backend,
        runner: Runner,
        *,
        counters: Callable[[], Collection[str]] = nfacct.ensure,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``counters`` makes the nfacct objects and returns the names of those that there are."""
        self._backend = backend
        self._runner = runner
        self._counters = counters
        self._clock = clock
        self._tried_at = float("-inf")

    def find(self, facts: Facts) -> Facts:
        """Find out what the kernel can do and add it to the facts; what a standing rule shows to work is not tried.

        Raises:
            LockBusyError, NetfilterError: nothing can be told now.
            EnvironmentProblem: no rights, no program, or no lock file.

        """
        # One chain and not the table: iptables-nft-save fetches all rules whatever table it is asked for.
        standing = Reader(self._backend, self._runner).read_chain(FILTER, FORWARD)
        texts = [standing] if standing else []
        has_objects = frozenset(self._counters()) >= frozenset(nfacct.COUNTERS)
        # A take-over or restart (our chains stand) shows by itself what works: nothing is tried, nothing written. Only
        # what stands in every filter table of ours and does not in this one is; the rest when the kernel refuses it.
        wanted: tuple[str, ...] = ("comment", "conntrack")
        if not standing:
            wanted = (*wanted, "addrtype", "statistic", "recent", "mark")
        # Where our chains stand without a rule for INVALID packets, nothing shows the nfacct match to work or to be
        # missing. Then the objects are taken as proof; a refusal would be looked into (``find_again``).
        if has_objects and (not standing or any("--ctstate INVALID" in text for text in texts)):
            wanted = (*wanted, "nfacct")
        features = probe(self._backend, self._runner, texts, wanted)
        self._tried_at = self._clock()
        if not has_objects:
            features = Features({**features.missing, "nfacct": "the kernel has no nfacct objects"})
        tell(self._backend.family, features)
        return _with(facts, features)

    def find_again(self, facts: Facts) -> Facts:
        """Find out anew: the kernel has refused something, or lacked something when last asked. Raises as ``find``."""
        self._tried_at = self._clock()
        # Whether nfacct objects exist is found out at the start only; without them its match is of no use.
        wanted = [name for name in FEATURES if name != "nfacct" or facts.nfacct]
        features = probe(self._backend, self._runner, (), wanted)
        if not facts.nfacct:
            features = Features({**features.missing, "nfacct": ""})
        known = _with(facts, features)
        if known != facts:
            tell(self._backend.family, Features({name: why for name, why in features.missing.items() if why}))
        return known

    def refreshed(self, facts: Facts) -> Facts:
        """Find out anew if that is due; what cannot be told now changes nothing."""
        lacks = facts.missing or not facts.comments
        if not lacks or self._clock() < self._tried_at + INTERVAL:
            return facts
        try:
            return self.find_again(facts)
        except PykubeproxyError:
            return facts


def _with(facts: Facts, features: Features) -> Facts:
    missing = frozenset(features.missing) - {"nfacct", "comment"}
    return replace(facts, nfacct=features.has("nfacct"), comments=features.has("comment"), missing=missing)

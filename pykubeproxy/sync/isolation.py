"""Find the services whose rules the kernel refuses.

A refused input says little of why: legacy iptables names its COMMIT line only, whatever rule it was. So what each
service brings is tried alone, by halves. A trial is a real restore, because ``--test`` finds nothing that the kernel
would refuse. It writes

* the service's own chains, under their own names: what is wanted anyway, and nothing new leads to them yet;
* its lines of the shared chains (addresses, node ports, REJECT and DROP) into KUBE-PROXY-CANARY, which is ours in nat
  and in filter, empty, and led to by nothing. The next round finds the lines there and takes them out; so does the
  next start after a crash.

Before a service is blamed, an input that brings no service must pass, and the service must be refused a second time: a
kernel or a program that fails for a moment, or fails at everything, is no service's fault.

More than a handful of culprits have a common cause. Then nothing more is found out about single services: those of a
small group that is refused are left out together, after so many trials all that are left. Only if not one service was
accepted, nobody is blamed at all.

This module decides and tries; it must not remember anything, and what follows from its answer is the engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from pykubeproxy.errors import NetfilterError, RestoreError
from pykubeproxy.model.service import ServiceKey
from pykubeproxy.rules.names import CANARY, FILTER, MARK_MASQ, NAT
from pykubeproxy.rules.ruleset import Ruleset, chain_text
from pykubeproxy.sync.desired import Desired
from pykubeproxy.sync.plan import Section, Step

Restore = Callable[[Step], None]
"""Applies a step; raises RestoreError when it is refused."""

MANY_CULPRITS = 8
"""More refused services than this have a common cause, which is named instead of each of them."""
HARMLESS = "-j RETURN"
SMALL_GROUP = 4
"""Services that are left out together, once the cause is known to be a common one."""
MORE_TRIALS = 64
"""Trials from then on."""


class CommonCauseError(NetfilterError):
    """So much is refused that the cause is none of the services."""


@dataclass(frozen=True, slots=True)
class _Share:
    """What one service brings to a refused input."""

    chains: tuple[tuple[str, str], ...]
    nat: tuple[str, ...]
    filter: tuple[str, ...]
    """Lines of shared chains, behind ``-A CHAIN ``."""

    @property
    def lines(self) -> int:
        return sum(text.count("\n") + 1 for _, text in self.chains) + len(self.nat) + len(self.filter)


@dataclass(slots=True)
class Search:
    """Finds the culprits behind a refused step.

    ``standing`` is what stood before the step, ``batch`` the lines that one input should hold at most (None: any
    number), ``most`` how many culprits are no common cause yet.
    """

    standing: Ruleset
    wanted: Desired
    restore: Restore
    batch: int | None
    most: int
    culprits: dict[ServiceKey, str] = field(default_factory=dict)
    """The refused services, and what was said of each."""
    accepted: int = 0
    """Trials with services that were taken."""

    def run(self, step: Step) -> dict[ServiceKey, str]:
        """Return the services that are refused alone; none when the refusal cannot be had again.

        Raises:
            CommonCauseError: not even a harmless input is taken, or many services are refused and none is accepted.
            LockBusyError, EnvironmentProblem, NetfilterError: as restore.

        """
        shares = {key: self._share(key) for key in self._suspects(step)}
        self._check_harmless()
        waiting = list(self._inputs(shares))[::-1]
        left = MORE_TRIALS
        while waiting:
            is_common = len(self.culprits) > self.most
            keys = waiting.pop()
            if is_common:
                left -= 1
                if left < 0:
                    self._blame(keys, f"left over when {len(self.culprits)} services had been refused")
                    continue
            refused = self._try([shares[key] for key in keys])
            if refused is None:
                self.accepted += 1
                continue
            if len(keys) > (SMALL_GROUP if is_common else 1):
                middle = len(keys) // 2
                waiting += [keys[middle:], keys[:middle]]
                continue
            self._check_harmless()
            again = self._try([shares[key] for key in keys])
            if again is not None:
                self._blame(keys, again.stderr or str(again))
        if len(self.culprits) > self.most and not self.accepted:
            raise CommonCauseError(
                f"{len(self.culprits)} services are refused and none is accepted, so the cause is not one of them: "
                f"{next(iter(self.culprits.values()))}"
            )
        return self.culprits

    def _blame(self, keys: Iterable[ServiceKey], why: str) -> None:
        self.culprits.update(dict.fromkeys(keys, why))

    def _suspects(self, step: Step) -> list[ServiceKey]:
        """Return the services that the step changes anything of."""
        found: dict[ServiceKey, None] = {}
        fresh: set[str] = set()
        for section in step.sections:
            known = self.standing.chains[section.table]
            for chain, text in section.chains:
                owner = self.wanted.owner.get(chain) if section.table == NAT else None
                if owner is not None:
                    found[owner.key] = None
                    continue
                old = set(known.get(chain, "").splitlines())
                fresh.update(rule_of(line) for line in text.splitlines() if line not in old)
        found.update(dict.fromkeys(self.wanted.contributors(fresh)))
        return sorted(found)

    def _share(self, key: ServiceKey) -> _Share:
        standing = self.standing.chains[NAT]
        wanted = self.wanted.ruleset.chains[NAT]
        names = self.wanted.chains_of(key)
        lines = self.wanted.lines_of(key)
        return _Share(
            tuple((name, wanted[name]) for name in names if standing.get(name) != wanted[name]),
            tuple(lines[NAT]),
            tuple(lines[FILTER]),
        )

    def _inputs(self, shares: dict[ServiceKey, _Share]) -> Iterable[list[ServiceKey]]:
        waiting: list[ServiceKey] = []
        size = 0
        for key, share in shares.items():
            if waiting and self.batch is not None and size + share.lines > self.batch:
                yield waiting
                waiting, size = [], 0
            waiting.append(key)
            size += share.lines
        if waiting:
            yield waiting

    def _check_harmless(self) -> None:
        refused = self._try([])
        if refused is not None:
            raise CommonCauseError(
                f"even an input without any service is refused, so the cause is none of them: {refused}"
            ) from refused

    def _try(self, shares: list[_Share]) -> RestoreError | None:
        nat = chain_text(CANARY, [HARMLESS, *(rule for share in shares for rule in share.nat)])
        filtered = chain_text(CANARY, [HARMLESS, *(rule for share in shares for rule in share.filter)])
        mark = self.wanted.ruleset.chains[NAT][MARK_MASQ]
        base = () if self.standing.chains[NAT].get(MARK_MASQ) == mark else ((MARK_MASQ, mark),)
        chains = tuple(chain for share in shares for chain in share.chains)
        sections = (
            Section(FILTER, ((CANARY, filtered),)),
            Section(NAT, (*base, *chains, (CANARY, nat))),
        )
        try:
            self.restore(Step("stage", sections))
        except RestoreError as refused:
            return refused
        return None


def undeletable(chains: tuple[str, ...], delete: Callable[[tuple[str, ...]], None]) -> Iterator[tuple[str, str]]:
    """Delete chains, by halves where that is refused; yield those that cannot be deleted, and what was said of each.

    Other exceptions than RestoreError go through.
    """
    if not chains:
        return
    try:
        delete(chains)
    except RestoreError as refused:
        if len(chains) == 1:
            yield chains[0], str(refused)
            return
        middle = len(chains) // 2
        yield from undeletable(chains[:middle], delete)
        yield from undeletable(chains[middle:], delete)


def rule_of(line: str) -> str:
    """Return a rule without its ``-A CHAIN ``; "" for another kind of line."""
    words = line.split(" ", 2)
    return words[2] if len(words) == 3 and words[0] == "-A" else ""

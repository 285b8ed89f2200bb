"""A plan: the restore inputs that lead from what stands to what is wanted, in an order that never breaks a service.

A plan is plain data: it is printed (``--dry-run``), tested and applied as the same value. Order, and why:

* *Stage*: chains that nothing refers to yet, and chains of a service port that change; those of one service port in
  one commit.
* *Switch*: the shared chains of nat (KUBE-SERVICES and its tree, KUBE-NODEPORTS, base chains) and the jumps.
* *Sweep*: chains that nothing refers to any more.
* filter before nat for what takes a service away (REJECT, DROP appears), filter after nat for what makes it reachable
  (REJECT goes). So the filter chains are written twice where both happen: first with the old and the new lines, at
  the end with the new ones.
* A small plan is one input: filter, nat, filter. A large one is cut into batches by service, because
  iptables-nft-restore takes time quadratic in the size of one input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from pykubeproxy.rules.names import DISPATCH_PREFIX, FILTER, MANGLE, MARK_MASQ, NAT, UNORDERED, callers_first
from pykubeproxy.rules.ruleset import Ensured

Stage = Literal["prepare", "stage", "switch", "finish", "sweep", "all"]


@dataclass(frozen=True, slots=True)
class Section:
    """The part of a restore input for one table, committed in one go."""

    table: str
    chains: tuple[tuple[str, str], ...] = ()
    """(name, text) of chains to create or rewrite whole."""
    create: tuple[str, ...] = ()
    """Chains that are made and not flushed, because they are not ours (they do not exist yet)."""
    ensured: tuple[Ensured, ...] = ()
    removed: tuple[Ensured, ...] = ()
    """Rules deleted by value, one occurrence each."""
    delete: tuple[str, ...] = ()
    """Chains to empty and delete."""

    def __bool__(self) -> bool:
        return bool(self.chains or self.create or self.ensured or self.removed or self.delete)

    @property
    def rules(self) -> int:
        """How many lines the section has, its cost on nft."""
        return sum(text.count("\n") + 1 for _, text in self.chains) + 2 * len(self.delete) + len(self.ensured)

    def text(self) -> str:
        """Return the restore input of this section (for ``--noflush``)."""
        lines = [f"*{self.table}\n"]
        lines += [f":{name} - [0:0]\n" for name in self.create]
        lines += [f":{name} - [0:0]\n" for name, _ in self.chains]
        lines += [f":{name} - [0:0]\n" for name in self.delete]
        lines += [text for _, text in self.chains]
        for rule in self.ensured:
            lines.append(f"-I {rule.chain} 1 {rule.rule}\n" if rule.at_top else f"-A {rule.chain} {rule.rule}\n")
        lines += [f"-D {rule.chain} {rule.rule}\n" for rule in self.removed]
        lines += [f"-X {name}\n" for name in self.delete]
        lines.append("COMMIT\n")
        return "".join(lines)

    def without_deletes(self) -> Section:
        """Return the section with chains emptied instead of deleted."""
        emptied = tuple((name, "") for name in self.delete)
        return Section(self.table, self.chains + emptied, self.create, self.ensured, self.removed)


@dataclass(frozen=True, slots=True)
class Step:
    """One restore input."""

    stage: Stage
    sections: tuple[Section, ...]

    def text(self) -> str:
        """Return the whole input."""
        return "".join(section.text() for section in self.sections)

    @property
    def deletes(self) -> bool:
        """Whether the step deletes chains."""
        return any(section.delete for section in self.sections)

    def size(self) -> int:
        """Return how many chains are written or deleted."""
        return sum(len(section.chains) + len(section.delete) for section in self.sections)

    def without_deletes(self) -> Step:
        """Return the step with chains emptied instead of deleted."""
        return Step(self.stage, tuple(section.without_deletes() for section in self.sections))


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in the order in which they must be applied. An empty plan runs no process."""

    steps: tuple[Step, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.steps)

    def text(self) -> str:
        """Return all inputs one after the other."""
        return "".join(step.text() for step in self.steps)

    @property
    def written(self) -> dict[str, int]:
        """How many chains each table gets written."""
        counts: dict[str, int] = {}
        for step in self.steps:
            for section in step.sections:
                counts[section.table] = counts.get(section.table, 0) + len(section.chains)
        return counts

    @property
    def deleted(self) -> int:
        """How many chains are deleted."""
        return sum(len(section.delete) for step in self.steps for section in step.sections)


@dataclass(frozen=True, slots=True)
class Difference:
    """What separates the standing rules from the wanted ones.

    ``write[table][chain]`` is (standing text or None, wanted text); ``delete[table]`` the chains to go.
    """

    write: dict[str, dict[str, tuple[str | None, str]]]
    delete: dict[str, tuple[str, ...]]
    ensure: tuple[Ensured, ...] = ()
    create: tuple[tuple[str, str], ...] = ()
    remove: tuple[Ensured, ...] = ()

    def __bool__(self) -> bool:
        return bool(any(self.write.values()) or any(self.delete.values()) or self.ensure or self.create or self.remove)


def make_plan(difference: Difference, owner: Callable[[str], object | None], *, batch: int | None) -> Plan:
    """Order a difference into a plan.

    ``owner`` tells which service port a nat chain belongs to (None: shared by all); chains of one owner stay in one
    commit. ``batch`` is the number of lines that one input should hold at most; None means that one input is best
    whatever its size.
    """
    if not difference:
        return Plan()
    before, after = _filter_sections(difference)
    mangle = _section(difference, MANGLE)
    own, shared = [], []
    for chain, (_, text) in difference.write.get(NAT, {}).items():
        who = owner(chain)
        if who is None:
            shared.append((chain, text))
        else:
            own.append((who, chain, text))
    delete = tuple(sorted(difference.delete.get(NAT, ()), key=callers_first))
    ensured = tuple(rule for rule in difference.ensure if rule.table == NAT)
    removed = tuple(rule for rule in difference.remove if rule.table == NAT)
    switch = Section(NAT, tuple(shared), ensured=ensured, removed=removed)

    whole = Section(NAT, tuple((c, t) for _, c, t in own) + tuple(shared), (), ensured, removed, delete)
    size = whole.rules + before.rules + after.rules
    if batch is None or size <= batch:
        return Plan(_steps([("all", [mangle, before, whole, after])]))
    new_tree = sorted(
        (item for item in shared if item[0].startswith(DISPATCH_PREFIX) and difference.write[NAT][item[0]][0] is None),
        key=_depth,
        reverse=True,
    )
    # What the service chains jump to must stand before them.
    base = tuple(item for item in shared if item[0] == MARK_MASQ and difference.write[NAT][MARK_MASQ][0] is None)
    staged = {chain for chain, _ in (*new_tree, *base)}
    switch = replace(switch, chains=tuple(item for item in shared if item[0] not in staged))
    steps: list[tuple[Stage, list[Section]]] = [("prepare", [mangle, before, Section(NAT, base)])]
    steps += [("stage", [Section(NAT, chains)]) for chains in _batches(own, batch)]
    steps += [("stage", [Section(NAT, chains)]) for chains in _batches([(c, c, t) for c, t in new_tree], batch)]
    steps += [("switch", [switch]), ("finish", [after])]
    half = max(1, batch // 2)
    steps += [("sweep", [Section(NAT, delete=delete[i : i + half])]) for i in range(0, len(delete), half)]
    return Plan(_steps(steps))


def _steps(parts: Iterable[tuple[Stage, list[Section]]]) -> tuple[Step, ...]:
    found = ((stage, tuple(section for section in sections if section)) for stage, sections in parts)
    return tuple(Step(stage, sections) for stage, sections in found if sections)


def _depth(item: tuple[str, str]) -> int:
    """Sort key of a chain of the dispatch tree: its prefix length, callees being the longer ones."""
    return int(item[0].rpartition("-")[2])


def _section(difference: Difference, table: str) -> Section:
    return Section(
        table,
        tuple((chain, text) for chain, (_, text) in difference.write.get(table, {}).items()),
        tuple(chain for where, chain in difference.create if where == table),
        tuple(rule for rule in difference.ensure if rule.table == table),
        tuple(rule for rule in difference.remove if rule.table == table),
        difference.delete.get(table, ()),
    )


def _filter_sections(difference: Difference) -> tuple[Section, Section]:
    """Return the filter section that comes before nat and the one that comes after it."""
    first, last = [], []
    for chain, (standing, wanted) in difference.write.get(FILTER, {}).items():
        if standing is None or chain not in UNORDERED:
            first.append((chain, wanted))
            continue
        old, new = standing.splitlines(keepends=True), wanted.splitlines(keepends=True)
        kept = set(new)
        going = [line for line in old if line not in kept]
        if not going:
            first.append((chain, wanted))
            continue
        known = set(old)
        coming = [line for line in new if line not in known]
        if coming:
            # Refusals in front: while nat still says otherwise, none must become silence.
            both = sorted([*old, *coming], key=lambda line: " -j REJECT " not in line)
            first.append((chain, "".join(both)))
        last.append((chain, wanted))
    whole = _section(difference, FILTER)
    before = Section(FILTER, tuple(first), whole.create, whole.ensured)
    return before, Section(FILTER, tuple(last), removed=whole.removed, delete=whole.delete)


def _batches(own: list[tuple[object, str, str]], batch: int) -> Iterable[tuple[tuple[str, str], ...]]:
    """Cut chains into inputs of about ``batch`` lines, never between two chains of one owner."""
    groups: dict[object, list[tuple[str, str]]] = {}
    for who, chain, text in own:
        groups.setdefault(who, []).append((chain, text))
    waiting: list[tuple[str, str]] = []
    size = 0
    for chains in groups.values():
        cost = sum(text.count("\n") + 1 for _, text in chains)
        if waiting and size + cost > batch:
            yield tuple(waiting)
            waiting, size = [], 0
        waiting += chains
        size += cost
    if waiting:
        yield tuple(waiting)

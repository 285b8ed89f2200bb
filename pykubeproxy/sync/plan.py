"""A plan: the restore inputs that lead from what stands to what is wanted, in an order that never breaks a service.

A plan is plain data: it is printed (``--dry-run``), tested and applied as the same value. Order, and why:

* *Stage*: chains that nothing refers to yet, and chains of a service port that change; those of one service port in
  one commit.
* *Switch*: the shared chains of nat (KUBE-SERVICES and KUBE-NODEPORTS with their trees, base chains) and the jumps.
* *Sweep*: chains that nothing refers to any more.
* filter before nat for what takes a service away (REJECT, DROP appears), filter after nat for what makes it reachable
  (REJECT goes). So the filter chains are written twice where both happen: first with the old and the new lines, at
  the end with the new ones.
* What a service port's chain masquerades goes by the address and port that its packets were sent to. Where those
  change, the chain is written twice as well: first with the old and the new of these rules, behind the switch with the
  new ones.
* A small plan is one input: filter, nat, filter. A large one is cut into batches by service, because
  iptables-nft-restore takes time quadratic in the lines of one commit. Nor should a commit be too small: each makes the
  kernel walk everything that the base chains lead to (75 ms at 5,000 services), and each input starts a program. New
  chains are reached by nothing yet, so they come in small commits, several to an input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from pykubeproxy.rules.names import DISPATCH_PREFIXES, FILTER, MANGLE, MARK_MASQ, NAT, UNORDERED, callers_first
from pykubeproxy.rules.ruleset import Ensured, destination_of

Stage = Literal["prepare", "stage", "switch", "finish", "sweep", "all"]
Chains = tuple[tuple[str, str], ...]
"""(name, text) of chains"""

COMMIT = 1000
"""Lines of one commit of new chains on nft."""


@dataclass(frozen=True, slots=True)
class Section:
    """The part of a restore input for one table, committed in one go."""

    table: str
    chains: Chains = ()
    """Chains to create or rewrite whole."""
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
        return _cost(self.chains) + 2 * len(self.delete) + len(self.ensured)

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
    commit. ``batch`` is the most lines that one input holds, though no chain is ever cut; None means that one input is
    best whatever its size.
    """
    if not difference:
        return Plan()
    before, after = _filter_sections(difference)
    mangle = _section(difference, MANGLE)
    write = difference.write.get(NAT, {})
    own: dict[object, list[tuple[str, str]]] = {}
    shared: list[tuple[str, str]] = []
    for chain, (_, text) in write.items():
        who = owner(chain)
        (shared if who is None else own.setdefault(who, [])).append((chain, text))
    delete = tuple(sorted(difference.delete.get(NAT, ()), key=callers_first))
    ensured = tuple(rule for rule in difference.ensure if rule.table == NAT)
    removed = tuple(rule for rule in difference.remove if rule.table == NAT)

    chains = tuple(item for group in own.values() for item in group)
    whole = Section(NAT, chains + tuple(shared), (), ensured, removed, delete)
    if batch is None or whole.rules + before.rules + after.rules <= batch:
        return Plan(_steps([("all", [mangle, before, whole, after])]))
    tree = sorted((item for item in shared if item[0].startswith(DISPATCH_PREFIXES)), key=_callees_first)
    new_tree = [item for item in tree if write[item[0]][0] is None]
    old_tree = [item for item in tree if write[item[0]][0] is not None]
    # What the service chains jump to must stand before them.
    base = tuple(item for item in shared if item[0] == MARK_MASQ and write[MARK_MASQ][0] is None)
    known = {chain for chain, _ in (*tree, *base)}
    rest = tuple(item for item in shared if item[0] not in known)

    twice = _masquerading_both(shared, write, delete)
    fresh = [group for group in own.values() if all(write[chain][0] is None for chain, _ in group)]
    changed = [
        [(chain, twice.get(chain, text)) for chain, text in group]
        for group in own.values()
        if any(write[chain][0] is not None for chain, _ in group)
    ]
    small = min(COMMIT, batch)
    stage = [Section(NAT, commit) for commit in _commits(fresh, small)]
    stage += [Section(NAT, commit) for commit in _commits(changed, batch)]
    stage += [Section(NAT, commit) for commit in _commits([[item] for item in new_tree], small)]
    # A packet meets one chain of each depth, and what a chain leads to stands before it: so they need no common commit.
    switch = [Section(NAT, commit) for commit in _commits([[item] for item in old_tree], batch)]
    switch.append(Section(NAT, rest, ensured=ensured, removed=removed))
    switch += [Section(NAT, commit) for commit in _commits([[(chain, write[chain][1])] for chain in twice], batch)]
    half = max(1, batch // 2)
    prepare = [mangle, *_cut(before, batch), Section(NAT, base)]
    steps: list[tuple[Stage, list[Section]]] = [("prepare", sections) for sections in _inputs(prepare, batch)]
    steps += [("stage", sections) for sections in _inputs(stage, batch)]
    steps += [("switch", sections) for sections in _inputs(switch, batch)]
    steps += [("finish", sections) for sections in _inputs(_cut(after, batch), batch)]
    steps += [("sweep", [Section(NAT, delete=delete[i : i + half])]) for i in range(0, len(delete), half)]
    return Plan(_steps(steps))


def _steps(parts: Iterable[tuple[Stage, list[Section]]]) -> tuple[Step, ...]:
    found = ((stage, tuple(section for section in sections if section)) for stage, sections in parts)
    return tuple(Step(stage, sections) for stage, sections in found if sections)


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


def _masquerading_both(
    shared: Iterable[tuple[str, str]], write: dict[str, tuple[str | None, str]], deleted: Iterable[str]
) -> dict[str, str]:
    """Return the chains that an address or a port stops leading to, with their old masquerading in front of the new."""
    old = {rule for chain, _ in shared for rule in _rules(write[chain][0] or "")}
    going = old.difference(rule for _, text in shared for rule in _rules(text))
    # What was in a range that goes is not known here, so then every chain is asked.
    lose_a_range = any(chain.startswith(DISPATCH_PREFIXES) for chain in deleted)
    targets = write if lose_a_range else dict.fromkeys(rule.rpartition(" ")[2] for rule in sorted(going))
    found = {}
    for target in targets:
        standing, wanted = write.get(target, (None, ""))
        kept = {destination_of(line) for line in _marks(wanted)}
        marks = [line for line in _marks(standing or "") if destination_of(line) not in kept]
        if marks:
            found[target] = "".join(f"{line}\n" for line in marks) + wanted
    return found


def _marks(text: str) -> list[str]:
    """Return the rules that mark packets to one destination for masquerading."""
    return [line for line in text.splitlines() if " -d " in line and line.endswith(f"-j {MARK_MASQ}")]


def _rules(text: str) -> Iterator[str]:
    """Yield the rules of a chain without its name."""
    return (line.split(" ", 2)[2] for line in text.splitlines())


def _cost(chains: Iterable[tuple[str, str]]) -> int:
    return sum(text.count("\n") + 1 for _, text in chains)


def _commits(groups: list[list[tuple[str, str]]], limit: int) -> Iterator[Chains]:
    """Cut chains into commits of at most ``limit`` lines, never between two chains of one group.

    But a group that is larger by itself is cut: its endpoint chains come first, then what leads to them. What an
    endpoint's chain does depends on that endpoint alone, so it agrees with its callers old and new.
    """
    waiting: list[tuple[str, str]] = []
    size = 0
    for group in groups:
        cost = _cost(group)
        if waiting and size + cost > limit:
            yield tuple(waiting)
            waiting, size = [], 0
        if cost > limit and len(group) > 1:
            yield from _commits([[item] for item in sorted(group, key=_callees_first)], limit)
            continue
        waiting += group
        size += cost
    if waiting:
        yield tuple(waiting)


def _callees_first(item: tuple[str, str]) -> tuple[int, int]:
    rank, depth = callers_first(item[0])
    return -rank, -depth


def _inputs(sections: Iterable[Section], limit: int) -> Iterator[list[Section]]:
    """Put commits together into inputs of at most ``limit`` lines."""
    waiting: list[Section] = []
    size = 0
    for section in sections:
        cost = section.rules
        if waiting and size + cost > limit:
            yield waiting
            waiting, size = [], 0
        waiting.append(section)
        size += cost
    if waiting:
        yield waiting


def _cut(section: Section, limit: int) -> list[Section]:
    """Cut a section of filter into commits by chain, if it is too large."""
    if section.rules <= limit:
        return [section]
    parts = [Section(section.table, create=section.create)]
    parts += [Section(section.table, commit) for commit in _commits([[item] for item in section.chains], limit)]
    return [*parts, Section(section.table, (), (), section.ensured, section.removed, section.delete)]

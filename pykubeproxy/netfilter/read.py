"""Read what stands in the kernel, as chain texts.

``parse`` is pure. ``read`` runs iptables-save for one table at a time and does not trust an exit status of 0: a table
with native nft rules in it prints one comment line and nothing else. Such a table is unreadable, not empty; then the
chains are read one by one (see native.py and legacytable.py for their names).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pykubeproxy.errors import EnvironmentProblem, LockBusyError, NetfilterError, UnreadableTable
from pykubeproxy.netfilter import legacytable, native
from pykubeproxy.netfilter.backend import Backend
from pykubeproxy.netfilter.process import Runner
from pykubeproxy.netfilter.restore import failure
from pykubeproxy.netfilter.suspects import Suspects
from pykubeproxy.rules.names import BUILTIN, FIREWALL, TABLES, is_ours
from pykubeproxy.rules.ruleset import Ensured, Ruleset

ONE_BY_ONE = 400
"""Up to this many chains of an unreadable table are read one by one (3 ms each); beyond, they are taken for unknown."""
UNKNOWN = "# unknown\n"
"""The text of a chain that exists but could not be read. It equals nothing, so the chain is rewritten."""

_UNPARSED = re.compile(
    r"Parsing nftables rule failed|(?:Can't find library for|Couldn't (?:find|load)) (?:match|target)"
)
"""What iptables says, and stops: nft at a native rule with some expressions (``meta cpu``); both kinds at a match or
target of which they lack the library, because the program that wrote the rule is another one than ours."""
_COUNTERS = re.compile(r"^\[\d+:\d+\] ", re.MULTILINE)
_REST = r'(?= |\n)[^"\n]*+(?:"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"[^"\n]*+)*+\n'
_RULES = re.compile(rf"-A (\S+){_REST}(?:-A \1{_REST})*+")
"""The rules of one chain, which come in one piece in every version known: one slice of the text, not a line each."""
_LONG_RULE = re.compile(
    r"-A (\S+)(?: (?:[^\"\n]|(?<! )\"|(?<= )\"[^\"\\]*+(?:\\.[^\"\\]*+)*+\"(?=[ \n]))*+)?\n|-A (\S+)[^\n]*\n", re.DOTALL
)
"""A rule with line breaks in a comment, printed as they are; or with a quotation mark that means nothing."""
_BREAKS = "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
"""What ``str.splitlines`` takes for the end of a line, and iptables does not. Nothing of ours holds one."""
_NO_BREAKS = str.maketrans(dict.fromkeys(_BREAKS, " "))
_INCOMPATIBLE = re.compile(r"^# Table `(\w+)' is incompatible.*(?:\n|\Z)", re.MULTILINE)
"""What iptables-nft-save prints instead of a table.

``# Table `filter' contains incompatible base-chains`` is another thing: somebody's own base chain stands in the table,
and all else of it is printed. It also appears when a read is interrupted by a commit and done again (1.8.9).
"""


@dataclass(slots=True)
class SavedTable:
    """One table of a save: chain -> text (``-A …`` lines, newline-terminated) of every chain, builtin ones too."""

    chains: dict[str, str] = field(default_factory=dict)
    policies: dict[str, str] = field(default_factory=dict)


def parse(text: str) -> dict[str, SavedTable]:
    """Parse the output of iptables-save (with or without counters) into tables.

    Line breaks within a rule (somebody's comment) become blanks: everywhere else a line is a rule.

    Raises:
        UnreadableTable: the output says that a table is incompatible.
        NetfilterError: a line that iptables-save does not print.

    """
    tables: dict[str, SavedTable] = {}
    table: SavedTable | None = None
    if "\n[" in text:
        text = _COUNTERS.sub("", text)
    if not text.endswith("\n"):
        text += "\n"
    if not text.isascii() or any(one in text for one in _BREAKS):
        text = text.translate(_NO_BREAKS)
    place = 0
    while place < len(text):
        rules = _RULES.match(text, place) or _LONG_RULE.match(text, place)
        if rules is not None and table is not None:
            chain = rules[1] or rules[2]
            found = rules[0] if rules.re is _RULES else rules[0][:-1].replace("\n", " ") + "\n"
            table.chains[chain] = table.chains.get(chain, "") + found
            place = rules.end()
            continue
        end = text.index("\n", place)
        line = text[place:end]
        place = end + 1
        head = line[:1]
        if head == ":":
            words = line[1:].split()
            if table is None or len(words) < 2:
                raise NetfilterError(f"a line that iptables-save does not print: {line[:120]!r}")
            table.chains[words[0]] = ""
            if words[1] != "-":
                table.policies[words[0]] = words[1]
        elif head == "*":
            table = tables.setdefault(line[1:].strip(), SavedTable())
        elif line.startswith("COMMIT"):
            table = None
        elif head == "#" and _INCOMPATIBLE.match(line):
            raise UnreadableTable(line.lstrip("# "))
        elif line.strip() and head != "#":
            raise NetfilterError(f"a line that iptables-save does not print: {line[:120]!r}")
    return tables


def is_unprintable(complaint: str) -> bool:
    """Tell whether iptables refused to list a table or chain because of what others wrote in it."""
    return "incompatible" in complaint or _UNPARSED.search(complaint) is not None


def standing(tables: dict[str, SavedTable]) -> Ruleset:
    """Return what of a save concerns us: our chains, and every rule of the chains that hold ensured rules."""
    found = Ruleset()
    ensured: list[Ensured] = []
    shared: list[tuple[str, str]] = []
    for table in TABLES:
        saved = tables.get(table)
        if saved is None:
            continue
        for chain, text in saved.chains.items():
            if is_ours(table, chain):
                found.chains[table][chain] = text
            elif chain in BUILTIN or chain == FIREWALL:
                head = len(f"-A {chain} ")
                ensured += [Ensured(table, chain, line[head:]) for line in text.splitlines()]
                if chain == FIREWALL:
                    shared.append((table, chain))
    found.ensured = tuple(ensured)
    found.shared_chains = tuple(shared)
    return found


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read: the ruleset, and the tables that iptables-save could not print, with its words."""

    ruleset: Ruleset
    unreadable: dict[str, str]


class Reader:
    """Reads one backend and family."""

    def __init__(self, backend: Backend, runner: Runner) -> None:
        self._backend = backend
        self._runner = runner

    def save(self, table: str, *, counters: bool = False) -> str:
        """Return iptables-save's text of one table.

        Raises:
            UnreadableTable: the table holds native nft rules.
            LockBusyError, EnvironmentProblem, NetfilterError: as restore.

        """
        command = self._backend.save_counters(table) if counters else self._backend.save(table)
        text, complaint = self._saved(command, f"table {table}")
        if _INCOMPATIBLE.search(text[:2000]) or "is incompatible" in complaint:
            raise UnreadableTable(f"table {table} holds rules that iptables cannot print")
        if f"*{table}\n" in text and not text.rstrip().rpartition("COMMIT")[1]:
            raise NetfilterError(f"iptables-save -t {table} ended in the middle")
        return text

    def _saved(self, command: list[str], what: str) -> tuple[str, str]:
        """Return what a save program prints, and its complaint."""
        finished = self._runner.run(command, timeout=120.0)
        text = finished.stdout.decode("utf-8", "surrogateescape")
        if _UNPARSED.search(finished.complaint):
            raise UnreadableTable(f"{what} holds rules that iptables cannot parse")
        if finished.status != 0:
            problem = failure(finished, "")
            if isinstance(problem, LockBusyError | EnvironmentProblem):
                raise problem
            raise NetfilterError(f"iptables-save of {what} failed with status {finished.status}: {finished.complaint}")
        return text, finished.complaint

    def read(self, wanted: tuple[str, ...] = TABLES) -> Reading:
        """Read the tables.

        Raises:
            LockBusyError, EnvironmentProblem, NetfilterError: as restore.

        """
        unreadable: dict[str, str] = {}
        tables = self._together(wanted)
        if tables is None:
            tables = {}
            for table in wanted:
                try:
                    tables |= parse(self.save(table))
                except UnreadableTable as exc:
                    unreadable[table] = str(exc)
                    tables[table] = self._one_by_one(table)
        return Reading(standing(tables), unreadable)

    def _together(self, wanted: tuple[str, ...]) -> dict[str, SavedTable] | None:
        """Read several tables in one go; None where that cannot be done.

        iptables-nft-save fetches all rules of the family whatever table is asked for: 1 s at 5,000 services.
        """
        if self._backend.kind != "nft" or len(wanted) < 2:
            return None
        try:
            text, complaint = self._saved(self._backend.save_all(), "some table")
        except UnreadableTable:
            return None
        told = text + complaint if "is incompatible" in complaint else text
        if set(_INCOMPATIBLE.findall(told)) & set(wanted):
            return None
        if text.count("\nCOMMIT\n") < len(re.findall(r"^\*", text, re.MULTILINE)):
            raise NetfilterError("iptables-save ended in the middle")
        tables = parse(_INCOMPATIBLE.sub("", text))
        return {table: saved for table, saved in tables.items() if table in wanted}

    def reread(self, suspects: Suspects) -> tuple[Reading, Suspects]:
        """Read suspected parts only; return them and what was really read, which may be more.

        A chain that cannot be printed alone is gone, or its table is unreadable: then the whole table is read.

        Raises:
            LockBusyError, EnvironmentProblem, NetfilterError: as restore.

        """
        tables, single = set(suspects.tables), {table: SavedTable() for table, _ in suspects.chains}
        if self._backend.kind == "legacy":
            tables.update(single)  # there it takes the whole table to print one chain
        for table, chain in suspects.chains:
            text = self.read_chain(table, chain) if table not in tables else None
            if text is None:
                tables.add(table)
            else:
                single[table].chains[chain] = text
        reading = self.read(tuple(table for table in TABLES if table in tables))
        part = standing({table: saved for table, saved in single.items() if table not in tables})
        for table in TABLES:
            reading.ruleset.chains[table].update(part.chains[table])
        reading.ruleset.ensured += part.ensured
        reading.ruleset.shared_chains += part.shared_chains
        return reading, Suspects(frozenset(tables), frozenset(c for c in suspects.chains if c[0] not in tables))

    def read_chain(self, table: str, chain: str) -> str | None:
        """Return one chain's text, or None where there is no such chain (or it cannot be printed)."""
        finished = self._runner.run(self._backend.tool(table, "-S", chain))
        if finished.status != 0:
            problem = failure(finished, "")
            if isinstance(problem, LockBusyError | EnvironmentProblem):
                raise problem
            return None
        text = finished.stdout.decode("utf-8", "surrogateescape")
        start = text.find("\n-A ")  # behind the chain's own line
        return parse(f"*{table}{text[start:]}")[table].chains[chain] if start >= 0 else ""

    def _one_by_one(self, table: str) -> SavedTable:
        saved = SavedTable()
        kernel = native if self._backend.kind == "nft" else legacytable
        names = kernel.chain_names(self._backend.family, table)
        ours = [name for name in names if is_ours(table, name)]
        for name in names:
            if name in BUILTIN or name == FIREWALL:
                text = self.read_chain(table, name)
                saved.chains[name] = kernel.jumps(self._backend.family, table, name) if text is None else text
            elif name in ours:
                text = self.read_chain(table, name) if len(ours) <= ONE_BY_ONE else None
                saved.chains[name] = UNKNOWN if text is None else text
        return saved

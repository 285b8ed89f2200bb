"""A kernel's iptables tables that execute restore input, as a Runner: what the real ones refuse, this one refuses.

Verified: ``tests/properties/test_fake_kernel.py`` runs the same questions against this one and against the real
iptables of both backends. What it knows of the kernel:

* ``iptables-restore --noflush``: a ``:CHAIN`` line makes the chain, or empties it if it is there (a builtin one only
  gets its policy); all of one table's lines take effect at COMMIT, or none of them; an earlier table's stay.
* A jump needs its chain, ``-X`` an empty chain that nothing refers to, ``-D`` a rule with that very text.
* iptables-save prints what was written: rules given here are canonical already.
* A loop of chains is refused.

Trouble is added by ``refuse``: called with each restore input, it says how that one ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from pykubeproxy.errors import NetfilterError
from pykubeproxy.netfilter.process import Finished

BUILTIN = {
    "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"),
    "filter": ("INPUT", "FORWARD", "OUTPUT"),
    "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
}
TARGETS = frozenset(
    ("ACCEPT", "DROP", "RETURN", "REJECT", "DNAT", "SNAT", "MASQUERADE", "REDIRECT", "MARK", "LOG", "CONNMARK")
)
MAX_NAME = 28
"""The longest chain name that iptables takes."""
_COUNTERS = re.compile(r"^\[\d+:\d+\] ")


@dataclass(slots=True)
class Trouble:
    """How a restore fails instead of what it would have done.

    ``after``: how many tables are committed before it fails; ``killed``: by its time-out, or with ``lock``: busy.
    """

    after: int = 0
    killed: bool = False
    lock: bool = False


class _Refused(Exception):
    def __init__(self, line: int, why: str, status: int = 1) -> None:
        super().__init__(f"line {line} failed: {why}")
        self.status = status


@dataclass(slots=True)
class Table:
    """Chains of one table: name -> rules behind ``-A CHAIN ``."""

    chains: dict[str, list[str]]
    policies: dict[str, str]

    def copy(self) -> Table:
        """Return one that may be changed without changing this one."""
        return Table({chain: [*rules] for chain, rules in self.chains.items()}, dict(self.policies))


@dataclass(slots=True)
class FakeKernel:
    """See the module's docstring."""

    refuse: Callable[[str], Trouble | None] = lambda _: None
    bad_words: tuple[str, ...] = ()
    """A rule that holds one of these is refused, as if the kernel did not know it."""
    tables: dict[str, Table] = field(
        default_factory=lambda: {
            name: Table({chain: [] for chain in chains}, dict.fromkeys(chains, "ACCEPT"))
            for name, chains in BUILTIN.items()
        }
    )
    restores: list[str] = field(default_factory=list)
    """Every restore input that was given."""

    # -- the Runner

    def run(self, argv: list[str], stdin: bytes = b"", *, timeout: float = 30.0, on_start: object = None) -> Finished:
        """Behave as the named iptables program."""
        del timeout, on_start
        program = argv[0]
        if program.endswith("-restore"):
            assert "--noflush" in argv, "a daemon must never flush what is not its own"
            return self._restore(stdin.decode())
        if program.endswith("-save"):
            return Finished(0, self.save(argv[argv.index("-t") + 1] if "-t" in argv else None).encode(), b"")
        if "-S" in argv:
            table, chain = self.tables[argv[argv.index("-t") + 1]], argv[argv.index("-S") + 1]
            if chain not in table.chains:
                return Finished(1, b"", b"iptables: No chain/target/match by that name.\n")
            lines = [f"-P {chain} {table.policies[chain]}" if chain in table.policies else f"-N {chain}"]
            lines += [f"-A {chain} {rule}" for rule in table.chains[chain]]
            return Finished(0, ("\n".join(lines) + "\n").encode(), b"")
        raise AssertionError(f"what is {argv}?")

    def save(self, only: str | None = None) -> str:
        """Return what iptables-save prints."""
        parts = []
        for name, table in self.tables.items():
            if only in (None, name):
                parts.append(f"*{name}\n")
                parts += [f":{chain} {table.policies.get(chain, '-')} [0:0]\n" for chain in table.chains]
                parts += [f"-A {chain} {rule}\n" for chain, rules in table.chains.items() for rule in rules]
                parts.append("COMMIT\n")
        return "".join(parts)

    # -- what other programs do

    def edit(self, document: str) -> None:
        """Apply an input of somebody else's; it must be right."""
        done = self._apply(document, None)
        assert done.status == 0, done.complaint

    # -- inside

    def _restore(self, document: str) -> Finished:
        self.restores.append(document)
        trouble = self.refuse(document)
        if trouble is not None and trouble.lock:
            return Finished(4, b"", b"Another app is currently holding the xtables lock. Perhaps you want to use -w?\n")
        done = self._apply(document, trouble)
        if trouble is not None and trouble.killed:
            raise NetfilterError("iptables-restore did not end within 60 s and was killed")
        return done

    def _apply(self, document: str, trouble: Trouble | None) -> Finished:
        try:
            self._commit(document, trouble)
        except _Refused as exc:
            return Finished(exc.status, b"", f"iptables-restore: {exc}\n".encode())
        return Finished(0, b"", b"")

    def _commit(self, document: str, trouble: Trouble | None) -> None:
        name, work, committed = "", None, 0
        for number, line in enumerate(document.splitlines(), 1):
            if not line or line.startswith("#"):
                continue
            if line.startswith("*"):
                if trouble is not None and committed >= trouble.after:
                    raise _Refused(number, "trouble")
                name = line[1:]
                work = self.tables[name].copy()
            elif work is None:
                raise _Refused(number, "no table")
            elif line == "COMMIT":
                _check_loops(work, number)
                self.tables[name] = work
                work, committed = None, committed + 1
            else:
                self._line(work, number, _COUNTERS.sub("", line))
        if trouble is not None:
            raise _Refused(0, "trouble")

    def _line(self, table: Table, number: int, line: str) -> None:
        if line.startswith(":"):
            chain, policy = line[1:].split()[:2]
            if chain in table.policies:
                table.policies[chain] = policy if policy != "-" else table.policies[chain]
            elif len(chain) > MAX_NAME:
                raise _Refused(number, f"chain name {chain} too long (must be under 29 chars)", 2)
            else:
                table.chains[chain] = []
            return
        command, chain, *rest = line.split(" ", 2)
        if chain not in table.chains:
            raise _Refused(number, f"No chain/target/match by that name: {chain}")
        rules = table.chains[chain]
        rule = rest[0] if rest else ""
        if command in ("-A", "-I"):
            if command == "-I" and rule.startswith("1 "):
                rule = rule.removeprefix("1 ")
            self._check_rule(table, number, rule)
            rules.insert(0 if command == "-I" else len(rules), rule)
        elif command == "-D":
            if rule not in rules:
                raise _Refused(number, "Bad rule (does a matching rule exist in that chain?)")
            rules.remove(rule)
        elif command == "-F":
            rules.clear()
        elif command == "-X":
            if rules:
                raise _Refused(number, "Directory not empty")
            if chain in table.policies or any(
                target_of(rule) == chain for own in table.chains.values() for rule in own
            ):
                raise _Refused(number, "Too many links")
            del table.chains[chain]
        else:
            raise _Refused(number, f"unknown option {command}", 2)

    def _check_rule(self, table: Table, number: int, rule: str) -> None:
        target = target_of(rule)
        if target and target not in TARGETS and (target not in table.chains or target in table.policies):
            raise _Refused(number, f"Couldn't load target `{target}':No such file or directory", 2)
        for word in self.bad_words:
            if word in rule:
                raise _Refused(number, f"the kernel does not know {word}")


@lru_cache(maxsize=1 << 16)
def target_of(rule: str) -> str:
    """Return what a rule jumps to, "" for nothing."""
    words = re.sub(r'"[^"]*"', "", rule).split()
    for flag in ("-j", "-g"):
        if flag in words:
            return words[words.index(flag) + 1]
    return ""


def _check_loops(table: Table, number: int) -> None:
    done: set[str] = set()

    def walk(chain: str, above: tuple[str, ...]) -> None:
        if chain in above:
            raise _Refused(number, "Too many levels of symbolic links")
        if chain in done:
            return
        for rule in table.chains[chain]:
            target = target_of(rule)
            if target in table.chains:
                walk(target, (*above, chain))
        done.add(chain)

    for chain in table.chains:
        walk(chain, ())

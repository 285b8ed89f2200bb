"""Rules in files: the output of ``--dry-run`` (restore input) and of iptables-save, as Rulesets. Pure."""

from __future__ import annotations

from pykubeproxy.model.addresses import FAMILIES, Family
from pykubeproxy.netfilter.read import SavedTable, standing
from pykubeproxy.rules.ruleset import Ruleset


def holds_rules(text: str) -> bool:
    """Tell whether a text is restore input or save output rather than manifests."""
    return any(line.startswith("*") and line[1:].strip().isalpha() for line in text.splitlines())


def tables_of(text: str) -> dict[str, SavedTable]:
    """Return what a document leaves in empty tables: it is read as iptables-restore --noflush reads it.

    Raises:
        ValueError: a line that neither iptables-save nor ``--dry-run`` prints.

    """
    tables: dict[str, SavedTable] = {}
    table: SavedTable | None = None
    lines: dict[str, list[str]] = {}
    kept: dict[str, dict[str, list[str]]] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.partition("] ")[2] if raw.startswith("[") else raw
        head = line[:1]
        if not line.strip() or head == "#":
            continue
        if head == "*":
            name = line[1:].strip()
            table = tables.setdefault(name, SavedTable())
            lines = kept.setdefault(name, {})
        elif table is None:
            raise ValueError(f"line {number} stands outside a table: {line[:80]!r}")
        elif head == ":":
            words = line[1:].split()
            if not words:
                raise ValueError(f"line {number} names no chain")
            lines[words[0]] = []
            if len(words) > 1 and words[1] != "-":
                table.policies[words[0]] = words[1]
        elif line.startswith("COMMIT"):
            for chain, rules in lines.items():
                table.chains[chain] = "".join(f"-A {chain} {rule}\n" for rule in rules)
            for chain in [chain for chain in table.chains if chain not in lines]:
                del table.chains[chain]
            table = None
        else:
            _edit(lines, line, number)
    if table is not None:
        raise ValueError("ends within a table, without COMMIT")
    return tables


def _edit(lines: dict[str, list[str]], line: str, number: int) -> None:
    words = line.split(" ", 2)
    command, chain = words[0], words[1] if len(words) > 1 else ""
    rule = words[2] if len(words) > 2 else ""
    if not chain:
        raise ValueError(f"line {number} is no rule: {line[:80]!r}")
    if command == "-A":
        lines.setdefault(chain, []).append(rule)
    elif command == "-I":
        place, _, rest = rule.partition(" ")
        at, body = (int(place) - 1, rest) if place.isdigit() else (0, rule)
        lines.setdefault(chain, []).insert(at, body)
    elif command == "-D" and rule in lines.get(chain, ()):
        lines[chain].remove(rule)
    elif command == "-X":
        lines.pop(chain, None)
    elif command == "-F":
        lines[chain] = []
    elif command != "-D":
        raise ValueError(f"line {number} is no rule: {line[:80]!r}")


def rulesets_of(text: str) -> dict[Family, Ruleset]:
    """Return the rules of a document by IP family.

    A ``--dry-run`` of both families heads each with a comment that names it; a document without such a comment is taken
    for the family that its addresses show (IPv4 where they show none).

    Raises:
        ValueError: as ``tables_of``.

    """
    parts: dict[Family, list[str]] = {}
    family: Family | None = None
    loose: list[str] = []
    for line in text.splitlines(keepends=True):
        named: Family | None = next((one for one in FAMILIES if line.strip() == f"# {one}"), None)
        if named is not None:
            family = named
            parts.setdefault(named, [])
        elif family is None:
            loose.append(line)
        else:
            parts[family].append(line)
    if any(line.startswith("*") for line in loose):
        parts.setdefault(_family_of(loose), []).extend(loose)
    return {one: standing(tables_of("".join(lines))) for one, lines in parts.items()}


def _family_of(lines: list[str]) -> Family:
    signs = ("icmp6-port-unreachable", "::", "/128")
    return "IPv6" if any(sign in line for line in lines if line[:1] == "-" for sign in signs) else "IPv4"

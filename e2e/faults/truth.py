"""What the kernel should hold: the same objects, rendered by a fresh start, compared chain by chain."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from e2e.netlab import Lab
from pykubeproxy.netfilter.read import parse, standing
from pykubeproxy.sync.diff import difference

ROOT = Path(__file__).parents[2]


class Lost(NamedTuple):
    """Chains and jumps that are missing or differ, and chains that nobody wants."""

    missing: list[str]
    surplus: list[str]

    def __len__(self) -> int:
        return len(self.missing) + len(self.surplus)


def lost(lab: Lab, objects: Iterable[dict[str, Any]], arguments: list[str]) -> Lost:
    """Compare the node's rules of both families with what ``--dry-run`` makes of the objects."""
    path = lab.claim.folder / "truth.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    missing: list[str] = []
    surplus: list[str] = []
    for family, number in (("ipv4", 4), ("ipv6", 6)):
        command = [sys.executable, "-m", "pykubeproxy", "--dry-run", "--manifests", str(path), "--ip-family", family]
        program = "iptables" if number == 4 else "ip6tables"
        saved = _save(lab, f"{program}-{lab.backend}-save")
        counted = ["--assume-nfacct"] if "-m nfacct" in saved else []
        wanted_text = lab.node.run([*command, *arguments, *counted], env={"PYTHONPATH": str(ROOT)}).stdout
        wanted, have = standing(parse(_as_saved(wanted_text))), standing(parse(saved))
        found = difference(have, wanted, None)
        missing += [f"{table}/{chain}" for table, chains in found.write.items() for chain in chains]
        missing += [f"{rule.table}/{rule.chain} {rule.rule}" for rule in found.ensure]
        surplus += [f"{table}/{chain}" for table, chains in found.delete.items() for chain in chains]
        surplus += [f"{rule.table}/{rule.chain} {rule.rule}" for rule in found.remove]
    return Lost(missing, surplus)


def _save(lab: Lab, program: str) -> str:
    """Save the rules; iptables-nft-save may catch a table in the middle of somebody's commit, and calls it strange."""
    for _ in range(20):
        saved = lab.node.run([program]).stdout
        if "incompatible" not in saved:
            break
    return saved


def _as_saved(document: str) -> str:
    """Turn restore input into the form of a save: jumps are appended, not inserted."""
    return "".join(
        f"-A {line[3:].replace(' 1 ', ' ', 1)}\n" if line.startswith("-I ") else f"{line}\n"
        for line in document.splitlines()
        if not line.startswith("#")
    )

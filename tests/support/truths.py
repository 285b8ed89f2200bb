"""What is true of every ruleset that we render, whatever the objects are."""

from __future__ import annotations

import re

from pykubeproxy.rules.names import BUILTIN, MAX_LENGTH, NODEPORTS, SERVICES, is_ours
from pykubeproxy.rules.ruleset import Ruleset
from tests.support.fake_kernel import TARGETS, target_of

_QUOTED = re.compile(r'"([^"]*)"')
PLACEHOLDERS = frozenset(("KUBE-PROXY-CANARY", "KUBE-MARK-MASQ", "KUBE-NODEPORTS"))
"""Chains that stand whether something jumps to them or not."""


def untruths(ruleset: Ruleset, *, spares_external: bool = False) -> list[str]:
    """Return what is not as it must be.

    ``spares_external``: a KUBE-EXT chain may stand that nothing leads to. kube-proxy makes one where the gate
    AllowServiceExternalIPs is off, and so do we; so does a load balancer address that --strict-source-ranges closes.
    """
    found: list[str] = []
    for table, chains in ruleset.chains.items():
        shared = {chain for where, chain in ruleset.shared_chains if where == table}
        jumped = set()
        for rule in ruleset.ensured:
            if rule.table == table:
                target = target_of(rule.rule)
                if target in TARGETS:
                    continue
                jumped.add(target)
                if target not in chains and target not in shared:
                    found.append(f"{table} {rule.chain}: a jump to {target}, which is not there")
                if rule.chain not in BUILTIN and rule.chain not in shared:
                    found.append(f"{table} {rule.chain} is not there")
        for chain, text in chains.items():
            found += [f"{table} {chain}: {line}" for line in _bad_lines(chain, text)]
            if len(chain) > MAX_LENGTH:
                found.append(f"{table} {chain}: a name of {len(chain)} characters")
            if not is_ours(table, chain):
                found.append(f"{table} {chain}: no name that we own")
            targets = [target_of(line) for line in text.splitlines()]
            for target in targets:
                if target and target not in TARGETS and target not in chains:
                    found.append(f"{table} {chain}: a jump to {target}, which is not there")
                jumped.add(target)
            if chain == SERVICES and table == "nat":
                last = [target == NODEPORTS for target in targets]
                if last != sorted(last):
                    found.append("the jump to the node ports is not the last rule")
        unused = set(chains) - jumped - PLACEHOLDERS
        if spares_external:
            # What such a chain leads to is used only by it.
            unused = {chain for chain in unused if not chain.startswith("KUBE-EXT-")}
        found += [f"{table} {chain}: nothing leads to it" for chain in sorted(unused)]
        empty = {
            c for c in jumped & set(chains) if not chains[c] and c.startswith(("KUBE-SVC", "KUBE-SVL", "KUBE-SEP"))
        }
        found += [f"{table} {chain}: empty, but jumped to" for chain in sorted(empty)]
    return found


def _bad_lines(chain: str, text: str) -> list[str]:
    bad = []
    if text and not text.endswith("\n"):
        bad.append("does not end in a newline")
    for line in text.splitlines():
        if not line.startswith(f"-A {chain} "):
            bad.append(f"a line of another chain: {line}")
        if line.count('"') not in (0, 2) or any(len(note) > 255 for note in _QUOTED.findall(line)):
            bad.append(f"a comment that is none: {line}")
        if "  " in line.replace("--nfacct-name  ", "") or line != line.strip():
            bad.append(f"stray blanks: {line}")
        if "/0 " in line:
            bad.append(f"a zero network: {line}")
    return bad

"""The difference between standing and wanted rules, chain by chain. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from pykubeproxy.rules.names import TABLES, is_ours
from pykubeproxy.rules.ruleset import Ensured, Ruleset, same_chain
from pykubeproxy.sync.plan import Difference

Chain = tuple[str, str]


def difference(
    standing: Ruleset, wanted: Ruleset, touched: Iterable[Chain] | None, *, ensured: bool = True
) -> Difference:
    """Compare ``touched`` chains, or all of them when it is None.

    ``standing.ensured`` holds the rules that the kernel's foreign chains contain, once for each occurrence.
    """
    write: dict[str, dict[str, tuple[str | None, str]]] = {table: {} for table in TABLES}
    delete: dict[str, tuple[str, ...]] = {}
    if touched is None:
        names: Iterable[Chain] = (
            (table, chain) for table in TABLES for chain in {**standing.chains[table], **wanted.chains[table]}
        )
    else:
        names = touched
    gone: dict[str, list[str]] = {table: [] for table in TABLES}
    for table, chain in names:
        have, want = standing.chains[table].get(chain), wanted.chains[table].get(chain)
        if want is None:
            if have is not None and is_ours(table, chain):
                gone[table].append(chain)
        elif have is None or not (have is want or same_chain(chain, have, want)):
            write[table][chain] = (have, want)
    delete = {table: tuple(chains) for table, chains in gone.items() if chains}
    missing: tuple[Ensured, ...] = ()
    surplus: tuple[Ensured, ...] = ()
    create: tuple[Chain, ...] = ()
    if ensured:
        counts = Counter((rule.table, rule.chain, rule.rule) for rule in standing.ensured)
        missing = tuple(r for r in wanted.ensured if not counts[r.table, r.chain, r.rule])
        surplus = tuple(r for r in wanted.ensured if r.at_top for _ in range(counts[r.table, r.chain, r.rule] - 1))
        create = tuple(chain for chain in wanted.shared_chains if chain not in standing.shared_chains)
    return Difference(write, delete, missing, create, surplus)

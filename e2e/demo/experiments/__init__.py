"""The experiments, one module each: TITLE, and ``run``, which shows what happens and records what must hold.

Each leaves the cluster as it found it, so that any of them can be run alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from e2e.demo.experiments import (
    affinity,
    balance,
    dns,
    foreign_rules,
    from_node,
    hairpin,
    ipv6,
    masquerade,
    no_endpoints,
    node_port,
    one_pod,
    restart,
)
from e2e.demo.stage import Stage


class Experiment(NamedTuple):
    """One of them."""

    title: str
    run: Callable[[Stage], None]


EXPERIMENTS: dict[int, Experiment] = {
    number: Experiment(module.TITLE, module.run)
    for number, module in enumerate(
        (
            one_pod, from_node, balance, affinity, hairpin, masquerade,
            node_port, dns, no_endpoints, foreign_rules, ipv6, restart,
        ),
        start=1,
    )
}  # fmt: skip
FOREIGN_RULES = 10

"""Plans in a wrong order, on purpose: the tests that hold the right order must fail with each of these.

A test that passes with its twin shows nothing. Pure: a plan in, a plan out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pykubeproxy.rules.names import NAT
from pykubeproxy.sync import plan as right
from pykubeproxy.sync.plan import Plan, Section, Step

Twin = Callable[[Plan], Plan]


def pieces(plan: Plan) -> list[Section]:
    """Return the commits of a plan, one after the other."""
    return [section for step in plan.steps for section in step.sections]


def callees_last(plan: Plan) -> Plan:
    """Let the shared chains lead to chains that are not there yet."""
    order = {"prepare": 0, "switch": 1, "finish": 2, "stage": 3, "sweep": 4, "all": 5}
    return Plan(tuple(sorted(plan.steps, key=lambda step: order[step.stage])))


def filter_first(plan: Plan) -> Plan:
    """Commit filter before nat, as kube-proxy does: refusals end before there is anywhere to go."""
    return _in_order(plan, lambda section: section.table == NAT)


def sweep_first(plan: Plan) -> Plan:
    """Empty what is no longer wanted before anything leads past it."""
    early = [Section(s.table, tuple((chain, "") for chain in s.delete)) for s in pieces(plan) if s.delete]
    return Plan((*(Step("sweep", (section,)) for section in early), *plan.steps))


def in_two_commits(plan: Plan) -> Plan:
    """Empty a chain in one commit and fill it in the next, as "flush and add" scripts do."""
    steps: list[Step] = []
    for section in pieces(plan):
        emptied = Section(section.table, tuple((chain, "") for chain, _ in section.chains), section.create)
        steps += [Step("stage", (emptied,)), Step("stage", (section,))]
    return Plan(tuple(steps))


def _in_order(plan: Plan, key: Callable[[Section], Any]) -> Plan:
    return Plan(tuple(Step("all", (section,)) for section in sorted(pieces(plan), key=key)))


TWINS: dict[str, Twin] = {
    "callees last": callees_last,
    "filter first": filter_first,
    "sweep first": sweep_first,
    "in two commits": in_two_commits,
}


def maker(name: str) -> Callable[..., Plan]:
    """Return a make_plan that is wrong in this way; "" is the right one."""
    if not name:
        return right.make_plan
    twin = TWINS[name]
    return lambda *given, **more: twin(right.make_plan(*given, **more))

"""A daemon that starts over the rules of the real kube-proxy, for the same objects, writes nothing at all."""

import pytest

from tests.oracle.cases_of import BACKENDS, all_cases, namespace
from tests.oracle.child import forked
from tests.roundtrip.standing_daemon import restores_over_what_stands

pytestmark = [
    pytest.mark.netns,
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_a_take_over_with_nothing_changed_performs_no_restore(case):
    step = case.steps[-2] if case.depends_on_history else case.steps[-1]
    with namespace(case.env, preload=False) as name:
        for backend in BACKENDS:
            assert forked(restores_over_what_stands, case, step, name, backend) == []

"""The daemon, fed by an API server, reaches every recorded state of every case, step by step, on both backends."""

import pytest

from tests.oracle.cases_of import BACKENDS, all_cases, namespace
from tests.oracle.child import forked, walk

pytestmark = [
    pytest.mark.netns,
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_daemon_reaches_the_recorded_states(case, backend):
    with namespace(case.env, backend=backend) as name:
        assert forked(walk, case, name, backend) == []

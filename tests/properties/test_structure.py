"""Any set of valid objects becomes a ruleset that holds together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykubeproxy.dryrun import desired
from tests.support.clusters import clusters, settings
from tests.support.truths import untruths


@pytest.mark.parametrize("dispatch", ["flat", "tree"])
@pytest.mark.parametrize("family", ["IPv4", "IPv6"])
@given(data=st.data())
def test_a_ruleset_holds_together(family, dispatch, data):
    at = data.draw(settings(family))
    wanted = desired(family, data.draw(clusters()), at, dispatch=dispatch)
    assert untruths(wanted.ruleset, spares_external=not at.uses_external_ips or at.strict_source_ranges) == []

"""What the rules do with a packet is what the objects mean: two independent readings agree on random clusters."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from insight_clusters import clusters, packets, settings

from pykubeproxy.dryrun import desired
from pykubeproxy.insight.meaning import expected
from pykubeproxy.insight.tracer import Tracer


@pytest.mark.parametrize("dispatch", ["flat", "tree"])
@pytest.mark.parametrize("family", ["IPv4", "IPv6"])
@given(data=st.data())
def test_rules_do_what_the_objects_mean(family, dispatch, data):
    objects = data.draw(clusters(family))
    wanted = data.draw(settings(family))
    tracer = Tracer.from_ruleset(desired(family, objects, wanted, dispatch=dispatch).ruleset)
    for packet in data.draw(st.lists(packets(family, objects), min_size=1, max_size=6)):
        trace = tracer.trace(packet)
        assert sum(outcome.probability for outcome in trace.outcomes) == Fraction(1)
        assert trace.uncertain == ()
        assert expected(objects, wanted, packet).difference(trace) == ""

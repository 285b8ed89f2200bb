"""What becomes of a packet is what the objects say, and the trees make no difference to it."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykubeproxy.dryrun import desired
from pykubeproxy.insight.meaning import expected
from pykubeproxy.insight.tracer import Tracer
from tests.support.clusters import clusters, settings
from tests.support.packets import packets

FAMILIES = pytest.mark.parametrize("family", ["IPv4", "IPv6"])


@FAMILIES
@given(data=st.data())
def test_rules_do_what_the_objects_mean(family, data):
    objects, at = data.draw(clusters()), data.draw(settings(family))
    tracer = Tracer.from_ruleset(desired(family, objects, at, dispatch="flat").ruleset)
    for packet in data.draw(st.lists(packets(family, objects), min_size=1, max_size=8)):
        trace = tracer.trace(packet)
        assert sum(trace.ends().values()) == Fraction(1)
        assert trace.uncertain == ()
        assert expected(objects, at, packet).difference(trace) == ""


@FAMILIES
@given(data=st.data())
def test_the_trees_lead_every_packet_to_the_same_ends(family, data):
    objects, at = data.draw(clusters()), data.draw(settings(family))
    flat = Tracer.from_ruleset(desired(family, objects, at, dispatch="flat").ruleset)
    tree = Tracer.from_ruleset(desired(family, objects, at, dispatch="tree").ruleset)
    for packet in data.draw(st.lists(packets(family, objects), min_size=1, max_size=8)):
        assert tree.trace(packet).ends() == flat.trace(packet).ends()

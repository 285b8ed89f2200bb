"""Between any two commits of a plan a packet meets an end that it met before or will meet afterwards, and no other.

That is what make-before-break means for traffic: a service that stands before and after never drops, refuses or loses a
connection on the way; one that appears goes from refused to served without a moment of neither (S13). One thing is let
pass: who was not served before may be met by silence for a moment (a SYN is repeated), where the outside is to be met
by silence from then on (policy Local).
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykubeproxy.dryrun import desired
from pykubeproxy.insight.tracer import End, Tracer
from pykubeproxy.netfilter.read import parse, standing
from pykubeproxy.sync.diff import difference
from pykubeproxy.sync.plan import make_plan
from tests.support.clusters import World, clusters, settings
from tests.support.events import events, happen
from tests.support.fake_kernel import FakeKernel
from tests.support.packets import packets


class Deaf:
    """Takes the place of a state: only the world is of interest."""

    def __getattr__(self, _):
        return lambda *_: None


def allowed_ends(before, after):
    was_served = any(end.target not in ("ACCEPT", "DROP", "REJECT") for end in before)
    return before | after | (set() if was_served else {End("DROP")})


@pytest.mark.parametrize("batch", [None, 8], ids=["one input", "batches"])
@pytest.mark.parametrize("family", ["IPv4", "IPv6"])
@given(data=st.data())
def test_every_moment_is_before_or_after(family, batch, data):
    at = data.draw(settings(family))
    before = World.of(data.draw(clusters()))
    after = before
    for event in data.draw(st.lists(events(), min_size=1, max_size=4)):
        after = happen(event, after, Deaf())
    forms = st.sampled_from(("flat", "tree"))
    old, new = (desired(family, world.objects, at, dispatch=data.draw(forms)) for world in (before, after))
    kernel = FakeKernel()
    for step in make_plan(
        difference(standing(parse(kernel.save())), old.ruleset, None), old.owner.get, batch=None
    ).steps:
        kernel.edit(step.text())
    asked = [data.draw(packets(family, world.objects)) for world in (before, after, after)]
    first, last = Tracer.from_ruleset(old.ruleset), Tracer.from_ruleset(new.ruleset)
    allowed = [allowed_ends(set(first.trace(packet).ends()), set(last.trace(packet).ends())) for packet in asked]
    plan = make_plan(difference(standing(parse(kernel.save())), new.ruleset, None), new.owner.get, batch=batch)
    for step in plan.steps:
        for section in step.sections:
            kernel.edit(section.text())
            now = Tracer.from_save(kernel.save())
            for packet, ends in zip(asked, allowed, strict=True):
                strange = set(now.trace(packet).ends()) - ends
                assert not strange, f"{packet.destination}:{packet.port} meets {strange} in between, not {ends}"

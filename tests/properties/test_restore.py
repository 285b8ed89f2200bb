"""Any set of valid objects gives rules that a real kernel takes and prints just as we wrote them, on both backends."""

import pytest
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st

from pykubeproxy.dryrun import desired, plan
from pykubeproxy.netfilter.read import parse, standing
from pykubeproxy.sync.diff import difference
from pykubeproxy.sync.plan import make_plan
from tests.support.builders import cluster
from tests.support.clusters import clusters, settings
from tests.support.kernel import real_kernel

pytestmark = pytest.mark.netns

KINDS = pytest.mark.parametrize("kind", ["legacy", "nft"], scope="module")
FAMILIES = pytest.mark.parametrize("family", ["IPv4", "IPv6"], scope="module")
FEWER = profile(max_examples=max(1, profile().max_examples // 4))
"""A process costs more than an example; a single namespace serves all of them."""


@pytest.fixture(scope="module")
def kernel(kind, family):
    with real_kernel(kind, family) as found:
        yield found


def restore(kernel, text):
    done = kernel.restore(text)
    assert done.status == 0, f"{done.complaint}\n{text}"


def found_in(kernel):
    return standing(parse(kernel.save()))


@KINDS
@FAMILIES
@FEWER
@given(data=st.data())
def test_rules_are_taken_and_printed_as_written(kernel, family, data):
    wanted = desired(
        family,
        data.draw(clusters()),
        data.draw(settings(family)),
        dispatch=data.draw(st.sampled_from(("flat", "tree"))),
    )
    kernel.reset()
    restore(kernel, plan(wanted).text())
    found = found_in(kernel)
    assert found.chains == wanted.ruleset.chains
    assert not difference(found, wanted.ruleset, None)


@KINDS
@FAMILIES
@FEWER
@given(data=st.data())
def test_the_way_from_any_rules_to_any_others_is_taken(kernel, family, data):
    """Whole or in batches; afterwards nothing of the former rules is left."""
    at = data.draw(settings(family))
    first = desired(family, data.draw(clusters()), at, dispatch=data.draw(st.sampled_from(("flat", "tree"))))
    second = desired(family, data.draw(clusters()), at, dispatch=data.draw(st.sampled_from(("flat", "tree"))))
    kernel.reset()
    restore(kernel, plan(first).text())
    for target in (second, desired(family, cluster(), at, dispatch="flat")):
        way = make_plan(
            difference(found_in(kernel), target.ruleset, None),
            target.owner.get,
            batch=data.draw(st.sampled_from((None, 10, 60))),
        )
        for step in way.steps:
            restore(kernel, step.text())
        assert found_in(kernel).chains == target.ruleset.chains

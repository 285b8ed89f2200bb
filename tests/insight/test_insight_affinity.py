"""A trace to a service with ClientIP affinity: how long a client is kept, what the kernel remembers of the sender."""

import json

import pytest
from insight_builders import endpoint, seen, service, slice_of
from insight_demo import gather, run

from pykubeproxy.insight import affinity
from pykubeproxy.insight.affinity import Affinity, Remembered, affinity_of, told
from pykubeproxy.insight.packet import Packet
from pykubeproxy.insight.tracer import Tracer
from pykubeproxy.model.service import ServicePortName
from pykubeproxy.rules.names import PortChains
from pykubeproxy.watch import objects as api

KEPT = "affinity: a client keeps its endpoint until 10 min after its last connection"
NAMES = PortChains(ServicePortName("default", "web", "", "TCP"))
FIRST = NAMES.endpoint("10.244.0.1:8080")
CLIENT = "10.244.0.9"


def found(seconds=600, *, has_memory=True, has_ages=True, **remembered):
    config = api.SessionAffinityConfig(api.ClientIPConfig(seconds))
    kind = {"session_affinity": "ClientIP", "session_affinity_config": config} if seconds else {}
    shown = seen(service(**kind), slice_of(endpoint("10.244.0.1"), endpoint("10.244.0.2")))
    tracer = Tracer.from_ruleset(shown.wanted.ruleset)
    recent = {FIRST: {"192.0.2.1": 5.0} | remembered}
    trace = tracer.trace(Packet(source=CLIENT, destination="10.96.0.1", port=80, origin="pod", recent=recent))
    return affinity_of(trace, tracer, has_memory=has_memory, has_ages=has_ages)


def test_without_affinity_there_is_nothing_to_tell():
    assert found(0) is None
    assert affinity.plain(None) is None


def test_where_nobody_looked_nothing_is_said_of_the_client():
    kept = found(has_memory=False)
    assert kept == Affinity(CLIENT, 600, None)
    assert told(kept) == f"{KEPT}; the chances are those of a client that is new"
    assert affinity.plain(kept) == {"seconds": 600, "remembered": None}


@pytest.mark.parametrize(
    ("age", "words"),
    [(0.2, "just now"), (59.8, "1 min ago"), (61, "61 s ago"), (3600, "1 h ago, which is too long")],
)
def test_what_the_kernel_remembers_is_told(age, words):
    kept = found(**{CLIENT: age})
    assert kept.remembered == (Remembered("10.244.0.1:8080", round(age)),)
    assert told(kept) == f"{KEPT}; {CLIENT} is remembered at 10.244.0.1:8080 ({words})"


def test_a_client_that_is_not_remembered_and_a_kernel_without_a_clock():
    assert told(found()) == f"{KEPT}; {CLIENT} is not remembered"
    kept = found(has_ages=False, **{CLIENT: 0.0})
    assert told(kept) == f"{KEPT}; {CLIENT} is remembered at 10.244.0.1:8080"
    assert affinity.plain(kept)["remembered"] == [{"endpoint": "10.244.0.1:8080", "secondsAgo": None}]


def test_a_trace_says_it(tmp_path):
    manifests = gather(tmp_path / "manifests", "00-cluster", "03-three-pods", "04-affinity")
    printed = json.loads(run("trace", "--to", "nginx-svc", "-o", "json", manifests=manifests).stdout)
    assert printed["affinity"] == {"seconds": 10800, "remembered": None}
    assert printed["notes"][0].startswith("affinity: a client keeps its endpoint until 3 h after")

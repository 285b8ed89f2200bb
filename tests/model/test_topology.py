"""Which endpoints serve which traffic: the whole of traffic policy, as a table.

An endpoint is written in a few letters: its state (r ready, t terminating but serving, n not ready, d dead), ``@`` and
its node, then zone hints in lower case and node hints behind a colon. The node under test is ``a`` in zone ``x``.
"""

import pytest

from pykubeproxy.model.endpoint import Endpoint
from pykubeproxy.model.service import ServicePort, ServicePortName
from pykubeproxy.model.topology import Placement, categorize

HERE = Placement("a", "x")
STATES = {"r": (True, True, False), "t": (False, True, True), "n": (False, False, False), "d": (False, False, True),
          "T": (True, True, True), "s": (False, True, False)}  # fmt: skip


def endpoint(index, text):
    head, _, nodes = text.partition(":")
    state, _, where = head.partition("@")
    node, zones = where[:1].strip("-"), where[1:]
    ready, serving, terminating = STATES[state]
    address = f"10.0.0.{index}"
    return Endpoint(f"{address}:80", address, 80, node, ready, serving, terminating, tuple(zones), tuple(nodes))


def port(**more):
    return ServicePort(ServicePortName("ns", "svc", "", "TCP"), "10.96.0.1", 80, **more)


def indices(endpoints):
    return [int(e.address.rpartition(".")[2]) for e in endpoints]


CLUSTER = {}
ETP = {"node_port": 30080, "external_policy_is_local": True}
ITP = {"internal_policy_is_local": True}
ITP_EXTERNAL = {"internal_policy_is_local": True, "node_port": 30080}
BOTH = {"internal_policy_is_local": True, "external_policy_is_local": True, "node_port": 30080}
ETP_UNREACHABLE = {"external_policy_is_local": True}

TABLE = [
    # what is shown, policy, endpoints, cluster, local, exist anywhere, hints
    ("nothing at all", CLUSTER, "", [], [], False, ""),
    ("ready ones serve", CLUSTER, "r@a r@b", [0, 1], [], True, ""),
    ("unready ones do not", CLUSTER, "r@a n@b d@b s@b", [0], [], True, ""),
    ("only unready ones", CLUSTER, "n@a n@b", [], [], False, ""),
    ("terminating ones only when there is nothing better", CLUSTER, "r@a t@b", [0], [], True, ""),
    ("all terminating: the serving ones", CLUSTER, "t@a d@b t@b", [0, 2], [], True, ""),
    ("serving but neither ready nor terminating is unready", CLUSTER, "s@a", [], [], False, ""),
    ("ready and terminating is ready (publishNotReadyAddresses)", CLUSTER, "T@a t@b", [0], [], True, ""),
    ("external Local: both lists", ETP, "r@a r@b", [0, 1], [0], True, ""),
    ("external Local, none here", ETP, "r@b", [0], [], True, ""),
    ("external Local, nothing anywhere", ETP, "n@a", [], [], False, ""),
    ("external Local, here only terminating: the local list falls back alone", ETP, "t@a r@b", [1], [0], True, ""),
    ("external Local, all terminating: both fall back", ETP, "t@a t@b", [0, 1], [0], True, ""),
    ("external Local, here dead", ETP, "d@a r@b", [1], [], True, ""),
    ("external Local of a service that nothing outside reaches", ETP_UNREACHABLE, "r@a r@b", [0, 1], [], True, ""),
    ("internal Local alone needs no cluster list", ITP, "r@a r@b", [], [0], True, ""),
    ("internal Local, none here: they exist elsewhere", ITP, "r@b", [], [], True, ""),
    ("internal Local, elsewhere only terminating", ITP, "t@b", [], [], True, ""),
    ("internal Local, nothing anywhere", ITP, "n@b d@a", [], [], False, ""),
    ("internal Local, terminating here", ITP, "t@a r@b", [], [0], True, ""),
    ("internal Local of an external service: outside is Cluster", ITP_EXTERNAL, "r@a r@b", [0, 1], [0], True, ""),
    ("both Local: the node itself still reaches the cluster list", BOTH, "r@a r@b", [0, 1], [0], True, ""),
    ("no node name is nowhere", ETP, "r@- r@a", [0, 1], [1], True, ""),
    ("zone hints narrow", CLUSTER, "r@ax r@by r@bx", [0, 2], [], True, "zone"),
    ("one without a hint: all", CLUSTER, "r@ax r@by r@b", [0, 1, 2], [], True, ""),
    ("no hint for this zone: all", CLUSTER, "r@ay r@by", [0, 1], [], True, ""),
    ("several zones in a hint", CLUSTER, "r@axy r@by", [0], [], True, "zone"),
    ("unready ones need no hint", CLUSTER, "r@ax n@b r@by", [0], [], True, "zone"),
    ("terminating ones need no hint", CLUSTER, "r@ax t@b r@by", [0], [], True, "zone"),
    ("hinted ones all terminating: no hints, all zones", CLUSTER, "t@ax t@by", [0, 1], [], True, ""),
    ("node hints win over zone hints", CLUSTER, "r@ax:a r@bx:b", [0], [], True, "node"),
    ("no node hint for this node: zone", CLUSTER, "r@bx:b r@by:b", [0], [], True, "zone"),
    ("one lacks a node hint: zone", CLUSTER, "r@ax:a r@by", [0], [], True, "zone"),
    ("one lacks both: all", CLUSTER, "r@ax:a r@b", [0, 1], [], True, ""),
    ("node hints without zone hints", CLUSTER, "r@a:a r@b:b", [0], [], True, "node"),
    ("hints say nothing to policy Local", ETP, "r@ay r@bx", [1], [0], True, "zone"),
    ("internal Local ignores hints", ITP, "r@ay r@bx", [], [0], True, ""),
]  # fmt: skip


@pytest.mark.parametrize(("policy", "endpoints", "cluster", "local", "exist", "hints"), [row[1:] for row in TABLE],
                         ids=[row[0] for row in TABLE])  # fmt: skip
def test_categories(policy, endpoints, cluster, local, exist, hints):  # noqa: PLR0917 - a table
    given = tuple(endpoint(index, text) for index, text in enumerate(endpoints.split()))
    found = categorize(given, port(**policy), HERE)
    assert (indices(found.cluster), indices(found.local)) == (cluster, local)
    assert found.exist_anywhere is exist
    assert found.hints == hints
    assert indices(found.reachable) == sorted({*cluster, *local})


def test_a_node_without_a_zone_ignores_zone_hints():
    given = tuple(endpoint(index, text) for index, text in enumerate(["r@ax", "r@by"]))
    assert indices(categorize(given, port(), Placement("a")).cluster) == [0, 1]


def test_node_hints_can_be_switched_off():
    given = tuple(endpoint(index, text) for index, text in enumerate(["r@ax:a", "r@bx:b"]))
    assert indices(categorize(given, port(), HERE, node_hints=False).cluster) == [0, 1]


def test_a_nameless_node_has_no_local_endpoints():
    given = tuple(endpoint(index, text) for index, text in enumerate(["r@-", "r@a"]))
    assert indices(categorize(given, port(**ETP), Placement("")).local) == []

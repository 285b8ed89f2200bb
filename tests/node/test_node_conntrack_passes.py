"""Passes over time: what is remembered, for how long, and how often a failure is told."""

from structlog.testing import capture_logs

from pykubeproxy.errors import EnvironmentProblem
from pykubeproxy.node.conntrack import NOTHING, Programmed, Result
from pykubeproxy.serving.metrics import Metrics
from pykubeproxy.sync.flows import FlowKeeper
from tests.support.builders import cluster, desired, endpoint_slice, port, service, settings, slice_port, state

VIP, P1, P2 = ("10.96.0.50", 53), ("10.244.0.11", 5353), ("10.244.0.12", 5353)
CLEAN = Result(10, 0, 0.1)
BUSY = EnvironmentProblem("busy")
EMPTY = ()


class Kernel:
    """Answers passes from a list and takes down what each was asked to see as retired."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.retired = []

    def __call__(self, family, desired, retired):
        self.retired.append(retired)
        answer = self.answers.pop(0) if self.answers else CLEAN
        if isinstance(answer, Exception):
            raise answer
        return answer


def serving(*endpoints):
    """The objects of one UDP service with these endpoints."""
    return (
        service("dns", ip=VIP[0], ports=[port(53, protocol="UDP", node_port=30053)]),
        endpoint_slice("dns", [ip for ip, _ in endpoints], ports=[slice_port(5353, protocol="UDP")]),
    )


def retired(*endpoints):
    return Programmed(services={VIP: frozenset(endpoints)}, node_ports={30053: frozenset(endpoints)})


def passes(kernel, *worlds, adopt=None):
    """Make one pass for each set of objects."""
    held = state()
    keeper = FlowKeeper(held, settings, frozenset, metrics=Metrics(), on_crash=lambda problem: None, reconcile=kernel)
    if adopt is not None:
        keeper.adopt(adopt)
    for objects in worlds:
        whole = cluster(*objects)
        held.replace_services(whole.services)
        held.replace_slices(whole.slices)
        keeper.once()
    return kernel.retired


def test_a_deleted_service_is_retired_until_two_passes_in_a_row_find_nothing():
    kernel = Kernel(CLEAN, Result(10, 3, 0.1), CLEAN, CLEAN)
    found = passes(kernel, serving(P1), EMPTY, EMPTY, EMPTY, EMPTY)
    assert found == [NOTHING, retired(P1), retired(P1), retired(P1), NOTHING]


def test_a_failed_pass_forgets_nothing():
    kernel = Kernel(BUSY, Result(10, 0, 0.1, failed=1), BUSY)
    assert passes(kernel, serving(P1), EMPTY, EMPTY, EMPTY)[1:] == [retired(P1)] * 3


def test_all_endpoints_since_the_last_clean_passes_count():
    assert passes(Kernel(BUSY, BUSY), serving(P1), serving(P2), EMPTY)[-1] == retired(P1, P2)


def test_a_service_that_came_back_is_not_retired():
    assert passes(Kernel(CLEAN, BUSY), serving(P1), EMPTY, serving(P2))[-1] == NOTHING


def test_addresses_found_at_start_are_retired_without_known_endpoints():
    standing = desired(*serving(P1)).ruleset
    assert passes(Kernel(), EMPTY, adopt=standing) == [Programmed(services={VIP: None}, node_ports={30053: None})]


def test_a_failure_is_a_warning_once_until_a_pass_succeeds():
    stuck = Result(1, 0, 0.1, failed=2)
    with capture_logs() as logs:
        passes(Kernel(BUSY, BUSY, stuck, stuck, CLEAN, BUSY), *[serving(P1)] * 6)
    assert [entry["error"] for entry in logs] == ["busy", "2 stale entries cannot be deleted now", "busy"]


def test_what_was_deleted_is_one_line():
    with capture_logs() as logs:
        passes(Kernel(Result(1000, 7, 0.25), CLEAN), serving(P1), serving(P1))
    assert [(entry["event"], entry["deleted"], entry["scanned"]) for entry in logs] == [("conntrack cleaned", 7, 1000)]

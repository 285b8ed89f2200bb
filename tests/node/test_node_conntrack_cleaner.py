"""Passes over time: what is remembered, for how long, and how often a failure is told."""

from structlog.testing import capture_logs

from pykubeproxy.errors import EnvironmentProblem
from pykubeproxy.node.conntrack import NOTHING, DesiredUdp, Programmed, Result, UdpCleaner

VIP, OTHER_VIP = ("10.96.0.50", 53), ("10.96.0.51", 53)
P1, P2 = ("10.244.0.11", 5353), ("10.244.0.12", 5353)
EMPTY = DesiredUdp()
CLEAN = Result(10, 0, 0.1)


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


def service(*endpoints):
    return DesiredUdp(services={VIP: frozenset(endpoints)}, node_ports={30053: frozenset(endpoints)})


def retired(*endpoints):
    return Programmed(services={VIP: frozenset(endpoints)}, node_ports={30053: frozenset(endpoints)})


def passes(kernel, *desired, adopted=NOTHING):
    cleaner = UdpCleaner("IPv4", adopted=adopted, reconcile=kernel)
    for wanted in desired:
        cleaner.clean(wanted)
    return kernel.retired


def test_a_deleted_service_is_retired_until_a_pass_finds_nothing():
    kernel = Kernel(CLEAN, Result(10, 3, 0.1), CLEAN)
    assert passes(kernel, service(P1), EMPTY, EMPTY, EMPTY) == [NOTHING, retired(P1), retired(P1), NOTHING]


def test_a_failed_pass_forgets_nothing():
    kernel = Kernel(EnvironmentProblem("busy"), Result(10, 0, 0.1, failed=1), CLEAN)
    assert passes(kernel, service(P1), EMPTY, EMPTY, EMPTY)[1:] == [retired(P1), retired(P1), NOTHING]


def test_all_endpoints_since_the_last_clean_pass_count():
    kernel = Kernel(EnvironmentProblem("busy"), EnvironmentProblem("busy"))
    assert passes(kernel, service(P1), service(P2), EMPTY)[-1] == retired(P1, P2)


def test_after_a_clean_pass_only_the_last_endpoints_count():
    assert passes(Kernel(), service(P1), service(P2), EMPTY)[-1] == retired(P2)


def test_a_service_that_came_and_went_between_passes_is_known_by_its_note():
    kernel = Kernel()
    cleaner = UdpCleaner("IPv4", reconcile=kernel)
    cleaner.note(service(P1))
    cleaner.clean(EMPTY)
    assert kernel.retired == [retired(P1)]


def test_a_service_that_came_back_is_not_retired():
    kernel = Kernel(CLEAN, EnvironmentProblem("busy"))
    assert passes(kernel, service(P1), EMPTY, service(P2))[-1] == NOTHING


def test_a_note_during_a_pass_is_not_forgotten_with_it():
    cleaner = None

    class Noting(Kernel):
        def __call__(self, family, desired, retired):
            if not self.retired:
                cleaner.note(service(P1))
            return super().__call__(family, desired, retired)

    kernel = Noting()
    cleaner = UdpCleaner("IPv4", reconcile=kernel)
    cleaner.clean(EMPTY)
    cleaner.clean(EMPTY)
    assert kernel.retired == [NOTHING, retired(P1)]


def test_addresses_found_at_start_are_retired_without_known_endpoints():
    adopted = Programmed(services={VIP: None, OTHER_VIP: None})
    desired = DesiredUdp(services={OTHER_VIP: frozenset({P1})})
    assert passes(Kernel(), desired, adopted=adopted) == [Programmed(services={VIP: None})]


def test_a_failure_is_a_warning_once_until_a_pass_succeeds():
    busy = EnvironmentProblem("busy")
    with capture_logs() as logs:
        passes(Kernel(busy, busy, Result(1, 0, 0.1, failed=2), CLEAN, busy), *[service(P1)] * 5)
    assert [entry["log_level"] for entry in logs] == ["warning", "debug", "debug", "warning"]
    assert logs[0]["problem"] == "busy"


def test_what_was_deleted_is_one_line():
    with capture_logs() as logs:
        passes(Kernel(Result(1000, 7, 0.25), CLEAN), service(P1), service(P1))
    assert [(entry["event"], entry["deleted"], entry["scanned"]) for entry in logs] == [
        ("stale udp entries deleted", 7, 1000)
    ]

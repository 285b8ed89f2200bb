"""Applying a plan: through the seam, on files, and on the real kernel of a namespace."""

import errno

import pytest
from node_netns import Namespace
from structlog.testing import capture_logs

from pykubeproxy.node.sysctl import (
    CONNTRACK_HASHSIZE,
    CONNTRACK_MAX,
    ROUTE_LOCALNET,
    TCP_BE_LIBERAL,
    TCP_ESTABLISHED,
    UDP_TIMEOUT,
    ProcSysctls,
    SysctlPlan,
    init_sysctls,
    tcp_be_liberal,
)

CONNTRACK = SysctlPlan(conntrack_max_per_core=32768, conntrack_min=131072, cores=2, tcp_established_timeout=86400.0)


class Kernel:
    """Settings in memory; ``refusals`` maps a name to the errno of writing it."""

    def __init__(self, values, refusals=None):
        self.values = dict(values)
        self.refusals = refusals or {}
        self.touched = []

    def read(self, name):
        self.touched.append(name)
        return self.values.get(name)

    def write(self, name, value):
        self.touched.append(name)
        if name in self.refusals:
            raise OSError(self.refusals[name], "refused")
        self.values[name] = value


def test_second_run_writes_nothing():
    kernel = Kernel({CONNTRACK_MAX: "65536", CONNTRACK_HASHSIZE: "16384", TCP_ESTABLISHED: "432000"})
    assert len(init_sysctls(CONNTRACK, kernel).written) == 3
    assert init_sysctls(CONNTRACK, kernel).written == ()


@pytest.mark.parametrize("code", [errno.EPERM, errno.EACCES, errno.EROFS, errno.EINVAL])
def test_a_refusing_kernel_is_one_warning_and_the_rest_goes_on(code):
    kernel = Kernel(
        {CONNTRACK_MAX: "65536", CONNTRACK_HASHSIZE: "16384", TCP_ESTABLISHED: "432000"},
        {CONNTRACK_MAX: code, CONNTRACK_HASHSIZE: code},
    )
    with capture_logs() as logs:
        result = init_sysctls(CONNTRACK, kernel)
    assert [write.name for write, _ in result.refused] == [CONNTRACK_MAX, CONNTRACK_HASHSIZE]
    assert kernel.values[TCP_ESTABLISHED] == "86400"
    assert [entry["event"] for entry in logs if entry["log_level"] == "warning"] == ["sysctls not set"]


def test_nothing_is_touched_when_nothing_is_asked():
    kernel = Kernel({CONNTRACK_MAX: "1"})
    init_sysctls(SysctlPlan(conntrack_max_per_core=0, conntrack_min=131072), kernel)
    assert kernel.touched == []


def test_missing_conntrack_settings_are_tried_again_after_loading_the_module():
    kernel = Kernel({})
    loaded = []

    def load():
        loaded.append(True)
        kernel.values[TCP_ESTABLISHED] = "86400"

    result = init_sysctls(SysctlPlan(tcp_established_timeout=86400.0), kernel, load_conntrack=load)
    assert (loaded, result.written) == ([True], ())


def test_module_is_not_loaded_for_other_settings():
    init_sysctls(SysctlPlan(route_localnet=True), Kernel({}), load_conntrack=lambda: pytest.fail("loaded"))


def test_nonsense_in_a_setting_counts_as_unknown():
    kernel = Kernel({TCP_ESTABLISHED: "many"})
    assert init_sysctls(SysctlPlan(tcp_established_timeout=60.0), kernel).written[0].was is None


def test_files_a_setting_that_does_not_exist_is_not_created(tmp_path):
    with capture_logs() as logs:
        result = init_sysctls(SysctlPlan(udp_timeout=60.0), ProcSysctls(tmp_path))
    assert len(result.refused) == 1
    assert UDP_TIMEOUT in logs[-1]["refused"][0]
    assert list(tmp_path.iterdir()) == []


def test_files_relative_and_absolute_names(tmp_path):
    for name in (f"proc/sys/{ROUTE_LOCALNET}", CONNTRACK_HASHSIZE.lstrip("/")):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("0\n")
    access = ProcSysctls(tmp_path)
    access.write(ROUTE_LOCALNET, "1")
    access.write(CONNTRACK_HASHSIZE, "7")
    assert (access.read(ROUTE_LOCALNET), access.read(CONNTRACK_HASHSIZE)) == ("1", "7")


@pytest.mark.netns
def test_kernel_settings_of_a_namespace_are_its_own():
    plan = SysctlPlan(route_localnet=True, tcp_be_liberal=True, tcp_established_timeout=86401.0, udp_timeout=61.0)
    access = ProcSysctls()
    with Namespace() as namespace:
        namespace.assert_isolated()
        outside = {name: access.read(name) for name in (ROUTE_LOCALNET, TCP_BE_LIBERAL, TCP_ESTABLISHED, UDP_TIMEOUT)}
        assert not namespace.call(tcp_be_liberal)
        result = namespace.call(init_sysctls, plan)
        assert (len(result.written), result.refused) == (4, ())
        assert namespace.call(access.read, TCP_ESTABLISHED) == "86401"
        assert namespace.call(tcp_be_liberal)
        assert namespace.call(init_sysctls, plan).written == ()
        assert {name: access.read(name) for name in outside} == outside


class WithoutHashsize(ProcSysctls):
    """Hides the one setting that is the machine's, whatever namespace one is in."""

    def read(self, name):
        return None if name == CONNTRACK_HASHSIZE else super().read(name)


@pytest.mark.netns
def test_kernel_limit_that_belongs_to_the_host_is_refused_with_one_warning():
    """nf_conntrack_max is read-only outside the initial namespace: what an LXC or kind node sees."""
    access = WithoutHashsize()
    with Namespace() as namespace:
        namespace.assert_isolated()
        present = int(namespace.call(access.read, CONNTRACK_MAX))
        plan = SysctlPlan(conntrack_max_per_core=present + 8, cores=1)
        if plan.conntrack_max <= present:
            pytest.skip("this machine's own limit is past the cap already")
        with capture_logs() as logs:
            result = namespace.call(init_sysctls, plan, access)
        assert [write.name for write, _ in result.refused] == [CONNTRACK_MAX]
        assert [entry["log_level"] for entry in logs] == ["warning"]
        assert int(access.read(CONNTRACK_MAX)) == present

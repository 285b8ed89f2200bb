"""Which kernel settings are read and written for a plan: pure."""

import pytest

from pykubeproxy.node.sysctl import (
    CONNTRACK_HASHSIZE,
    CONNTRACK_MAX,
    ROUTE_LOCALNET,
    TCP_BE_LIBERAL,
    TCP_CLOSE_WAIT,
    TCP_ESTABLISHED,
    UDP_STREAM_TIMEOUT,
    UDP_TIMEOUT,
    SysctlPlan,
    names_for,
    writes_for,
)


def pairs(plan, **values):
    present = dict.fromkeys(names_for(plan))
    present.update({globals()[key]: value for key, value in values.items()})
    return [(write.name, write.value) for write in writes_for(plan, present)]


def test_an_empty_plan_reads_and_writes_nothing():
    assert names_for(SysctlPlan()) == []
    assert pairs(SysctlPlan()) == []


def test_zero_per_core_touches_neither_limit_nor_hash_size_whatever_the_minimum_says():
    plan = SysctlPlan(conntrack_max_per_core=0, conntrack_min=131072, cores=8, tcp_established_timeout=0.0)
    assert names_for(plan) == []


@pytest.mark.parametrize(
    ("per_core", "minimum", "cores", "limit"),
    [
        (32768, 131072, 2, 131072),
        (32768, 131072, 16, 524288),
        (32768, 131072, 128, 1_048_576),  # the cap
        (1, 0, 4, 4),
        (32768, 2_000_000, 2, 1_048_576),
    ],
)
def test_limit_grows_with_cores_between_minimum_and_cap(per_core, minimum, cores, limit):
    assert SysctlPlan(conntrack_max_per_core=per_core, conntrack_min=minimum, cores=cores).conntrack_max == limit


def test_a_higher_limit_is_never_lowered():
    plan = SysctlPlan(conntrack_max_per_core=32768, conntrack_min=131072, cores=2)
    assert pairs(plan, CONNTRACK_MAX=2_000_000, CONNTRACK_HASHSIZE=262144) == []


def test_limit_and_hash_size_are_raised_together():
    plan = SysctlPlan(conntrack_max_per_core=32768, conntrack_min=131072, cores=8)
    assert pairs(plan, CONNTRACK_MAX=65536, CONNTRACK_HASHSIZE=16384) == [
        (CONNTRACK_MAX, 262144),
        (CONNTRACK_HASHSIZE, 65536),
    ]


def test_hash_size_of_a_quarter_is_enough():
    plan = SysctlPlan(conntrack_max_per_core=32768, conntrack_min=131072, cores=8)
    assert pairs(plan, CONNTRACK_MAX=65536, CONNTRACK_HASHSIZE=65536) == [(CONNTRACK_MAX, 262144)]


def test_hash_size_that_cannot_be_read_is_left_alone():
    plan = SysctlPlan(conntrack_max_per_core=1, conntrack_min=131072)
    assert pairs(plan) == [(CONNTRACK_MAX, 131072)]


def test_timeouts_are_whole_seconds_and_only_written_where_they_differ():
    plan = SysctlPlan(
        tcp_established_timeout=86400.0, tcp_close_wait_timeout=3600.9, udp_timeout=60.0, udp_stream_timeout=180.0
    )
    assert pairs(plan, TCP_ESTABLISHED=432000, TCP_CLOSE_WAIT=60, UDP_TIMEOUT=60, UDP_STREAM_TIMEOUT=120) == [
        (TCP_ESTABLISHED, 86400),
        (TCP_CLOSE_WAIT, 3600),
        (UDP_STREAM_TIMEOUT, 180),
    ]
    assert UDP_TIMEOUT in names_for(plan)


def test_a_timeout_below_one_second_is_no_timeout():
    assert names_for(SysctlPlan(udp_timeout=0.5, tcp_close_wait_timeout=None)) == []


def test_switches_are_set_but_never_cleared():
    plan = SysctlPlan(route_localnet=True, tcp_be_liberal=True)
    assert pairs(plan, ROUTE_LOCALNET=0, TCP_BE_LIBERAL=0) == [(ROUTE_LOCALNET, 1), (TCP_BE_LIBERAL, 1)]
    assert pairs(plan, ROUTE_LOCALNET=1, TCP_BE_LIBERAL=1) == []
    assert pairs(SysctlPlan(), ROUTE_LOCALNET=1, TCP_BE_LIBERAL=1) == []

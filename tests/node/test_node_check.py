"""Start-up checks: what they warn about, and what they let pass."""

import socket

import pytest
from node_netns import Namespace
from structlog.testing import capture_logs

from pykubeproxy.node.check import Facts, findings, listening_ports, port_ranges, read_facts, shadowed, warn


def checks(facts=None, **kwargs):
    return [finding.check for finding in findings(facts or Facts(), **kwargs)]


@pytest.mark.parametrize(
    ("rp_filter", "warned"),
    [
        ({"all": 1, "eth0": 0, "eth1": 0}, True),
        ({"all": 0, "eth0": 1, "eth1": 0}, True),
        ({"all": 1, "eth0": 2, "eth1": 2}, False),  # the larger value counts
        ({"all": 2, "eth0": 1, "eth1": 1}, False),
        ({"all": 0, "default": 1, "eth0": 0, "eth1": 0}, False),
        ({"all": 1, "eth0": 1}, False),
        ({"all": 1, "eth0": 1, "lo": 0, "veth1234": 1, "cali99": 1, "docker0": 1}, False),
        ({}, False),
    ],
)
def test_strict_reverse_path_filter_matters_with_several_cards(rp_filter, warned):
    assert ("rp_filter" in checks(Facts(rp_filter=rp_filter))) is warned


@pytest.mark.parametrize(
    ("local_ports", "reserved", "warned"),
    [
        ((32768, 60999), (), False),
        ((32000, 60999), (), True),
        ((15000, 20000), (), False),
        ((32000, 60999), ((30000, 32767),), False),
        ((32000, 60999), ((32000, 32700),), True),
        (None, (), False),
    ],
)
def test_node_ports_among_the_ephemeral_ports(local_ports, reserved, warned):
    assert ("local_port_range" in checks(Facts(local_ports=local_ports, reserved_ports=reserved))) is warned


def test_another_node_port_range():
    assert checks(Facts(local_ports=(32768, 60999)), nodeport_range=(40000, 41000)) == ["local_port_range"]


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("https://10.96.0.1:443", True),
        ("https://[fd00:1::1]:443", True),
        ("https://kubernetes.default.svc.cluster.local", True),
        ("kubernetes.default.svc:443", True),
        ("https://192.168.77.1:6443", False),
        ("https://kind-control-plane:6443", False),
        ("", False),
    ],
)
def test_api_server_behind_its_own_service(url, warned):
    assert (checks(api_server=url, service_cidrs=["10.96.0.0/12", "fd00:1::/108", "x"]) == ["api_server"]) is warned


def test_ranges_of_ports():
    assert port_ranges("") == ()
    assert port_ranges("80,30000-30010, x,5-") == ((80, 80), (30000, 30010), (5, 5))


def test_each_finding_is_one_warning():
    with capture_logs() as logs:
        warn(findings(Facts(local_ports=(1024, 65535))))
    assert [(entry["log_level"], entry["check"]) for entry in logs] == [("warning", "local_port_range")]


def test_nothing_readable_means_no_finding(tmp_path):
    assert findings(read_facts(tmp_path)) == []


@pytest.mark.netns
def test_kernel_facts_of_a_namespace():
    with Namespace() as namespace:
        namespace.assert_isolated()
        namespace.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
        namespace.run("sysctl", "-qw", "net.ipv4.conf.eth1.rp_filter=1", "net.ipv4.conf.all.rp_filter=0")
        namespace.run("sysctl", "-qw", "net.ipv4.ip_local_port_range=30500 60999")
        namespace.run("sysctl", "-qw", "net.ipv4.ip_local_reserved_ports=30600-30700,31000")
        facts = namespace.call(read_facts)
        assert facts.rp_filter["eth1"] == 1
        assert (facts.local_ports, facts.reserved_ports) == ((30500, 60999), ((30600, 30700), (31000, 31000)))
        assert checks(facts) == ["rp_filter", "local_port_range"]


def test_node_ports_that_a_program_of_the_host_owns():
    listening = {("TCP", 30080), ("UDP", 30053), ("TCP", 22)}
    assert shadowed(listening, [("TCP", 30080), ("TCP", 30053)]) == [("TCP", 30080)]


@pytest.mark.netns
def test_kernel_listeners_of_both_families_and_protocols():
    def listeners():
        with (
            socket.create_server(("127.0.0.1", 30080)),
            socket.create_server(("::1", 30081), family=socket.AF_INET6),
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as four,
            socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as six,
            socket.create_connection(("127.0.0.1", 30080)) as connected,
        ):
            four.bind(("0.0.0.0", 30053))
            six.bind(("::", 30054))
            return listening_ports(), connected.getsockname()[1]

    with Namespace() as namespace:
        namespace.assert_isolated()
        found, client_port = namespace.call(listeners)
        assert found == {("TCP", 30080), ("TCP", 30081), ("UDP", 30053), ("UDP", 30054)}
        assert ("TCP", client_port) not in found
        assert namespace.call(listening_ports) == frozenset()

"""Stale UDP flows on the real kernel, in IPv4 and IPv6 (k/k#19029, 48370, 112604, 139628, 84438, 66651, 100698, 70020).

``node`` has the services' rules and both endpoints; ``pod`` sends through it; ``outside`` is the node's default route.
Every test first shows the fault itself (the control), then that a pass mends it, or that a pass leaves the flow alone.
"""

import re
import secrets
import select
import socket
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from conntrack_entries import SCTP, TCP, entry, insert
from node_netns import Namespace

from pykubeproxy.node.conntrack import NOTHING, DesiredUdp, Programmed, reconcile

pytestmark = pytest.mark.netns


@dataclass(frozen=True)
class Net:
    family: str
    iptables: str
    pod: str
    pod_gateway: str
    node: str
    outside: str
    vip: str
    external: str
    p1: str
    p2: str
    length: int

    @property
    def inet(self):
        return socket.AF_INET if self.family == "IPv4" else socket.AF_INET6

    def at(self, ip, port):
        return f"{ip}:{port}" if self.family == "IPv4" else f"[{ip}]:{port}"


NETS = {
    "IPv4": Net(
        family="IPv4",
        iptables="iptables",
        pod="10.244.0.50",
        pod_gateway="10.244.0.1",
        node="192.168.77.1",
        outside="192.168.77.2",
        vip="10.96.0.50",
        external="198.51.100.7",
        p1="10.244.0.11",
        p2="10.244.0.12",
        length=32,
    ),
    "IPv6": Net(
        family="IPv6",
        iptables="ip6tables",
        pod="fd00:244::50",
        pod_gateway="fd00:244::1",
        node="fd00:77::1",
        outside="fd00:77::2",
        vip="fd00:96::50",
        external="2001:db8::7",
        p1="fd00:244::11",
        p2="fd00:244::12",
        length=128,
    ),
}


class Lab:
    """Three namespaces and the few things that tests do in them."""

    def __init__(self, net):
        self.net = net
        self._stack = ExitStack()

    def __enter__(self):
        with self._stack:
            self._build()
            self._stack = self._stack.pop_all()
        return self

    def _build(self):
        self.node, self.pod, self.outside = (self._stack.enter_context(Namespace()) for _ in range(3))
        for namespace in (self.node, self.pod, self.outside):
            namespace.assert_isolated()
        net = self.net
        self._link("pod", self.pod, net.pod_gateway, net.pod)
        self._link("out", self.outside, net.node, net.outside)
        self._ip(self.pod, "route", "add", "default", "via", net.pod_gateway)
        self._ip(self.node, "route", "add", "default", "via", net.outside)
        self._ip(self.outside, "route", "add", net.pod, "via", net.node)
        for endpoint in (net.p1, net.p2):
            self._address(self.node, f"{endpoint}/{net.length}", "lo")
        self.node.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        self.servers = {ip: self.socket(self.node, ip, 5353) for ip in (net.p1, net.p2)}
        # Tracking starts with the first rule that needs it.
        self.iptables("-A", "FORWARD", "-m", "conntrack", "--ctstate", "NEW")
        self.iptables("-t", "nat", "-N", "SERVICES")
        for chain in ("PREROUTING", "OUTPUT"):
            self.iptables("-t", "nat", "-A", chain, "-j", "SERVICES")

    def __exit__(self, *exc):
        self._stack.close()

    def _ip(self, namespace, *argv):
        namespace.run("ip", *(["-6"] if self.net.family == "IPv6" else []), *argv)

    def _address(self, namespace, address, device):
        # Without nodad the kernel lets an IPv6 address be used a little later, on lo too.
        nodad = [] if self.net.family == "IPv4" else ["nodad"]
        self._ip(namespace, "address", "add", address, "dev", device, *nodad)

    def _link(self, name, other, near, far):
        peer = f"{name}-p"
        self.node.run("ip", "link", "add", name, "type", "veth", "peer", "name", peer, "netns", other.name)
        bits = 24 if self.net.family == "IPv4" else 64
        for namespace, device, address in ((self.node, name, near), (other, peer, far)):
            self._address(namespace, f"{address}/{bits}", device)
            namespace.run("ip", "link", "set", device, "up")

    def iptables(self, *argv):
        return self.node.run(self.net.iptables, "-w", *argv)

    def rules(self, *rules):
        """Make the services' rules exactly these: (ip, port, endpoint) each; ip None is any local address."""
        self.iptables("-t", "nat", "-F", "SERVICES")
        for ip, port, endpoint in rules:
            where = ["-m", "addrtype", "--dst-type", "LOCAL"] if ip is None else ["-d", ip]
            target = ["-j", "DNAT", "--to-destination", self.net.at(endpoint, 5353)]
            self.iptables("-t", "nat", "-A", "SERVICES", "-p", "udp", *where, "--dport", str(port), *target)

    def socket(self, namespace, ip, port):
        def make():
            made = socket.socket(self.net.inet, socket.SOCK_DGRAM)
            self._stack.callback(made.close)
            made.bind((ip, port))
            made.settimeout(5)
            return made

        return namespace.call(make)

    def client(self, port=5000):
        return self.socket(self.pod, self.net.pod, port)

    def receiver(self, client, frontend, wait=5.0):
        """Send one datagram; return which endpoint gets it, None where neither does within ``wait`` seconds."""
        mark = secrets.token_bytes(8)
        client.sendto(mark, frontend)
        by_socket = {server: ip for ip, server in self.servers.items()}
        while ready := select.select(list(by_socket), [], [], wait)[0]:
            for server in ready:
                if server.recv(64) == mark:
                    return by_socket[server]
        return None

    def is_lost(self, client, frontend):
        return self.receiver(client, frontend, wait=0.2) is None

    def entries(self, protocol="udp"):
        """The table's lines, with ids."""
        family = "ipv4" if self.net.family == "IPv4" else "ipv6"
        listed = self.node.run("conntrack", "-L", "-f", family, "-p", protocol, "-o", "id")
        return [line for line in listed.splitlines() if line.startswith(protocol)]

    def ids(self, text=""):
        return {re.search(r"id=(\d+)", line).group(1) for line in self.entries() if text in line}

    def clean(self, desired, retired=NOTHING):
        return self.node.call(reconcile, self.net.family, desired, retired)


@pytest.fixture(params=NETS)
def net(request):
    return NETS[request.param]


def serving(*ips):
    return frozenset((ip, 5353) for ip in ips)


def service(net, *ips, address=None):
    return DesiredUdp(services={(address or net.vip, 53): serving(*ips)})


def test_a_flow_moves_to_the_endpoint_that_took_over(net):
    with Lab(net) as lab:
        lab.rules((net.vip, 53, net.p1))
        client = lab.client()
        assert lab.receiver(client, (net.vip, 53)) == net.p1
        lab.rules((net.vip, 53, net.p2))
        assert lab.receiver(client, (net.vip, 53)) == net.p1  # the fault
        result = lab.clean(service(net, net.p2))
        assert (result.scanned, result.deleted, result.failed) == (1, 1, 0)
        assert lab.receiver(client, (net.vip, 53)) == net.p2
        assert not lab.ids(f"src={net.p1} ")
        assert lab.clean(service(net, net.p2)).deleted == 0


def test_the_endpoint_that_stays_keeps_its_flows(net):
    with Lab(net) as lab:
        lab.rules((net.vip, 53, net.p1))
        assert lab.receiver(lab.client(), (net.vip, 53)) == net.p1
        before = lab.ids()
        assert lab.clean(service(net, net.p1, net.p2)).deleted == 0
        assert lab.ids() == before != set()


def test_a_flow_older_than_the_first_endpoint_is_translated_at_last(net):
    with Lab(net) as lab:
        client = lab.client()
        assert lab.is_lost(client, (net.vip, 53))
        assert lab.clean(service(net)).deleted == 0  # no endpoint yet: nothing better to offer
        lab.rules((net.vip, 53, net.p1))
        assert lab.is_lost(client, (net.vip, 53))  # the fault
        assert lab.clean(service(net, net.p1)).deleted == 1
        assert lab.receiver(client, (net.vip, 53)) == net.p1


def test_a_node_port_flow_older_than_the_first_endpoint(net):
    with Lab(net) as lab:
        desired = DesiredUdp(node_ports={30053: serving(net.p1)}, node_addresses=frozenset({net.node, net.pod_gateway}))
        client = lab.client()
        assert lab.is_lost(client, (net.node, 30053))
        lab.rules((None, 30053, net.p1))
        assert lab.is_lost(client, (net.node, 30053))  # the fault
        assert lab.clean(desired).deleted == 1
        assert lab.receiver(client, (net.node, 30053)) == net.p1


def test_a_node_port_flow_moves_too(net):
    with Lab(net) as lab:
        desired = DesiredUdp(node_ports={30053: serving(net.p2)}, node_addresses=frozenset({net.node}))
        client = lab.client()
        lab.rules((None, 30053, net.p1))
        assert lab.receiver(client, (net.node, 30053)) == net.p1
        lab.rules((None, 30053, net.p2))
        assert lab.receiver(client, (net.node, 30053)) == net.p1  # the fault
        assert lab.clean(desired).deleted == 1
        assert lab.receiver(client, (net.node, 30053)) == net.p2


def refused(client, lab, frontend):
    """Whether a connected one-way sender learns that nobody is there."""
    client.connect(frontend)
    client.setblocking(True)
    for _ in range(2):  # the refusal of one datagram is told with the next
        try:
            client.send(b"x")
        except ConnectionRefusedError:
            return True
    client.settimeout(0.5)
    try:
        client.recv(1)
    except ConnectionRefusedError:
        return True
    except TimeoutError:
        return False
    return False


def reject(lab, ip, port):
    rule = f"-p udp -d {ip} --dport {port} -m conntrack --ctstate NEW -j REJECT"
    for chain in ("FORWARD", "OUTPUT"):
        lab.iptables("-I", chain, *rule.split())


def test_a_service_scaled_to_zero_refuses_its_old_senders(net):
    with Lab(net) as lab:
        lab.rules((net.vip, 53, net.p1))
        client = lab.client()
        assert lab.receiver(client, (net.vip, 53)) == net.p1
        lab.rules()
        reject(lab, net.vip, 53)
        assert lab.receiver(client, (net.vip, 53)) == net.p1  # the fault: REJECT does not catch an established flow
        assert lab.clean(service(net)).deleted == 1
        assert refused(client, lab, (net.vip, 53))
        assert lab.ids() == set()


def test_a_flow_of_a_deleted_service_goes(net):
    with Lab(net) as lab:
        lab.rules((net.vip, 53, net.p1))
        client = lab.client()
        assert lab.receiver(client, (net.vip, 53)) == net.p1
        former = NOTHING.learn(service(net, net.p1))
        lab.rules()
        assert lab.receiver(client, (net.vip, 53)) == net.p1  # the fault
        assert lab.clean(DesiredUdp(), former).deleted == 1
        assert lab.is_lost(client, (net.vip, 53))
        assert lab.clean(DesiredUdp(), former).deleted == 0


def test_only_the_address_that_was_taken_away_loses_its_flows(net):
    with Lab(net) as lab:
        lab.rules((net.vip, 53, net.p1), (net.external, 53, net.p1))
        assert lab.receiver(lab.client(5000), (net.vip, 53)) == net.p1
        assert lab.receiver(lab.client(5001), (net.external, 53)) == net.p1
        kept = lab.ids(f"dst={net.vip} ")
        retired = Programmed(services={(net.external, 53): serving(net.p1)})
        assert lab.clean(service(net, net.p1), retired).deleted == 1
        assert lab.ids() == kept != set()


def test_a_forwarded_flow_to_the_same_port_survives(net):
    with Lab(net) as lab:
        lab.rules((None, 30053, net.p1))
        peer = lab.socket(lab.outside, net.outside, 30053)
        lab.client().sendto(b"plain", (net.outside, 30053))
        assert peer.recv(16) == b"plain"
        before = lab.ids()
        desired = DesiredUdp(node_ports={30053: serving(net.p2)}, node_addresses=frozenset({net.node}))
        assert lab.clean(desired, Programmed(node_ports={30053: None})).deleted == 0
        assert lab.ids() == before != set()


def test_a_host_port_survives(net):
    with Lab(net) as lab:
        lab.iptables("-t", "nat", "-N", "CNI-HOSTPORT-DNAT")
        lab.iptables("-t", "nat", "-A", "PREROUTING", "-j", "CNI-HOSTPORT-DNAT")
        rule = f"-p udp -d {net.node} --dport 5353 -j DNAT --to-destination {net.at(net.p1, 5353)}"
        lab.iptables("-t", "nat", "-A", "CNI-HOSTPORT-DNAT", *rule.split())
        assert lab.receiver(lab.client(), (net.node, 5353)) == net.p1
        before = lab.ids()
        desired = DesiredUdp(
            services={(net.vip, 53): serving(net.p2)},
            node_ports={30053: serving(net.p2)},
            node_addresses=frozenset({net.node}),
        )
        retired = Programmed(services={(net.external, 53): None}, node_ports={30054: None})
        result = lab.clean(desired, retired)
        assert (result.scanned, result.deleted) == (1, 0)
        assert lab.ids() == before != set()


@pytest.mark.parametrize("protocol", [TCP, SCTP])
def test_tcp_and_sctp_flows_to_an_endpoint_that_is_gone_survive(net, protocol):
    with Lab(net) as lab:
        body = entry((net.pod, 5000), (net.vip, 53), (net.p1, 5353), protocol=protocol)
        lab.node.call(insert, [body, entry((net.pod, 5000), (net.vip, 53), (net.p1, 5353))])
        result = lab.clean(service(net, net.p2))
        assert (result.scanned, result.deleted) == (1, 1)
        assert len(lab.entries({TCP: "tcp", SCTP: "sctp"}[protocol])) == 1


def test_a_flow_from_the_node_itself_is_one_like_any_other(net):
    with Lab(net) as lab:
        lab.rules((net.vip, 53, net.p1))
        client = lab.socket(lab.node, net.node, 5000)
        assert lab.receiver(client, (net.vip, 53)) == net.p1
        lab.rules((net.vip, 53, net.p2))
        assert lab.clean(service(net, net.p2)).deleted == 1
        assert lab.receiver(client, (net.vip, 53)) == net.p2


def test_a_masqueraded_flow_is_one_like_any_other(net):
    with Lab(net) as lab:
        lab.rules((net.vip, 53, net.p1))
        lab.iptables("-t", "nat", "-A", "POSTROUTING", "-p", "udp", "-j", "MASQUERADE")
        lab.iptables("-t", "nat", "-A", "INPUT", "-p", "udp", "-j", "SNAT", "--to-source", net.node)
        client = lab.client()
        assert lab.receiver(client, (net.vip, 53)) == net.p1
        assert lab.ids(f"dst={net.node} ")  # the reply goes to the node: source translated as well
        assert lab.clean(service(net, net.p1)).deleted == 0
        assert lab.clean(service(net, net.p2)).deleted == 1


def test_the_other_family_is_not_looked_at(net):
    other = NETS["IPv6" if net.family == "IPv4" else "IPv4"]
    with Lab(net) as lab:
        lab.node.call(insert, [entry((other.pod, 5000), (other.vip, 53), (other.p1, 5353))])
        both = DesiredUdp(services={(net.vip, 53): frozenset(), (other.vip, 53): frozenset()})
        assert lab.clean(both).scanned == 0
        assert lab.node.call(reconcile, other.family, both).deleted == 1


def test_zones_of_one_direction(net):
    """The layout of the kernel's message differs then, and the deletion must name the zone."""
    with Lab(net) as lab:
        lab.iptables("-t", "raw", "-A", "PREROUTING", "-p", "udp", "-j", "CT", "--zone-orig", "5")
        lab.rules((net.vip, 53, net.p1))
        assert lab.receiver(lab.client(), (net.vip, 53)) == net.p1
        assert lab.clean(service(net, net.p1)).deleted == 0
        result = lab.clean(service(net, net.p2))
        assert (result.scanned, result.deleted, lab.ids()) == (1, 1, set())


def test_a_flow_in_another_zone_is_deleted_only_when_it_is_translated(net):
    with Lab(net) as lab:
        bodies = [
            entry((net.pod, 5000), (net.vip, 53), (net.p1, 5353), zone=7),
            entry((net.pod, 5000), (net.vip, 53), (net.p1, 5353)),
            entry((net.pod, 5001), (net.vip, 53), zone=7),
            entry((net.pod, 5001), (net.vip, 53)),
        ]
        lab.node.call(insert, bodies)
        assert lab.clean(service(net, net.p2)).deleted == 3
        assert [line for line in lab.entries() if "sport=5001 dport=53" in line] == lab.entries()


def test_more_stale_flows_than_one_batch_or_datagram_holds(net):
    with Lab(net) as lab:
        bodies = [entry((net.pod, port), (net.vip, 53), (net.p1, 5353)) for port in range(1000, 3000)]
        bodies += [entry((net.pod, port), (net.vip, 53), (net.p2, 5353)) for port in range(3000, 4000)]
        bodies += [entry((net.pod, port), (net.outside, 53)) for port in range(1000, 2000)]
        lab.node.call(insert, bodies)
        result = lab.clean(service(net, net.p2))
        assert (result.scanned, result.deleted, result.failed) == (4000, 2000, 0)
        assert len(lab.entries()) == 2000
        assert lab.clean(service(net, net.p2)).deleted == 0


def test_nothing_of_ours_means_that_the_table_is_not_read(net):
    def forbidden():
        raise AssertionError("connected")

    assert reconcile(net.family, DesiredUdp(), connect=forbidden).scanned == 0

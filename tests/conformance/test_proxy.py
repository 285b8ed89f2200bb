"""The upstream tests of the proxy itself: its pages, its metrics, timeouts, packets out of window, rules deleted."""

import sys

import pytest

from e2e.netlab.wiring import NODE_IP, NODE_IP6, REMOTE_POD_IP
from tests.conformance.cluster import HINT, reaches, until

pytestmark = [pytest.mark.netns, pytest.mark.slow]

INVALID = "kubeproxy_iptables_ct_state_invalid_dropped_packets_total"
LOCALHOST = "kubeproxy_iptables_localhost_nodeports_accepted_packets_total"
INJECT = """\
import socket, struct, sys
client, port = sys.argv[1], int(sys.argv[2])
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)
raw.settimeout(20)
print("listening", flush=True)
while True:
    packet, sender = raw.recvfrom(65536)
    head = (packet[0] & 15) * 4
    theirs, ours, seq, ack, offset = struct.unpack_from(">HHIIB", packet, head)
    length = len(packet) - head - (offset >> 4) * 4
    if sender[0] == client and theirs == port and length:
        break
own = socket.inet_ntoa(packet[16:20])
far, expected = (ack + (1 << 30)) & 0xFFFFFFFF, (seq + length) & 0xFFFFFFFF
tcp = struct.pack(">HHIIBBHHH", ours, theirs, far, expected, 5 << 4, 16, 502, 0, 0)
data = socket.inet_aton(own) + socket.inet_aton(client) + struct.pack(">BBH", 0, 6, len(tcp)) + tcp
total = sum(struct.unpack(f">{len(data) // 2}H", data))
total = (total & 0xFFFF) + (total >> 16)
total = (total & 0xFFFF) + (total >> 16)
raw.sendto(tcp[:16] + struct.pack(">H", ~total & 0xFFFF) + tcp[18:], (client, 0))
"""


def test_the_pages_that_are_asked_for(site):
    done = site.node.run(["curl", "-i", "-q", "-s", "--connect-timeout", "1", "http://localhost:10256/healthz"])
    assert "200 OK" in done.stdout
    assert "lastUpdated" in done.stdout
    code = ["curl", "-o", "/dev/null", "-i", "-q", "-s", "-w", "%{http_code}", "--connect-timeout", "1"]
    assert site.node.run([*code, "http://localhost:10249/proxyMode"]).stdout == "200"
    assert site.page("127.0.0.1", 10249, "/proxyMode").body == "iptables"
    for address in (NODE_IP, NODE_IP6):
        assert site.page(address, 10256, "/healthz", source=site.outside).status == 200


def test_the_timeout_of_close_wait(site):
    """The test looks at an entry's remaining seconds: an hour, as the default of tcpCloseWaitTimeout says."""
    setting = "net.netfilter.nf_conntrack_tcp_timeout_close_wait"
    assert site.node.run(["sysctl", "-n", setting]).stdout == "3600\n"


def test_nothing_listens_on_a_node_port(site):
    service = site.service("unheld")
    service.as_node_port()
    service.endpoints("p1")
    reaches(site.outside, NODE_IP, service.node_port(), "p1")
    assert site.node.run(["ss", "-Hlnt", f"sport = :{service.node_port()}"]).stdout == ""
    service.delete()


def test_packets_to_a_node_port_on_localhost_are_counted(site):
    assert site.node.run(["sysctl", "-n", "net.ipv4.conf.all.route_localnet"]).stdout == "1\n"
    before = site.metric(LOCALHOST)
    service = site.service("localhost")
    service.as_node_port()
    service.endpoints("p1")
    reaches(site.node, "127.0.0.1", service.node_port(), "p1")
    until(lambda: site.metric(LOCALHOST) > before, "the counter rises")
    service.delete()


def connection_survives(site, address):
    """Whether a connection outlives a packet out of its window that the pod sends past the service."""
    held = site.remote.connect(address, 80)
    assert not held.failure
    pod = site.lab.pods["p1"]
    injector = pod.spawn([sys.executable, "-c", INJECT, REMOTE_POD_IP, str(held.port)])
    until(lambda: "listening" in injector.output(), "the injector listens")
    answers = [held.ask()]
    assert injector.wait(20) == 0, injector.output()
    answers += [held.ask(timeout=2.0) for _ in range(3)]
    held.close()
    return all("answer" in answer for answer in answers)


def test_a_packet_out_of_window_resets_no_connection(site):  # k/k#74839
    service = site.service("boom")
    service.endpoints("p1")
    reaches(site.remote, service.ips[4], 80, "p1")
    before = site.metric(INVALID)
    assert connection_survives(site, service.ips[4])
    assert site.metric(INVALID) > before
    foreign = ["FORWARD", "-m", "conntrack", "--ctstate", "INVALID", "-j", "ACCEPT"]
    site.lab.iptables("-I", *foreign)
    assert not connection_survives(site, service.ips[4]), "the control: let through, it does"
    site.lab.iptables("-D", *foreign)
    service.delete()


def test_rules_and_chains_deleted_one_by_one_are_made_again(site):
    service = site.service("flushed")
    service.endpoints("p1", "p2")
    reaches(site.client, service.ips[4], 80, "p1", "p2")
    rules, chains = [], []
    program = f"iptables-{site.lab.backend}"
    saved = site.node.run([f"{program}-save"]).stdout
    table = ""
    for line in saved.splitlines():
        if line.startswith("*"):
            table = line[1:]
        elif not line.startswith("-A KUBE-") and "-j KUBE-" in line:
            rules.append(f"{program} -t {table} -D {line[3:]} || true")
        elif line.startswith(":KUBE-"):
            chain = line[1:].split()[0]
            rules.append(f"{program} -t {table} -F {chain} || true")
            chains.append(f"{program} -t {table} -X {chain} || true")
    assert len(chains) > 10
    site.node.run(["sh", "-c", "\n".join(rules + chains)])
    reaches(site.client, service.ips[4], 80, "p1", "p2")

    names = [line.split()[0] for line in saved.splitlines() if line.startswith(":KUBE-") and HINT not in line]

    def whole():
        now = site.node.run([f"{program}-save"]).stdout
        return all(f"{name} " in now for name in names)

    until(whole, "every chain is back")
    service.delete()

"""Every match that is understood, asked with packets that it takes or does not; any other one is a doubt."""

from fractions import Fraction

import pytest

from pykubeproxy.insight.match import Doubt, View
from pykubeproxy.insight.packet import Packet
from pykubeproxy.insight.parse import parse_rule

OWN = frozenset(("192.168.0.1", "fd00::1"))


def ask(rule, *, hook="PREROUTING", mark=0, translated=False, incoming="eth0", outgoing=None, noted=(), **packet):
    """Return what a rule says of a packet: True, False, a share, or a doubt."""
    base = {"source": "10.0.0.1", "destination": "10.96.0.10", "port": 53, "local_addresses": OWN}
    one = Packet(**{**base, **packet})
    view = View(one, hook, one.destination, one.port, mark, incoming, outgoing, translated, noted)
    ways = parse_rule("nat", 1, f"-A X {rule} -j ACCEPT").judge(view)
    if isinstance(ways, Doubt):
        return ways.what
    return False if not ways else True if ways[0][0] == 1 else ways[0][0]


@pytest.mark.parametrize(
    ("rule", "packet", "answer"),
    [
        ("", {}, True),
        ("-s 10.0.0.0/24", {}, True),
        ("-s 10.0.1.0/24", {}, False),
        ("! -s 10.0.0.0/24", {}, False),
        ("-s 10.0.0.1/255.0.0.255", {"source": "10.9.9.1"}, True),
        ("-d 10.96.0.10/32", {}, True),
        ("-d 10.96.0.11/32", {}, False),
        ("! -d 10.96.0.11/32", {}, True),
        ("-d 10.96.0.0/12", {}, True),
        ("-s fd00::/16 -d fd00:10::a/128", {"source": "fd00::7", "destination": "fd00:10::a"}, True),
        ("-d fd00:10::a/128", {}, False),
        ("-p tcp", {}, True),
        ("-p udp", {}, False),
        ("! -p udp", {}, True),
        ("-p 6", {}, True),
        ("-p icmp", {"protocol": "icmp"}, True),
        ("-p tcp -m tcp --dport 53", {}, True),
        ("-p tcp -m tcp --dport 54", {}, False),
        ("-p tcp -m tcp ! --dport 53", {}, False),
        ("-p tcp -m tcp --dport 50:60", {}, True),
        ("-p tcp -m tcp --dport :52", {}, False),
        ("-p udp -m udp --dport 53", {"protocol": "udp"}, True),
        ("-p sctp -m sctp --dport 53", {"protocol": "sctp"}, True),
        ("-p tcp -m tcp --sport 1024:65535", {"source_port": 4000}, True),
        ("-p tcp -m tcp --sport 1024:65535", {}, "--sport 1024:65535: the source port is not known"),
        ("-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN", {}, True),
        ("-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK FIN", {}, False),
        ("-p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN", {}, False),
        ("-p tcp -m multiport --dports 80,443,50:60", {}, True),
        ("-p tcp -m multiport ! --dports 80,53", {}, False),
        ('-m comment --comment "what -m ever -j ! it \\"says\\""', {}, True),
        ("-m comment --comment -m -m nfacct --nfacct-name  ct_state_invalid_dropped_pkts", {}, True),
        ("-m addrtype --dst-type LOCAL", {}, False),
        ("-m addrtype --dst-type LOCAL", {"destination": "192.168.0.1"}, True),
        ("-m addrtype --dst-type LOCAL", {"destination": "127.8.9.1"}, True),
        ("-m addrtype ! --dst-type LOCAL", {"destination": "127.0.0.1"}, False),
        ("-m addrtype --src-type LOCAL", {"source": "192.168.0.1"}, True),
        ("-m addrtype --src-type LOCAL", {}, False),
        ("-m addrtype --dst-type LOCAL", {"destination": "::1", "source": "fd00::2"}, True),
        ("-m addrtype --dst-type MULTICAST", {"destination": "224.0.0.1"}, True),
        (
            "-m addrtype --dst-type BROADCAST",
            {"destination": "10.0.0.255"},
            "addrtype BROADCAST: the routing table would have to be asked",
        ),
        ("-m conntrack --ctstate NEW", {}, True),
        ("-m conntrack --ctstate RELATED,ESTABLISHED", {}, False),
        ("-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT", {}, True),
        ("-m conntrack --ctstate INVALID", {"state": "INVALID"}, True),
        ("-m conntrack --ctorigdst 10.96.0.0/12 --ctorigdstport 53", {}, True),
        ("-m conntrack --ctorigdstport 54", {}, False),
        ("-m conntrack --ctproto 6", {}, "-m conntrack --ctproto 6"),
        ("-m state --state NEW", {}, True),
        ("-m iprange --src-range 10.0.0.0-10.0.0.9", {}, True),
        ("-m iprange ! --dst-range 10.96.0.0-10.96.0.9", {}, True),
        ("-m set --match-set bad src", {}, "-m set --match-set bad src"),
        ("-m limit --limit 5/min", {}, "-m limit --limit 5/min"),
        ("-p udp -m limit --limit 5/min", {}, False),
        ("-m mac --mac-source 00:11:22:33:44:55 -m owner --uid-owner 0", {}, None),
        ("-f", {}, "-f"),
    ],
)
def test_a_match_says_yes_no_or_names_its_doubt(rule, packet, answer):
    found = ask(rule, **packet)
    if answer is None:
        assert found == "-m mac --mac-source 00:11:22:33:44:55, -m owner --uid-owner 0"
    else:
        assert found == answer


@pytest.mark.parametrize(
    ("rule", "mark", "answer"),
    [
        ("-m mark --mark 0x4000/0x4000", 0x4000, True),
        ("-m mark --mark 0x4000/0x4000", 0x4001, True),
        ("-m mark --mark 0x4000/0x4000", 0, False),
        ("-m mark ! --mark 0x4000/0x4000", 0, True),
        ("-m mark --mark 0x4000", 0x4001, False),
        ("-m connmark --mark 0x1", 0, "-m connmark --mark 0x1"),
    ],
)
def test_marks_are_compared_under_their_mask(rule, mark, answer):
    assert ask(rule, mark=mark) == answer


@pytest.mark.parametrize(
    ("rule", "incoming", "outgoing", "answer"),
    [
        ("-i eth0", "eth0", None, True),
        ("-i eth+", "eth0", None, True),
        ("! -i cali+", "eth0", None, True),
        ("! -i cali+", "cali7", None, False),
        ("-i lo", "", None, "-i lo: the interface is not known"),
        ("! -i cni0", None, "eth0", True),
        ("-i +", None, "eth0", True),
        ("-o eth0", None, "eth0", True),
        ("-o eth1", "eth0", "eth0", False),
        ("-o eth1", "eth0", None, False),
        ("! -o docker0", "eth0", "", "-o docker0: the interface is not known"),
    ],
)
def test_an_interface_is_there_or_not_or_unknown(rule, incoming, outgoing, answer):
    assert ask(rule, incoming=incoming, outgoing=outgoing) == answer


def test_dnat_is_a_state_once_the_destination_was_translated():
    assert ask("-m conntrack --ctstate DNAT", translated=True) is True
    assert ask("-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT", translated=True) is False


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("--mode random --probability 0.50000000000", Fraction(1, 2)),
        ("--mode random --probability 0.33333333349", Fraction(715827883, 2**31)),
        ("--mode nth --every 4 --packet 0", Fraction(1, 4)),
        ("--mode random ! --probability 0.25000000000", Fraction(3, 4)),
        ("--mode random --probability 1.00000000000", True),
    ],
)
def test_chances_are_multiples_of_the_kernels_unit(text, share):
    assert ask(f"-m statistic {text}") == share


RECENT = "--name KUBE-SEP-A --mask 255.255.255.255 --rsource"


@pytest.mark.parametrize(
    ("rule", "seen", "answer"),
    [
        (f"-m recent --rcheck --seconds 60 --reap {RECENT}", {}, False),
        (f"-m recent --rcheck --seconds 60 --reap {RECENT}", {"KUBE-SEP-A": {"10.0.0.1": 59.0}}, True),
        (f"-m recent --rcheck --seconds 60 --reap {RECENT}", {"KUBE-SEP-A": {"10.0.0.1": 61.0}}, False),
        (f"-m recent --rcheck --seconds 60 --reap {RECENT}", {"KUBE-SEP-A": {"10.0.0.2": 1.0}}, False),
        (f"-m recent --rcheck {RECENT}", {"KUBE-SEP-A": {"10.0.0.1": 1e6}}, True),
        (f"-m recent ! --rcheck {RECENT}", {}, True),
        ("-m recent --rcheck --name X --mask 255.255.255.0 --rsource", {"X": {"10.0.0.200": 1.0}}, True),
        ("-m recent --rcheck --name X --mask 255.255.255.255 --rdest", {"X": {"10.96.0.10": 1.0}}, True),
        (f"-m recent --set {RECENT}", {}, True),
        (
            f"-m recent --rcheck --hitcount 5 {RECENT}",
            {"KUBE-SEP-A": {"10.0.0.1": 1.0}},
            "-m recent --hitcount 5: only the last sight of an address is known",
        ),
    ],
)
def test_recent_asks_the_packets_memory(rule, seen, answer):
    assert ask(rule, recent=seen) == answer


def test_recent_knows_what_was_noted_on_the_same_way():
    assert ask(f"-m recent --rcheck --seconds 1 {RECENT}", noted=(("KUBE-SEP-A", "10.0.0.1"),)) is True


def test_a_clear_no_outweighs_a_doubt():
    assert ask("-m set --match-set bad src -p tcp -m tcp --dport 1") is False


def test_a_line_that_is_no_rule_is_refused():
    with pytest.raises(ValueError, match="no rule as iptables-save prints them"):
        parse_rule("nat", 1, "COMMIT")

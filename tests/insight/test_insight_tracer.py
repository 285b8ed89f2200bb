"""How a packet walks: hooks in order, jumps, returns, policies, marks, translations, and what cannot be judged."""

from fractions import Fraction

import pytest

from pykubeproxy.errors import UnreadableTable
from pykubeproxy.insight.packet import Packet
from pykubeproxy.insight.tracer import End, Tracer
from pykubeproxy.rules.service import probability

NODE = "192.168.0.1"


def packet(**more):
    base = {"source": "203.0.113.1", "destination": "10.96.0.1", "port": 80, "local_addresses": frozenset((NODE,))}
    return Packet(**{**base, **more})


def tables(**chains):
    """Make a save from ``nat="-A PREROUTING …"``; ``filter_policy="FORWARD DROP"`` sets a policy."""
    lines = []
    builtin = {
        "raw": ("PREROUTING", "OUTPUT"),
        "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"),
        "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
        "filter": ("INPUT", "FORWARD", "OUTPUT"),
    }
    for table, names in builtin.items():
        if table not in chains:
            continue
        policies = dict(part.split() for part in chains.get(f"{table}_policy", "").split(",") if part)
        rules = [line.strip() for line in chains[table].splitlines() if line.strip()]
        own = [name for name in dict.fromkeys(line.split()[1] for line in rules) if name not in names]
        lines += [f"*{table}", *(f":{name} {policies.get(name, 'ACCEPT')} [0:0]" for name in names)]
        lines += [f":{name} - [0:0]" for name in [*own, *chains.get("empty", "").split()]]
        lines += [*rules, "COMMIT"]
    return Tracer.from_save("\n".join(lines) + "\n")


def ends(tracer, **more):
    return tracer.trace(packet(**more)).ends()


def hooks(trace):
    return [list(dict.fromkeys((hit.table, hit.hook) for hit in outcome.path)) for outcome in trace.outcomes]


ALL = {"raw": "", "mangle": "", "nat": "", "filter": ""}


def test_a_forwarded_packet_passes_the_hooks_in_the_kernels_order():
    (found,) = hooks(tables(**ALL).trace(packet()))
    assert found == [
        ("raw", "PREROUTING"), ("mangle", "PREROUTING"), ("nat", "PREROUTING"),
        ("mangle", "FORWARD"), ("filter", "FORWARD"),
        ("mangle", "POSTROUTING"), ("nat", "POSTROUTING"),
    ]  # fmt: skip


def test_a_packet_for_the_node_goes_to_input_and_never_sees_postrouting():
    (found,) = hooks(tables(**ALL).trace(packet(destination=NODE)))
    assert [hook for _, hook in found[3:]] == ["INPUT"] * 3
    assert found[-1] == ("nat", "INPUT")


def test_what_the_node_sends_itself_comes_back_past_nat():
    (found,) = hooks(tables(**ALL).trace(packet(source=NODE, destination=NODE, origin="node")))
    assert found == [
        ("raw", "OUTPUT"), ("mangle", "OUTPUT"), ("nat", "OUTPUT"), ("filter", "OUTPUT"),
        ("mangle", "POSTROUTING"), ("nat", "POSTROUTING"),
        ("raw", "PREROUTING"), ("mangle", "PREROUTING"), ("mangle", "INPUT"), ("filter", "INPUT"),
    ]  # fmt: skip


def test_only_new_packets_walk_nat():
    tracer = tables(nat="-A PREROUTING -j DNAT --to-destination 10.0.0.1:8080", filter="")
    assert ends(tracer) == {End("10.0.0.1:8080"): 1}
    assert ends(tracer, state="INVALID") == {End("ACCEPT"): 1}


def test_the_filter_sees_the_translated_destination():
    tracer = tables(
        nat="-A PREROUTING -d 10.96.0.1/32 -j DNAT --to-destination 10.0.0.1:8080",
        filter="-A FORWARD -d 10.0.0.1/32 -p tcp -m tcp --dport 8080 -m conntrack --ctstate DNAT -j DROP",
    )
    assert ends(tracer) == {End("DROP"): 1}


def test_a_destination_without_port_keeps_the_port():
    assert ends(tables(nat="-A PREROUTING -j DNAT --to-destination 10.0.0.1")) == {End("10.0.0.1:80"): 1}


def test_ipv6_destinations_stand_in_brackets():
    tracer = tables(nat="-A PREROUTING -j DNAT --to-destination [fd00::1]:8080")
    assert ends(tracer, source="fd00::9", destination="fd00:96::1") == {End("[fd00::1]:8080"): 1}


def test_translation_to_a_local_address_leads_to_input():
    tracer = tables(
        nat=f"-A PREROUTING -j DNAT --to-destination {NODE}:9\n-A POSTROUTING -j MASQUERADE",
        filter="-A FORWARD -j DROP",
    )
    (outcome,) = tracer.trace(packet()).outcomes
    assert outcome.is_local
    assert outcome.end == End(f"{NODE}:9")


def test_redirect_leads_to_this_node():
    (outcome,) = tables(nat="-A PREROUTING -j REDIRECT --to-ports 15001", filter="").trace(packet()).outcomes
    assert (outcome.target, outcome.is_local) == ("this node:15001", True)


@pytest.mark.parametrize("bit", [0, 14, 31])
def test_a_mark_set_and_asked_for_masquerades(bit):
    mark = hex(1 << bit)
    tracer = tables(
        nat=f"""
        -A PREROUTING -j MARK --set-xmark {mark}/{mark}
        -A POSTROUTING -m mark ! --mark {mark}/{mark} -j RETURN
        -A POSTROUTING -j MARK --set-xmark {mark}/0x0
        -A POSTROUTING -m mark ! --mark {mark}/{mark} -j MASQUERADE
        """
    )
    assert ends(tracer) == {End("ACCEPT", is_masqueraded=True): 1}


@pytest.mark.parametrize("count", [1, 2, 3, 7, 44, 100])
def test_shares_of_a_spreading_chain_are_exact(count):
    rules = []
    for number in range(count):
        left = count - number
        chance = f"-m statistic --mode random --probability {probability(left)} " if left > 1 else ""
        rules.append(f"-A PREROUTING {chance}-j DNAT --to-destination 10.0.0.{number}:80")
    found = ends(tables(nat="\n".join(rules)))
    assert sum(found.values()) == 1
    assert len(found) == count
    assert all(abs(share - Fraction(1, count)) < Fraction(1, 2**29) for share in found.values())
    if count == 3:
        assert found[End("10.0.0.0:80")] == Fraction(715827883, 2**31)


def test_return_ends_a_chain_and_in_a_builtin_chain_leads_to_the_policy():
    tracer = tables(
        filter="""
        -A FORWARD -j SUB
        -A FORWARD -p tcp -j RETURN
        -A FORWARD -j ACCEPT
        -A SUB -j RETURN
        -A SUB -j ACCEPT
        """,
        filter_policy="FORWARD DROP",
    )
    (outcome,) = tracer.trace(packet()).outcomes
    assert outcome.end == End("DROP")
    assert [(hit.chain, hit.number) for hit in outcome.path] == [
        ("FORWARD", 1),
        ("SUB", 1),
        ("FORWARD", 2),
        ("FORWARD", 0),
    ]
    assert outcome.path[-1].is_policy


def test_goto_comes_back_to_the_caller_of_the_chain_that_left():
    tracer = tables(
        filter="""
        -A FORWARD -j ONE
        -A FORWARD -j DROP
        -A ONE -g TWO
        -A ONE -j ACCEPT
        -A TWO -p udp -j ACCEPT
        """
    )
    assert ends(tracer) == {End("DROP"): 1}


def test_goto_from_a_builtin_chain_ends_at_the_policy():
    tracer = tables(filter="-A FORWARD -g TWO\n-A FORWARD -j DROP\n-A TWO -p udp -j DROP")
    assert ends(tracer) == {End("ACCEPT"): 1}


def test_accept_in_one_table_says_nothing_for_the_next():
    tracer = tables(mangle="-A FORWARD -j ACCEPT", filter="-A FORWARD -j REJECT --reject-with icmp-port-unreachable")
    assert ends(tracer) == {End("REJECT"): 1}


def test_interfaces_are_known_where_the_kernel_knows_them():
    tracer = tables(filter="-A FORWARD -i eth0 -o cni0 -j DROP\n-A INPUT -i lo -j DROP")
    more = {"in_interface": "eth0", "interface_to": lambda _: "cni0"}
    assert ends(tracer, **more) == {End("DROP"): 1}
    assert ends(tracer, source="127.0.0.1", destination="127.0.0.1", origin="node") == {End("DROP"): 1}


def test_what_cannot_be_judged_is_named_and_taken_as_not_matching():
    trace = tables(filter="-A FORWARD -m set --match-set bad src -j DROP\n-A FORWARD -j NFQUEUE --queue-num 1").trace(
        packet()
    )
    assert trace.ends() == {End("ACCEPT"): 1}
    assert [(one.chain, one.number, one.what) for one in trace.uncertain] == [
        ("FORWARD", 1, "-m set --match-set bad src"),
        ("FORWARD", 2, "-j NFQUEUE --queue-num 1"),
    ]


def test_targets_that_let_a_packet_go_on_let_it_go_on():
    tracer = tables(filter='-A FORWARD -j LOG --log-prefix "x y"\n-A FORWARD\n-A FORWARD -j DROP')
    (outcome,) = tracer.trace(packet()).outcomes
    assert [hit.number for hit in outcome.rules] == [1, 2, 3]


def test_affinity_is_noted_for_the_next_packet():
    tracer = tables(
        nat="""
        -A PREROUTING -m recent --rcheck --seconds 60 --reap --name B --mask 255.255.255.255 --rsource -j B
        -A PREROUTING -m statistic --mode random --probability 0.50000000000 -j A
        -A PREROUTING -j B
        -A A -p tcp -m recent --set --name A --rsource -m tcp -j DNAT --to-destination 10.0.0.1:80
        -A B -p tcp -m recent --set --name B --rsource -m tcp -j DNAT --to-destination 10.0.0.2:80
        """
    )
    first = tracer.trace(packet())
    noted = {outcome.end.target: outcome.noted for outcome in first.outcomes}
    assert noted == {"10.0.0.1:80": (("A", "203.0.113.1"),), "10.0.0.2:80": (("B", "203.0.113.1"),)}
    assert ends(tracer, recent={"B": {"203.0.113.1": 1.0}}) == {End("10.0.0.2:80"): 1}
    half = Fraction(1, 2)
    assert ends(tracer, recent={"B": {"203.0.113.1": 61.0}}) == {End("10.0.0.1:80"): half, End("10.0.0.2:80"): half}


def test_a_jump_to_nowhere_and_a_circle_are_errors():
    with pytest.raises(ValueError, match="jumps to chain NOWHERE, which does not exist"):
        tables(filter="-A FORWARD -j NOWHERE").trace(packet())
    with pytest.raises(ValueError, match="circle"):
        tables(filter="-A FORWARD -j ONE\n-A ONE -j TWO\n-A TWO -j ONE").trace(packet())
    with pytest.raises(ValueError, match="circle"):
        tables(filter="-A FORWARD -g ONE\n-A ONE -g TWO\n-A TWO -g ONE").trace(packet())


def test_a_save_of_an_incompatible_table_is_refused():
    with pytest.raises(UnreadableTable):
        Tracer.from_save("# Table `nat' is incompatible, use 'nft' tool.\n")


def test_without_any_rules_everything_passes():
    assert ends(Tracer.from_save("")) == {End("ACCEPT"): 1}

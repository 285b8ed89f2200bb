"""Native nft rules, as ``nft -j`` (1.0.6) lists them, judged and shown; what is not understood is a doubt."""

# ruff: noqa: E501 - JSON as nft prints it

import json
from fractions import Fraction

import pytest

from pykubeproxy.insight.match import Doubt, View
from pykubeproxy.insight.nftrules import NativeTable, table_objects
from pykubeproxy.insight.packet import Packet
from pykubeproxy.insight.tracer import End, Tracer

SETS = """
{"set": {"family": "inet", "name": "bad", "table": "fw", "elem": ["1.2.3.4", {"prefix": {"addr": "10.9.0.0", "len": 16}}]}},
{"set": {"family": "inet", "name": "timed", "table": "fw", "elem": [{"elem": {"val": "10.0.0.1", "timeout": 3600}}]}},
{"map": {"family": "inet", "name": "ports", "table": "fw", "map": "verdict",
 "elem": [[80, {"accept": null}], [81, {"jump": {"target": "other"}}]]}}
"""


def table(*rules, ip="IPv4", base=("input", 0, "filter"), policy="accept", more=""):
    """Make table ``inet fw`` with one base chain ``in`` that holds rules given as JSON lists of statements."""
    hook, priority, kind = base
    head = f'{{"chain": {{"family": "inet", "table": "fw", "name": "in", "type": "{kind}", "hook": "{hook}", "prio": {priority}, "policy": "{policy}"}}}}'
    shown = [
        f'{{"rule": {{"family": "inet", "table": "fw", "chain": "in", "handle": 9, "expr": {rule}}}}}' for rule in rules
    ]
    text = f'{{"nftables": [{", ".join([head, SETS, *shown, *([more] if more else [])])}]}}'
    return NativeTable("inet", "fw", table_objects(text), ip=ip)


def ask(rule, *, mark=0, translated=False, incoming="eth0", outgoing=None, ip="IPv4", **packet):
    """Return (kinds of what it does, chance) for each way; or a doubt's words."""
    base = {
        "source": "10.0.0.1",
        "destination": "10.96.0.10",
        "port": 80,
        "local_addresses": frozenset(("192.168.0.1",)),
    }
    one = Packet(**{**base, **packet})
    view = View(one, "INPUT", one.destination, one.port, mark, incoming, outgoing, translated)
    ways = table(rule, ip=ip).chain("in").rules[0].judge(view)
    if isinstance(ways, Doubt):
        return ways.what
    return [("+".join(action.kind for action in actions), share) for share, actions in ways]


YES, NO = [("accept", 1)], []


def rule(match, verdict='{"accept": null}'):
    return f"[{match}, {verdict}]"


def compare(left, right, op="=="):
    return rule(f'{{"match": {{"op": "{op}", "left": {left}, "right": {right}}}}}')


def payload(protocol, field):
    return f'{{"payload": {{"protocol": "{protocol}", "field": "{field}"}}}}'


SADDR, DPORT = payload("ip", "saddr"), payload("tcp", "dport")


@pytest.mark.parametrize(
    ("expression", "packet", "answer"),
    [
        (compare(SADDR, '"10.0.0.1"'), {}, YES),
        (compare(SADDR, '"10.0.0.2"'), {}, NO),
        (compare(SADDR, '{"prefix": {"addr": "10.0.0.0", "len": 8}}'), {}, YES),
        (compare(SADDR, '{"prefix": {"addr": "10.0.0.0", "len": 8}}', "!="), {}, NO),
        (compare(SADDR, '"@bad"'), {"source": "10.9.1.1"}, YES),
        (compare(SADDR, '"@bad"'), {}, NO),
        (compare(SADDR, '"@timed"'), {}, YES),
        (compare(SADDR, '"@unknown"'), {}, "set @unknown"),
        (compare(SADDR, '{"set": ["10.1.0.0", {"range": ["10.0.0.1", "10.0.0.9"]}]}'), {}, YES),
        (compare(payload("ip6", "saddr"), '{"prefix": {"addr": "fe80::", "len": 10}}'), {}, NO),
        (compare(payload("ip6", "saddr"), '"fd00::2"', "!="), {}, NO),
        (compare(DPORT, "80"), {}, YES),
        (compare(DPORT, "80", "!="), {}, NO),
        (compare(DPORT, '{"set": [22, {"range": [80, 90]}]}'), {}, YES),
        (compare(DPORT, '{"range": [1, 79]}'), {}, NO),
        (compare(DPORT, "1024", "<"), {}, YES),
        (compare(payload("udp", "dport"), "80"), {}, NO),
        (compare(payload("th", "dport"), "80"), {"protocol": "udp"}, YES),
        (compare(payload("tcp", "sport"), "80"), {}, "tcp sport"),
        (compare(payload("icmp", "type"), '"echo-request"'), {}, NO),
        (compare('{"meta": {"key": "l4proto"}}', '{"set": ["tcp", "udp"]}'), {}, YES),
        (compare('{"meta": {"key": "l4proto"}}', "6"), {}, YES),
        (compare('{"meta": {"key": "nfproto"}}', '"ipv6"'), {}, NO),
        (compare('{"meta": {"key": "iifname"}}', '"lo"'), {}, NO),
        (compare('{"meta": {"key": "iifname"}}', '"eth*"'), {}, YES),
        (compare('{"meta": {"key": "iifname"}}', '"eth0"', "!="), {}, NO),
        (compare('{"meta": {"key": "oifname"}}', '"eth0"', "!="), {}, YES),
        (compare('{"meta": {"key": "skuid"}}', "0"), {}, "meta skuid"),
        (compare('{"ct": {"key": "state"}}', '["established", "related"]', "in"), {}, NO),
        (compare('{"ct": {"key": "state"}}', '"new"', "in"), {}, YES),
        (compare('{"ct": {"key": "state"}}', '"new"', "!="), {}, NO),
        (compare('{"ct": {"key": "status"}}', '"dnat"', "in"), {}, NO),
        (compare('{"ct": {"key": "mark"}}', "1"), {}, "ct mark"),
        (compare('{"fib": {"result": "type", "flags": ["daddr"]}}', '"local"'), {}, NO),
        (compare('{"fib": {"result": "type", "flags": ["daddr"]}}', '"local"'), {"destination": "192.168.0.1"}, YES),
        (compare('{"fib": {"result": "oif", "flags": ["saddr", "iif"]}}', "false"), {}, "fib saddr . iif oif"),
        (
            compare(f'{{"concat": [{payload("ip", "daddr")}, {DPORT}]}}', '{"set": [{"concat": ["10.96.0.10", 80]}]}'),
            {},
            YES,
        ),
        (
            compare(f'{{"&": [{payload("tcp", "flags")}, ["fin", "syn", "rst", "ack"]]}}', '"syn"'),
            {},
            YES,
        ),
        (compare('{"numgen": {"mode": "random", "mod": 3, "offset": 0}}', "0"), {}, [("accept", Fraction(1, 3))]),
        ('[{"limit": {"rate": 5, "burst": 5, "per": "second"}}, {"accept": null}]', {}, "limit rate 5/second"),
        (
            rule('{"limit": {"rate": 5, "per": "second"}}', f'{{"match": {{"op": "==", "left": {DPORT}, "right": 1}}}}'),
            {},
            NO,
        ),
        ('[{"xt": {"type": "match", "name": "comment"}}, {"counter": {"packets": 1, "bytes": 1}}, {"drop": null}]', {}, [("drop", 1)]),
        ('[{"xt": {"type": "match", "name": "recent"}}, {"accept": null}]', {}, "xt match recent"),
        ('[{"xt": null}, {"accept": null}]', {}, "xt"),
        ('[{"dnat": {"addr": {"prefix": 7}}}]', {}, 'dnat to {"prefix":7}'),
        ('[{"mangle": 5}]', {}, "a statement of unknown shape"),
        ('[{"counter": null}]', {}, [("continue", 1)]),
        ('[{"log": {"prefix": "x"}}, {"drop": null}]', {}, [("drop", 1)]),
        ('[{"reject": {"type": "icmpx", "expr": "port-unreachable"}}]', {}, [("reject", 1)]),
        ('[{"jump": {"target": "other"}}]', {}, [("jump", 1)]),
        ('[{"mangle": {"key": {"meta": {"key": "mark"}}, "value": 5}}, {"accept": null}]', {}, [("mark+accept", 1)]),
        ('[{"masquerade": {"flags": ["random"]}}]', {}, [("masquerade", 1)]),
        ('[{"queue": {"num": 1}}]', {}, 'queue {"num":1}'),
        (f'[{{"vmap": {{"key": {DPORT}, "data": "@ports"}}}}]', {}, [("accept", 1)]),
        (f'[{{"vmap": {{"key": {DPORT}, "data": "@ports"}}}}]', {"port": 81}, [("jump", 1)]),
        (f'[{{"vmap": {{"key": {DPORT}, "data": "@ports"}}}}]', {"port": 82}, NO),
        (
            '[{"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set": [["invalid", {"drop": null}], ["new", {"continue": null}]]}}}]',
            {"state": "INVALID"},
            [("drop", 1)],
        ),
        (
            '[{"vmap": {"key": {"numgen": {"mode": "random", "mod": 2, "offset": 0}}, "data": {"set": [[0, {"accept": null}], [1, {"drop": null}]]}}}]',
            {},
            [("accept", Fraction(1, 2)), ("drop", Fraction(1, 2))],
        ),
    ],
)  # fmt: skip
def test_a_rule_is_judged_or_names_its_doubt(expression, packet, answer):
    assert ask(expression, **packet) == answer


@pytest.mark.parametrize(
    ("value", "before", "after"),
    [
        ("5", 0xF0, 5),
        ('{"|": [{"meta": {"key": "mark"}}, 16]}', 1, 17),
        ('{"^": [{"meta": {"key": "mark"}}, 16384]}', 0x4000, 0),
        ('{"&": [{"meta": {"key": "mark"}}, 15]}', 0xFF, 15),
    ],
)
def test_marks_are_computed(value, before, after):
    rules = [
        f'[{{"mangle": {{"key": {{"meta": {{"key": "mark"}}}}, "value": {value}}}}}]',
        compare('{"meta": {"key": "mark"}}', str(after)).replace("accept", "drop"),
    ]
    packet = Packet(
        source="10.0.0.1", destination="192.168.0.1", local_addresses=frozenset(("192.168.0.1",)), mark=before
    )
    assert Tracer([table(*rules)]).trace(packet).ends() == {End("DROP"): 1}


@pytest.mark.parametrize(
    ("statement", "target"),
    [
        ('{"dnat": {"family": "ip", "addr": "10.0.0.1", "port": 81}}', "10.0.0.1:81"),
        ('{"dnat": {"addr": "10.0.0.1"}}', "10.0.0.1:80"),
        ('{"redirect": {"port": 82}}', "this node:82"),
        (
            f'{{"dnat": {{"addr": {{"map": {{"key": {{"concat": [{payload("ip", "daddr")}, {DPORT}]}}, "data": {{"set": [[{{"concat": ["10.96.0.10", 80]}}, {{"concat": ["10.0.0.1", 8080]}}]]}}}}}}}}}}',
            "10.0.0.1:8080",
        ),
    ],
)
def test_translations_lead_where_they_say(statement, target):
    packet = Packet(source="10.0.0.9", destination="10.96.0.10", port=80)
    tracer = Tracer([table(f"[{statement}]", base=("prerouting", -100, "nat"))])
    assert tracer.trace(packet).ends() == {End(target): 1}


def test_a_base_chain_hangs_on_its_hook_and_its_policy_counts():
    packet = Packet(source="10.0.0.9", destination="10.0.0.1", port=80)
    assert Tracer([table(base=("forward", 10, "filter"), policy="drop")]).trace(packet).ends() == {End("DROP"): 1}
    assert Tracer([table(base=("input", 10, "filter"), policy="drop")]).trace(packet).ends() == {End("ACCEPT"): 1}


def test_native_chains_stand_among_those_of_iptables_by_priority():
    save = "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -j ACCEPT\nCOMMIT\n"
    packet = Packet(source="10.0.0.9", destination="10.0.0.1", port=80)
    for priority, order in ((-5, ["inet fw", "filter"]), (5, ["filter", "inet fw"])):
        native = table('[{"accept": null}]', base=("forward", priority, "filter"))
        tracer = Tracer([*Tracer.from_save(save).tables.values(), native])
        (outcome,) = tracer.trace(packet).outcomes
        assert [hit.table for hit in outcome.rules] == order


def test_the_first_translation_of_a_hook_binds():
    save = "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -j DNAT --to-destination 10.0.0.2:80\nCOMMIT\n"
    packet = Packet(source="10.0.0.9", destination="10.0.0.1", port=80)
    for priority, target in ((-110, "10.0.0.3:80"), (-90, "10.0.0.2:80")):
        native = table('[{"dnat": {"addr": "10.0.0.3"}}]', base=("prerouting", priority, "nat"))
        tracer = Tracer([*Tracer.from_save(save).tables.values(), native])
        assert tracer.trace(packet).ends() == {End(target): 1}


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (compare(SADDR, '{"prefix": {"addr": "10.0.0.0", "len": 8}}', "!="), "ip saddr != 10.0.0.0/8 accept"),
        (
            compare('{"ct": {"key": "state"}}', '["established", "related"]', "in"),
            "ct state established, related accept",
        ),
        (compare(DPORT, '{"set": [22, {"range": [80, 90]}]}'), "tcp dport { 22, 80-90 } accept"),
        (compare(DPORT, f'{{"set": {json.dumps(list(range(9)))}}}'), "tcp dport { 0, 1, 2, 3, 4, 5, … 3 more } accept"),
        ('[{"vmap": {"key": {"meta": {"key": "mark"}}, "data": "@ports"}}]', "meta mark vmap @ports"),
        ('[{"dnat": {"family": "ip", "addr": "10.0.0.1", "port": 81}}]', "dnat to 10.0.0.1:81"),
        ('[{"jump": {"target": "other"}}]', "jump other"),
        ('[{"counter": {"packets": 7, "bytes": 9}}, {"drop": null}]', "counter drop"),
    ],
)
def test_rules_are_shown_in_nfts_words(expression, text):
    assert table(expression).chain("in").rules[0].text == text


def test_what_is_no_output_of_nft_is_refused():
    with pytest.raises(ValueError, match="no JSON"):
        table_objects("Error: no")
    with pytest.raises(ValueError, match="without a list"):
        table_objects("[]")

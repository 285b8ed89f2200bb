"""Native nft rules as something that can be asked: from ``nft -j`` to the same Rules that iptables text becomes.

iptables-save misprints or refuses what it did not write itself, so tables of other programs (firewalld, netavark, an
administrator's own) are read as JSON (libnftables-json(5)). Statements and expressions that are not understood make a
Doubt, as in ``parse``. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from pykubeproxy.insight.match import Doubt, View, in_network, number, protocol_number
from pykubeproxy.insight.parse import Action, Base, Chain, Rule, Way
from pykubeproxy.model.addresses import Family, with_port
from pykubeproxy.rules.names import HOOKS

_HOOKS = {name.lower(): name for name in HOOKS}
_SAYS_NOTHING = frozenset(("counter", "log", "comment", "last", "notrack", "flow", "secmark", "tproxy-none"))
_VERDICTS = frozenset(("accept", "drop", "continue", "return", "jump", "goto"))
_L4_BY_FIELD = frozenset(("tcp", "udp", "sctp"))


class Unjudged(Exception):
    """Something cannot be judged; the message says what."""


class NativeTable:
    """One table of nftables, of family ip, ip6 or inet."""

    def __init__(
        self, family: str, name: str, objects: Sequence[Mapping[str, Any]], *, ip: Family, shown_as: str = ""
    ) -> None:
        """Take the objects of one table as ``nft -j`` lists them; ``ip`` is the IP family of the packets to come."""
        self.name = shown_as or f"{family} {name}"
        self._ip = ip
        self._sets: dict[str, list[Any]] = {}
        self._rules: dict[str, list[Mapping[str, Any]]] = {}
        self._policies: dict[str, str] = {}
        self._chains: dict[str, Chain] = {}
        self.bases: list[Base] = []
        for entry in objects:
            for kind, value in entry.items():
                if isinstance(value, Mapping) and (value.get("family"), value.get("table")) == (family, name):
                    self._take(kind, value)

    def _take(self, kind: str, value: Mapping[str, Any]) -> None:
        if kind == "chain":
            self._rules.setdefault(value["name"], [])
            self._policies[value["name"]] = str(value.get("policy", "")).upper()
            hook = _HOOKS.get(value.get("hook", ""))
            if hook:
                priority = value.get("prio", 0)
                self.bases.append(
                    Base(
                        hook,
                        priority if isinstance(priority, int) else 0,
                        self.name,
                        value["name"],
                        value["type"] == "nat",
                    )
                )
        elif kind == "rule":
            self._rules.setdefault(value["chain"], []).append(value)
        elif kind in ("set", "map"):
            self._sets[value["name"]] = list(value.get("elem") or ())

    def chain(self, name: str) -> Chain | None:
        """Return a chain, or None where there is none."""
        known = self._chains.get(name)
        if known is None and name in self._rules:
            rules = tuple(self._rule(name, at, rule) for at, rule in enumerate(self._rules[name], 1))
            known = self._chains[name] = Chain(rules, self._policies.get(name, ""))
        return known

    def is_native(self, chain: str, number: int) -> bool:
        """Tell whether a rule was not written by iptables: it always counts, and never looks things up in sets."""
        statements = self._rules[chain][number - 1].get("expr") or []
        return not any("counter" in one for one in statements) or _looks_up(statements)

    def _rule(self, chain: str, at: int, rule: Mapping[str, Any]) -> Rule:
        statements = rule.get("expr") or []
        comment = str(rule.get("comment", ""))
        text = " ".join(show_statement(one) for one in statements)
        judge = _judge(statements, self._sets, self._ip)
        last = _last_action(statements)
        return Rule(self.name, chain, at, text, judge, last, comment)


def _looks_up(tree: Any) -> bool:
    if isinstance(tree, Mapping):
        return any(key in ("set", "map", "vmap", "concat") or _looks_up(value) for key, value in tree.items())
    if isinstance(tree, list):
        return any(map(_looks_up, tree))
    return isinstance(tree, str) and tree.startswith("@")


def table_objects(text: str) -> list[dict[str, Any]]:
    """Return the objects that ``nft -j`` printed.

    Raises:
        ValueError: the text is no such output.

    """
    try:
        tree = json.loads(text)
    except json.JSONDecodeError as problem:
        raise ValueError(f"nft -j printed what is no JSON: {problem}") from problem
    found = tree.get("nftables") if isinstance(tree, dict) else None
    if not isinstance(found, list):
        raise ValueError("nft -j printed JSON without a list of nftables objects")  # noqa: TRY004 - bad text, not a bad call
    return found


# -- judging


def _judge(
    statements: Sequence[Mapping[str, Any]], sets: Mapping[str, list[Any]], ip: Family
) -> Callable[[View], list[Way] | Doubt]:
    def judge(view: View) -> list[Way] | Doubt:
        try:
            return _walk(statements, _Scope(view, sets, ip))
        except Unjudged as problem:
            return Doubt(str(problem))
        except _UNKNOWN_SHAPE:
            # A newer nft may print shapes that nobody knew here.
            return Doubt("a statement of unknown shape")

    return judge


class _Scope:
    """A packet and the sets of the table that looks at it."""

    def __init__(self, view: View, sets: Mapping[str, list[Any]], ip: Family) -> None:
        self.view = view
        self.sets = sets
        self.ip = ip


def _walk(statements: Sequence[Mapping[str, Any]], scope: _Scope) -> list[Way]:
    """Evaluate statements from left to right; a clear no ends it, whatever was in doubt before."""
    share = Fraction(1)
    actions: list[Action] = []
    doubts: list[str] = []
    for statement in statements:
        kind, value = next(iter(statement.items()))
        try:
            if kind == "match":
                answer = _match(value, scope)
                if isinstance(answer, Fraction):
                    share *= answer
                elif not answer:
                    return []
            elif kind == "vmap":
                ways = _choose(value["key"], value["data"], scope)
                found = [(chance * share, _verdict(verdict)) for chance, verdict in ways]
                if doubts:
                    break
                return [(chance, (*actions, action)) for chance, action in found if action is not None]
            elif kind in _VERDICTS:
                action = _verdict({kind: value})
                if action is not None:
                    actions.append(action)
            elif kind not in _SAYS_NOTHING:
                actions += _effect(kind, value, scope)
        except Unjudged as problem:
            doubts.append(str(problem))
    if doubts:
        raise Unjudged(", ".join(doubts))
    return [(share, tuple(actions) or (Action("continue"),))]


def _verdict(verdict: Mapping[str, Any]) -> Action | None:
    kind, value = next(iter(verdict.items()))
    if kind in ("jump", "goto"):
        return Action(kind, chain=value["target"])  # type: ignore[arg-type]
    return None if kind == "continue" else Action(kind)  # type: ignore[arg-type]


def _effect(kind: str, value: Any, scope: _Scope) -> list[Action]:
    """Return what a statement other than a verdict does."""
    if kind == "reject":
        return [Action("reject")]
    if kind == "masquerade":
        return [Action("masquerade")]
    if kind == "snat":
        return [Action("snat", to=str((value or {}).get("addr", "")))]
    if kind == "redirect":
        port = (value or {}).get("port")
        return [Action("redirect", to=f":{_plain(port)}" if port is not None else "")]
    if kind == "dnat":
        return [Action("dnat", to=_target(value, scope))]
    if kind == "mangle":
        left = value["key"]
        if left == {"meta": {"key": "mark"}}:
            mark = _number(_value(value["value"], scope))
            return [Action("mark", value=mark, mask=0xFFFFFFFF)]
        if "ct" in left or "meta" in left:
            return []
        raise Unjudged(show_statement({kind: value}))
    if kind == "xt" and value and value.get("name") in ("comment", "nfacct", "LOG", "TRACE", "NFLOG"):
        return []
    raise Unjudged(show_statement({kind: value}))


def _target(value: Mapping[str, Any], scope: _Scope) -> str:
    address, port = value.get("addr"), value.get("port")
    if isinstance(address, Mapping) and "map" in address:
        found = _choose(address["map"]["key"], address["map"]["data"], scope)
        if len(found) != 1:
            raise Unjudged(f"dnat to {show(address)}")
        address = found[0][1]
    if isinstance(address, Mapping) and "concat" in address:
        address, port = address["concat"][:2]
    if isinstance(address, Mapping):
        raise Unjudged(f"dnat to {show(address)}")
    if port is not None and not isinstance(port, int):
        port = _number(_value(port, scope))
    if address is None:
        return f":{port}"
    return with_port(str(address), port) if port is not None else str(address)


def _plain(port: Any) -> str:
    return str(port["range"][0] if isinstance(port, Mapping) and "range" in port else port)


def _choose(key: Any, data: Any, scope: _Scope) -> list[tuple[Fraction, Any]]:
    """Look a key up in a map; return what it may lead to, with chances. Nothing found: []."""
    pairs = scope.sets.get(data[1:], []) if isinstance(data, str) else data["set"]
    if isinstance(key, Mapping) and ("numgen" in key or "jhash" in key or "symhash" in key):
        spec = next(iter(key.values()))
        modulus, offset = int(spec["mod"]), int(spec.get("offset", 0))
        if isinstance(pairs, list):
            found = []
            for one in range(offset, offset + modulus):
                value = next((to for low, to in _pairs(pairs) if _fits(one, low)), None)
                if value is not None:
                    found.append((Fraction(1, modulus), value))
            return found
    value = _value(key, scope)
    for entry, to in _pairs(pairs):
        if _fits(value, entry):
            return [(Fraction(1), to)]
    return []


def _pairs(pairs: Iterable[Any]) -> Iterable[tuple[Any, Any]]:
    for pair in pairs:
        key, value = pair[0], pair[1]
        yield _bare(key), value


def _bare(element: Any) -> Any:
    """Take timeouts, comments and counters off a set element."""
    return element["elem"]["val"] if isinstance(element, Mapping) and "elem" in element else element


def _match(value: Mapping[str, Any], scope: _Scope) -> bool | Fraction:
    left, right, operator = value["left"], value["right"], value["op"]
    if isinstance(left, Mapping) and ("numgen" in left or "jhash" in left or "symhash" in left):
        spec = next(iter(left.values()))
        modulus, offset = int(spec["mod"]), int(spec.get("offset", 0))
        hits = sum(_compare(one, operator, right, scope) for one in range(offset, offset + modulus))
        share = Fraction(hits, modulus)
        return share if 0 < share < 1 else share == 1
    return _compare(_value(left, scope), operator, right, scope)


def _compare(found: Any, operator: str, right: Any, scope: _Scope) -> bool:
    if found is _ABSENT:
        return False
    if operator in ("==", "in", "!="):
        fits = _fits(found, _right(right, scope))
        return fits is (operator != "!=")
    wanted = _number(_right(right, scope))
    have = _number(found)
    return {"<": have < wanted, ">": have > wanted, "<=": have <= wanted, ">=": have >= wanted}[operator]


def _right(right: Any, scope: _Scope) -> Any:
    if isinstance(right, str) and right.startswith("@"):
        if right[1:] not in scope.sets:
            raise Unjudged(f"set {right}")
        return {"set": scope.sets[right[1:]]}
    return right


class _Absent:
    """A field that this packet does not have: nothing equals it, nor differs from it (nft breaks off the rule)."""


_ABSENT = _Absent()


def _fits(found: Any, wanted: Any) -> bool:
    """Tell whether a value is equal to, or in, what stands on the right."""
    if found is _ABSENT:
        return False
    wanted = _bare(wanted)
    if isinstance(wanted, list):
        return any(_fits(found, one) for one in wanted)
    if isinstance(wanted, Mapping):
        return _fits_structure(found, wanted)
    if wanted == "*":
        return True
    if isinstance(found, frozenset):
        return wanted in found
    if isinstance(found, str) and isinstance(wanted, str) and wanted.endswith("*"):
        return found.startswith(wanted[:-1])
    if isinstance(found, str) and isinstance(wanted, str | int):
        return protocol_number(found) == protocol_number(str(wanted))
    return bool(found == wanted)


def _fits_structure(found: Any, wanted: Mapping[str, Any]) -> bool:
    if "set" in wanted:
        elements = wanted["set"]
        return any(_fits(found, one) for one in (elements if isinstance(elements, list) else [elements]))
    if "prefix" in wanted:
        spec = wanted["prefix"]
        return isinstance(found, str) and in_network(found, f"{spec['addr']}/{spec['len']}")
    if "range" in wanted:
        low, high = wanted["range"]
        if isinstance(low, str) and isinstance(found, str) and _is_address(low):
            return (":" in low) == (":" in found) and number(low) <= number(found) <= number(high)
        return _number(low) <= _number(found) <= _number(high)
    if "concat" in wanted:
        parts = wanted["concat"]
        return isinstance(found, tuple) and len(found) == len(parts) and all(map(_fits, found, parts))
    raise Unjudged(show(wanted))


def _is_address(text: str) -> bool:
    return ":" in text or text.count(".") == 3


def _number(value: Any) -> int:
    if isinstance(value, int):
        return value
    try:
        return int(str(value), 0)
    except ValueError:
        raise Unjudged(show(value)) from None


def _value(expression: Any, scope: _Scope) -> Any:
    """Return what an expression yields for this packet."""
    if not isinstance(expression, Mapping):
        return expression
    kind, value = next(iter(expression.items()))
    match kind:
        case "payload" if "field" in value:
            return _payload(value["protocol"], value["field"], scope)
        case "meta":
            return _meta(value["key"], scope)
        case "ct":
            return _ct(value, scope)
        case "fib":
            return _fib(value, scope)
        case "concat":
            return tuple(_value(one, scope) for one in value)
        case "&" | "|" | "^" | "<<" | ">>":
            return _bits(kind, value, scope)
    raise Unjudged(show(expression))


def _bits(kind: str, value: Sequence[Any], scope: _Scope) -> Any:
    left = _value(value[0], scope)
    right = value[1]
    if isinstance(left, frozenset) and kind == "&":
        return left & frozenset(right if isinstance(right, list) else [right])
    one, other = _number(left), _number(_value(right, scope))
    return {"&": one & other, "|": one | other, "^": one ^ other, "<<": one << min(other, 63), ">>": one >> other}[kind]


def _payload(protocol: str, field: str, scope: _Scope) -> Any:
    view, own = scope.view, scope.view.packet
    if protocol in ("ip", "ip6"):
        if (protocol == "ip") != (scope.ip == "IPv4"):
            return _ABSENT
        known = {"saddr": own.source, "daddr": view.destination, "protocol": own.protocol, "nexthdr": own.protocol}
        if field in known:
            return known[field]
        if field == "version":
            return 4 if protocol == "ip" else 6
    elif protocol == "th" or protocol in _L4_BY_FIELD:
        if protocol not in ("th", own.protocol):
            return _ABSENT
        if field == "dport":
            return view.port
        if field == "sport" and own.source_port:
            return own.source_port
        if field == "flags" and own.state == "NEW":
            return frozenset(("syn",))
    elif protocol in ("icmp", "icmpv6"):
        if protocol_number(own.protocol) != protocol_number(protocol):
            return _ABSENT
    elif protocol in ("arp", "vlan"):
        return _ABSENT
    raise Unjudged(f"{protocol} {field}")


def _meta(key: str, scope: _Scope) -> Any:
    view = scope.view
    match key:
        case "mark":
            return view.mark
        case "l4proto":
            return view.packet.protocol
        case "nfproto" | "protocol":
            names = {"nfproto": ("ipv4", "ipv6"), "protocol": ("ip", "ip6")}[key]
            return names[scope.ip == "IPv6"]
        case "iifname" | "iif" | "oifname" | "oif":
            found = view.in_interface if key.startswith("i") else view.out_interface
            if found == "":
                raise Unjudged(f"{key}: the interface is not known")
            # Without an interface the names are empty and the numbers zero; "!=" holds.
            return found or ""
    raise Unjudged(f"meta {key}")


def _ct(value: Mapping[str, Any], scope: _Scope) -> Any:
    view, own = scope.view, scope.view.packet
    key = value["key"]
    if key == "state":
        return frozenset((own.state.lower(),))
    if key == "status":
        return frozenset(("dnat",)) if view.is_translated else frozenset()
    if key == "direction" and own.state == "NEW":
        return "original"
    if value.get("dir") == "original":
        known = {"ip daddr": own.destination, "daddr": own.destination, "proto-dst": own.port, "ip saddr": own.source}
        known |= {"ip6 daddr": own.destination, "ip6 saddr": own.source, "saddr": own.source, "protocol": own.protocol}
        if key in known:
            return known[key]
    raise Unjudged(f"ct {key}")


def _fib(value: Mapping[str, Any], scope: _Scope) -> Any:
    view, own = scope.view, scope.view.packet
    flags = value.get("flags") or []
    if value.get("result") == "type" and isinstance(flags, list) and not {"iif", "oif"} & set(flags):
        address = own.source if "saddr" in flags else view.destination
        if own.is_local(address):
            return "local"
        if in_network(address, "ff00::/8" if ":" in address else "224.0.0.0/4"):
            return "multicast"
        return "unicast"
    raise Unjudged(f"fib {' . '.join(map(str, flags))} {value.get('result')}")


def _last_action(statements: Sequence[Mapping[str, Any]]) -> Action:
    """Return what a rule ends with, for showing it where it was not judged."""
    for statement in reversed(statements):
        try:
            found = _outline(statement)
        except _UNKNOWN_SHAPE:
            continue
        if found is not None:
            return found
    return Action("continue")


def _outline(statement: Mapping[str, Any]) -> Action | None:
    """Return what kind of thing a statement does, for showing a rule that was not judged."""
    kind, value = next(iter(statement.items()))
    if kind in _VERDICTS:
        return _verdict({kind: value})
    if kind in ("reject", "masquerade", "snat", "dnat", "redirect"):
        return Action(kind)  # type: ignore[arg-type]
    return Action("unknown", to="vmap") if kind == "vmap" else None


# -- showing


_UNKNOWN_SHAPE = (KeyError, TypeError, AttributeError, ValueError, IndexError, StopIteration)
"""What walking a tree of unknown shape may raise."""


def show(expression: Any) -> str:
    """Return an expression in nft's own words as far as they are known here, else as JSON."""
    try:
        return _show(expression)
    except _UNKNOWN_SHAPE:
        return json.dumps(expression, separators=(",", ":"))


def show_statement(statement: Any) -> str:
    """Return a statement in nft's own words as far as they are known here, else as JSON."""
    try:
        return _show_statement(statement)
    except _UNKNOWN_SHAPE:
        return json.dumps(statement, separators=(",", ":"))


def _show(expression: Any) -> str:  # noqa: PLR0911 - one line a kind of expression
    if isinstance(expression, bool):
        return "exists" if expression else "missing"
    if isinstance(expression, list):
        return ", ".join(map(show, expression))
    if not isinstance(expression, Mapping):
        return str(expression)
    kind, value = next(iter(expression.items()))
    match kind:
        case "payload" if "field" in value:
            return f"{value['protocol']} {value['field']}"
        case "meta":
            return f"meta {value['key']}" if value["key"] in ("mark", "l4proto", "nfproto") else str(value["key"])
        case "ct":
            return f"ct {value.get('dir', '')} {value['key']}".replace("  ", " ")
        case "fib":
            return f"fib {' . '.join(value.get('flags') or ())} {value.get('result', '')}"
        case "prefix":
            return f"{value['addr']}/{value['len']}"
        case "range":
            return f"{show(value[0])}-{show(value[1])}"
        case "concat":
            return " . ".join(map(show, value))
        case "set":
            elements = value if isinstance(value, list) else [value]
            shown = [f"{show(e[0])} : {show_statement(e[1])}" if _is_pair(e) else show(e) for e in elements[:6]]
            return "{ " + ", ".join(shown) + (f", … {len(elements) - 6} more" if len(elements) > 6 else "") + " }"
        case "elem":
            return show(value["val"])
        case "map":
            return f"{show(value['key'])} map {show(value['data'])}"
        case "numgen":
            return f"numgen {value['mode']} mod {value['mod']}"
        case "&" | "|" | "^" | "<<" | ">>":
            return f"{show(value[0])} {kind} {show(value[1])}"
    return json.dumps(expression, separators=(",", ":"))


def _is_pair(element: Any) -> bool:
    return isinstance(element, list) and len(element) == 2


def _show_statement(statement: Any) -> str:  # noqa: PLR0911 - one line a kind of statement
    if not isinstance(statement, Mapping):
        return show(statement)
    kind, value = next(iter(statement.items()))
    match kind:
        case "match":
            operator = "" if value["op"] in ("==", "in") else f"{value['op']} "
            return f"{show(value['left'])} {operator}{show(value['right'])}"
        case "vmap":
            return f"{show(value['key'])} vmap {show(value['data'])}"
        case "jump" | "goto":
            return f"{kind} {value['target']}"
        case "dnat" | "snat":
            port = value.get("port")
            return f"{kind} to {show(value.get('addr', ''))}{f':{show(port)}' if port is not None else ''}"
        case "redirect":
            return f"redirect to :{show(value['port'])}" if value and "port" in value else "redirect"
        case "mangle":
            return f"{show(value['key'])} set {show(value['value'])}"
        case "xt":
            return f"xt {value.get('type', '')} {value.get('name', '?')}".replace("  ", " ") if value else "xt"
        case "limit":
            return f"limit rate {value.get('rate')}/{value.get('per')}"
        case "counter":
            return "counter"
        case "log":
            return "log"
    if value is None or kind in ("reject", "masquerade"):
        return str(kind)
    return f"{kind} {show(value)}"

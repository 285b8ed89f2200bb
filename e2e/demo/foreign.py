"""Rules of others: flannel's, Docker's, an administrator's, native nft tables; and the comparer that watches over them.

Everything outside chains named KUBE-… counts, and of builtin chains everything but jumps to such chains: the text of
the rules, their order among each other, the policies, and in nft also the handles, so that even a rule that was taken
out and put back is noticed. Counters do not count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from e2e.netlab import Family, Lab

FLANNEL = """\
*nat
:FLANNEL-POSTRTG - [0:0]
-A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG
-A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s 10.244.2.0/24 -d 10.244.0.0/16 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s 10.244.0.0/16 -d 10.244.2.0/24 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG ! -s 10.244.0.0/16 -d 10.244.2.0/24 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s 10.244.0.0/16 ! -d 224.0.0.0/4 -m comment --comment "flanneld masq" -j MASQUERADE
-A FLANNEL-POSTRTG ! -s 10.244.0.0/16 -d 10.244.0.0/16 -m comment --comment "flanneld masq" -j MASQUERADE
COMMIT
*filter
:FLANNEL-FWD - [0:0]
-A FORWARD -m comment --comment "flanneld forward" -j FLANNEL-FWD
-A FLANNEL-FWD -s 10.244.0.0/16 -m comment --comment "flanneld forward" -j ACCEPT
-A FLANNEL-FWD -d 10.244.0.0/16 -m comment --comment "flanneld forward" -j ACCEPT
COMMIT
"""
DOCKER = """\
*nat
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
-A DOCKER -i docker0 -j RETURN
-A DOCKER ! -i docker0 -p tcp -m tcp --dport 8088 -j DNAT --to-destination 172.17.0.2:80
COMMIT
*filter
:FORWARD DROP [0:0]
:DOCKER - [0:0]
:DOCKER-USER - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -o docker0 -j DOCKER
-A DOCKER -d 172.17.0.2/32 ! -i docker0 -o docker0 -p tcp -m tcp --dport 80 -j ACCEPT
-A DOCKER-USER -j RETURN
COMMIT
"""
ADMINISTRATOR = """\
*filter
:LOG-AND-DROP - [0:0]
-A INPUT -p tcp -m tcp --dport 23 -m comment --comment "no telnet, ever" -j LOG-AND-DROP
-A OUTPUT -d {bad} -j LOG-AND-DROP
-A LOG-AND-DROP -j DROP
COMMIT
*mangle
-A PREROUTING -p tcp -m tcp --dport 5060 -j MARK --set-xmark 0x1/0xff
COMMIT
"""
NATIVE = """\
table inet administrator {
  set bad {
    type ipv4_addr
    flags interval
    elements = { 198.51.100.0/24, 203.0.113.7 }
  }
  map limits {
    type inet_service : verdict
    elements = { 25 : drop, 137 : drop }
  }
  chain input {
    type filter hook input priority 10; policy accept;
    ip saddr @bad counter drop
    tcp dport vmap @limits
  }
  chain forward {
    type filter hook forward priority 10; policy accept;
    ct state invalid counter
  }
}
table ip telemetry {
  counter seen { }
  chain pre {
    type filter hook prerouting priority -310; policy accept;
    counter name "seen"
  }
}
"""
MIXED_CHAIN = ("ip", "filter", "FORWARD")
MIXED_RULE = "ip daddr { 198.51.100.7, 198.51.100.8 } ct mark set 7"
"""A native rule that iptables-nft cannot print: one such rule makes the whole table unreadable for it."""

_IPTABLES_TABLES = {"filter", "nat", "mangle", "raw", "security"}


class Foreign:
    """The rules of others on the node."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def install(self) -> None:
        """Put them there, in both families where they exist in both."""
        for document in (FLANNEL, DOCKER, ADMINISTRATOR.format(bad="203.0.113.66/32")):
            self._lab.restore(document)
        self._lab.restore(ADMINISTRATOR.format(bad="2001:db8:bad::/48"), family=6)
        self._lab.node.run(["nft", "-f", "-"], stdin=NATIVE)

    def controls(self) -> dict[str, bool]:
        """Touch each kind of thing and tell whether the comparer notices; all is put back as it was."""
        docker = ["POSTROUTING", "-s", "172.17.0.0/16", "!", "-o", "docker0", "-j", "MASQUERADE"]
        run = self._lab.node.run
        last = ["-A", "LOG-AND-DROP", "-j", "DROP"]
        touched: dict[str, tuple[list[list[str]], list[list[str]]]] = {
            "a rule that moved to the front": (
                [["-t", "nat", "-D", *docker], ["-t", "nat", "-I", *docker]],
                [["-t", "nat", "-D", *docker], ["-t", "nat", "-A", *docker]],
            ),
            "a rule that is there twice": ([last], [["-D", *last[1:]]]),
            "a policy": ([["-P", "FORWARD", "ACCEPT"]], [["-P", "FORWARD", "DROP"]]),
        }
        noticed = {}
        for what, (touch, mend) in touched.items():
            before = self.snapshot()
            for arguments in touch:
                self._lab.iptables(*arguments)
            noticed[what] = bool(differences(before, self.snapshot()))
            for arguments in mend:
                self._lab.iptables(*arguments)
        before = self.snapshot()
        run(["nft", "add", "element", "inet", "administrator", "bad", "{ 192.0.2.1 }"])
        noticed["an element of a native set"] = bool(differences(before, self.snapshot()))
        run(["nft", "delete", "element", "inet", "administrator", "bad", "{ 192.0.2.1 }"])
        before = self.snapshot()
        run(
            ["nft", "-f", "-"],
            stdin="flush chain inet administrator forward\n"
            "add rule inet administrator forward ct state invalid counter\n",
        )
        noticed["a native rule that was taken out and put back"] = bool(differences(before, self.snapshot()))
        return noticed

    def add_mixed(self) -> int:
        """Put a native rule into a table that iptables-nft uses; return its handle."""
        self._lab.node.run(["nft", "add", "rule", *MIXED_CHAIN, *MIXED_RULE.split()])
        return self.mixed()[-1]

    def mixed(self) -> list[int]:
        """Return the handles of that native rule as often as it stands."""
        listed = json.loads(self._lab.node.run(["nft", "-j", "list", "chain", *MIXED_CHAIN]).stdout)
        rules = [entry["rule"] for entry in listed["nftables"] if "rule" in entry]
        return [rule["handle"] for rule in rules if "198.51.100.8" in json.dumps(rule["expr"])]

    def remove_mixed(self, handle: int) -> None:
        """Take it out again."""
        self._lab.node.run(["nft", "delete", "rule", *MIXED_CHAIN, "handle", str(handle)])

    def snapshot(self) -> dict[str, list[str]]:
        """Return what stands, by the tool that tells it; equal snapshots mean untouched."""
        found = {f"iptables, IPv{family}": list(self._iptables(family)) for family in (4, 6)}
        found["nft"] = list(self._nft())
        return found

    def _iptables(self, family: Family) -> Iterator[str]:
        saved = self._lab.save(family)
        for (table, chain), policy in sorted(saved.policies.items()):
            if policy.text != "ACCEPT":  # a builtin chain appears in iptables-nft-save once it is first used
                yield f"{table} {chain} policy {policy.text}"
        for table, chains in sorted(saved.tables.items()):
            for chain in sorted(chains):
                if chain.startswith("KUBE-"):
                    continue
                if (table, chain) not in saved.policies:
                    yield f"{table} chain {chain}"
                rules = [rule for rule in chains[chain] if not rule.target.startswith("KUBE-")]
                yield from (f"{table} {chain} {rule.text}" for rule in rules)

    def _nft(self) -> Iterator[str]:
        for entry in json.loads(self._lab.node.run(["nft", "-j", "list", "ruleset"]).stdout)["nftables"]:
            ((kind, what),) = entry.items()
            shared = what.get("family") in ("ip", "ip6") and what.get("table", what.get("name")) in _IPTABLES_TABLES
            if kind == "metainfo" or (shared and (kind != "rule" or _is_ours(what))):
                continue
            yield f"{kind} {json.dumps(_without_counters(what), sort_keys=True)}"


def _is_ours(rule: dict[str, Any]) -> bool:
    targets = [str(e["jump"]["target"]) for e in rule["expr"] if isinstance(e, dict) and "jump" in e]
    return rule["chain"].startswith("KUBE-") or any(target.startswith("KUBE-") for target in targets)


def _without_counters(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_counters(v) for k, v in value.items() if k not in ("packets", "bytes")}
    if isinstance(value, list):
        return [_without_counters(item) for item in value]
    return value


def differences(before: dict[str, list[str]], after: dict[str, list[str]]) -> list[str]:
    """Say what is not as it was, a line each; [] when all is."""
    told = []
    for tool, lines in before.items():
        now = after[tool]
        told += [f"{tool}: gone: {line}" for line in lines if line not in now]
        told += [f"{tool}: new: {line}" for line in now if line not in lines]
        if lines != now and sorted(lines) == sorted(now):
            told.append(f"{tool}: the order is another")
        elif len(lines) != len(now) and set(lines) == set(now):
            told.append(f"{tool}: something stands twice")
    return told

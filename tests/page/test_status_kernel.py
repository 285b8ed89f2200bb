"""Is it programmed on this node? Asked of the real kernel, in part: what is missing, changed or too much is named."""

import pytest

from pykubeproxy.dryrun import plan
from pykubeproxy.errors import LockBusyError
from pykubeproxy.insight.partial import PartialReader
from pykubeproxy.netfilter.backend import Backend
from pykubeproxy.rules.names import PortChains
from tests.page.status_parts import node_status
from tests.support.builders import endpoint_slice, port, service
from tests.support.kernel import real_kernel
from tests.support.node import inside

pytestmark = pytest.mark.netns

OBJECTS = [
    service("web", ports=[port(80, node_port=30080)], lb=["203.0.113.9"], loadBalancerSourceRanges=["192.0.2.0/24"]),
    endpoint_slice("web", ["10.244.1.1", "10.244.1.2"]),
    service("other", ip="10.96.0.11"),
    endpoint_slice("other", ["10.244.1.3"]),
]
MANY = [
    service(f"s-{n}", ip=f"10.96.{n // 200}.{n % 200 + 20}", ports=[port(80, node_port=30000 + n)]) for n in range(400)
]
MANY += [endpoint_slice(f"s-{n}", ["10.244.1.9"]) for n in range(400)]


class Programmed:
    """A kernel that holds what is wanted for the objects."""

    def __init__(self, kernel, objects, dispatch):
        self.kernel = kernel
        self.status = node_status(
            *objects, dispatch=dispatch, reader=PartialReader(Backend(kernel.kind, "IPv4"), kernel, clock=self.clock)
        )
        self._now = 0.0
        self.wanted = self.status._parts["IPv4"].engine.wanted
        kernel.edit(plan(self.wanted).text())

    def clock(self):
        self._now += 100.0
        return self._now

    def ask(self, name="web"):
        data = inside(self.kernel.netns, lambda: self.status.service("default", name)).data
        family = data["families"]["IPv4"]
        return data["programmed"], [*family["differences"], *family["ports"][0]["differences"]]

    def chains(self, name="web"):
        return PortChains(self.wanted.ports_of(("default", name))[0])


@pytest.fixture(params=["nft", "legacy"])
def backend(request):
    return request.param


@pytest.fixture
def it(backend):
    with real_kernel(backend) as kernel:
        yield Programmed(kernel, OBJECTS, "flat")


def test_all_is_well(it):
    assert it.ask() == (True, [])
    assert it.ask("other") == (True, [])


def test_a_missing_chain_is_named(it):
    chain = it.chains().endpoint("10.244.1.1:8080")
    it.kernel.edit(f"*nat\n-F {it.chains().cluster}\n-F {chain}\n-X {chain}\nCOMMIT\n")
    programmed, differences = it.ask()
    assert not programmed
    assert f"nat lacks chain {chain}" in differences
    assert f"nat {it.chains().cluster} holds other rules" in differences
    assert it.ask("other") == (True, []), "the other service is not concerned"


def test_a_missing_portal_is_named(it):
    rule = next(
        line for line in it.wanted.ruleset.chains["nat"]["KUBE-SERVICES"].splitlines() if "web cluster IP" in line
    )
    it.kernel.edit(f"*nat\n-D {rule.removeprefix('-A ')}\nCOMMIT\n")
    programmed, differences = it.ask()
    assert not programmed
    assert differences == [f"nat KUBE-SERVICES lacks: {rule.split(' ', 2)[2]}"]


def test_a_chain_too_many_is_named(it):
    chain = it.chains("other").external
    it.kernel.edit(f"*nat\n:{chain} - [0:0]\nCOMMIT\n")
    assert it.ask("other") == (False, [f"nat has chain {chain}, which should be gone"])


def test_a_missing_jump_is_named(it):
    rule = next(rule for rule in it.wanted.ruleset.ensured if (rule.table, rule.chain) == ("nat", "PREROUTING"))
    it.kernel.edit(f"*nat\n-D PREROUTING {rule.rule}\nCOMMIT\n")
    assert it.ask() == (False, ["nat PREROUTING lacks the jump to KUBE-SERVICES"])


def test_counters_are_shown(it):
    chains = it.chains()
    target = it.kernel.save("nat").split(f"-A {chains.endpoint('10.244.1.2:8080')} -p")[1].splitlines()[0]
    rule = f"{chains.endpoint('10.244.1.2:8080')} -p{target}"
    restored = f"*nat\n-D {rule}\n[42:2520] -A {rule}\nCOMMIT\n".encode()
    assert it.kernel.run([f"{it.kernel.stem}-restore", "--noflush", "--counters"], restored).status == 0
    data = inside(it.kernel.netns, lambda: it.status.service("default", "web")).data
    endpoints = data["families"]["IPv4"]["ports"][0]["spreads"][0]["endpoints"]
    assert {one["target"]: one["connections"] for one in endpoints} == {"10.244.1.1:8080": 0, "10.244.1.2:8080": 42}


@pytest.mark.parametrize(("note", "mark"), [("s-7 cluster IP", "IP-"), ("s-7", "NP-")])
def test_a_jump_of_a_tree_that_is_missing_is_named(backend, note, mark):
    with real_kernel(backend) as kernel:
        it = Programmed(kernel, MANY, "tree")
        assert it.ask("s-7") == (True, [])
        nat = it.wanted.ruleset.chains["nat"]
        leaf = next(name for name, text in nat.items() if f'"default/{note}"' in text and mark in name)
        jump = next(line for text in nat.values() for line in text.splitlines() if line.endswith(f" -j {leaf}"))
        kernel.edit(f"*nat\n-D {jump.removeprefix('-A ')}\nCOMMIT\n")
        programmed, differences = it.ask("s-7")
        assert not programmed
        assert differences == [f"nat {jump.split()[1]} lacks: {jump.split(' ', 2)[2]}"]


def test_among_native_rules_what_can_be_read_is_told():
    with real_kernel("nft") as kernel:
        it = Programmed(kernel, OBJECTS, "flat")
        native = "add rule ip nat PREROUTING ip daddr { 198.51.100.7, 198.51.100.8 } ct mark set 7"
        assert kernel.run(["nft", native]).status == 0
        assert it.ask() == (True, []), "our jump in PREROUTING is seen by netlink"
        chain = it.chains().cluster
        assert kernel.run(["nft", native.replace("PREROUTING", chain)]).status == 0
        programmed, differences = it.ask()
        assert not programmed
        assert differences == [
            "table nat cannot be read whole: native rules stand in it",
            f"nat {chain} cannot be read among native rules",
        ]


def test_a_busy_lock_is_told():
    with real_kernel("legacy") as kernel:
        it = Programmed(kernel, OBJECTS, "flat")

        def busy(*_args, **_more):
            raise LockBusyError("another program holds the xtables lock")

        it.status._readers["IPv4"]._runner = type("Busy", (), {"run": busy})()
        data = inside(kernel.netns, lambda: it.status.service("default", "web")).data
        assert data["programmed"] is False
        assert data["families"]["IPv4"]["kernelUnread"] == "another program holds the xtables lock"

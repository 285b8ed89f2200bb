"""The fake kernel is verified: it gives the real one's answers, on both backends, to the questions that matter."""

import contextlib
from dataclasses import dataclass

import pytest

from pykubeproxy.netfilter.backend import Backend
from pykubeproxy.netfilter.read import parse
from tests.support.fake_kernel import FakeKernel
from tests.support.kernel import real_kernel

KERNELS = [
    "fake",
    pytest.param("legacy", marks=pytest.mark.netns),
    pytest.param("nft", marks=pytest.mark.netns),
]


@dataclass
class Asked:
    runner: object
    backend: Backend

    def restore(self, text: str) -> int:
        return self.runner.run(self.backend.restore(), text.encode()).status

    def chains(self, table: str) -> dict[str, str]:
        text = self.runner.run(self.backend.save(table)).stdout.decode()
        return parse(text)[table].chains if text else {}

    def listed(self, table: str, chain: str):
        done = self.runner.run(self.backend.tool(table, "-S", chain))
        return done.stdout.decode() if done.status == 0 else None


@pytest.fixture(scope="module", params=KERNELS)
def maker(request):
    """One namespace for the whole module; each test starts with empty tables."""
    if request.param == "fake":
        yield lambda: Asked(FakeKernel(), Backend("nft", "IPv4"))
    else:
        with real_kernel(request.param) as real:
            backend = Backend(request.param, "IPv4")

            def make():
                real.reset()
                return Asked(real, backend)

            yield make


@pytest.fixture
def kernel(maker):
    return maker()


def test_a_chain_line_makes_a_chain_and_empties_it_later(kernel):
    assert kernel.restore("*nat\n:A - [0:0]\n-A A -j RETURN\nCOMMIT\n") == 0
    assert kernel.chains("nat")["A"] == "-A A -j RETURN\n"
    assert kernel.restore("*nat\n:A - [0:0]\nCOMMIT\n") == 0
    assert kernel.chains("nat")["A"] == ""


def test_a_builtin_chain_is_not_emptied_by_its_line(kernel):
    assert kernel.restore("*filter\n-A INPUT -p tcp -j DROP\nCOMMIT\n") == 0
    assert kernel.restore("*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n") == 0
    assert kernel.chains("filter")["INPUT"] == "-A INPUT -p tcp -j DROP\n"


def test_a_jump_to_a_missing_chain_is_refused(kernel):
    assert kernel.restore("*nat\n:A - [0:0]\n-A A -j MISSING\nCOMMIT\n") != 0
    assert "A" not in kernel.chains("nat")


def test_a_jump_to_a_chain_of_another_table_is_refused(kernel):
    assert kernel.restore("*filter\n:B - [0:0]\nCOMMIT\n") == 0
    assert kernel.restore("*nat\n:A - [0:0]\n-A A -j B\nCOMMIT\n") != 0


def test_a_jump_may_come_before_the_chain_is_filled(kernel):
    assert kernel.restore("*nat\n:A - [0:0]\n:B - [0:0]\n-A A -j B\n-A B -j RETURN\nCOMMIT\n") == 0


def test_one_refused_line_undoes_its_table_and_no_other(kernel):
    document = "*filter\n:F - [0:0]\nCOMMIT\n*nat\n:A - [0:0]\n-A A -j MISSING\nCOMMIT\n"
    assert kernel.restore(document) != 0
    assert "F" in kernel.chains("filter")
    assert "A" not in kernel.chains("nat")


def test_nothing_behind_a_refused_table_is_applied(kernel):
    document = "*nat\n:A - [0:0]\n-A A -j MISSING\nCOMMIT\n*filter\n:F - [0:0]\nCOMMIT\n"
    assert kernel.restore(document) != 0
    assert "F" not in kernel.chains("filter")


def test_a_table_may_come_twice(kernel):
    document = "*filter\n:F - [0:0]\n-A F -j DROP\nCOMMIT\n*nat\n:A - [0:0]\nCOMMIT\n*filter\n:F - [0:0]\nCOMMIT\n"
    assert kernel.restore(document) == 0
    assert kernel.chains("filter")["F"] == ""


def test_a_chain_that_is_referred_to_cannot_be_deleted(kernel):
    assert kernel.restore("*nat\n:A - [0:0]\n:B - [0:0]\n-A A -j B\nCOMMIT\n") == 0
    assert kernel.restore("*nat\n:B - [0:0]\n-X B\nCOMMIT\n") != 0
    assert "B" in kernel.chains("nat")


def test_caller_and_callee_can_be_emptied_and_deleted_in_one_input(kernel):
    assert kernel.restore("*nat\n:A - [0:0]\n:B - [0:0]\n-A A -j B\nCOMMIT\n") == 0
    assert kernel.restore("*nat\n:A - [0:0]\n:B - [0:0]\n-X A\n-X B\nCOMMIT\n") == 0
    assert not {"A", "B"} & set(kernel.chains("nat"))


def test_a_callee_can_be_deleted_in_the_input_that_rewrites_its_caller(kernel):
    assert kernel.restore("*nat\n:A - [0:0]\n:B - [0:0]\n-A A -j B\nCOMMIT\n") == 0
    assert kernel.restore("*nat\n:A - [0:0]\n:B - [0:0]\n-A A -j RETURN\n-X B\nCOMMIT\n") == 0
    assert "B" not in kernel.chains("nat")


def test_a_chain_with_rules_cannot_be_deleted(kernel):
    assert kernel.restore("*nat\n:A - [0:0]\n-A A -j RETURN\nCOMMIT\n") == 0
    assert kernel.restore("*nat\n-X A\nCOMMIT\n") != 0


def test_a_missing_chain_cannot_be_deleted_or_appended_to(kernel):
    assert kernel.restore("*nat\n-X A\nCOMMIT\n") != 0
    assert kernel.restore("*nat\n-A A -j RETURN\nCOMMIT\n") != 0


def test_a_rule_is_deleted_by_its_text_once(kernel):
    assert kernel.restore("*nat\n:A - [0:0]\n-A A -p tcp -j RETURN\n-A A -p tcp -j RETURN\nCOMMIT\n") == 0
    assert kernel.restore("*nat\n-D A -p tcp -j RETURN\nCOMMIT\n") == 0
    assert kernel.chains("nat")["A"] == "-A A -p tcp -j RETURN\n"
    assert kernel.restore("*nat\n-D A -p udp -j RETURN\nCOMMIT\n") != 0


def test_a_rule_is_inserted_in_front(kernel):
    assert kernel.restore("*nat\n:A - [0:0]\n-A A -j RETURN\n-I A 1 -p tcp -j RETURN\nCOMMIT\n") == 0
    assert kernel.chains("nat")["A"] == "-A A -p tcp -j RETURN\n-A A -j RETURN\n"


def test_a_circle_of_chains_is_refused(kernel):
    document = "*nat\n:A - [0:0]\n:B - [0:0]\n-A A -j B\n-A B -j A\n-A OUTPUT -j A\nCOMMIT\n"
    assert kernel.restore(document) != 0


def test_a_name_of_28_characters_is_the_longest(kernel):
    name = "K" * 28
    assert kernel.restore(f"*nat\n:{name} - [0:0]\nCOMMIT\n") == 0
    assert kernel.restore(f"*nat\n:{name}K - [0:0]\nCOMMIT\n") != 0


def test_a_chain_is_listed(kernel):
    assert kernel.restore("*nat\n:A - [0:0]\n-A A -p tcp -j RETURN\nCOMMIT\n") == 0
    assert kernel.listed("nat", "A") == "-N A\n-A A -p tcp -j RETURN\n"
    assert kernel.listed("nat", "B") is None


def test_an_input_without_rules_is_no_error(kernel):
    assert kernel.restore("") == 0
    assert kernel.restore("*nat\nCOMMIT\n") == 0
    with contextlib.suppress(KeyError):
        assert set(kernel.chains("nat").values()) <= {""}

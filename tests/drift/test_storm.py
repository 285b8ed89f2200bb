"""Somebody edits our rules all the time while services change: in the end all is right, whoever wrote last."""

import random
import threading

import pytest

from pykubeproxy.rules.names import FILTER, MANGLE, NAT
from tests.drift.drifting import BACKENDS, FAMILIES, change, eventually, everything, foreign_rules, running, stem, words

pytestmark = [pytest.mark.netns, pytest.mark.slow]

ROUNDS = 60


def edits(it, family, chance):
    """Return an input that spoils something; it may be refused, where what it names is not there now."""
    chains = [chain for chain in it.table(family, NAT).chains if chain.startswith("KUBE-")] or ["KUBE-SERVICES"]
    chain = chance.choice(chains)
    return chance.choice(
        [
            f"*{NAT}\n:{chain} - [0:0]\nCOMMIT\n",
            f"*{NAT}\n-I {chain} 1 -j RETURN\nCOMMIT\n",
            f"*{NAT}\n-F {chain}\n-X {chain}\nCOMMIT\n",
            f"*{NAT}\n-F PREROUTING\nCOMMIT\n",
            f"*{FILTER}\n-F INPUT\n-F KUBE-FORWARD\nCOMMIT\n",
            f"*{MANGLE}\n:KUBE-PROXY-CANARY - [0:0]\n-X KUBE-PROXY-CANARY\nCOMMIT\n",
            f"*{NAT}\n-A POSTROUTING -o cni{chance.randrange(9)} -j MASQUERADE\nCOMMIT\n",
        ]
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", [1, 2])
def test_after_the_storm_everything_is_right(backend, seed):
    with running(backend, "--iptables-sync-period", "5s", foreign="") as it:
        change(it, 0)
        right = everything(it, in_order=False)

        def spoil() -> None:
            chance = random.Random(seed)
            wait = "-w 30 " if backend == "legacy" else ""
            for _ in range(ROUNDS):
                family = chance.choice(FAMILIES)
                it.run(
                    "sh",
                    "-c",
                    f"{stem(it, family)}-restore {wait}--noflush 2>&1 || true",
                    stdin=edits(it, family, chance),
                )

        other = threading.Thread(target=spoil)
        other.start()
        number = 0
        while other.is_alive():
            number += 1
            change(it, number % 100)
        other.join()
        change(it, 0)
        eventually(lambda: everything(it, in_order=False) == right, f"everything as it was\n{it.words()}")
        assert {rule.split()[3] for rule in foreign_rules(it).get((NAT, "POSTROUTING"), [])} <= {
            f"cni{i}" for i in range(9)
        }
        for event in ("service left out", "rule printed otherwise", "crashed"):
            assert words(it, event) == []

"""What the benchmark reads from the kernel is what iptables has put there."""

import os
import subprocess
import tempfile
import uuid
from pathlib import Path

import pytest

from e2e.bench import kernel
from e2e.bench.kernel import Legacy, Nft

pytestmark = pytest.mark.netns

FIRST = "*nat\n:KUBE-SVC-A - [0:0]\n:KUBE-SEP-A - [0:0]\n-A KUBE-SVC-A -j KUBE-SEP-A\nCOMMIT\n"
SECOND = "*nat\n-A OUTPUT -j KUBE-SVC-A\nCOMMIT\n"


@pytest.fixture
def netns():
    name = f"pkp-{uuid.uuid4().hex[:8]}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    yield name
    subprocess.run(["ip", "netns", "del", name], check=True)


def restore(netns, kind, document):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["nsenter", f"--net=/run/netns/{netns}", f"iptables-{kind}-restore", "--noflush"],
            input=document.encode(),
            check=True,
            env={**os.environ, "XTABLES_LOCKFILE": str(Path(folder) / "lock")},
        )


def test_nft_uses_count_rules_and_jumps(netns):
    found = Nft(netns)
    before = found.stamp()
    assert found.uses("KUBE-SVC-A") == -1
    restore(netns, "nft", FIRST)
    assert found.stamp() > before
    assert found.uses("KUBE-SVC-A") == 1
    restore(netns, "nft", SECOND)
    assert found.uses("KUBE-SVC-A") == 2
    assert found.all_uses()["KUBE-SEP-A"] == 1
    assert [b"KUBE-SEP-A" in bytes(rule) for rule in found.rules("KUBE-SVC-A")] == [True]
    assert found.rules("KUBE-NONE") == []
    found.close()


def test_legacy_entries_are_rules_and_two_for_a_chain(netns):
    found = Legacy(netns)
    restore(netns, "legacy", "*nat\nCOMMIT\n")
    empty = found.entries
    restore(netns, "legacy", FIRST)
    assert found.entries == empty + 1 + 2 * 2
    restore(netns, "legacy", SECOND)
    assert found.entries == empty + 2 + 2 * 2
    found.close()


def test_what_was_seen_once_is_not_asked_again():
    there, asked = {1}, []

    def ask(number):
        asked.append(number)
        return number in there

    is_complete = kernel.first_missing([1, 2, 3], ask)
    assert not is_complete()
    there.update((2, 3))
    assert is_complete()
    assert asked == [1, 2, 2, 3]


def test_a_commit_is_looked_at_again():
    class Still:
        """A kernel with one commit whose first dump shows a part of it."""

        def stamp(self):
            return 2

    answers = iter([False, True])
    kernel.wait(Still(), lambda: next(answers), "the rest", timeout=10, after=1)
    with pytest.raises(kernel.Timeout):
        kernel.wait(Still(), lambda: False, "the rest", timeout=0.3, after=1)

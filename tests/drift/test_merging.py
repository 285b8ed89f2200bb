"""What stands after a part was read again, and what of it is drift."""

from pykubeproxy.netfilter.read import UNKNOWN
from pykubeproxy.netfilter.suspects import EVERYTHING, NOTHING, Suspects, suspects
from pykubeproxy.rules.ruleset import Ensured, Ruleset
from pykubeproxy.serving.metrics import Metrics
from pykubeproxy.sync.drift import Place, is_as_wanted, merged, missing, moved
from pykubeproxy.sync.spelling import Spelling

JUMP, OTHER = Ensured("nat", "PREROUTING", "-j KUBE-SERVICES"), Ensured("nat", "POSTROUTING", "-j MASQUERADE")


def ruleset(nat, *ensured):
    made = Ruleset(ensured=ensured)
    made.chains["nat"].update(nat)
    return made


def chains(*names):
    return suspects((), [("nat", name) for name in names])


def test_chains_read_alone_replace_their_own_and_no_others():
    old = ruleset({"A": "a", "B": "b", "C": "c"}, JUMP, OTHER)
    now = merged(old, ruleset({"B": "b2"}), chains("B", "C", "PREROUTING"), NOTHING)
    assert now.chains["nat"] == {"A": "a", "B": "b2"}
    assert now.ensured == (OTHER,)


def test_a_table_read_as_a_whole_replaces_all_of_it():
    old = ruleset({"A": "a", "B": "b"}, JUMP, OTHER)
    now = merged(old, ruleset({"B": "b2"}, JUMP), Suspects(frozenset({"nat"})), NOTHING)
    assert now.chains["nat"] == {"B": "b2"}
    assert now.ensured == (JUMP,)


def test_a_chain_that_could_not_be_read_is_what_it_was_unless_it_was_suspected():
    old = ruleset({"A": "a", "B": "b"})
    fresh = ruleset({"A": UNKNOWN, "B": UNKNOWN, "C": UNKNOWN})
    now = merged(old, fresh, EVERYTHING, chains("B"))
    assert now.chains["nat"] == {"A": "a", "B": UNKNOWN, "C": UNKNOWN}


def test_drift_is_what_is_neither_as_it_was_nor_as_it_should_be():
    wanted = ruleset({"SAME": "s", "EDITED": "e", "GONE": "g", "MENDED": "new", "LATE": "late"})
    old = ruleset({"SAME": "s", "EDITED": "e", "GONE": "g", "MENDED": "old", "LATE": "old"})
    now = ruleset({"SAME": "s", "EDITED": "x", "MENDED": "new", "LATE": "old", "STRAY": "y"})
    found = moved(old, now, wanted, EVERYTHING)
    assert sorted(place.chain for place in found) == ["EDITED", "GONE", "STRAY"]
    assert moved(old, now, wanted, chains("EDITED", "SAME")) == [Place("nat", "EDITED")]


def test_missing_rules_are_looked_for_where_was_read():
    wanted = ruleset({}, JUMP)
    assert missing(ruleset({}, OTHER), wanted, chains("PREROUTING")) == [Place(*JUMP[:3])]
    assert missing(ruleset({}, OTHER), wanted, chains("POSTROUTING")) == []
    assert missing(ruleset({}, JUMP), wanted, EVERYTHING) == []


def test_a_place_is_as_wanted():
    wanted, now = ruleset({"A": "a"}, JUMP), ruleset({"A": "a", "B": "b"}, JUMP)
    assert is_as_wanted(Place("nat", "A"), now, wanted)
    assert not is_as_wanted(Place("nat", "B"), now, wanted)
    assert is_as_wanted(Place(*JUMP[:3]), now, wanted)
    assert not is_as_wanted(Place(*OTHER[:3]), now, wanted)


def test_what_could_not_be_read_back_is_not_taken_for_another_spelling():
    """Else no later reading that fails the same way would find the chain flushed."""
    spelling, wanted, fresh = Spelling("IPv4", Metrics()), ruleset({"A": "a"}), ruleset({"A": UNKNOWN})
    spelling.learn(fresh, [("nat", "A", "a")], [])
    spelling.recognise(fresh, wanted)
    assert fresh.chains["nat"]["A"] == UNKNOWN

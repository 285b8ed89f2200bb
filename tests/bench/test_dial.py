"""How many rules a packet meets is counted on the rules that stand, flat or as a tree."""

import pytest

from e2e.bench import clusters
from e2e.bench.clusters import Cluster
from e2e.bench.dial import rules_walked
from pykubeproxy.dryrun import desired
from tests.bench.test_clusters import decoded
from tests.support.builders import settings


def saved(count, dispatch):
    chains = desired("IPv4", decoded(Cluster(count, 1)), settings(), dispatch=dispatch).ruleset.chains["nat"]
    return "*nat\n" + "".join(chains.values()) + "COMMIT\n"


def test_flat_the_last_service_meets_all_rules():
    assert sorted(rules_walked(saved(100, "flat"), list(range(100))).values()) == list(range(1, 101))


def test_a_tree_is_walked_to_the_services_own_chain():
    walked = rules_walked(saved(300, "tree"), list(range(300)))
    assert len(walked) == 300
    assert max(walked.values()) < 100


def test_a_service_without_a_rule_is_no_service():
    with pytest.raises(ValueError, match=clusters.cluster_ip(7)):
        rules_walked(saved(5, "flat"), [7])

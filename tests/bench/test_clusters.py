"""The generated objects are what they claim to be, and the chains that are looked for are those that come of them."""

import msgspec

from e2e.bench import clusters
from e2e.bench.clusters import Cluster
from pykubeproxy.dryrun import desired
from pykubeproxy.watch.manifests import ClusterObjects
from pykubeproxy.watch.objects import EndpointSlice, Service
from tests.support.builders import settings


def decoded(cluster):
    objects = list(cluster.objects())
    return ClusterObjects(
        [msgspec.convert(obj, Service) for obj in objects if obj["kind"] == "Service"],
        [msgspec.convert(obj, EndpointSlice) for obj in objects if obj["kind"] == "EndpointSlice"],
        [],
        [],
    )


def test_no_address_is_given_twice():
    assert len({clusters.cluster_ip(number) for number in range(12_000)}) == 12_000
    assert len({clusters.endpoint_ip(number, index) for number in range(1000) for index in range(5)}) == 5000


def test_chains_are_named_as_the_proxy_names_them():
    cluster = Cluster(3, 4)
    wanted = desired("IPv4", decoded(cluster), settings(), dispatch="flat").ruleset.chains["nat"]
    for number in range(3):
        assert clusters.service_chain(number) in wanted
        assert all(clusters.endpoint_chain(number, index) in wanted for index in range(4))
        assert wanted[clusters.service_chain(number)].count("\n") == cluster.rules_of_service


def test_no_proxy_can_have_fewer_entries_in_a_legacy_table():
    cluster = Cluster(20, 5)
    wanted = desired("IPv4", decoded(cluster), settings(), dispatch="flat").ruleset
    chains = wanted.chains["nat"]
    entries = sum(text.count("\n") + 2 for text in chains.values())
    assert cluster.least_entries <= entries < cluster.least_entries + 40


def test_a_large_service_has_slices_of_a_hundred():
    found = decoded(Cluster(1, 250)).slices
    assert [len(one.endpoints) for one in found] == [100, 100, 50]

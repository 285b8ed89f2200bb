"""A changed configuration: applied live, or by an orderly exit, or not at all; never with a gap (ConfigMap swap)."""

import json
import os
import shutil
from pathlib import Path

import pytest
import yaml

from e2e.netlab import Lab, Proxy, wait_for
from tests.support.node import cluster, eventually, node

pytestmark = pytest.mark.netns
MANIFESTS = Path(__file__).parent / "web.yaml"


class Volume:
    """A folder as kubelet makes it for a ConfigMap: file -> ..data/file -> ..TIMESTAMP/file, swapped by a rename."""

    def __init__(self, folder):
        self.folder = folder / "volume"
        self.folder.mkdir()
        self._serial = 0
        self._current = None
        self.path = self.folder / "config.conf"

    def put(self, text):
        self._serial += 1
        fresh = self.folder / f"..2026_11_30_{self._serial}"
        fresh.mkdir()
        (fresh / "config.conf").write_text(text)
        link = self.folder / "..data_tmp"
        link.symlink_to(fresh.name)
        link.replace(self.folder / "..data")
        if not self.path.is_symlink():
            self.path.symlink_to("..data/config.conf")
        if self._current is not None:
            shutil.rmtree(self._current)
        self._current = fresh


def plain(**fields):
    head = {"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration"}
    return yaml.safe_dump({**head, "iptables": {"minSyncPeriod": "10ms"}, **fields})


def document(it, **changes):
    base = {
        "clientConnection": {"kubeconfig": str(it.kubeconfig)},
        "hostnameOverride": "node-a",
        "clusterCIDR": "10.244.0.0/16",
        "conntrack": {"maxPerCore": 0},
    }
    return plain(**{**base, **changes})


def started(it):
    volume = Volume(it.folder)
    volume.put(document(it))
    it.api.bulk_put(cluster(3))
    it.start("--config", str(volume.path))
    it.wait_ready()
    return volume


@pytest.mark.parametrize("backend", ["legacy", "nft"])
def test_what_can_be_applied_live_is(backend):
    with node(backend) as it:
        volume = started(it)
        pid = it.process.pid
        before = it.table().chains
        volume.put(document(it, clusterCIDR="10.245.0.0/16"))
        eventually(lambda: "! -s 10.245.0.0/16" in it.save(), "the new cluster CIDR in the rules")
        assert "10.244.0.0/16" not in it.save()
        assert it.process.poll() is None
        assert it.process.pid == pid
        after = it.table().chains
        assert after.keys() == before.keys()
        same = [chain for chain in after if chain.startswith("KUBE-SEP-") and after[chain] == before[chain]]
        assert len(same) == 15, "what the change does not concern was not touched"
        assert it.metric("pykubeproxy_config_reload_failures_total") == 0


@pytest.mark.parametrize("backend", ["legacy", "nft"])
def test_no_connection_is_lost_meanwhile(backend):
    with Lab(backend=backend) as lab:
        lab.add_pod("web", "10.244.2.13", http=[8080])
        volume = Volume(lab.claim.folder)
        base = {
            "hostnameOverride": "node-a",
            "conntrack": {"maxPerCore": 0},
            "pykubeproxy": {"manifests": [str(MANIFESTS)]},
        }
        volume.put(plain(**base, clusterCIDR="10.244.0.0/16"))
        proxy = Proxy(lab, MANIFESTS, extra=["--config", str(volume.path)])
        proxy.start()
        proxy.wait_synced()
        soak = lab.client.soak_http("10.96.0.80", 80)
        for change in (
            {"clusterCIDR": "10.245.0.0/16"},
            {"iptables": {"masqueradeAll": True}},
            {"clusterCIDR": "10.244.0.0/16"},
        ):
            since = proxy.synced()
            volume.put(plain(**base, **change))
            wait_for(lambda since=since: proxy.synced().items() > since.items() or proxy.synced() != since, f"{change}")
        traffic = soak.stop()
        assert traffic.started > 50
        assert traffic.failures == []
        assert traffic.delayed == []
        proxy.stop()


def test_a_field_that_is_read_at_the_start_ends_it_in_order():
    with node("nft") as it:
        volume = started(it)
        before = it.table().chains
        volume.put(document(it, metricsBindAddress="127.0.0.1:20249"))
        assert it.process.wait(30) == 1
        assert "config needs restart" in it.words()
        assert "metricsBindAddress" in it.words()
        assert it.table().chains == before


@pytest.mark.parametrize(
    ("text", "names"), [("clusterCIDR: nonsense", "clusterCIDR"), ("{", "config.conf"), ("kind: Service", "kind")]
)
def test_an_invalid_one_changes_nothing_and_is_told(text, names):
    with node("nft") as it:
        volume = started(it)
        before = it.table().chains
        if ":" in text and "kind" not in text:
            key, _, value = text.partition(": ")
            volume.put(document(it, **{key: value}))
        else:
            volume.put(text)
        eventually(lambda: it.metric("pykubeproxy_config_reload_failures_total") == 1, "counted")
        told = [line for line in it.words().splitlines() if "config invalid" in line]
        assert len(told) == 1
        assert names in told[0]
        assert it.table().chains == before
        assert it.process.poll() is None

        def events():
            return [event for event in it.api.objects("Event") if event["reason"] == "ConfigurationInvalid"]

        assert eventually(events, "an Event")[0]["involvedObject"]["kind"] == "Node"
        status, body = it.get(10256, "/readyz")
        (note,) = json.loads(body)["notes"]
        assert status == 200
        assert names in note
        assert note.endswith("what was read before stays in force, but a restart would fail")
        assert json.loads(it.get(10249, "/debug/state")[1])["notes"] == [note]
        volume.put(document(it, clusterCIDR="10.246.0.0/16"))
        eventually(lambda: "10.246.0.0/16" in it.save(), "a valid one after it is taken")
        assert "notes" not in json.loads(it.get(10256, "/readyz")[1])


def test_a_cluster_cidr_that_goes_is_told_of_each_family_that_has_none_now():
    with node("nft") as it:
        volume = started(it)

        def told():
            lines = map(json.loads, filter(lambda line: '"no cluster CIDR"' in line, it.log.read_text().splitlines()))
            return [line["family"] for line in lines]

        assert told() == ["IPv6"]
        volume.put(document(it, clusterCIDR=""))
        eventually(lambda: told() == ["IPv6", "IPv4", "IPv6"], "both are named")
        volume.put(
            document(
                it, clusterCIDR="", detectLocalMode="InterfaceNamePrefix", detectLocal={"interfaceNamePrefix": "veth"}
            )
        )
        eventually(lambda: it.words().count("config reloaded") == 2, "the other mode")
        assert len(told()) == 3


def test_the_same_content_again_is_no_change():
    with node("nft") as it:
        volume = started(it)
        volume.put(document(it))
        volume.put(document(it, clusterCIDR="10.247.0.0/16"))
        eventually(lambda: "10.247.0.0/16" in it.save(), "the real change")
        assert it.words().count("config reloaded") == 1


def test_a_plain_file_edited_in_place():
    with node("nft") as it:
        path = it.folder / "config.conf"
        path.write_text(document(it))
        it.api.bulk_put(cluster(3))
        it.start("--config", str(path))
        it.wait_ready()
        with path.open("r+") as file:
            file.write(document(it, clusterCIDR="10.248.0.0/16"))
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        eventually(lambda: "10.248.0.0/16" in it.save(), "the new cluster CIDR in the rules")


def test_a_file_that_is_emptied_on_the_way_is_taken_whole():
    with node("nft") as it:
        path = it.folder / "config.conf"
        path.write_text(document(it))
        it.api.bulk_put(cluster(3))
        it.start("--config", str(path))
        it.wait_ready()
        path.write_text("")
        eventually(lambda: "is empty, as a file that is being written" in it.get(10256, "/readyz")[1], "it is named")
        assert it.get(10256, "/readyz")[0] == 200
        path.write_text(document(it, clusterCIDR="10.249.0.0/16"))
        eventually(lambda: "10.249.0.0/16" in it.save(), "the new cluster CIDR in the rules")
        assert it.words().count("config reloaded") == 1
        assert it.metric("pykubeproxy_config_reload_failures_total") == 0

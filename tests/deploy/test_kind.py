"""The logic of the kind scripts, with a stand-in for kind, kubectl and docker: which commands, in which order."""

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from e2e.kind import __main__ as script
from e2e.kind import takeover
from e2e.kind.cluster import IMAGE, Cluster, configuration
from e2e.kind.commands import Done, Programs
from e2e.kind.site import INSIDE, SERVE, KindSite
from e2e.lab.site import CLIENT
from e2e.netlab import LabError
from tests.deploy import kustomize, schema
from tests.support.node import ROOT

DEPLOY = ROOT / "deploy"
CONTROL = {"name": "x-control-plane", "labels": {"node-role.kubernetes.io/control-plane": ""}}
NODES = [
    {"metadata": CONTROL, "ip": "172.18.0.2"},
    {"metadata": {"name": "x-worker"}, "ip": "172.18.0.3"},
    {"metadata": {"name": "x-worker2"}, "ip": "172.18.0.4"},
]


class Fake:
    """Answers what the scripts ask; ``failing`` are words that make a command fail."""

    def __init__(self, *failing, absent=()):
        self.calls = []
        self.inputs = []
        self.objects = {}
        self.images = {"kube-proxy": "somewhere/kube-proxy:v1.36.2"}
        self._failing = failing
        self._absent = absent

    def missing(self, names):
        return [name for name in names if name in self._absent]

    def run(self, argv, *, stdin=None, timeout=300.0):
        line = " ".join(argv)
        self.calls.append(line)
        self.inputs.append(stdin)
        if any(word in line for word in self._failing):
            return Done(1, "[FAIL] a test of the suite\n", "it failed")
        if stdin and "apply" in argv:
            for obj in yaml.safe_load_all(stdin):
                for item in obj.get("items", [obj]):
                    self.objects[item["kind"], item["metadata"]["name"]] = item
        if "kustomize" in argv:
            return Done(0, yaml.safe_dump_all(kustomize.build(ROOT / argv[-1])), "")
        if "set" in argv:
            self.images[argv[-2].partition("/")[2]] = argv[-1].partition("=")[2]
        return Done(0, json.dumps(self._get(argv)) if "get" in argv else "", "")

    def converse(self, argv):
        self.calls.append(" ".join(argv))
        command = [sys.executable, "-E", "-s", "-S", "-B", str(INSIDE / "__main__.py"), "here"]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def _get(self, argv):
        what = argv[argv.index("get") + 1 :]
        if "nodes" in what:
            return {"items": [
                {"metadata": n["metadata"], "status": {"addresses": [{"type": "InternalIP", "address": n["ip"]}]}}
                for n in NODES
            ]}  # fmt: skip
        if "daemonset" in what:
            image = self.images[what[what.index("daemonset") + 1]]
            return {"spec": {"template": {"spec": {"containers": [{"image": image}]}}}}
        if "pod" in what:
            return {"spec": {"nodeName": "x-worker2"}, "status": {"podIP": "10.244.1.5"}}
        if "pods" in what:
            return {"items": [{"metadata": {"name": "web-1"}, "status": {"podIP": "10.244.1.7"}}]}
        return self.objects["Service", what[what.index("service") + 1]]

    def said(self, *words):
        return [line for line in self.calls if all(word in line for word in words)]


def cluster(fake, **more):
    return Cluster(fake, "x", kube_proxy=False, **more)


def test_a_cluster_without_kube_proxy():
    made = configuration(kube_proxy=False, workers=2)
    assert made["networking"]["kubeProxyMode"] == "none"
    assert [node["role"] for node in made["nodes"]] == ["control-plane", "worker", "worker"]
    assert "kubeProxyMode" not in configuration(kube_proxy=True)["networking"]


def test_it_is_made_and_removed():
    fake = Fake()
    with cluster(fake):
        assert json.loads(fake.inputs[0]) == configuration(kube_proxy=False)
    assert fake.calls[0].startswith("kind create cluster --name x --kubeconfig ")
    assert fake.calls[-1] == "kind delete cluster --name x"


def test_it_is_removed_when_making_it_fails():
    fake = Fake("create cluster")
    with pytest.raises(LabError, match="it failed"), cluster(fake):
        pass
    assert fake.said("kind delete cluster")


def test_it_stays_if_asked(capsys):
    fake = Fake()
    with cluster(fake, keep=True):
        pass
    assert not fake.said("kind delete")
    folder = Path(capsys.readouterr().out.strip().rpartition("KUBECONFIG=")[2]).parent
    assert folder.is_dir()
    folder.rmdir()


def test_what_is_missing_is_named():
    with pytest.raises(LabError, match="not installed: kind, docker"), cluster(Fake(absent=("kind", "docker"))):
        pass


def test_an_image_is_loaded_under_the_overlays_name():
    fake = Fake()
    with cluster(fake, engine="podman") as made:
        made.load("mine:1")
    assert fake.said("podman tag mine:1", IMAGE)
    assert fake.said("podman save", IMAGE)
    assert fake.said("kind load image-archive", "--name x")


def test_the_overlay_names_this_clusters_control_plane():
    fake = Fake()
    with cluster(fake) as made:
        made.apply_overlay("kind")
    assert fake.said("apply --server-side --force-conflicts --filename -")
    kubeconfig = fake.objects["ConfigMap", "pykubeproxy"]["data"]["kubeconfig.conf"]
    assert "https://x-control-plane:6443" in kubeconfig
    assert "kind-control-plane" not in kubeconfig


def test_the_pods_to_ask_from_stand_where_they_should():
    fake = Fake()
    with cluster(fake) as made:
        KindSite(made, "pykubeproxy").prepare()
    assert set(fake.objects["ConfigMap", "inside"]["data"]) >= {"__main__.py", "servers.py", "traffic.py", "dns.py"}
    caller, node, outside = (fake.objects["Pod", name]["spec"] for name in (CLIENT, "node", "outside"))
    assert (caller["nodeName"], caller["hostNetwork"]) == ("x-worker", False)
    assert (node["nodeName"], node["hostNetwork"]) == ("x-worker", True)
    assert (outside["nodeName"], outside["hostNetwork"]) == ("x-control-plane", True)


def test_all_objects_fit_the_servers_types():
    fake = Fake()
    with cluster(fake) as made:
        site = KindSite(made, "pykubeproxy")
        site.prepare()
        site.deploy("web", 1)
    definitions = json.loads(schema.FILE.read_text())["definitions"]
    for (kind, _), obj in fake.objects.items():
        checker = schema._Checker(definitions, partial=False)
        if kind in ("Pod", "Deployment"):
            spec = obj["spec"] if kind == "Pod" else obj["spec"]["template"]["spec"]
            checker.check(spec, {"ref": "core.v1.PodSpec"}, kind)
        assert checker.found == []


def test_places_have_the_addresses_that_servers_see():
    with cluster(Fake()) as made:
        site = KindSite(made, "pykubeproxy")
        assert site.source("outside") == "172.18.0.2"
        assert site.source(CLIENT) == "10.244.1.5"
        assert site.node_address("web-1") == "172.18.0.4"
        assert site.node_address("") == "172.18.0.3"
        assert site.addresses("web") == {"web-1": "10.244.1.7"}


def test_a_conversation_with_a_pod_makes_real_traffic():
    fake = Fake()
    with cluster(fake) as made:
        site = KindSite(made, "pykubeproxy")
        try:
            with socket.create_server(("127.0.0.1", 0)) as taken:
                port = taken.getsockname()[1]
            assert site.ask(CLIENT, "127.0.0.1", port, n=3).failures == {"refused": 3}
            site.place(CLIENT).listen("http", ["127.0.0.1"], [port])
            told = site.ask(CLIENT, "127.0.0.1", port, n=20)
            assert (told.answered, told.failures) == (20, {})
            load = site.load(CLIENT, "127.0.0.1", port)
            long = site.long_connection(CLIENT, "127.0.0.1", port)
            while min(load.started(), long.started()) < 5:
                pass
            assert load.stop().failures == {}
            assert long.stop().failures == {}
        finally:
            site.close()
    assert len(fake.said("exec --stdin", CLIENT)) == 1, "one conversation for all of it"


def test_the_servers_program_serves(tmp_path):
    program = SERVE.replace("/inside", str(INSIDE))
    environ = {"POD_NAME": "web-1", "POD_IPS": "127.0.0.1"}
    process = subprocess.Popen([sys.executable, "-c", program], env=environ, stderr=subprocess.PIPE)
    try:
        with cluster(Fake()) as made:
            site = KindSite(made, "pykubeproxy")
            try:
                while not (told := site.ask(CLIENT, "127.0.0.1", 8080)).answered:
                    assert process.poll() is None, process.stderr.read()
                assert told.pods == {"web-1": 1}
                assert site.ask(CLIENT, "127.0.0.1", 5353, udp=True).pods == {"web-1": 1}
            finally:
                site.close()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("complaints", "status"), [([], 0), (["it does not hold"], 1)])
def test_the_script_runs_the_checks_and_tells(monkeypatch, capsys, complaints, status):
    monkeypatch.setattr(script, "CHECKS", {"a promise": lambda site: complaints})
    fake = Fake()
    assert script.main(["mine:1"], fake) == status
    told = capsys.readouterr().out
    assert ("✓ a promise" in told) == (status == 0)
    order = ["create cluster", "load image-archive", "apply --server-side", "rollout status daemonset/pykubeproxy"]
    places = [fake.calls.index(fake.said(*words.split())[0]) for words in order]
    assert places == sorted(places)
    assert fake.calls[-1].startswith("kind delete cluster")


def test_the_upstream_suite_runs_where_it_is_given(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(script, "CHECKS", {})
    fake = Fake()
    assert script.main(["mine:1", "--e2e-test", str(tmp_path / "e2e.test")], fake) == 0
    (line,) = fake.said("e2e.test")
    focus, skip = (re.search(rf"--ginkgo.{word}=(.*?)(?= --|$)", line)[1] for word in ("focus", "skip"))
    for name in (
        "Services should be rejected when no endpoints exist",
        "Conntrack should be able to preserve UDP traffic",
    ):
        assert re.search(focus, f"[sig-network] {name}")
    on_type = "serve endpoints on same port and different protocol for internal traffic on Type LoadBalancer"
    assert not re.search(skip, f"[sig-network] Services should {on_type}")
    assert re.search(skip, "[sig-network] LoadBalancers [Feature:LoadBalancer] should be able to change the type")
    broken = Fake("e2e.test")
    assert script.main(["mine:1", "--e2e-test", str(tmp_path / "e2e.test")], broken) == 1
    assert "[FAIL] a test of the suite" in capsys.readouterr().out


def test_the_take_over_changes_the_image_and_changes_it_back():
    fake = Fake()
    with Cluster(fake, "x", kube_proxy=True) as made:
        site = takeover.Exchange(made)
        site.take_over()
        assert fake.objects["DaemonSet", "kube-proxy"]["spec"]["template"]["spec"]["containers"][0]["image"] == IMAGE
        site.give_back()
        assert fake.images["kube-proxy"] == "somewhere/kube-proxy:v1.36.2"
    assert len(fake.said("rollout status daemonset/kube-proxy")) == 2


def test_the_take_over_script_tells_how_it_ended(monkeypatch):
    monkeypatch.setattr(takeover, "swap", lambda site: [])
    fake = Fake()
    assert takeover.main(["mine:1"], fake) == 0
    assert "kubeProxyMode" not in fake.inputs[0]
    monkeypatch.setattr(takeover, "swap", lambda site: ["a connection was lost"])
    assert takeover.main(["mine:1"], Fake()) == 1
    assert takeover.main(["mine:1"], Fake(absent=("kind",))) == 1


def test_real_programs_are_run_and_judged():
    programs = Programs()
    assert programs.run(["sh", "-c", "cat; exit 3"], stdin="x") == Done(3, "x", "")
    assert programs.run(["no-such-program"]).status == 127
    assert programs.run(["sleep", "9"], timeout=0.1).status == 124
    assert programs.missing(["sh", "no-such-program"]) == ["no-such-program"]

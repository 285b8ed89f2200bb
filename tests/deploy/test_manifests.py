"""The manifests: what they must say, that a real server takes them, and the few promises that nobody may lose."""

import json
import os
import subprocess

import pytest
import yaml

from e2e.lab import binaries
from e2e.lab.controlplane import ControlPlane, Here
from pykubeproxy.config.document import load_document
from tests.deploy import kustomize, schema
from tests.support.node import ROOT

DEPLOY = ROOT / "deploy"
FOLDERS = ["base", "overlays/kind", "overlays/kubeadm", "overlays/one-node"]
PROGRAMS, WITHOUT_SERVER = binaries.control_plane(os.environ, "etcd", "kube-apiserver")
KUBECTL, WITHOUT_KUBECTL = binaries.control_plane(os.environ, "kubectl")


def rendered(folder):
    return kustomize.build(DEPLOY / folder)


def one(folder, kind, name="pykubeproxy"):
    (found,) = [obj for obj in rendered(folder) if obj["kind"] == kind and obj["metadata"]["name"] == name]
    return found


def pod(folder):
    return one(folder, "DaemonSet")["spec"]["template"]["spec"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_they_fit_the_servers_types(folder):
    for obj in rendered(folder):
        partial = obj["metadata"]["name"] == "kube-proxy"
        assert schema.faults(obj, partial=partial) == []


def test_the_schema_check_finds_faults():
    broken = one("base", "DaemonSet")
    container = broken["spec"]["template"]["spec"]["containers"][0]
    container["readOnly"] = True
    container["ports"][0]["containerPort"] = "10256"
    container["resources"]["requests"]["memory"] = "96 MB"
    del broken["spec"]["selector"]
    found = "\n".join(schema.faults(broken))
    assert "containers[0].readOnly: no such field" in found
    assert "ports[0].containerPort: '10256' must be of type integer" in found
    assert "requests.memory: '96 MB' is no quantity" in found
    assert "spec.selector: missing" in found


@pytest.mark.skipif(bool(WITHOUT_KUBECTL), reason=WITHOUT_KUBECTL or "-")
@pytest.mark.parametrize("folder", FOLDERS)
def test_kubectl_renders_the_same(folder):
    argv = [str(KUBECTL["kubectl"]), "kustomize", str(DEPLOY / folder)]
    text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    def ordered(objects):
        return sorted(json.dumps(obj, sort_keys=True) for obj in objects)

    assert ordered(yaml.safe_load_all(text)) == ordered(rendered(folder))


def test_the_daemon_may_do_no_more_than_a_node_proxier():
    bindings = [obj for obj in rendered("base") if "Role" in obj["kind"]]
    assert [(obj["kind"], obj["roleRef"]["name"]) for obj in bindings] == [
        ("ClusterRoleBinding", "system:node-proxier")
    ]
    (subject,) = bindings[0]["subjects"]
    assert (subject["kind"], subject["namespace"], subject["name"]) == ("ServiceAccount", "kube-system", "pykubeproxy")


@pytest.mark.parametrize("folder", ["base", "overlays/kind", "overlays/one-node"])
def test_the_main_container_has_two_capabilities_and_a_read_only_file_system(folder):
    (container,) = pod(folder)["containers"]
    assert container["securityContext"] == {
        "runAsUser": 0,
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_the_init_container_does_what_needs_more():
    (init,) = pod("base")["initContainers"]
    assert "--init-only" in init["command"]
    assert init["securityContext"]["privileged"] is True
    (main,) = pod("base")["containers"]
    assert [word for word in init["command"] if word != "--init-only"] == main["command"]


def test_it_is_started_as_kubeadm_starts_kube_proxy():
    (container,) = pod("base")["containers"]
    assert container["command"] == [
        "/usr/local/bin/kube-proxy",
        "--config=/var/lib/kube-proxy/config.conf",
        "--hostname-override=$(NODE_NAME)",
    ]
    assert container["env"] == [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]


def test_the_lock_is_the_hosts_file_and_never_a_directory():
    """R020 (k/k#46103)."""
    volumes = {volume["name"]: volume for volume in pod("base")["volumes"]}
    assert volumes["xtables-lock"]["hostPath"] == {"path": "/run/xtables.lock", "type": "FileOrCreate"}
    (container,) = pod("base")["containers"]
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert mounts["xtables-lock"] == {"name": "xtables-lock", "mountPath": "/run/xtables.lock", "readOnly": False}
    assert mounts["lib-modules"] == {"name": "lib-modules", "mountPath": "/lib/modules", "readOnly": True}
    assert mounts.keys() == volumes.keys()


def test_probes_ask_what_does_not_make_a_crash_loop():
    """Readiness asks /readyz, liveness /livez and late (zalando#9515, rke2#7818); nothing asks /healthz."""
    (container,) = pod("base")["containers"]
    ready, live = container["readinessProbe"], container["livenessProbe"]
    assert ready["httpGet"] == {"path": "/readyz", "port": "healthz"}
    assert live["httpGet"] == {"path": "/livez", "port": "healthz"}
    assert live["periodSeconds"] * live["failureThreshold"] >= 300
    assert {port["name"]: port["hostPort"] for port in container["ports"]} == {"healthz": 10256, "metrics": 10249}


def test_it_runs_on_every_node_and_is_not_evicted():
    spec = pod("base")
    assert spec["priorityClassName"] == "system-node-critical"
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["hostNetwork"] is True
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
    (container,) = spec["containers"]
    assert set(container["resources"]) == {"requests"}


@pytest.mark.parametrize("folder", ["base", "overlays/kind"])
def test_the_configuration_loads_without_a_word(folder):
    data = one(folder, "ConfigMap")["data"]
    assert set(data) == {"config.conf", "kubeconfig.conf"}
    loaded = load_document(data["config.conf"])
    assert loaded.notes == ()
    assert loaded.options.client.kubeconfig == "/var/lib/kube-proxy/kubeconfig.conf"
    kubeconfig = yaml.safe_load(data["kubeconfig.conf"])
    assert kubeconfig["users"][0]["user"] == {"tokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token"}
    assert "10.96" not in kubeconfig["clusters"][0]["cluster"]["server"]


def test_kind_leaves_the_connection_table_to_the_host():
    assert "maxPerCore: 0" in one("overlays/kind", "ConfigMap")["data"]["config.conf"]
    assert pod("overlays/kind")["containers"][0]["imagePullPolicy"] == "Never"


def test_the_take_over_changes_one_image_and_nothing_else():
    assert rendered("overlays/kubeadm") == [
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "kube-proxy", "namespace": "kube-system"},
            "spec": {
                "template": {"spec": {"containers": [{"name": "kube-proxy", "image": "localhost/pykubeproxy:latest"}]}}
            },
        }
    ]


def test_one_node_uses_what_kubeadm_made():
    objects = rendered("overlays/one-node")
    assert sorted((obj["kind"], obj["metadata"]["name"]) for obj in objects) == [
        ("DaemonSet", "kube-proxy"),
        ("DaemonSet", "pykubeproxy"),
    ]
    spec = pod("overlays/one-node")
    assert spec["nodeSelector"]["pykubeproxy/enabled"] == "true"
    assert spec["serviceAccountName"] == "kube-proxy"
    assert {v["configMap"]["name"] for v in spec["volumes"] if "configMap" in v} == {"kube-proxy"}


KUBEADMS = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "kube-proxy", "namespace": "kube-system", "labels": {"k8s-app": "kube-proxy"}},
    "spec": {
        "selector": {"matchLabels": {"k8s-app": "kube-proxy"}},
        "template": {
            "metadata": {"labels": {"k8s-app": "kube-proxy"}},
            "spec": {
                "containers": [
                    {
                        "name": "kube-proxy",
                        "image": "somewhere/kube-proxy:v1.36.2",
                        "command": ["/usr/local/bin/kube-proxy", "--config=/var/lib/kube-proxy/config.conf"],
                        "securityContext": {"privileged": True},
                    }
                ]
            },
        },
    },
}


@pytest.mark.slow
@pytest.mark.skipif(bool(WITHOUT_SERVER), reason=WITHOUT_SERVER or "-")
def test_a_real_server_takes_them():
    with ControlPlane(PROGRAMS, Here(), ports=(26443, 22379, 22380)) as control:
        control.api.apply(KUBEADMS, manager="kubeadm")
        for folder in FOLDERS:
            for obj in rendered(folder):
                made = control.api.apply(obj, dry_run=True, manager="kubectl")
                assert made["kind"] == obj["kind"]
        control.api.apply(rendered("overlays/kubeadm")[0], manager="kubectl")
        after = control.api.get("DaemonSet", "kube-system", "kube-proxy")["spec"]["template"]["spec"]["containers"]
        assert [c["image"] for c in after] == ["localhost/pykubeproxy:latest"]
        assert after[0]["command"] == KUBEADMS["spec"]["template"]["spec"]["containers"][0]["command"]
        assert after[0]["securityContext"] == {"privileged": True}

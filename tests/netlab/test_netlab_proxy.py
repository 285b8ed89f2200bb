"""The proxy under test: started in the node, its writes noted from outside, its end told."""

import signal
import sys

import pytest

from e2e.netlab import Lab, LabError, Proxy, wait_for

pytestmark = pytest.mark.netns

SERVICE = """\
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  clusterIP: 10.96.0.50
  clusterIPs: [10.96.0.50]
  ports: [{protocol: TCP, port: 80, targetPort: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-1
  namespace: default
  labels: {kubernetes.io/service-name: web}
addressType: IPv4
ports: [{name: "", protocol: TCP, port: 80}]
endpoints: [{addresses: [10.244.2.13]}]
"""


@pytest.fixture(params=["nft", "legacy"])
def lab(request):
    with Lab(backend=request.param) as lab:
        yield lab


def manifests(lab):
    folder = lab.claim.folder / "manifests"
    folder.mkdir()
    (folder / "web.yaml").write_text(SERVICE)
    return folder


def test_a_service_works_once_the_proxy_has_synced(lab):
    lab.add_pod("p1", "10.244.2.13")
    proxy = Proxy(lab, manifests(lab))
    proxy.start()
    proxy.wait_synced()
    assert lab.client.http("10.96.0.50", 80).pods == {"p1": 1}
    assert proxy.restore_calls()
    assert proxy.stop() == 0
    assert lab.client.http("10.96.0.50", 80).pods == {"p1": 1}
    proxy.run("--cleanup")
    assert lab.client.http("10.96.0.50", 80, timeout=0.3).pods == {}


def test_a_killed_proxy_is_told(lab):
    proxy = Proxy(lab, manifests(lab))
    proxy.start()
    assert proxy.stop(signal.SIGKILL) == -signal.SIGKILL


def test_a_proxy_that_ends_by_itself_says_why():
    with Lab() as lab:
        proxy = Proxy(lab, manifests(lab), command=[sys.executable, "-c", "raise SystemExit('no such thing')"])
        proxy.start()
        with pytest.raises(LabError, match="no such thing"):
            proxy.wait_synced()


def test_a_call_is_noted_with_its_arguments_and_reaches_the_real_program(lab):
    proxy = Proxy(lab, manifests(lab))
    program = f"iptables-{lab.backend}-restore"
    document = "*filter\n:SEEN - [0:0]\nCOMMIT\n"
    lab.node.run([program, "--noflush"], stdin=document, env=proxy.environment)
    assert proxy.restore_calls() == [f"{program} --noflush"]
    wait_for(lambda: lab.save().has("filter", "SEEN"), "the chain")

"""What is fuzzed: each takes any bytes, and fails with an assertion or an exception that nobody promised.

Used by hypothesis (in ``make test``) and by atheris (``python -m tests.fuzz``, for as long as one likes).
"""

import json
from functools import lru_cache

import msgspec
import yaml

from pykubeproxy.config.document import load_document
from pykubeproxy.errors import ApiError, ConfigurationError, NetfilterError
from pykubeproxy.model.state import ClusterState
from pykubeproxy.netfilter.read import parse, standing
from pykubeproxy.rules.ruleset import Ruleset
from pykubeproxy.rules.settings import RuleSettings
from pykubeproxy.sync.derive import Facts, rule_settings
from pykubeproxy.sync.desired import Desired
from pykubeproxy.sync.diff import difference
from pykubeproxy.sync.plan import make_plan
from pykubeproxy.watch import manifests
from pykubeproxy.watch.decode import BadObject, UndecodableError, decoder_of
from pykubeproxy.watch.driver import WatchDriver
from pykubeproxy.watch.objects import EndpointSlice, Service
from tests.fuzz.grammar import strange_lines
from tests.support.builders import settings
from tests.support.fake_kernel import FakeKernel

FAMILIES = ("IPv4", "IPv6")
_SERVICES, _SLICES = decoder_of("services"), decoder_of("endpointslices")


def check_rules(services, slices, at=None):
    """Render objects as they came off the wire: every line must be ours, and the kernel must take them."""
    for family in FAMILIES:
        use = at(family) if at else settings(family)
        state = ClusterState(family)
        state.replace_services(services)
        state.replace_slices(slices)
        wanted = Desired(use, dispatch="tree" if len(services) % 2 else "flat")
        wanted.update(state, state.keys())
        plan = make_plan(difference(Ruleset(), wanted.ruleset, None), wanted.owner.get, batch=None)
        text = plan.text()
        assert not difference(_taken(text), wanted.ruleset, None)


@lru_cache(maxsize=1000)
def _taken(text: str) -> Ruleset:
    """Return what stands in an empty kernel after this input, which must be ours to the word."""
    assert not (strange := strange_lines(text)), strange
    kernel = FakeKernel()
    done = kernel.run(["iptables-nft-restore", "--noflush"], text.encode())
    assert done.status == 0, done.complaint
    return standing(parse(kernel.save()))


def objects(data: bytes) -> None:
    """A list of Services, a list of EndpointSlices, then lines of a watch, one a line."""
    first, _, rest = data.partition(b"\n")
    second, _, lines = rest.partition(b"\n")
    services, slices = {}, {}
    for decoder, body, found in ((_SERVICES, first, services), (_SLICES, second, slices)):
        try:
            for obj in decoder.decode_list(body).objects:
                found[obj.metadata.namespace, obj.metadata.name] = obj
        except UndecodableError:
            pass
    for decoder, found in ((_SERVICES, services), (_SLICES, slices)):
        driver = WatchDriver(decoder, "1")
        for line in lines.split(b"\n"):
            event = driver.feed(line)
            assert (
                event is None or isinstance(event, ApiError | BadObject) or event.__class__.__module__.startswith("pyk")
            )
            obj = getattr(event, "obj", None)
            if obj is not None:
                found[obj.metadata.namespace, obj.metadata.name] = obj
    check_rules(list(services.values()), list(slices.values()))


def save(data: bytes) -> None:
    """What a kernel prints, or anything else: understood, or refused in words; and what is understood can be undone."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        tables = parse(text)
    except NetfilterError:
        return
    found = standing(tables)
    wanted = Desired(RuleSettings("IPv4")).ruleset
    make_plan(difference(found, wanted, None), lambda _: None, batch=10).text()


def config(data: bytes) -> None:
    """A configuration document: Options whose rules are ours, or one exception that says why not."""
    try:
        options = load_document(data.decode("utf-8", "replace")).options
    except ConfigurationError:
        return
    web = msgspec.convert(_WEB, Service)
    ends = msgspec.convert(_ENDS, EndpointSlice)
    check_rules([web], [ends], lambda family: rule_settings(family, options, "node-a", None, Facts()))


def manifest(data: bytes) -> None:
    """A manifest file: YAML or JSON of any kind."""
    try:
        found = manifests.merge({"a.yaml": manifests.parse(data, "a.yaml")})
    except manifests.ManifestError:
        return
    check_rules(found.services, found.slices)


TARGETS = {"objects": objects, "save": save, "config": config, "manifest": manifest}

_WEB = {
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "type": "LoadBalancer", "clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10", "fd00::10"],
        "ipFamilies": ["IPv4", "IPv6"], "externalIPs": ["198.51.100.7"], "sessionAffinity": "ClientIP",
        "loadBalancerSourceRanges": ["10.0.0.0/8", "fd00::/8"], "externalTrafficPolicy": "Local",
        "healthCheckNodePort": 31000,
        "ports": [{"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080}],
    },
    "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}, {"ip": "2001:db8::9"}]}},
}  # fmt: skip
_ENDS = {
    "metadata": {"name": "web-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}},
    "addressType": "IPv4",
    "endpoints": [{"addresses": ["10.244.0.11"], "nodeName": "node-a"}, {"addresses": ["10.244.0.12"]}],
    "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
}
_CONFIG = {
    "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "clusterCIDR": "10.244.0.0/16",
    "detectLocalMode": "BridgeInterface", "detectLocal": {"bridgeInterface": "cni0", "interfaceNamePrefix": "veth"},
    "nodePortAddresses": ["192.168.0.0/16"], "iptables": {"masqueradeBit": 14, "syncPeriod": "30s"},
}  # fmt: skip


def _wire(obj):
    return json.dumps(obj).encode()


SEEDS = {
    "objects": [
        _wire({"kind": "ServiceList", "metadata": {"resourceVersion": "1"}, "items": [_WEB]}) + b"\n"
        + _wire({"kind": "EndpointSliceList", "metadata": {"resourceVersion": "1"}, "items": [_ENDS]}) + b"\n"
        + _wire({"type": "MODIFIED", "object": _WEB}) + b"\n" + _wire({"type": "DELETED", "object": _ENDS}),
    ],
    "save": [
        (
            b"# Generated by iptables-save\n*nat\n:PREROUTING ACCEPT [1:2]\n:KUBE-SERVICES - [0:0]\n"
            b'[3:4] -A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES\n'
            b"-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -j KUBE-SVC-AAAAAAAAAAAAAAAA\nCOMMIT\n# Completed\n"
        ),
    ],
    "config": [yaml.safe_dump(_CONFIG).encode(), _wire(_CONFIG)],
    "manifest": [
        yaml.safe_dump({"apiVersion": "v1", "kind": "Service", **_WEB}).encode() + b"---\n"
        + yaml.safe_dump({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", **_ENDS}).encode(),
    ],
}  # fmt: skip

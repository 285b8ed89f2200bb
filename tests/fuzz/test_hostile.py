"""Names, labels, annotations, addresses and ports of objects cannot put words into restore input (R022, R023, R107).

hypothesis makes them hostile here; ``python -m tests.fuzz`` lets atheris do the same to raw bytes for as long as one
likes.
"""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pykubeproxy.rules.ruleset import same_chain
from tests.fuzz.grammar import strange_lines
from tests.fuzz.targets import SEEDS, TARGETS, check_rules, config, objects
from tests.support.builders import desired, endpoint_slice, service

WORDS = (
    "",
    " ",
    "\n",
    "\r\n",
    "\x00",
    '"',
    "\\",
    "'",
    "`",
    "$(reboot)",
    ";",
    "#",
    "COMMIT",
    "\nCOMMIT\n*nat\n-F\n",
    '" -j ACCEPT\n-A KUBE-SERVICES -j ACCEPT\n',
    "-j ACCEPT",
    "\u2028",
    "\u0085",
    "é",
    "\udc80",
    "%s",
    "{mask}",
    "::1",
    "0.0.0.0",
    "10.0.0.1",
    "10.0.0.1\n-F",
    "10.0.0.1/8",
    "010.0.0.1",
    "0x7f.1",
    "1",
    "fd00::1",
    "fd00::1%eth0",
    "::ffff:10.0.0.1",
    "a" * 300,
    "web",
    "default",
    "http",
    "None",
    "TCP",
    "tcp",
    "ICMP",
    "Local",
    "ClientIP",
    "0.0.0.0/0",
    "::/0",
    " 10.0.0.0/8 ",
    "10.0.0.0/33",
)
texts = st.one_of(
    st.sampled_from(WORDS), st.text(max_size=12), st.lists(st.sampled_from(WORDS), max_size=3).map("".join)
)
numbers = st.one_of(st.sampled_from((-1, 0, 1, 80, 65535, 65536, 2**31, 2**63, 10800, 86401)), st.integers())
maybe = st.none() | texts


def some(values, size=3):
    return st.none() | st.lists(values, max_size=size)


meta = st.fixed_dictionaries(
    {"name": st.sampled_from(("web", "web-1")) | texts, "namespace": st.just("default") | texts},
    optional={
        "labels": st.dictionaries(texts | st.just("kubernetes.io/service-name"), texts | st.just("web"), max_size=3),
        "annotations": st.dictionaries(texts, texts, max_size=2),
        "resourceVersion": texts,
        "creationTimestamp": maybe,
        "uid": texts,
    },
)
service_port = st.fixed_dictionaries(
    {"port": numbers},
    optional={"name": maybe, "protocol": maybe, "nodePort": st.none() | numbers, "targetPort": numbers | texts},
)
services = st.fixed_dictionaries(
    {"metadata": meta, "kind": st.just("Service")},
    optional={
        "spec": st.fixed_dictionaries(
            {"clusterIP": st.sampled_from(("10.96.0.10", "fd00::10")) | texts, "ports": some(service_port)},
            optional={
                "clusterIPs": some(st.just("10.96.0.10") | texts),
                "ipFamilies": some(st.sampled_from(("IPv4", "IPv6")) | texts),
                "type": st.sampled_from(("ClusterIP", "NodePort", "LoadBalancer", "ExternalName")) | texts,
                "externalIPs": some(texts),
                "sessionAffinity": maybe,
                "sessionAffinityConfig": st.none() | st.just({"clientIP": {"timeoutSeconds": 10}}),
                "externalTrafficPolicy": maybe,
                "internalTrafficPolicy": maybe,
                "healthCheckNodePort": numbers,
                "loadBalancerSourceRanges": some(texts),
                "trafficDistribution": maybe,
            },
        ),
        "status": st.fixed_dictionaries(
            {
                "loadBalancer": st.fixed_dictionaries(
                    {"ingress": some(st.fixed_dictionaries({"ip": texts, "ipMode": maybe}))}
                )
            }
        ),
    },
)
slices = st.fixed_dictionaries(
    {
        "metadata": meta,
        "kind": st.just("EndpointSlice"),
        "addressType": st.sampled_from(("IPv4", "IPv6", "FQDN")) | texts,
    },
    optional={
        "endpoints": some(
            st.fixed_dictionaries(
                {"addresses": some(st.just("10.244.0.11") | texts)},
                optional={
                    "nodeName": maybe,
                    "conditions": st.none() | st.just({"ready": None}),
                    "hints": st.none()
                    | st.fixed_dictionaries({"forZones": some(st.fixed_dictionaries({"name": texts}))}),
                },
            )
        ),
        "ports": some(
            st.fixed_dictionaries({}, optional={"port": st.none() | numbers, "name": maybe, "protocol": maybe})
        ),
    },
)


def listing(kind, items):
    body = {"kind": kind, "metadata": {"resourceVersion": "1"}, "items": items}
    return json.dumps(body).encode("utf-8", "surrogatepass")


@given(st.lists(services, max_size=4), st.lists(slices, max_size=4))
def test_objects(some_services, some_slices):
    objects(listing("ServiceList", some_services) + b"\n" + listing("EndpointSliceList", some_slices))


@given(st.sampled_from(sorted(TARGETS)), st.data())
def test_bytes_in_the_middle_of_something_right(target, data):
    seed = data.draw(st.sampled_from(SEEDS[target]))
    start = data.draw(st.integers(0, len(seed)))
    end = data.draw(st.integers(start, min(len(seed), start + 30)))
    piece = data.draw(st.binary(max_size=20) | texts.map(lambda text: text.encode("utf-8", "surrogatepass")))
    TARGETS[target](seed[:start] + piece + seed[end:])


INTERFACES = st.sampled_from(("cni0", "veth", "")) | texts


@given(
    INTERFACES,
    INTERFACES,
    some(texts),
    texts,
    st.sampled_from(("BridgeInterface", "InterfaceNamePrefix", "ClusterCIDR")),
)
@example("x -j ACCEPT", "x -j A", None, "", "BridgeInterface")
@example("cni0", "a b", None, "", "InterfaceNamePrefix")
@example('"', "\\", ["10.0.0.0/8 -j ACCEPT"], "10.0.0.0/8 -j ACCEPT", "ClusterCIDR")
def test_configuration(bridge, prefix, addresses, cidr, mode):
    document = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "detectLocalMode": mode,
        "detectLocal": {"bridgeInterface": bridge, "interfaceNamePrefix": prefix}, "clusterCIDR": cidr,
        "nodePortAddresses": addresses,
    }  # fmt: skip
    config(json.dumps(document).encode())


def test_the_grammar_finds_what_is_not_ours():
    """The control: without it the tests above would prove nothing."""
    for line in (
        "-A KUBE-SERVICES -j ACCEPT\n-F",
        '-A KUBE-SVC-A -m comment --comment "a" -j ACCEPT" -j RETURN',
        "-A KUBE-SVC-A -d 10.0.0.1 -d 10.0.0.1;reboot -j RETURN",
        "-A KUBE-SVC-A -p tcp -m tcp --dport 080 -j RETURN",
        "-D INPUT 1",
        "-P INPUT ACCEPT",
    ):
        assert strange_lines(line + "\n"), line


def test_every_line_of_ours_is_in_the_grammar():
    check_rules(
        [service(lb=["203.0.113.9"], loadBalancerSourceRanges=["10.0.0.0/8"])],
        [endpoint_slice(endpoints=["10.244.0.11"])],
    )
    wanted = desired(service(), endpoint_slice(endpoints=["10.244.0.11", "10.244.0.12"]))
    assert not strange_lines("".join(text for chains in wanted.ruleset.chains.values() for text in chains.values()))


@pytest.mark.parametrize("target", TARGETS)
def test_the_seeds_are_right(target):
    for seed in SEEDS[target]:
        TARGETS[target](seed)


def test_a_rule_of_somebody_else_may_end_with_a_word_of_ours():
    """Found by atheris: ``iptables -A KUBE-SERVICES -m comment --comment -d`` is printed just so."""
    for word in ("-d", "-p", "--dport"):
        text = f"*filter\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -m comment --comment {word}\nCOMMIT\n"
        TARGETS["save"](text.encode())
        one, other = (f"-A KUBE-SERVICES -m comment --comment {w}\n" for w in (word, "x" * len(word)))
        assert not same_chain("KUBE-SERVICES", one, other)

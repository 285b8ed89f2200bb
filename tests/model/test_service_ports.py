"""A Service object read for one family: what it means, and one problem for each odd field."""

import pytest

from pykubeproxy.model.service import is_proxied, service_ports
from pykubeproxy.watch.objects import ObjectMeta, Service, ServiceSpec
from tests.support.builders import port, service


def read(obj, family="IPv4"):
    return service_ports(obj, family)


def only(obj, family="IPv4"):
    (found,), problems = read(obj, family)
    assert problems == [], problems
    return found


def problems(obj, family="IPv4"):
    return [(problem.field, problem.message) for problem in read(obj, family)[1]]


DUAL = {"clusterIPs": ["10.96.0.10", "fd00:96::10"], "ipFamilies": ["IPv4", "IPv6"]}


@pytest.mark.parametrize(
    ("spec", "four", "six"),
    [
        ({}, "10.96.0.10", None),
        (DUAL, "10.96.0.10", "fd00:96::10"),
        ({"clusterIPs": ["fd00:96::10", "10.96.0.10"], "ipFamilies": ["IPv6", "IPv4"]}, "10.96.0.10", "fd00:96::10"),
        ({"clusterIPs": ["10.96.0.10"], "ipFamilies": ["IPv4", "IPv6"]}, "10.96.0.10", None),
        ({"clusterIPs": None, "ipFamilies": None}, "10.96.0.10", None),
        ({"clusterIP": "fd00:96::10", "clusterIPs": None, "ipFamilies": None}, None, "fd00:96::10"),
        ({"clusterIPs": ["10.96.0.010"]}, "10.96.0.10", None),
        ({"clusterIP": "FD00:96:0:0::10", "clusterIPs": None, "ipFamilies": []}, None, "fd00:96::10"),
    ],
)
def test_the_address_of_each_family(spec, four, six):
    for family, address in (("IPv4", four), ("IPv6", six)):
        found, _ = read(service(**spec), family)
        assert [one.cluster_ip for one in found] == ([address] if address else [])


@pytest.mark.parametrize(
    "obj",
    [
        service(ip="None"),
        service(ip=""),
        service(ip=None),
        service(type="ExternalName"),
        service(labels={"service.kubernetes.io/service-proxy-name": "other"}),
        service(labels={"service.kubernetes.io/service-proxy-name": ""}),
        Service(ObjectMeta(name="web", namespace="default")),
        Service(ObjectMeta(name="web", namespace="default"), ServiceSpec()),
        service(ports=[]),
    ],
    ids=[
        "headless",
        "pending",
        "no address",
        "ExternalName",
        "other proxy",
        "empty proxy name",
        "no spec",
        "bare",
        "no ports",
    ],
)
def test_what_is_not_our_business_has_no_ports_and_no_problem(obj):
    assert read(obj) == ((), [])


def test_the_headless_label_says_nothing_about_a_service():
    """It filters slices (tests/watch); a service that carries it is served."""
    assert is_proxied(service(labels={"service.kubernetes.io/headless": ""}))


def test_ports_names_and_protocols():
    found, _ = read(
        service(ports=[port(80, "http"), port(53, "dns", "UDP"), {"port": 5000, "name": "s", "protocol": None}])
    )
    assert [(str(one.id), one.id.protocol, one.port) for one in found] == [
        ("default/web:http", "TCP", 80),
        ("default/web:dns", "UDP", 53),
        ("default/web:s", "TCP", 5000),
    ]
    assert str(only(service()).id) == "default/web"


@pytest.mark.parametrize(
    ("spec", "external", "internal"),
    [
        ({}, False, False),
        ({"externalTrafficPolicy": "Local"}, False, False),
        ({"externalTrafficPolicy": "Local", "type": "NodePort"}, True, False),
        ({"externalTrafficPolicy": "Local", "externalIPs": ["203.0.113.1"]}, True, False),
        ({"externalTrafficPolicy": "Local", "externalIPs": ["2001:db8::1"]} | DUAL, True, False),
        ({"externalTrafficPolicy": "Cluster", "type": "LoadBalancer"}, False, False),
        ({"externalTrafficPolicy": "", "internalTrafficPolicy": ""}, False, False),
        ({"internalTrafficPolicy": "Local"}, False, True),
        ({"trafficDistribution": "PreferClose"}, False, False),
    ],
)
def test_traffic_policies(spec, external, internal):
    found = only(service(**spec))
    assert (found.external_policy_is_local, found.internal_policy_is_local) == (external, internal)


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        ({}, 0),
        ({"sessionAffinity": "None"}, 0),
        ({"sessionAffinity": "ClientIP"}, 10800),
        ({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {}}, 10800),
        ({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {}}}, 10800),
        ({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 1}}}, 1),
        ({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 86400}}}, 86400),
        ({"sessionAffinity": "None", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}}}, 0),
    ],
)
def test_session_affinity(spec, seconds):
    assert only(service(**spec)).affinity_seconds == seconds


def test_load_balancer_addresses():
    obj = service(
        lb=[
            {"ip": "203.0.113.9", "ipMode": "Proxy"},
            {"ip": "203.0.113.10", "ipMode": "VIP"},
            {"hostname": "x"},
            {"ip": "203.0.113.11"},
            {"ip": ""},
            {"ip": "2001:db8::1"},
        ]
    )
    (found,), _ = read(obj)
    assert found.load_balancer_ips == ("203.0.113.10", "203.0.113.11")
    assert [field for field, _ in problems(obj)] == ["status.loadBalancer.ingress[5]"]


@pytest.mark.parametrize(
    ("ranges", "four", "lost_four", "six", "lost_six"),
    [
        ([], [], False, [], False),
        (["10.0.0.0/8"], ["10.0.0.0/8"], False, [], True),
        ([" 10.0.0.0/8 ", "10.1.2.3/8"], ["10.0.0.0/8", "10.0.0.0/8"], False, [], True),
        (["10.0.0.0/8", "2001:DB8::1/32"], ["10.0.0.0/8"], False, ["2001:db8::/32"], False),
        (["0.0.0.0/0", "10.0.0.0/8"], [], False, [], True),
        (["1.2.3.4/0"], [], False, [], True),
        (["::/0"], [], True, [], False),
        (["", " "], [], False, [], False),
    ],
)
def test_source_ranges(ranges, four, lost_four, six, lost_six):
    obj = service(lb=["203.0.113.9", "2001:db8::9"], loadBalancerSourceRanges=ranges, **DUAL)
    for family, networks, lost in (("IPv4", four, lost_four), ("IPv6", six, lost_six)):
        found = only(obj, family)
        assert ([str(network) for network in found.source_ranges], found.source_ranges_lost) == (networks, lost)


def test_health_check_port():
    balanced = {"lb": ["203.0.113.9"], "externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}
    assert only(service(**balanced)).health_check_node_port == 32000
    assert only(service(**balanced | {"externalTrafficPolicy": "Cluster"})).health_check_node_port == 0
    assert only(service(**balanced | {"type": "NodePort"})).health_check_node_port == 0


@pytest.mark.parametrize(
    ("obj", "field", "word", "ports"),
    [
        (service(clusterIPs=["10.96.0.300"]), "spec.clusterIPs", "is not an IP address", 0),
        (service(ip="fd00::1", ipFamilies=["IPv4"]), "spec.clusterIPs", "is not IPv4", 0),
        (service(clusterIPs=["10.96.0.11"]), "spec.clusterIP", "is not clusterIPs[0], '10.96.0.11', which counts", 1),
        (service(clusterIPs=["10.96.0.11"], ipFamilies=[]), "spec.clusterIP", "'10.96.0.10' counts, not", 1),
        (service(clusterIPs=["::ffff:10.0.0.1"]), "spec.clusterIPs", "IPv4-mapped", 0),
        (service(clusterIPs=["10.96.0.010"]), "spec.clusterIPs", "leading zeros", 1),
        (service(externalIPs=["nonsense", "203.0.113.1"]), "spec.externalIPs[0]", "is not an IP address", 1),
        (service(externalIPs=["2001:db8::1", "203.0.113.1"]), "spec.externalIPs[0]", "has no address of", 1),
        (service(externalIPs=["203.0.113.01"]), "spec.externalIPs[0]", "leading zeros", 1),
        (service(externalIPs=["203.0.113.1%eth0"]), "spec.externalIPs[0]", "is not an IP address", 1),
        (service(lb=["203.0.113.1/32"]), "status.loadBalancer.ingress[0]", "is not an IP address", 1),
        (
            service(lb=["203.0.113.1"], loadBalancerSourceRanges=["10.0.0.0/33"]),
            "spec.loadBalancerSourceRanges[0]",
            "longer",
            1,
        ),
        (service(ports=[port(0)]), "spec.ports[0].port", "not between", 0),
        (service(ports=[port(65536), port(80, "b")]), "spec.ports[0].port", "not between", 1),
        (service(ports=[port(80, node_port=70000)]), "spec.ports[0].nodePort", "there is no node port", 1),
        (service(ports=[port(80, node_port=-1)]), "spec.ports[0].nodePort", "there is no node port", 1),
        (service(ports=[port(80, protocol="ICMP")]), "spec.ports[0].protocol", "not TCP, UDP or SCTP", 0),
        (service(ports=[port(80, 'a" -j ACCEPT\n')]), "spec.ports[0].name", "not a valid name", 0),
        (service(ports=[port(80, "a"), port(81, "a")]), "spec.ports[1].name", "occurs twice", 1),
        (
            service(externalTrafficPolicy="Sometimes", type="NodePort"),
            "spec.externalTrafficPolicy",
            "not Cluster or Local",
            1,
        ),
        (service(externalTrafficPolicy="Sometimes"), "spec.externalTrafficPolicy", "not Cluster or Local", 1),
        (service(type="loadbalancer"), "spec.type", "it is taken as ClusterIP", 1),
        (
            service(trafficDistribution="PreferFar"),
            "spec.trafficDistribution",
            "'PreferFar' is not PreferClose, PreferSameNode or PreferSameZone; only the hints of the slices count",
            1,
        ),
        (
            service(lb=[{"ip": "203.0.113.1", "ipMode": "vip"}]),
            "status.loadBalancer.ingress[0].ipMode",
            "'vip' is not VIP or Proxy; the address is left out, as with Proxy",
            1,
        ),
        (service(internalTrafficPolicy="local"), "spec.internalTrafficPolicy", "not Cluster or Local", 1),
        (service(sessionAffinity="Cookie"), "spec.sessionAffinity", "not None or ClientIP", 1),
        (
            service(sessionAffinity="ClientIP", sessionAffinityConfig={"clientIP": {"timeoutSeconds": 0}}),
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
            "10800 is used",
            1,
        ),
        (
            service(sessionAffinity="ClientIP", sessionAffinityConfig={"clientIP": {"timeoutSeconds": 86401}}),
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
            "10800 is used",
            1,
        ),
        (
            service(lb=["203.0.113.1"], externalTrafficPolicy="Local", healthCheckNodePort=99999),
            "spec.healthCheckNodePort",
            "is no port",
            1,
        ),
        (service('we"b'), "metadata.name", "not a valid name", 0),
        (service("web", "a\nb"), "metadata.name", "not a valid name", 0),
        (service("web", ""), "metadata.name", "not a valid name", 0),
    ],
)
def test_an_odd_field_is_named_and_the_rest_is_used(obj, field, word, ports):
    found, told = read(obj)
    assert len(found) == ports
    assert [problem.field for problem in told] == [field]
    assert word in told[0].message
    assert "\n" not in str(told[0]) or "\n" in obj.metadata.namespace


def test_the_later_of_two_ports_of_one_name_counts():
    (found,), _ = read(service(ports=[port(80, "a"), port(81, "a")]))
    assert found.port == 81


def test_facts_about_a_port():
    plain = only(service())
    assert (plain.is_externally_accessible, plain.uses_cluster_endpoints, plain.uses_local_endpoints) == (
        False,
        True,
        False,
    )
    inner = only(service(internalTrafficPolicy="Local"))
    assert (inner.uses_cluster_endpoints, inner.uses_local_endpoints) == (False, True)
    outer = only(
        service(ports=[port(80, node_port=30080)], internalTrafficPolicy="Local", externalTrafficPolicy="Local")
    )
    assert (outer.uses_cluster_endpoints, outer.uses_local_endpoints) == (True, True)

"""Services looked up by name or address: what is found, and what is said of what has no rules or is not there."""

import json

import pytest
from insight_demo import ALL, gather, run

OTHERS = [
    ({"name": "bare"}, {"clusterIP": "None", "ports": [{"port": 80}]}),
    ({"name": "far"}, {"type": "ExternalName", "externalName": "example.org"}),
    (
        {"name": "theirs", "labels": {"service.kubernetes.io/service-proxy-name": "x"}},
        {"clusterIP": "10.96.1.1", "ports": [{"port": 80}]},
    ),
    ({"name": "portless"}, {"clusterIP": "10.96.1.3"}),
    ({"name": "balanced"}, {"type": "LoadBalancer", "clusterIP": "10.96.1.2", "ports": [{"port": 80}]}),
]
BALANCED = {"loadBalancer": {"ingress": [{"ip": "192.0.2.11", "ipMode": "Proxy"}]}}
LABEL = "service.kubernetes.io/service-proxy-name"
BESIDE = "balanced, bare, far, nginx-six, nginx-svc and 4 more"
NO_RULES = "so there are no rules for it"


@pytest.fixture
def demo(tmp_path):
    return gather(tmp_path / "manifests", *ALL)


def put(folder, services):
    items = [{"apiVersion": "v1", "kind": "Service", **service} for service in services]
    (folder / "more.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nginx", "there is no Service default/nginx; there is default/nginx-svc"),
        ("kube-dns", "there is no Service default/kube-dns; there is kube-system/kube-dns"),
        ("shop.default.svc", "there is no Service default/shop.default.svc; there is default/shop"),
        ("kube-system/x", "there is no Service kube-system/x; namespace kube-system has kube-dns"),
        (
            "zebra",
            f"there is no Service default/zebra; namespace default has {BESIDE}",
        ),
        ("zoo/zebra", "there is no Service zoo/zebra; none is in namespace zoo, but in default, kube-system"),
        ("kube-system/kube-dns:metrics", "kube-system/kube-dns has no port metrics; it has dns 53/UDP, dns-tcp 53/TCP"),
        ("shop:80/udp", "default/shop has no port 80/UDP; it has 80/TCP"),
        ("bare", f"default/bare is headless: DNS gives its pods' addresses, {NO_RULES}"),
        ("far", f"default/far is an ExternalName: a name in DNS, {NO_RULES}"),
        ("theirs", f"default/theirs is left to another proxy by its label {LABEL}, {NO_RULES}"),
        ("portless", f"default/portless has no ports, {NO_RULES}"),
        ("10.96.7.7", "no Service has the address 10.96.7.7"),
        ("10.101.0.7:81", "no Service has port 81 of 10.101.0.7; there is default/shop 80/TCP"),
        ("10.244.2.14", "no Service has the address 10.244.2.14; it is an endpoint of default/nginx-svc"),
        (
            "192.0.2.11",
            "at 192.0.2.11 of default/balanced the load balancer itself answers (ipMode Proxy): no rule is about it",
        ),
    ],
)
def test_what_is_not_there_to_explain_is_told(demo, name, message):
    put(demo, [{"metadata": meta, "spec": spec, "status": BALANCED} for meta, spec in OTHERS])
    done = run("explain", "--no-live", name, manifests=demo)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"pykubeproxy: {message}\n")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("shop:web", "default/shop has no port web; it has 80/TCP"),
        ("default/shopp:80", "there is no Service default/shopp; there is default/shop"),
        ("kube-dns:53", "there is no Service default/kube-dns; there is kube-system/kube-dns"),
        ("bare:80", f"default/bare is headless: DNS gives its pods' addresses, {NO_RULES}"),
    ],
)
def test_what_is_not_there_to_send_to_is_told(demo, target, message):
    put(demo, [{"metadata": meta, "spec": spec} for meta, spec in OTHERS])
    done = run("trace", "--to", target, manifests=demo)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"pykubeproxy: --to: {message}\n")


def test_of_many_ports_a_few_are_named(demo):
    ports = [{"name": f"p{number}", "port": number} for number in range(1000, 2000)]
    put(demo, [{"metadata": {"name": "many"}, "spec": {"clusterIP": "10.96.1.2", "ports": ports}}])
    few = "p1000 1000/TCP, p1001 1001/TCP, p1002 1002/TCP, p1003 1003/TCP, p1004 1004/TCP and 995 more"
    explained = run("explain", "--no-live", "many:80", manifests=demo)
    assert explained == (1, "", f"pykubeproxy: default/many has no port 80; it has {few}\n")
    traced = run("trace", "--to", "many", manifests=demo)
    assert traced.returncode == 2
    assert f"has several ports: {few}; say which, such as default/many:p1000" in traced.stderr


def test_a_service_is_found_by_an_address_of_its_own(demo):
    spec = {"type": "LoadBalancer", "clusterIP": "10.96.1.2", "externalIPs": ["198.51.100.7"]}
    ports = [{"name": "http", "port": 80, "nodePort": 30555}, {"name": "https", "port": 443, "nodePort": 30556}]
    balancer = {"loadBalancer": {"ingress": [{"ip": "192.0.2.10"}]}}
    udp = {"type": "LoadBalancer", "clusterIP": "10.96.1.3", "ports": [{"port": 53, "protocol": "UDP"}]}
    meant = (("one", {**spec, "ports": ports}), ("two", udp))
    put(demo, [{"metadata": {"name": name}, "spec": what, "status": balancer} for name, what in meant])

    def found(asked):
        done = run("explain", "--no-live", asked, "-o", "json", manifests=demo)
        assert (done.returncode, done.stderr) == (0, "")
        return [(one["service"], [port["port"] for port in one["ports"]]) for one in json.loads(done.stdout)]

    one, http = ("default/one", [80, 443]), [("default/one", [80])]
    assert found("10.96.1.2") == found("198.51.100.7") == [one]
    assert found("192.0.2.10") == [one, ("default/two", [53])]
    assert found("192.0.2.10:80") == found("192.0.2.10:http") == found("192.168.77.1:30555") == http
    assert found("192.0.2.10:53/udp") == [("default/two", [53])]
    assert found("[fd00:77::1]:30066") == [("default/nginx-six", [80])]
    assert found("one:http") == found("one:30555") == http

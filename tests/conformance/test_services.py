"""The upstream tests "Services" and "EndpointSlice", as far as a proxy has a part in them."""

import pytest

from e2e.netlab.wiring import NODE_IP, NODE_IP6, REMOTE_POD_IP
from tests.conformance.cluster import HOST_PORT, backend, fails, leaves, reaches, tcp, udp, until

pytestmark = [pytest.mark.netns, pytest.mark.slow]

FAMILIES = pytest.mark.parametrize("family", [4, 6])
NODE = {4: NODE_IP, 6: NODE_IP6}


@FAMILIES
def test_a_service_is_reached_from_every_place_by_every_address(site, family):
    service = site.service(f"places-{family}", tcp(), udp())
    service.as_node_port()
    service.endpoints("p1", "p2", "far")
    ip = service.ips[family]
    for place in (site.client, site.node, site.lab.pods["p1"], site.remote):
        reaches(place, ip, 80, "p1", "p2", "far")
    for place in (site.client, site.outside, site.remote, site.node):
        reaches(place, NODE[family], service.node_port(), "p1", "p2", "far")
        datagrams = place.udp(NODE[family], service.node_port(1), n=30)
        assert set(datagrams.pods) == {"p1", "p2", "far"}
        assert not datagrams.failures
    service.delete()
    fails(site.client, ip, 80, "timeout")


def test_the_source_address_of_a_pod_is_kept(site):
    service = site.service("source")
    service.endpoints("p1", "p2")
    assert set(reaches(site.client, service.ips[4], 80, "p1", "p2").sources) == {site.client.ip}
    assert set(reaches(site.remote, service.ips[4], 80, "p1", "p2").sources) == {REMOTE_POD_IP}
    service.delete()


def test_ports_are_added_and_deleted(site):
    service = site.service("ports", tcp(80))
    service.endpoints("p1")
    reaches(site.client, service.ips[4], 80, "p1")
    service.ports.append(tcp(81, 8080))
    service.put()
    service.endpoints("p1")
    reaches(site.client, service.ips[4], 81, "p1")
    service.ports.pop()
    service.put()
    service.endpoints("p1")
    fails(site.client, service.ips[4], 81, "timeout")
    reaches(site.client, service.ips[4], 80, "p1")
    service.delete()


def test_one_port_number_of_two_protocols(site):
    service = site.service("protocols", tcp(80), udp(80))
    service.endpoints("p1")
    ip = service.ips[4]
    reaches(site.client, ip, 80, "p1")
    assert site.client.udp(ip, 80).pods == {"p1": 1}
    both = service.ports
    service.ports = both[:1]
    service.put()
    fails(site.client, ip, 80, "timeout", udp=True)
    reaches(site.client, ip, 80, "p1")
    service.ports = both[1:]
    service.put()
    fails(site.client, ip, 80, "timeout")
    until(lambda: site.client.udp(ip, 80).pods == {"p1": 1}, "UDP only")
    service.delete()


def test_the_type_changes_forth_and_back(site):
    service = site.service("type", spec={"type": "ExternalName"})
    service.endpoints("p1")
    ip = service.ips[4]
    fails(site.client, ip, 80, "timeout")
    service.put(type="ClusterIP")
    reaches(site.client, ip, 80, "p1")
    service.put(type="ExternalName")
    fails(site.client, ip, 80, "timeout")
    service.as_node_port()
    reaches(site.outside, NODE_IP, service.node_port(), "p1")
    reaches(site.client, ip, 80, "p1")
    service.put(type="ExternalName")
    fails(site.outside, NODE_IP, service.node_port())
    fails(site.client, ip, 80, "timeout")
    service.delete()


def test_a_service_that_is_deleted_and_made_again_works(site):
    service = site.service("again")
    service.endpoints("p1")
    reaches(site.client, service.ips[4], 80, "p1")
    service.delete()
    fails(site.client, service.ips[4], 80, "timeout")
    service.put()
    service.endpoints("p2")
    reaches(site.client, service.ips[4], 80, "p2")
    service.delete()


def test_an_external_ip_that_is_on_no_node(site):
    service = site.service("external", externalIPs=["203.0.113.250"])
    service.endpoints("p1", "p2")
    reaches(site.client, "203.0.113.250", 80, "p1", "p2")
    service.delete()


def test_the_label_service_proxy_name(site):
    mark = {"service.kubernetes.io/service-proxy-name": "foo-bar"}
    never = site.service("proxy-never", labels=mark)
    never.endpoints("p1")
    service = site.service("proxy-toggled")
    service.endpoints("p1", "p2")
    reaches(site.client, service.ips[4], 80, "p1", "p2")
    service.labels = mark
    service.put()
    fails(site.node, service.ips[4], 80, "timeout")
    service.labels = {}
    service.put()
    reaches(site.client, service.ips[4], 80, "p1", "p2")
    fails(site.node, never.ips[4], 80, "timeout")
    service.delete()
    never.delete()


def test_the_label_headless_on_a_slice(site):
    service = site.service("headless")
    service.endpoints("p1")
    reaches(site.node, service.ips[4], 80, "p1")
    service.endpoints("p1", labels={"service.kubernetes.io/headless": ""})
    fails(site.node, service.ips[4], 80)
    service.endpoints("p1")
    reaches(site.node, service.ips[4], 80, "p1")
    service.delete()


@FAMILIES
def test_without_endpoints_it_is_refused(site, family):
    service = site.service(f"none-{family}")
    for place in (site.client, site.node) if family == 4 else (site.client,):
        fails(place, service.ips[family], 80)
    service.endpoints(backend("p1", ready=False))
    fails(site.client, service.ips[family], 80)
    service.endpoints("p1")
    reaches(site.client, service.ips[family], 80, "p1")
    service.endpoints()
    fails(site.client, service.ips[family], 80)
    service.delete()


def test_unready_pods_answer_where_the_service_publishes_them(site):
    """publishNotReadyAddresses is the controller's: it writes ready, also of pods that are not and that go."""
    service = site.service("tolerant", publishNotReadyAddresses=True)
    service.as_node_port()
    service.endpoints({**backend("p1"), "conditions": {"ready": True, "serving": False, "terminating": False}})
    reaches(site.client, service.ips[4], 80, "p1")
    service.endpoints({**backend("p1"), "conditions": {"ready": True, "serving": False, "terminating": True}})
    for address, port in ((service.ips[4], 80), (NODE_IP, service.node_port())):
        reaches(site.client, address, port, "p1")
    service.put(publishNotReadyAddresses=False)
    service.endpoints(backend("p1", ready=False, terminating=True))
    for address, port in ((service.ips[4], 80), (NODE_IP, service.node_port())):
        fails(site.client, address, port)
    service.delete()


def test_terminating_endpoints_serve_when_no_other_is_ready(site):
    service = site.service("last")
    service.as_node_port()
    service.endpoints(leaves("p1"), "p2")
    reaches(site.client, service.ips[4], 80, "p2")
    service.endpoints(leaves("p1"), backend("p2", ready=False))
    for place in (site.client, site.node, site.remote):
        reaches(place, service.ips[4], 80, "p1")
        reaches(place, NODE_IP, service.node_port(), "p1")
    service.put(internalTrafficPolicy="Local", externalTrafficPolicy="Local")
    for place in (site.client, site.node):
        reaches(place, service.ips[4], 80, "p1")
    reaches(site.outside, NODE_IP, service.node_port(), "p1")
    service.endpoints(leaves("far"))
    fails(site.client, service.ips[4], 80, "timeout")
    fails(site.outside, NODE_IP, service.node_port(), "timeout")
    reaches(site.client, NODE_IP, service.node_port(), "far")
    service.delete()


@pytest.mark.parametrize("pod", ["p1", "node"])
def test_internal_traffic_policy_local(site, pod):
    """Also where the endpoint is a pod of the host network: its address is the node's."""
    service = site.service(
        f"internal-{pod}", tcp(80, HOST_PORT if pod == "node" else 80), internalTrafficPolicy="Local"
    )
    service.endpoints(pod)
    for place in (site.client, site.node):
        reaches(place, service.ips[4], 80, pod)
    service.endpoints("far")
    for place in (site.client, site.node):
        fails(place, service.ips[4], 80, "timeout")
    service.delete()


@FAMILIES
def test_endpoints_on_the_host_network(site, family):
    service = site.service(f"hosts-{family}", tcp(80, HOST_PORT), udp(53, HOST_PORT))
    service.as_node_port()
    service.endpoints("node", "other-node")
    for place in (site.client, site.node):
        reaches(place, service.ips[family], 80, "node", "far")
        reaches(place, NODE[family], service.node_port(), "node", "far")
        for address, port in ((service.ips[family], 53), (NODE[family], service.node_port(1))):
            found = place.udp(address, port, n=20, payload="n" + "o" * 1999)
            assert set(found.pods) == {"node", "far"}
            assert not found.failures
    service.delete()


def test_external_traffic_policy_local_keeps_the_client_s_address(site):
    service = site.service("external-local")
    service.as_node_port(externalTrafficPolicy="Local")
    service.endpoints("p1")
    found = reaches(site.outside, NODE_IP, service.node_port(), "p1")
    assert set(found.sources) == {"192.168.77.2"}
    service.endpoints("far")
    fails(site.outside, NODE_IP, service.node_port(), "timeout")
    service.delete()


def test_the_health_check_node_port_follows_endpoints_and_policy(site):
    service = site.service("checked")
    number = service.node_port(5)

    def answers(status):
        until(lambda: site.page(NODE_IP, number, "/healthz", source=site.outside).status == status, f"status {status}")

    service.as_node_port(type="LoadBalancer", externalTrafficPolicy="Local", healthCheckNodePort=number)
    service.endpoints("p1", "far")
    answers(200)
    reaches(site.outside, NODE_IP, service.node_port(), "p1")
    service.endpoints("far")
    answers(503)
    fails(site.outside, NODE_IP, service.node_port(), "timeout")
    reaches(site.client, NODE_IP, service.node_port(), "far")
    service.endpoints(leaves("p1"))
    answers(503)
    reaches(site.outside, NODE_IP, service.node_port(), "p1")
    del service.spec["healthCheckNodePort"]
    service.put(externalTrafficPolicy="Cluster")
    until(lambda: site.page(NODE_IP, number, source=site.outside).failure == "refused", "no health check")
    service.endpoints("far")
    reaches(site.outside, NODE_IP, service.node_port(), "far")
    service.put(externalTrafficPolicy="Local", healthCheckNodePort=number)
    answers(503)
    service.endpoints("p1")
    answers(200)
    service.delete()


def test_a_load_balancer_s_two_protocols_on_one_port(site):
    service = site.service("balanced", tcp(80), udp(80))
    service.as_node_port(type="LoadBalancer")
    service.endpoints("p1")
    reaches(site.client, service.ips[4], 80, "p1")
    assert site.client.udp(service.ips[4], 80).pods == {"p1": 1}
    service.delete()


def test_a_load_balancer_s_address_and_its_source_ranges(site):
    """The load balancer is a cloud's; the way from its address on is the proxy's."""
    service = site.service("ranges")
    balancer = f"203.0.113.{service.number}"
    service.status = {"loadBalancer": {"ingress": [{"ip": balancer, "ipMode": "VIP"}]}}
    service.as_node_port(type="LoadBalancer", loadBalancerSourceRanges=["192.168.77.0/24"])
    service.endpoints("p1")
    reaches(site.outside, balancer, 80, "p1")
    service.put(loadBalancerSourceRanges=["198.51.100.0/24"])
    fails(site.outside, balancer, 80, "timeout")
    fails(site.client, balancer, 80, "timeout")
    service.put(loadBalancerSourceRanges=[f"{site.client.ip}/32"])
    reaches(site.client, balancer, 80, "p1")
    service.put(loadBalancerSourceRanges=[])
    reaches(site.outside, balancer, 80, "p1")
    service.put(type="ClusterIP", loadBalancerSourceRanges=None)
    service.delete()


@pytest.mark.parametrize(("kind", "family"), [("ClusterIP", 6), ("NodePort", 4)])
def test_session_affinity_holds_ends_and_is_switched(site, kind, family):
    service = site.service(f"affine-{kind.lower()}-{family}")
    place, address, port = site.client, service.ips[family], 80
    if kind == "NodePort":
        service.as_node_port()
        place, address, port = site.outside, NODE[family], service.node_port()
    service.endpoints("p1", "p2", "p3")
    config = {"clientIP": {"timeoutSeconds": 10800}}
    service.put(sessionAffinity="ClientIP", sessionAffinityConfig=config)
    until(lambda: len(place.http(address, port, n=16).pods) == 1, "one pod")
    assert len(place.http(address, port, n=16).pods) == 1
    service.put(sessionAffinity="None", sessionAffinityConfig=None)
    until(lambda: len(place.http(address, port, n=16).pods) > 1, "more pods than one")
    config["clientIP"]["timeoutSeconds"] = 1
    service.put(sessionAffinity="ClientIP", sessionAffinityConfig=config)
    until(lambda: len(place.http(address, port, n=16).pods) == 1, "one pod again")
    # With more than its seconds between two requests nothing is remembered.
    until(lambda: len(place.http(address, port, n=3, interval=1.6).pods) > 1, "another pod later")
    service.delete()


def test_two_services_of_the_same_pods_one_of_which_goes(site):
    first, second = site.service("same-1"), site.service("same-2")
    for service in (first, second):
        service.as_node_port()
        service.endpoints("p1", "p2")
        reaches(site.lab.pods["p1"], service.ips[4], 80, "p1", "p2")
    first.delete()
    fails(site.outside, NODE_IP, first.node_port())
    reaches(site.lab.pods["p1"], second.ips[4], 80, "p1", "p2")
    reaches(site.lab.pods["p1"], NODE_IP, second.node_port(), "p1", "p2")
    second.delete()


def test_custom_slices_each_for_a_port(site):
    """Endpoints of no node and no target, in slices that nobody but a user manages."""
    service = site.service("custom", tcp(80), tcp(81, 8080))
    both = service.ports
    plain = {key: value for key, value in backend("p1").items() if key in ("addresses", "conditions")}
    service.ports = both[:1]
    service.endpoints(plain, slice_name="one")
    service.ports = both[1:]
    service.endpoints("p2", slice_name="two")
    reaches(site.client, service.ips[4], 80, "p1")
    reaches(site.client, service.ips[4], 81, "p2")
    service.delete()


def test_a_named_target_port_differs_from_pod_to_pod(site):
    service = site.service("mutable")
    service.endpoints("p1", slice_name="old", tcp_80=80)
    service.endpoints("p2", slice_name="new", tcp_80=8080)
    reaches(site.client, service.ips[4], 80, "p1", "p2")
    service.delete()


def test_large_requests(site):
    service = site.service("large", tcp(), udp())
    service.endpoints("p1", "far")
    reaches(site.client, service.ips[4], 80, "p1", "far", path="/" + "42" * 1000)
    found = site.client.udp(service.ips[4], 53, n=20, payload="n" + "o" * 1999)
    assert not found.failures
    assert set(found.pods) == {"p1", "far"}
    service.delete()


@FAMILIES
def test_endpoints_are_updated(site, family):
    service = site.service(f"updated-{family}", tcp(), udp())
    service.endpoints("p1", "p2")
    reaches(site.client, service.ips[family], 80, "p1", "p2")
    service.endpoints("p2")
    reaches(site.client, service.ips[family], 80, "p2")
    assert set(site.client.udp(service.ips[family], 53, n=10).pods) == {"p2"}
    service.delete()


def test_an_sctp_service_becomes_rules_and_nothing_else(site):
    """Whether a kernel with modules loads sctp.ko cannot be seen here; no socket of that kind is opened."""
    service = site.service("sctp", {"name": "sctp", "protocol": "SCTP", "port": 5060, "targetPort": 5060})
    service.endpoints("p1")
    rule = f"-d {service.ips[4]}/32 -p sctp "
    until(lambda: rule in site.lab.iptables("-t", "nat", "-S").stdout, "the rules")
    service.endpoints()
    until(lambda: rule in site.lab.iptables("-t", "filter", "-S").stdout, "the refusal")
    service.delete()
    until(lambda: rule not in site.lab.iptables("-t", "filter", "-S").stdout, "nothing")


def test_a_service_of_a_new_service_cidr(site):
    """The proxy asks no range: an address is a service's because the Service says so."""
    service = site.service("cidr")
    service.ips = {4: "203.0.113.10", 6: "2001:db8:cb00::a"}
    service.as_node_port()
    service.endpoints("p1", "p2")
    for ip in service.ips.values():
        reaches(site.client, ip, 80, "p1", "p2")
    reaches(site.client, NODE_IP, service.node_port(), "p1", "p2")
    service.delete()


def test_a_pod_meets_itself_through_its_service(site):
    service = site.service("hairpin", tcp(), udp())
    service.endpoints("p1")
    pod = site.lab.pods["p1"]
    reaches(pod, service.ips[4], 80, "p1")
    reaches(pod, service.ips[6], 80, "p1")
    assert pod.udp(service.ips[4], 53, n=3).pods == {"p1": 3}
    service.delete()

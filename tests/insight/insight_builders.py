"""Services, slices and pictures with only what a test is about; rules as a kernel would hold them."""

from pykubeproxy.insight.cluster import Picture, picture
from pykubeproxy.insight.standing import Counted, Standing
from pykubeproxy.model.service import ServiceKey
from pykubeproxy.model.topology import Placement
from pykubeproxy.rules.ruleset import Ruleset
from pykubeproxy.rules.settings import LocalDetector, RuleSettings
from pykubeproxy.watch import objects as api

KEY = ServiceKey("default", "web")
SETTINGS = RuleSettings("IPv4", Placement("node-a", "z1"), "192.168.0.1", local_detector=LocalDetector("10.244.0.0/16"))


def service(name="web", *, kind="ClusterIP", cluster_ip="10.96.0.1", ports=None, ingress=(), **spec):
    return api.Service(
        api.ObjectMeta(name=name, namespace="default"),
        api.ServiceSpec(ports=ports or [api.ServicePortSpec(port=80)], cluster_ip=cluster_ip, type=kind, **spec),
        api.ServiceStatus(api.LoadBalancerStatus([api.LoadBalancerIngress(ip=ip) for ip in ingress])),
    )


def endpoint(address, *, node="node-a", ready=True, serving=None, terminating=None, zones=(), nodes=()):
    hints = api.EndpointHints([api.ForZone(one) for one in zones] or None, [api.ForZone(one) for one in nodes] or None)
    return api.Endpoint([address], api.EndpointConditions(ready, serving, terminating), node, hints)


def slice_of(*endpoints, name="web", port="", number=8080):
    labels = {"kubernetes.io/service-name": name}
    meta = api.ObjectMeta(name=f"{name}-1", namespace="default", labels=labels)
    return api.EndpointSlice(meta, "IPv4", list(endpoints), [api.EndpointPort(name=port, port=number, protocol="TCP")])


def seen(*objects, settings=SETTINGS, dispatch="flat") -> Picture:
    """Return the picture of services and slices."""
    services = [one for one in objects if isinstance(one, api.Service)]
    slices = [one for one in objects if isinstance(one, api.EndpointSlice)]
    return picture(settings, services, slices, dispatch=dispatch)


def standing(shown: Picture, *, packets=0, **more) -> Standing:
    """Return a kernel that holds what a picture wants, every rule of nat with the same count."""
    wanted = shown.wanted.ruleset
    ruleset = Ruleset(
        {table: dict(chains) for table, chains in wanted.chains.items()}, wanted.ensured, wanted.shared_chains
    )
    counted = {
        ("nat", chain): [Counted(line.split(" ", 2)[2], packets, 0) for line in text.splitlines()]
        for chain, text in ruleset.chains["nat"].items()
    }
    return Standing(ruleset, counted, **more)

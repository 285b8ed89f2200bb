"""A list with odd EndpointSlices in it (R065): the good ones are served, the bad ones named, nothing raises."""

import json

from pykubeproxy.dryrun import desired
from pykubeproxy.watch.decode import decoder_of
from pykubeproxy.watch.manifests import ClusterObjects
from tests.support.builders import service, settings


def slice_of(name, **more):
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [f"10.244.0.{len(name)}"]}],
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
        **more,
    }


LIST = {
    "kind": "EndpointSliceList",
    "metadata": {"resourceVersion": "7"},
    "items": [
        slice_of("a"),
        slice_of("bb", endpoints=None),
        slice_of("ccc", ports=None),
        slice_of("dddd", ports=[{"name": "", "port": None, "protocol": "TCP"}]),
        slice_of("eeeee", addressType="FQDN", endpoints=[{"addresses": ["pod.example"]}]),
        slice_of(
            "ffffff", surprise={"deep": [1, 2, {"er": None}]}, endpoints=[{"addresses": ["10.244.0.6"], "new": 1}]
        ),
        slice_of("ggggggg", endpoints=7),
        slice_of("hhhhhhhh", endpoints=[{"addresses": "10.244.0.8"}]),
        slice_of("iiiiiiiii", ports=[{"port": "http"}]),
        slice_of("jjjjjjjjjj", endpoints=[{"addresses": ["10.244.0.10"], "conditions": None, "hints": None}]),
        slice_of("k" * 11, endpoints=[{"addresses": []}, {"addresses": None}, {"addresses": ["10.244.0.11"]}]),
        None,
        {"metadata": None},
    ],
}


def test_the_good_ones_are_served_and_the_bad_ones_named():
    decoded = decoder_of("endpointslices").decode_list(json.dumps(LIST).encode())
    assert len(decoded.bad) == 5
    named = {bad.name for bad in decoded.bad} - {None}
    assert named == {"ggggggg", "hhhhhhhh", "iiiiiiiii"}
    objects = ClusterObjects([service()], decoded.objects, [], [])
    wanted = desired("IPv4", objects, settings(), dispatch="flat")
    text = "".join(wanted.ruleset.chains["nat"].values())
    served = {n for n in range(1, 12) if f"--to-destination 10.244.0.{n}:8080\n" in text}
    assert served == {1, 6, 10, 11}

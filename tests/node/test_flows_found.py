"""The UDP addresses and ports that standing rules serve, found in the flat form and in trees alike."""

import pytest

from pykubeproxy.rules.dispatch import AddressSpace, PortSpace
from pykubeproxy.sync.flows import found_udp
from tests.support.builders import desired, endpoint_slice, port, service, slice_port


@pytest.mark.parametrize("dispatch", ["flat", "tree"])
def test_what_standing_rules_serve_is_found_in_both_forms(dispatch, monkeypatch):
    for space in (AddressSpace, PortSpace):
        monkeypatch.setattr(space, "leaf_size", 1)
    objects = []
    for number in range(4):
        ports = [port(53, "dns", "UDP", node_port=30000 + number * 100), port(53, "dns-tcp", node_port=31000 + number)]
        objects.append(service(f"s{number}", ip=f"10.96.{number}.1", ports=ports))
        there = [slice_port(53, "dns", "UDP"), slice_port(53, "dns-tcp")]
        objects.append(endpoint_slice(f"s{number}", ["10.244.0.1"], ports=there))
    found = found_udp(desired(*objects, dispatch=dispatch).ruleset)
    assert set(found.services) == {(f"10.96.{number}.1", 53) for number in range(4)}
    assert set(found.node_ports) == {30000 + number * 100 for number in range(4)}

"""The node's own addresses: the choice from the Node object, and what the kernel says is local."""

import pytest
from node_netns import Namespace

from pykubeproxy.node.addresses import (
    LocalAddress,
    family_of,
    in_any,
    interface_addresses,
    ipv6_supported,
    local_addresses,
    node_ips,
)


def chosen(pairs, bind=""):
    result = node_ips(pairs, bind)
    return result.primary, result.addresses["IPv4"], result.addresses["IPv6"], set(result.assumed)


@pytest.mark.parametrize(
    ("pairs", "bind", "expected"),
    [
        ([], "", ("IPv4", "127.0.0.1", "::1", {"IPv4", "IPv6"})),
        ([("InternalIP", "10.0.0.1")], "0.0.0.0", ("IPv4", "10.0.0.1", "::1", {"IPv6"})),
        ([("ExternalIP", "203.0.113.1"), ("InternalIP", "10.0.0.1")], "", ("IPv4", "10.0.0.1", "::1", {"IPv6"})),
        ([("ExternalIP", "203.0.113.1")], "", ("IPv4", "203.0.113.1", "::1", {"IPv6"})),
        ([("InternalIP", "fd00::1"), ("InternalIP", "10.0.0.1")], "::", ("IPv6", "10.0.0.1", "fd00::1", set())),
        # The other family comes from an ExternalIP when no InternalIP has it.
        ([("ExternalIP", "2001:db8::1"), ("InternalIP", "10.0.0.1")], "", ("IPv4", "10.0.0.1", "2001:db8::1", set())),
        ([("InternalIP", "10.0.0.1"), ("InternalIP", "10.0.0.2")], "", ("IPv4", "10.0.0.1", "::1", {"IPv6"})),
        ([("Hostname", "node-a"), ("InternalIP", "node-a"), ("InternalDNS", "10.0.0.9")], "", None),
        ([("InternalIP", "10.0.0.1")], "192.168.77.1", ("IPv4", "192.168.77.1", "::1", {"IPv6"})),
        ([("InternalIP", "10.0.0.1")], "fd00::9", ("IPv6", "10.0.0.1", "fd00::9", set())),
        ([("InternalIP", "::ffff:10.0.0.1")], "", ("IPv4", "10.0.0.1", "::1", {"IPv6"})),
        ([("InternalIP", "FD00::0001")], "", ("IPv6", "127.0.0.1", "fd00::1", {"IPv4"})),
    ],
)
def test_choice(pairs, bind, expected):
    assert chosen(pairs, bind) == (expected or ("IPv4", "127.0.0.1", "::1", {"IPv4", "IPv6"}))


def test_family_of():
    assert [family_of(text) for text in ("10.0.0.1", "fd00::1", "node-a", "fe80::1%eth0", "")] == [
        "IPv4",
        "IPv6",
        None,
        None,
        None,
    ]


def test_ranges_with_host_bits_spaces_other_families_and_nonsense():
    assert in_any("10.1.2.3", ["x", "fd00::/8", " 10.1.9.9/16 "])
    assert not in_any("10.1.2.3", ["fd00::/8", "10.2.0.0/16"])
    assert not in_any("nowhere", ["0.0.0.0/0"])


def test_local_addresses_of_a_family_in_ranges():
    found = [
        LocalAddress("IPv4", "127.0.0.1", 8, 1, is_link_local=False),
        LocalAddress("IPv4", "192.168.77.1", 24, 2, is_link_local=False),
        LocalAddress("IPv6", "fd00::1", 64, 2, is_link_local=False),
        LocalAddress("IPv6", "fe80::1", 64, 2, is_link_local=True),
    ]
    assert local_addresses(found, "IPv4") == {"127.0.0.1", "192.168.77.1"}
    assert local_addresses(found, "IPv4", ["192.168.0.0/16"]) == {"192.168.77.1"}
    assert local_addresses(found, "IPv6") == {"fd00::1"}
    assert local_addresses(found, "IPv6", with_link_local=True) == {"fd00::1", "fe80::1"}


@pytest.mark.parametrize(("text", "supported"), [("0", True), ("1", False), (None, True)])
def test_ipv6_switched_off(tmp_path, text, supported):
    (tmp_path / "net").mkdir()
    (tmp_path / "net/if_inet6").write_text("")
    if text is not None:
        (tmp_path / "sys/net/ipv6/conf/all").mkdir(parents=True)
        (tmp_path / "sys/net/ipv6/conf/all/disable_ipv6").write_text(f"{text}\n")
    assert ipv6_supported(tmp_path) is supported


def test_ipv6_absent(tmp_path):
    assert not ipv6_supported(tmp_path)


@pytest.mark.netns
def test_kernel_addresses_of_every_kind_of_link():
    with Namespace() as namespace:
        namespace.assert_isolated()
        namespace.run("ip", "link", "add", "d0", "type", "veth", "peer", "name", "d1")
        namespace.run("ip", "link", "set", "d0", "up")
        for address in ("192.168.77.1/24", "192.168.77.9/32"):
            namespace.run("ip", "address", "add", address, "dev", "d0")
        namespace.run("ip", "address", "add", "10.9.0.1", "peer", "10.9.0.2", "dev", "d0")
        namespace.run("ip", "address", "add", "fd00::1/64", "dev", "d0", "nodad")
        found = namespace.call(interface_addresses)
        assert local_addresses(found, "IPv4") == {"127.0.0.1", "192.168.77.1", "192.168.77.9", "10.9.0.1"}
        assert local_addresses(found, "IPv6") == {"::1", "fd00::1"}
        assert len({entry.interface_index for entry in found}) == 2


@pytest.mark.netns
def test_kernel_many_addresses_take_several_datagrams():
    with Namespace() as namespace:
        namespace.assert_isolated()
        batch = "".join(f"address add 10.{i // 250}.{i % 250}.1/32 dev lo\n" for i in range(2000))
        namespace.run("sh", "-c", f"printf '%s' '{batch}' | ip -batch -")
        assert len(local_addresses(namespace.call(interface_addresses), "IPv4")) == 2001

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykubeproxy.config import addresses
from pykubeproxy.config.options import Options


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("10.244.0.0/16", "10.244.0.0/16"),
        ("10.20.30.40/16", "10.20.0.0/16"),
        ("010.020.0.0/08", "10.0.0.0/8"),
        ("fd00:1::0/64", "fd00:1::/64"),
        ("FD00:10:244:0:0:0:0:1/56", "fd00:10:244::/56"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("::/0", "::/0"),
        ("::ffff:10.0.0.1/128", "::ffff:10.0.0.1/128"),
    ],
)
def test_a_cidr_becomes_canonical(text, canonical):
    assert addresses.parse_cidr(text) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10.0.0.0",
        "10.0.0.0/",
        "10.0.0.0/33",
        "10.0.0.0/255.0.0.0",
        "10.0.0/8",
        "::/129",
        "a/8",
        "fe80::%eth0/64",
        "10.0.0.0/\uff18",
    ],
)
def test_what_is_no_cidr_is_refused(text):
    with pytest.raises(ValueError, match="must be a CIDR"):
        addresses.parse_cidr(text)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("127.0.0.1", "127.0.0.1:10249"),
        ("0.0.0.0:80", "0.0.0.0:80"),
        ("fd00::5", "[fd00::5]:10249"),
        ("[fd00:0::5]:80", "[fd00::5]:80"),
        ("[::]:10249", "[::]:10249"),
    ],
)
def test_a_listening_address_gets_its_port(text, canonical):
    assert addresses.parse_host_port(text, 10249) == canonical


@pytest.mark.parametrize(
    "text",
    ["localhost:80", ":80", "1.2.3.4:", "1.2.3.4:0", "1.2.3.4:65536", "1.2.3.4:http", "[::1]", "[::1]x:1", "a b"],
)
def test_what_is_no_listening_address_is_refused(text):
    with pytest.raises(ValueError, match="must"):
        addresses.parse_host_port(text, 10249)


@pytest.mark.parametrize(
    "text", ["10.0.0.0/8,10.1.0.0/16", "fd00::/64,fd01::/64", "10.0.0.0/8,fd00::/64,10.1.0.0/16", "10.0.0.0/8,"]
)
def test_one_cluster_cidr_a_family(text):
    with pytest.raises(ValueError, match="must"):
        addresses.parse_cluster_cidrs(text)


def test_cluster_cidrs_split_by_family_in_any_order():
    options = Options(cluster_cidrs=addresses.parse_cluster_cidrs("fd00:10:244::/56, 10.244.0.0/16"))
    assert addresses.cluster_cidr(options, 4) == "10.244.0.0/16"
    assert addresses.cluster_cidr(options, 6) == "fd00:10:244::/56"


def test_a_family_without_cluster_cidr_has_none():
    assert addresses.cluster_cidr(Options(cluster_cidrs=("10.244.0.0/16",)), 6) is None


def test_nodeport_addresses_split_by_family():
    options = Options(
        nodeport_addresses=addresses.parse_nodeport_addresses(["192.168.0.0/16", "fd00::/64", "10.0.0.0/8"])
    )
    assert addresses.nodeport_cidrs(options, 4) == ("192.168.0.0/16", "10.0.0.0/8")
    assert addresses.nodeport_cidrs(options, 6) == ("fd00::/64",)


def test_primary_is_the_nodes_own_address():
    options = Options(nodeport_addresses=("primary",))
    assert addresses.uses_primary_nodeport_addresses(options)
    assert addresses.nodeport_cidrs(options, 4, "192.168.1.7") == ("192.168.1.7/32",)
    assert addresses.nodeport_cidrs(options, 6, "fd00::7") == ("fd00::7/128",)


@pytest.mark.parametrize("node_ip", [None, "127.0.0.1"])
def test_primary_without_a_real_address_is_unrestricted(node_ip):
    assert addresses.nodeport_cidrs(Options(nodeport_addresses=("primary",)), 4, node_ip) == ()


def test_primary_stands_alone():
    with pytest.raises(ValueError, match="both"):
        addresses.parse_nodeport_addresses(["primary", "10.0.0.0/8"])


@given(st.text())
def test_any_text_is_read_or_refused(text):
    for parse in (addresses.parse_ip, addresses.parse_cidr, addresses.parse_cluster_cidrs):
        with contextlib.suppress(ValueError):
            assert parse(text) is not None

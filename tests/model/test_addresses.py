"""Addresses as netfilter's tools print them, and the sloppy forms that old clusters hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykubeproxy.model.addresses import Network, has_leading_zeros, host, parse_ip, parse_network, prefix_of, with_port


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("010.000.000.001", "10.0.0.1"),
        ("10.0.0.08", "10.0.0.8"),
        ("2001:DB8:0:0:0:0:0:1", "2001:db8::1"),
        ("::192.0.2.33", "::192.0.2.33"),
        ("64:ff9b::192.0.2.33", "64:ff9b::c000:221"),
        ("1:0:0:2:0:0:0:3", "1:0:0:2::3"),
        ("::", "::"),
    ],
)
def test_canonical(text, canonical):
    assert parse_ip(text) == ("IPv6" if ":" in text else "IPv4", canonical)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1",
        "1.2.3",
        "1.2.3.4.5",
        "256.1.1.1",
        "1.2.3.-4",
        "1.2.3.4 ",
        "1.2.3.4/32",
        "::ffff:1.2.3.4",
        "fe80::1%eth0",
        "1::2::3",
        "12345::",
        "a.b.c.d",
        "1.2.3.\u0664",
        "0x10.1.1.1",
        "1.2.3.4\n",
        "10.0.0.1\0",
        "::1\0",
        "0" * 500 + "1.1.1.1",
    ],
)
def test_no_address(text):
    with pytest.raises(ValueError, match="is"):
        parse_ip(text)


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("10.1.2.3/8", "10.0.0.0/8"),
        (" 10.0.0.0/8\t", "10.0.0.0/8"),
        ("10.0.0.1/32", "10.0.0.1/32"),
        ("010.0.0.0/08", "10.0.0.0/8"),
        ("1.2.3.4/0", "0.0.0.0/0"),
        ("2001:DB8::1/32", "2001:db8::/32"),
        ("fd00::5/127", "fd00::4/127"),
    ],
)
def test_networks(text, network):
    assert str(parse_network(text)) == network


@pytest.mark.parametrize(
    "text", ["10.0.0.0", "10.0.0.0/33", "::/129", "10.0.0.0/-1", "10.0.0.0/8/8", "/8", "x/8", "10.0.0.0/", "1/1"]
)
def test_no_network(text):
    with pytest.raises(ValueError, match=r"is not|longer"):
        parse_network(text)


def test_leading_zeros():
    assert has_leading_zeros("10.01.0.1")
    assert not has_leading_zeros("10.0.0.1")
    assert not has_leading_zeros("fd00::01")


def test_forms():
    assert (host("10.0.0.1"), host("::1")) == ("10.0.0.1/32", "::1/128")
    assert (with_port("10.0.0.1", 80), with_port("::1", 80)) == ("10.0.0.1:80", "[::1]:80")


@given(number=st.integers(0, 2**32 - 1), length=st.integers(0, 32))
def test_a_network_contains_what_has_its_prefix(number, length):
    address = ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))
    network = parse_network(f"{address}/{length}")
    assert network == Network("IPv4", prefix_of(address, length), length)
    assert network.contains(address)
    assert network.is_everything is (length == 0)
    flipped = ".".join(str((number ^ 1 << 31) >> shift & 255) for shift in (24, 16, 8, 0))
    assert network.contains(flipped) is (length == 0)
    assert not network.contains("::1")

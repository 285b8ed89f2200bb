"""Builders of connection tracking entries: as bytes for the pure part, and put into a namespace's table."""

import socket
import struct

from pykubeproxy.node.netlink import (
    NETLINK_NETFILTER,
    NLM_F_CREATE,
    NLM_F_EXCL,
    NetlinkSocket,
    attribute,
    nested,
    nfgen,
)

CT_NEW = 0x100
UDP, TCP, SCTP = 17, 6, 132


def pack_ip(text):
    return socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)


def pack(address):
    return pack_ip(address[0]) + struct.pack(">H", address[1])


def tuple_attribute(kind, source, destination, protocol=UDP, zone=None):
    """A direction: ``source`` and ``destination`` are (ip, port)."""
    first = 3 if ":" in source[0] else 1
    addresses = nested(1, attribute(first, pack_ip(source[0])), attribute(first + 1, pack_ip(destination[0])))
    ports = nested(
        2,
        attribute(1, bytes([protocol])),
        attribute(2, struct.pack(">H", source[1])),
        attribute(3, struct.pack(">H", destination[1])),
    )
    zones = b"" if zone is None else attribute(3, struct.pack(">H", zone))
    return nested(kind, addresses, ports, zones)


def entry(client, frontend, target=None, *, protocol=UDP, zone=None, tuple_zone=None, seconds=600):
    """The body of an entry: ``client`` sends to ``frontend``, and ``target`` answers (None: the frontend itself)."""
    parts = [
        nfgen(socket.AF_INET6 if ":" in client[0] else socket.AF_INET),
        tuple_attribute(1, client, frontend, protocol, tuple_zone),
        tuple_attribute(2, target or frontend, client, protocol),
        attribute(7, struct.pack(">I", seconds)),
    ]
    if zone is not None:
        parts.append(attribute(18, struct.pack(">H", zone)))
    if protocol == TCP:
        parts.append(nested(4, nested(1, attribute(1, b"\x03"))))
    elif protocol == SCTP:
        vtags = attribute(2, struct.pack(">I", 1)), attribute(3, struct.pack(">I", 2))
        parts.append(nested(4, nested(3, attribute(1, b"\x04"), *vtags)))
    return b"".join(parts)


def insert(bodies):
    """Put entries into the table of the calling thread's namespace; every one must be taken."""
    with NetlinkSocket(NETLINK_NETFILTER) as netlink:
        for start in range(0, len(bodies), 128):
            codes = netlink.request(CT_NEW, NLM_F_CREATE | NLM_F_EXCL, bodies[start : start + 128])
            assert set(codes) == {0}, codes

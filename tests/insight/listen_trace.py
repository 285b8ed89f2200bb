"""Print what the kernel says of traced packets in this namespace: ``family table:chain:kind:number``, a line a rule.

listen_trace.py legacy    xt_TRACE, by way of nfnetlink_log group 0 (inside a namespace it writes nowhere else)
listen_trace.py nft       nf_tables' own trace; the number is the rule's handle
"""

import os
import re
import socket
import struct
import sys
from pathlib import Path

NFNL_SUBSYS_ULOG, NFNL_SUBSYS_NFTABLES = 4, 10
NFT_MSG_TRACE = 17
NFNLGRP_NFTRACE = 9
SOL_NETLINK, NETLINK_ADD_MEMBERSHIP = 270, 1
KINDS = {1: "policy", 2: "return", 3: "rule"}
LEGACY = re.compile(r"TRACE: (\w+):([^:]+):(\w+):(\d+)")


def attributes(data, at, end):
    while at + 4 <= end:
        size, kind = struct.unpack_from("=HH", data, at)
        yield kind & 0x3FFF, data[at + 4 : at + size]
        at += (size + 3) & ~3


def messages(sock, wanted):
    while True:
        data = sock.recv(1 << 20)
        offset = 0
        while offset + 16 <= len(data):
            length, kind = struct.unpack_from("=IH", data, offset)
            if kind == wanted:
                yield data[offset + 16], dict(attributes(data, offset + 20, offset + length))
            offset += (length + 3) & ~3


def configure(sock, *parts):
    body = struct.pack(">BBH", 0, 0, 0) + b"".join(parts)
    sock.send(struct.pack("=IHHII", 16 + len(body), NFNL_SUBSYS_ULOG << 8 | 1, 5, 0, 0) + body)
    code = struct.unpack_from("=i", sock.recv(65536), 16)[0]
    if code:
        raise OSError(-code, os.strerror(-code))


def attribute(kind, payload):
    return struct.pack("=HH", 4 + len(payload), kind) + payload + bytes(-len(payload) % 4)


def legacy(sock):
    for family in (2, 10):
        Path(f"/proc/sys/net/netfilter/nf_log/{family}").write_text("nfnetlink_log")
    configure(sock, attribute(1, b"\x01"))
    configure(sock, attribute(2, struct.pack(">IBx", 64, 2)), attribute(5, struct.pack(">I", 1)))
    say("listening")
    for family, found in messages(sock, NFNL_SUBSYS_ULOG << 8):
        match = LEGACY.search(found.get(10, b"").rstrip(b"\0").decode())
        if match:
            say(f"{family} {':'.join(match.groups())}")


def nft(sock):
    sock.setsockopt(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, NFNLGRP_NFTRACE)
    say("listening")
    for family, found in messages(sock, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_TRACE):
        table, chain = (found[kind].rstrip(b"\0").decode() for kind in (1, 2))
        kind = KINDS[int.from_bytes(found[4], "big")]
        handle = int.from_bytes(found.get(3, b"\0"), "big")
        say(f"{family} {table}:{chain}:{kind}:{handle}")


def say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main():
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    sock.bind((0, 0))
    {"legacy": legacy, "nft": nft}[sys.argv[1]](sock)


main()

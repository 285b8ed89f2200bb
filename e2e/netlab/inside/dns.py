"""Read and write the few DNS messages that the laboratory needs (RFC 1035).

Stands alone, because it is loaded by a process that must start fast. It must never grow into a resolver: one question,
A, AAAA and TXT answers, no compression in what it writes.
"""

from __future__ import annotations

import socket
import struct

TYPES = {"A": 1, "TXT": 16, "AAAA": 28}
NXDOMAIN = 3


def _name(text: str) -> bytes:
    labels = [label.encode() for label in text.strip(".").split(".") if label]
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def _read_name(message: bytes, offset: int) -> tuple[str, int]:
    labels: list[str] = []
    end = 0
    while length := message[offset]:
        if length >= 0xC0:  # a pointer: the rest of the name stands elsewhere
            end = end or offset + 2
            offset = (length & 0x3F) << 8 | message[offset + 1]
            continue
        labels.append(message[offset + 1 : offset + 1 + length].decode())
        offset += 1 + length
    return ".".join(labels), end or offset + 1


def question(name: str, qtype: str, ident: int) -> bytes:
    """Write a query for one name."""
    return struct.pack("!6H", ident, 0x0100, 1, 0, 0, 0) + _name(name) + struct.pack("!2H", TYPES[qtype], 1)


def read_question(message: bytes) -> tuple[int, str, str]:
    """Return the id, the name in lower case and the type ("" for one not known) of a query."""
    ident = struct.unpack_from("!H", message)[0]
    name, offset = _read_name(message, 12)
    number = struct.unpack_from("!H", message, offset)[0]
    return ident, name.lower(), next((text for text, value in TYPES.items() if value == number), "")


def _pack(qtype: str, value: str) -> bytes:
    if qtype == "TXT":
        data = value.encode()[:255]
        return bytes([len(data)]) + data
    return socket.inet_pton(socket.AF_INET6 if qtype == "AAAA" else socket.AF_INET, value)


def answer(query: bytes, values: list[str], *, known: bool) -> bytes:
    """Answer ``query`` with ``values``; a name that is not ``known`` is NXDOMAIN."""
    ident, name, qtype = read_question(query)
    _, end = _read_name(query, 12)
    head = struct.pack("!6H", ident, 0x8580 | (0 if known else NXDOMAIN), 1, len(values), 0, 0)
    records = b""
    for value in values:
        data = _pack(qtype, value)
        records += _name(name) + struct.pack("!2HIH", TYPES[qtype], 1, 5, len(data)) + data
    return head + query[12 : end + 4] + records


def read_answer(message: bytes) -> tuple[int, list[str]]:
    """Return the response code and the values of an answer, in order."""
    flags, questions, answers = struct.unpack_from("!3H", message, 2)
    offset = 12
    for _ in range(questions):
        _, offset = _read_name(message, offset)
        offset += 4
    values: list[str] = []
    for _ in range(answers):
        _, offset = _read_name(message, offset)
        number, _, _, length = struct.unpack_from("!2HIH", message, offset)
        data = message[offset + 10 : offset + 10 + length]
        offset += 10 + length
        if number == TYPES["TXT"]:
            values.append(data[1 : 1 + data[0]].decode())
        elif number in (TYPES["A"], TYPES["AAAA"]):
            values.append(socket.inet_ntop(socket.AF_INET if length == 4 else socket.AF_INET6, data))
    return flags & 0xF, values

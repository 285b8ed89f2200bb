"""What a person means by ``10.96.0.10:53/udp``, ``[fd00::1]:80`` or ``default/web:http``. Pure.

It takes texts apart and refuses those that cannot mean anything; it must not look at objects.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pykubeproxy.errors import UsageError
from pykubeproxy.model.addresses import parse_ip
from pykubeproxy.model.service import ServiceKey

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_NUMBERS = re.compile(r"[0-9]+(\.[0-9]+)+")
"""What is meant as an IPv4 address: no Service has a dot in its name."""
_NUMBER = re.compile(r"[0-9]+")
_SHOWN = 100
_PROTOCOLS = ("tcp", "udp", "sctp")


class Target(NamedTuple):
    """A text, taken apart."""

    address: str
    """In canonical form; "" where a Service is named."""
    key: ServiceKey
    """The Service that is named; without meaning where an address is."""
    port: str
    """A number or the name of a service port; "" where none is given."""
    protocol: str
    """tcp, udp or sctp; "" where none is given."""

    @property
    def wanted(self) -> str:
        """The port as it was asked for, such as ``53/UDP``."""
        return f"{self.port}/{self.protocol.upper()}" if self.protocol else self.port

    def is_port(self, name: str, protocol: str, *numbers: int) -> bool:
        """Tell whether a service port of this name, protocol and these numbers is meant; any is where none is given."""
        is_asked = self.port in ("", name) or self.port in map(str, filter(None, numbers))
        return is_asked and self.protocol in ("", protocol.lower())


def target_of(text: str, flag: str, *, needs_port: bool) -> Target:
    """Take a text apart. ``needs_port``: an address is worth nothing without one. ``flag`` names where it was given.

    Raises:
        UsageError: it cannot mean anything.

    """
    ip, protocols = ("IP:PORT", "/udp or /sctp") if needs_port else ("IP[:PORT]", "/tcp, /udp or /sctp")
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    refused = UsageError(
        f"{flag}: {shown!r} is neither {ip} (IPv6: [IP]:PORT) nor [NAMESPACE/]SERVICE[:PORT or its name]; "
        f"{protocols} may stand behind a port"
    )
    rest, slash, protocol = text.rpartition("/")
    if not slash or ":" not in rest or protocol.lower() not in _PROTOCOLS:
        rest, protocol = text, ""
    host, port = _apart(rest, flag, refused, needs_port=needs_port)
    is_number = _NUMBER.fullmatch(port) is not None
    if is_number and not (len(port) <= 5 and 0 < int(port) <= 65535):
        raise UsageError(f"{flag}: {shown!r}: a port is a number from 1 to 65535")
    if port and not _NAME.fullmatch(port):
        raise refused
    if is_ip(host):
        if needs_port and not is_number:
            raise refused
        return Target(parse_ip(host)[1], ServiceKey("", ""), port, protocol.lower())
    if _NUMBERS.fullmatch(host):
        raise UsageError(f"{flag}: {host!r} is not an IP address")
    namespace, slash, name = host.rpartition("/")
    if not _NAME.fullmatch(name) or (slash and (not _NAME.fullmatch(namespace) or "." in namespace)):
        raise refused
    return Target("", ServiceKey(namespace or "default", name), port, protocol.lower())


def _apart(text: str, flag: str, refused: UsageError, *, needs_port: bool) -> tuple[str, str]:
    """Return host and port, which is "" where none is given."""
    if text.startswith("["):
        host, bracket, after = text[1:].partition("]")
        if not bracket or after == ":" or after[:1] not in ("", ":"):
            raise refused
        return address_of(host, flag), after[1:]
    host, colon, port = text.rpartition(":")
    if not colon:
        return text, ""
    if ":" in host:
        is_mixed = "." in port  # such as 64:ff9b::192.0.2.1
        if is_mixed or (is_ip(text) and not needs_port):
            whole = address_of(text, flag)
            if not needs_port:
                return whole, ""
        if is_ip(host) and not is_mixed:
            example = f"[{host}]:{port if _NUMBER.fullmatch(port) else 80}"
        elif is_ip(text):
            example = f"[{text}]:80"
        else:
            raise refused
        raise UsageError(f"{flag}: an IPv6 address stands in brackets before its port: {example}")
    if not port:
        raise refused
    return host, port


def sender_of(text: str, flag: str) -> str:
    """Return ``node``, ``outside``, or an IP address (IPv6 with or without brackets) in canonical form.

    Raises:
        UsageError: it is none of these.

    """
    if text in ("node", "outside"):
        return text
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if not is_ip(bare):
        raise UsageError(f"{flag}: {text!r} is neither an IP address nor node nor outside")
    return parse_ip(bare)[1]


def address_of(text: str, flag: str) -> str:
    """Return an IP address in canonical form; raises UsageError."""
    try:
        return parse_ip(text)[1]
    except ValueError as problem:
        raise UsageError(f"{flag}: {problem}") from None


def is_ip(text: str) -> bool:
    """Tell whether a text is an IP address."""
    try:
        parse_ip(text)
    except ValueError:
        return False
    return True

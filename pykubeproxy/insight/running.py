"""What the daemon on this node says of itself: asked over loopback, where its metrics port is. Reads only.

An answer from files or from the API server says what should be; only the daemon knows whether it follows, and which
services it has left out because the kernel refused them. Where there is none, or another program answers, that is told.
"""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from pykubeproxy.errors import EnvironmentProblem
from pykubeproxy.insight.explain import Condition, Daemon
from pykubeproxy.model.addresses import Family
from pykubeproxy.model.service import ServiceKey
from pykubeproxy.node.single import holder
from pykubeproxy.serving.loopback import STATE
from pykubeproxy.serving.sockets import format_address, split_address

PATIENCE = 3.0
"""Seconds to wait for an answer."""


@dataclass(frozen=True, slots=True)
class Running:
    """What was found out."""

    daemon: Daemon
    left_out: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """IP family -> service -> why."""

    def why_left_out(self, key: ServiceKey, family: Family) -> str:
        """Return why the daemon leaves a service out, "" if it does not."""
        return self.left_out.get(family, {}).get(str(key), "")


class _State(msgspec.Struct, rename="camel"):
    """The daemon's answer."""

    node: str
    not_ready: list[str]
    left_out: dict[str, dict[str, str]]
    notes: list[str] = []


def ask(metrics_address: str) -> Running:
    """Ask the daemon whose metrics port this is ("" for none)."""
    if not metrics_address:
        return _unasked("its metrics port is switched off")
    try:
        host, port = split_address(metrics_address)
    except EnvironmentProblem as problem:
        return _unasked(str(problem))
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - it is asked there
    where = format_address(host, port)
    connection = http.client.HTTPConnection(host, port, timeout=PATIENCE)
    try:
        connection.request("GET", STATE)
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException) as problem:
        return _unasked(f"{where}: {getattr(problem, 'strerror', None) or problem}")
    finally:
        connection.close()
    if answer.status == http.client.FORBIDDEN:
        return _unasked(f"{where} answers clients on a loopback address only")
    try:
        state = msgspec.json.decode(body, type=_State)
    except msgspec.DecodeError:
        return _unasked(f"what answers at {where} is another program, such as kube-proxy")
    condition: Condition = "not in sync" if state.not_ready else "in sync"
    return Running(
        Daemon(condition=condition, why=tuple(state.not_ready), notes=tuple(state.notes), node=state.node),
        state.left_out,
    )


def _unasked(why: str) -> Running:
    """Tell a daemon that cannot be asked from none at all."""
    return Running(Daemon(condition="absent" if holder() is None else "silent", why=(why,)))

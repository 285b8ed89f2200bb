"""What the status page shows of a running daemon, gathered from its parts when it is asked for. Changes nothing.

Threads: any. The state's lock is held while objects and wanted rules are looked at, never while the kernel is read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from pykubeproxy.errors import PykubeproxyError
from pykubeproxy.insight.cluster import Picture
from pykubeproxy.insight.explain import Explanation, explain
from pykubeproxy.insight.explainpage import SHOWN, port_card
from pykubeproxy.insight.partial import PartialReader, places, way_to
from pykubeproxy.insight.standing import Standing
from pykubeproxy.model.addresses import Family, with_port
from pykubeproxy.model.service import ServiceKey, ServicePort
from pykubeproxy.model.state import ClusterState
from pykubeproxy.rules.names import NAT
from pykubeproxy.serving.page import (
    FamilyStatus,
    Listing,
    Overview,
    ServiceAnswer,
    ServiceRow,
    Sync,
    WatchStatus,
)
from pykubeproxy.serving.pagehtml import Child, Markup, ago, badge, card, code, duration, join, moment, number, tag
from pykubeproxy.sync.connections import ConnectionCounts
from pykubeproxy.sync.desired import Desired
from pykubeproxy.sync.engine import Engine
from pykubeproxy.sync.history import LENGTH, Record, SyncHistory


class Part(Protocol):
    """One IP family of the daemon."""

    @property
    def family(self) -> Family:
        """The family."""

    @property
    def state(self) -> ClusterState:
        """What the cluster says."""

    @property
    def engine(self) -> Engine:
        """What brings the kernel to it."""

    @property
    def history(self) -> SyncHistory | None:
        """What the last syncs did."""

    @property
    def connections(self) -> ConnectionCounts | None:
        """Connections, where they are counted."""

    @property
    def failures(self) -> int:
        """Syncs that failed in a row."""


@dataclass(frozen=True, slots=True)
class AboutNode:
    """What there is to say of the daemon as a whole; callables are asked at each page."""

    node: str
    version: str
    backend: str
    not_ready: Callable[[], Sequence[str]]
    notes: Callable[[], Sequence[str]]
    """What to look at that is no reason against readiness."""
    watches: Callable[[], Mapping[str, Any]]
    """Resource -> its watch.source.WatchStatus."""


class NodeStatus:
    """A page Source (see serving.page) over the parts of one daemon."""

    def __init__(
        self,
        about: AboutNode,
        parts: Mapping[Family, Part],
        readers: Mapping[Family, PartialReader],
        *,
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._about = about
        self._parts = parts
        self._readers = readers
        self._wall_clock = wall_clock
        self._clock = clock

    # -- the first page

    def overview(self, query: str, only: str, page: int, size: int) -> Overview:
        """Return the first page's contents."""
        about = self._about
        left_out = {part.family: part.engine.quarantined for part in self._parts.values()}
        problems: dict[str, None] = {}
        for part in self._parts.values():
            with part.state.lock:
                wanted = part.engine.wanted
                found = [*part.state.problems(), *(wanted.problems() if wanted is not None else ())]
            problems.update(dict.fromkeys(map(str, found)))
        return Overview(
            node=about.node,
            version=about.version,
            backend=about.backend,
            not_ready=about.not_ready(),
            notes=about.notes(),
            families=[_family(part) for part in self._parts.values()],
            watches=[self._watch(resource, status) for resource, status in about.watches().items()],
            left_out=[
                (str(key), family, why)
                for family, services in left_out.items()
                for key, why in sorted(services.items())
            ],
            problems=list(problems),
            listing=self._listing(query.lower(), only, left_out, page, size),
            counts_connections=any(part.connections is not None for part in self._parts.values()),
        )

    def _watch(self, resource: str, status: Any) -> WatchStatus:
        heard = status.last_event_at
        event_age = None if heard is None else max(0.0, self._clock() - heard)
        return WatchStatus(resource, status.watch_age, event_age, status.consecutive_failures, status.last_error)

    def _listing(
        self, query: str, only: str, left_out: Mapping[Family, Mapping[ServiceKey, str]], page: int, size: int
    ) -> Listing:
        ports: dict[ServiceKey, list[ServicePort]] = {}
        populated: set[ServiceKey] = set()
        by_address: set[ServiceKey] = set()
        for part in self._parts.values():
            state = part.state
            with state.lock:
                for key in state.keys():  # noqa: SIM118 - a method of the state, not a dict's
                    ports.setdefault(key, []).extend(state.ports(key))
                    endpoints = state.endpoints(key)
                    if any(endpoints.values()):
                        populated.add(key)
                    if query and any(query in e.target for found in endpoints.values() for e in found):
                        by_address.add(key)
        refused = {key for services in left_out.values() for key in services}
        matching = [key for key in sorted(ports) if not query or key in by_address or query in _text(key, ports[key])]
        lists = {
            "": matching,
            "empty": [key for key in matching if key not in populated],
            "refused": [key for key in matching if key in refused],
        }
        found = lists[only]
        pages = max(1, -(-len(found) // size))
        page = min(page, pages)
        shown = found[(page - 1) * size : page * size]
        counted = self._counted(shown)
        return Listing(
            rows=[self._row(key, ports[key], left_out, counted.get(key)) for key in shown],
            found=len(found),
            total=len(ports),
            counts={key: len(one) for key, one in lists.items()},
            page=page,
            pages=pages,
        )

    def _counted(self, keys: Iterable[ServiceKey]) -> dict[ServiceKey, int]:
        found = dict.fromkeys(keys, 0)
        for part in self._parts.values():
            if part.connections is None:
                continue
            # Never waited for: with thousands of services a reading takes seconds.
            counted = part.connections.last()
            if counted.age is None:
                return {}
            for namespace, name, _, _, count in counted.services:
                key = ServiceKey(namespace, name)
                if key in found:
                    found[key] += count
        return found

    def _row(
        self,
        key: ServiceKey,
        ports: Sequence[ServicePort],
        left_out: Mapping[Family, Mapping[ServiceKey, str]],
        connections: int | None,
    ) -> ServiceRow:
        used: set[str] = set()
        known: set[str] = set()
        for part in self._parts.values():
            with part.state.lock:
                picture = _picture(part)
                if picture is None:
                    continue
                for port in part.state.ports(key):
                    known.update(one.target for one in picture.endpoints(port.id))
                    used.update(one.target for one in picture.categories(port).reachable)
        why = next((services[key] for services in left_out.values() if key in services), "")
        return ServiceRow(
            namespace=key.namespace,
            name=key.name,
            ports=list(dict.fromkeys(f"{port.port}/{port.id.protocol}" for port in ports)),
            addresses=list(dict.fromkeys(_addresses(ports))),
            used=len(used),
            endpoints=len(known),
            trouble=why,
            connections=connections,
        )

    # -- one service

    def service(self, namespace: str, name: str) -> ServiceAnswer | None:
        """Return what there is to say about a service; None where no rule is about it."""
        key = ServiceKey(namespace, name)
        found = [one for part in self._parts.values() if (one := self._in_family(part, key)) is not None]
        if not found:
            return None
        data: dict[str, object] = {
            "service": str(key),
            "node": self._about.node,
            "programmed": all(one.is_programmed for one in found),
            "families": {one.explanation.family: one.data() for one in found},
        }
        return ServiceAnswer(f"{key} on {self._about.node}", self._content(key, found), data)

    def _in_family(self, part: Part, key: ServiceKey) -> _Found | None:
        with part.state.lock:
            picture = _picture(part)
            ports = part.state.ports(key)
            if picture is None or not ports:
                return None
            rendered = [(port, picture.rules(port)) for port in ports]
            wanted = places(picture.wanted.ruleset, rendered)
        standing: Standing | None = None
        trouble = ""
        try:
            with_memory = any(port.affinity_seconds for port in ports)
            standing = self._readers[part.family].read(wanted, with_memory=with_memory)
        except PykubeproxyError as exc:
            trouble = str(exc)
        with part.state.lock:
            picture = _picture(part)
            if picture is None:
                return None
            problems = picture.problems(key)
            missing = _missing_on_the_way(picture.wanted, key, standing) if standing is not None else []
            waiting = sum(part.state.pending())
            alone = Picture(picture.settings, part.state.only(key), picture.wanted)
        # With thousands of endpoints this takes a second, for which neither events nor syncs should have to wait.
        left_out = part.engine.quarantined.get(key, "")
        explanation = explain(alone, key, standing=standing, problems=problems, left_out=left_out)
        if explanation is None:
            return None
        if missing:
            differences = (*explanation.differences, *missing)
            explanation = msgspec.structs.replace(explanation, kernel="differs", differences=differences)
        rules = {str(port.id): dict(alone.rules(port).chains) for port in alone.state.ports(key)}
        return _Found(
            explanation,
            rules=rules,
            waiting=waiting,
            unread=trouble,
            applied=part.history.applied(key) if part.history is not None else None,
        )

    def _content(self, key: ServiceKey, found: Sequence[_Found]) -> Markup:
        now = self._wall_clock()
        is_programmed = all(one.is_programmed for one in found)
        state = badge("good", "programmed on this node") if is_programmed else badge("bad", "not as it should be")
        head = tag(
            "header",
            tag("nav", tag("a", "← all services", href="/")),
            tag("h1", str(key)),
            state,
            tag("p", f"on {self._about.node}, {self._about.backend}. Made {moment(now)}."),
        )
        return join([head, [_family_content(one, now) for one in found]])


@dataclass(frozen=True, slots=True)
class _Found:
    """A service in one family."""

    explanation: Explanation
    rules: Mapping[str, Mapping[str, str]]
    """Service port -> chain -> its text as it should be."""
    waiting: int
    unread: str
    """Why the kernel could not be read."""
    applied: Record | None

    @property
    def is_programmed(self) -> bool:
        """Whether the kernel holds what the objects mean, as far as can be told."""
        return self.explanation.kernel == "agrees" and not self.explanation.left_out

    def data(self) -> dict[str, object]:
        """Return all of it as plain data."""
        found: dict[str, object] = {"programmed": self.is_programmed}
        found |= msgspec.to_builtins(self.explanation)
        found["kernelUnread"] = self.unread
        found["changesWaiting"] = self.waiting
        found["lastChangeApplied"] = None if self.applied is None else _applied(self.applied)
        found["desiredRules"] = {
            port: {chain: text.splitlines() for chain, text in chains.items()} for port, chains in self.rules.items()
        }
        return found


def _applied(record: Record) -> dict[str, object]:
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.at))
    return {"at": at, "reason": record.reason, "syncSeconds": round(record.seconds, 6)}


def _family_content(found: _Found, now: float) -> Markup:
    explanation = found.explanation
    lines: list[Child] = []
    if explanation.left_out:
        lines.append([badge("bad", "left out"), " ", explanation.left_out])
    if found.unread:
        lines.append([badge("warn", "the kernel could not be read"), " ", found.unread])
    if found.waiting:
        lines.append([badge("warn", "changes are waiting"), f" {found.waiting}; the rules may be about to change"])
    odd = (*explanation.differences, *explanation.problems)
    lines += [code(line) for line in odd[:SHOWN]]
    if len(odd) > SHOWN:
        lines.append(f"and {number(len(odd) - SHOWN)} more; /debug/services/ lists all of them")
    if found.applied is not None:
        when = f"{ago(now - found.applied.at)} ago ({moment(found.applied.at)})"
        how = f"in a sync of {duration(found.applied.seconds)}, for: {found.applied.reason}"
        lines.append(f"Its last change was applied {when}, {how}.")
    cards = [
        port_card(explanation, port, "".join(found.rules.get(port.name, {}).values())) for port in explanation.ports
    ]
    summary = card(explanation.family, tag("ul", [tag("li", line) for line in lines])) if lines else None
    return join([summary, cards])


def _missing_on_the_way(wanted: Desired, key: ServiceKey, standing: Standing) -> list[str]:
    """Return what is missing on the way to a service's own rules: jumps of the trees."""
    own = wanted.lines_of(key)[NAT]
    missing: list[str] = []
    for chain, lines in way_to(wanted.ruleset, own).items():
        text = standing.ruleset.chains[NAT].get(chain, "")
        rules = (line.split(" ", 2)[2] for line in lines if f"{line}\n" not in text)
        missing += [f"nat {chain} lacks: {rule}" for rule in rules if rule not in own]
    return missing


def _picture(part: Part) -> Picture | None:
    wanted = part.engine.wanted
    if wanted is None:
        return None
    return Picture(wanted.settings, part.state, wanted)


def _family(part: Part) -> FamilyStatus:
    wanted = part.engine.wanted
    with part.state.lock:
        size = wanted.size if wanted is not None else (0, 0)
        chains = sum(map(len, wanted.ruleset.chains.values())) if wanted is not None else 0
        waiting = sum(part.state.pending())
    history = part.history
    healed, healed_at = history.healed() if history is not None else ({}, None)
    return FamilyStatus(
        family=part.family,
        has_synced=part.engine.has_synced,
        service_ports=size[0],
        endpoints=size[1],
        chains=chains,
        waiting=waiting,
        failures=part.failures,
        syncs=[_sync(record) for record in history.records()] if history is not None else [],
        room=LENGTH,
        healed=healed,
        healed_at=healed_at,
    )


def _sync(record: Record) -> Sync:
    return Sync(
        at=record.at,
        reason=record.reason,
        seconds=record.seconds,
        is_full=record.is_full,
        written=record.chains_written,
        deleted=record.chains_deleted,
        healed=record.healed,
        refused=record.refused,
    )


def _addresses(ports: Iterable[ServicePort]) -> Iterable[str]:
    for port in ports:
        yield port.cluster_ip
    for port in ports:
        yield from port.external_ips
        yield from port.load_balancer_ips
        if port.node_port:
            yield f"node port {port.node_port}"


def _text(key: ServiceKey, ports: Iterable[ServicePort]) -> str:
    """Return what a search looks through."""
    found = [str(key)]
    for port in ports:
        found += [with_port(address, port.port) for address in (port.cluster_ip, *port.external_ips)]
        found += [with_port(address, port.port) for address in port.load_balancer_ips]
        found += [port.id.port, str(port.node_port or "")]
    return " ".join(found).lower()

"""The status page: what one node's proxy knows, for people, beside /metrics and on a loopback address only.

It exists because "is my service programmed on this node?" is asked by people who have a browser and a port-forward, not
a dashboard. It must not gather anything and change nothing: it shows what a Source answers, and every page is made anew
from that, on the server, without scripts.

What it shows (names, addresses, pods of the whole cluster) is not for everyone who can reach the node. So it is served
on loopback only, and only under a loopback name: a page of some other site that has its name resolved to 127.0.0.1 is
turned away (DNS rebinding).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Protocol
from urllib.parse import quote, urlencode

from pykubeproxy.serving.loopback import under_a_loopback_name
from pykubeproxy.serving.message import JSON, NOSNIFF, NOT_FOUND, Request, Response, Routes
from pykubeproxy.serving.pagehtml import (
    Child,
    Markup,
    ago,
    badge,
    card,
    code,
    duration,
    facts,
    join,
    moment,
    number,
    page,
    plural,
    table,
    tag,
)
from pykubeproxy.serving.pagesvg import Bar, sparkline

PAGE_SIZE = 50
SERVICES, DEBUG = "/services/", "/debug/services/"
FILTERS = {"": "all", "empty": "without endpoints", "refused": "left out"}
"""Which services are listed: value of ``only`` -> in words."""
_LONGEST_LIST = 20


@dataclass(frozen=True, slots=True)
class Sync:
    """One sync that has succeeded. ``at``: wall clock."""

    at: float
    reason: str
    seconds: float
    is_full: bool
    written: int
    deleted: int
    healed: int
    refused: int


@dataclass(frozen=True, slots=True)
class FamilyStatus:
    """One IP family."""

    family: str
    has_synced: bool
    service_ports: int
    endpoints: int
    chains: int
    waiting: int
    """Changes that are not in the rules yet."""
    failures: int
    """Syncs that failed in a row."""
    syncs: Sequence[Sync] = ()
    """The oldest first."""
    room: int = 1
    """How many syncs are remembered at most."""
    healed: Mapping[str, int] = field(default_factory=dict)
    """Drifted chains put back, by table, since the start."""
    healed_at: float | None = None


@dataclass(frozen=True, slots=True)
class WatchStatus:
    """One resource that is followed. Ages in seconds; None: not heard yet."""

    resource: str
    age: float | None
    event_age: float | None
    failures: int
    trouble: str


@dataclass(frozen=True, slots=True)
class ServiceRow:
    """One line of the list."""

    namespace: str
    name: str
    ports: Sequence[str]
    addresses: Sequence[str]
    used: int
    endpoints: int
    trouble: str = ""
    """Why it is left out."""
    connections: int | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """The services that were asked for: one page of them."""

    rows: Sequence[ServiceRow]
    found: int
    total: int
    counts: Mapping[str, int]
    """How many each of FILTERS lets through."""
    page: int
    pages: int


@dataclass(frozen=True, slots=True)
class Overview:
    """What the first page shows."""

    node: str
    version: str
    backend: str
    not_ready: Sequence[str]
    families: Sequence[FamilyStatus]
    watches: Sequence[WatchStatus]
    left_out: Sequence[tuple[str, str, str]]
    """(service, IP family, why)"""
    problems: Sequence[str]
    """What is odd in objects."""
    listing: Listing
    counts_connections: bool = False
    notes: Sequence[str] = ()
    """What to look at that is no reason against readiness."""


@dataclass(frozen=True, slots=True)
class ServiceAnswer:
    """What there is to say about one service: a page's content, and the same as data."""

    title: str
    content: Markup
    data: Mapping[str, object]


class Source(Protocol):
    """Where the pages' contents come from. Any thread may ask."""

    def overview(self, query: str, only: str, page: int, size: int) -> Overview:
        """Return the first page's contents; ``query`` may be part of a name or an address."""
        ...

    def service(self, namespace: str, name: str) -> ServiceAnswer | None:
        """Return what there is to say about a service; None where no rule is about it."""
        ...


def add_pages(routes: Routes, source: Source, *, wall: Callable[[], float] = time.time) -> None:
    """Add the pages to the metrics port's."""

    def first(request: Request) -> Response:
        if request.path != "/":
            return NOT_FOUND
        query = (request.parameter("q") or "").strip()[:200]
        only = request.parameter("only") or ""
        wanted = request.parameter("page") or "1"
        at = int(wanted) if wanted.isascii() and wanted.isdigit() and len(wanted) < 8 else 1
        only = only if only in FILTERS else ""
        return _overview(source.overview(query, only, max(1, at), PAGE_SIZE), query, only, wall())

    def service(request: Request) -> Response:
        namespace, name = _named(request, SERVICES)
        answer = source.service(namespace, name) if name else None
        if answer is None:
            title = f"No rules for {namespace}/{name}"
            return page(title, _head(title, _why_not(namespace, name)), status=HTTPStatus.NOT_FOUND)
        return page(answer.title, answer.content)

    def data(request: Request) -> Response:
        namespace, name = _named(request, DEBUG)
        answer = source.service(namespace, name) if name else None
        if answer is None:
            what = {"error": f"no rules for {namespace}/{name}: {_why_not(namespace, name)}"}
            return _json(what, HTTPStatus.NOT_FOUND)
        return _json(answer.data)

    routes.add("/", under_a_loopback_name(first), is_slow=True)
    routes.add(SERVICES, under_a_loopback_name(service), is_slow=True)
    routes.add(DEBUG, under_a_loopback_name(data), is_slow=True)


def _named(request: Request, prefix: str) -> tuple[str, str]:
    namespace, _, name = request.path.removeprefix(prefix).partition("/")
    return namespace, "" if "/" in name else name


def _why_not(namespace: str, name: str) -> str:
    if not name:
        return "the path is /services/NAMESPACE/NAME"
    return (
        f"either there is no Service {namespace}/{name}, or it is one without rules (headless, ExternalName, without "
        "ports, or left to another proxy)"
    )


def _json(data: Mapping[str, object], status: int = HTTPStatus.OK) -> Response:
    body = json.dumps(data, indent=2, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    return Response(status, body, JSON, (NOSNIFF, ("Cache-Control", "no-store")))


def _head(title: Child, note: Child, *badges: Child) -> Markup:
    home = tag("nav", tag("a", "← all services", href="/"))
    return tag("header", home, tag("h1", title), badges, tag("p", note))


def service_link(namespace: str, name: str) -> str:
    """Return the path of a service's page."""
    return f"{SERVICES}{quote(namespace, safe='')}/{quote(name, safe='')}"


# -- the first page


def _overview(overview: Overview, query: str, only: str, now: float) -> Response:
    is_ready = not overview.not_ready
    head = tag(
        "header",
        tag("h1", overview.node or "this node"),
        badge("good", "in sync") if is_ready else badge("bad", "not in sync"),
        tag("p", f"pykubeproxy {overview.version}, {overview.backend}. Made {moment(now)}."),
    )
    cards = [_family(one, now) for one in overview.families]
    cards.append(tag("div", _watches(overview.watches), _healing(overview.families, now), class_="stack"))
    parts: list[Child] = [head]
    if not is_ready:
        parts.append(card("Why it is not in sync", _bullets(overview.not_ready)))
    if overview.notes:
        parts.append(card("To look at", _bullets(overview.notes)))
    parts.append(tag("div", cards, class_="cards"))
    if overview.left_out:
        rows = [(code(service), family, why) for service, family, why in overview.left_out[:_LONGEST_LIST]]
        more = _more(len(overview.left_out))
        parts.append(card("Services left out", table(("service", "family", "why"), rows), more))
    if overview.problems:
        parts.append(
            card("What is odd in objects", _bullets(overview.problems[:_LONGEST_LIST]), _more(len(overview.problems)))
        )
    parts.append(_listing(overview, query, only))
    return page(f"{overview.node}: pykubeproxy", *parts)


def _bullets(lines: Sequence[str]) -> Markup:
    return tag("ul", [tag("li", line) for line in lines])


def _more(count: int) -> Child:
    return tag("p", f"and {number(count - _LONGEST_LIST)} more", class_="note") if count > _LONGEST_LIST else None


def _family(one: FamilyStatus, now: float) -> Markup:
    last = one.syncs[-1] if one.syncs else None
    if one.failures:
        state = badge("bad", f"{plural(one.failures, 'sync')} failed in a row")
    elif not one.has_synced:
        state = badge("warn", "not synced yet")
    elif one.waiting:
        state = badge("warn", f"{plural(one.waiting, 'change')} waiting")
    else:
        state = badge("good", "in sync")
    pairs: list[tuple[str, Child]] = [
        ("holds", f"{plural(one.service_ports, 'service port')}, {plural(one.endpoints, 'endpoint')}"),
        ("chains", number(one.chains)),
    ]
    if last is not None:
        pairs.append(("last sync", f"{ago(now - last.at)} ago, {duration(last.seconds)}, {_did(last)}"))
    return card([one.family, " ", state], facts(pairs), _history(one))


def _did(sync: Sync) -> str:
    done = [
        f"{number(sync.written)} written" if sync.written else "",
        f"{number(sync.deleted)} deleted" if sync.deleted else "",
        f"{number(sync.healed)} healed" if sync.healed else "",
        f"{number(sync.refused)} refused" if sync.refused else "",
    ]
    return ", ".join(part for part in done if part) or "nothing to write"


def _history(one: FamilyStatus) -> Child:
    if not one.syncs:
        return None
    bars = []
    for sync in one.syncs:
        kind = "refused" if sync.refused else "healed" if sync.healed else "full" if sync.is_full else "part"
        title = f"{moment(sync.at)} ({sync.reason}): {duration(sync.seconds)}, {_did(sync)}"
        bars.append(Bar(sync.seconds, kind, title))
    longest = max(sync.seconds for sync in one.syncs)
    label = f"The last {plural(len(bars), 'sync')}, the longest {duration(longest)}"
    keys = [
        tag("span", words, class_=f"key {kind}")
        for kind, words in (("part", "changes"), ("full", "everything"), ("healed", "drift"), ("refused", "refused"))
        if any(bar.kind == kind for bar in bars)
    ]
    places = min(one.room, max(40, len(bars)))
    return [sparkline(bars, label, places=places), tag("p", f"{label}. ", keys, class_="note")]


def _watches(watches: Sequence[WatchStatus]) -> Markup:
    rows = []
    for one in watches:
        state: Child
        if one.failures:
            state = [badge("bad", f"{one.failures} failures"), " ", one.trouble]
        elif one.age is None:
            state = badge("warn", "not heard yet")
        else:
            state = badge("good", "heard")
        heard = "" if one.age is None else f"{ago(one.age)} ago"
        event = "" if one.event_age is None else f"{ago(one.event_age)} ago"
        rows.append((one.resource, heard, event, state))
    return card("Watches", table(("resource", "heard", "last event", "state"), rows))


def _healing(families: Sequence[FamilyStatus], now: float) -> Markup:
    rows = [
        (one.family, name, number(count), "" if one.healed_at is None else f"{ago(now - one.healed_at)} ago")
        for one in families
        for name, count in sorted(one.healed.items())
    ]
    if not rows:
        return card("Drift healed", tag("p", "Nobody has changed these rules since the start.", class_="note"))
    return card("Drift healed", table(("family", "table", "put back", "last"), rows))


def _listing(overview: Overview, query: str, only: str) -> Markup:
    listing = overview.listing
    search = tag(
        "form",
        tag("input", type="search", name="q", value=query, placeholder="name, address, port", aria_label="Search"),
        tag("input", type="hidden", name="only", value=only) if only else None,
        tag("button", "Search"),
        method="get",
        action="/",
        role="search",
    )
    filters = [
        tag("b" if key == only else "a", f"{words} ({number(listing.counts.get(key, 0))})",
            href=None if key == only else _link(query, key, 1))
        for key, words in FILTERS.items()
    ]  # fmt: skip
    headers = ["service", "ports", "addresses", "endpoints"]
    if overview.counts_connections:
        headers.append("connections")
    rows = [_row(one, with_connections=overview.counts_connections) for one in listing.rows]
    found = table(headers, rows, "list") if rows else tag("p", "No service matches.", class_="note")
    return card(
        plural(listing.total, "service"),
        search,
        tag("div", filters, class_="filters"),
        found,
        _pages(listing, query, only),
    )


def _row(row: ServiceRow, *, with_connections: bool) -> list[Child]:
    if row.trouble:
        endpoints: Child = [badge("bad", "left out"), " ", row.trouble]
    elif not row.endpoints:
        endpoints = badge("warn", "none")
    else:
        kind = "good" if row.used == row.endpoints else "warn" if not row.used else "dim"
        endpoints = badge(kind, f"{number(row.used)} of {number(row.endpoints)} used")
    link = tag("a", f"{row.namespace}/{row.name}", href=service_link(row.namespace, row.name))
    cells: list[Child] = [link, ", ".join(row.ports), _words(row.addresses), endpoints]
    if with_connections:
        cells.append("" if row.connections is None else number(row.connections))
    return cells


def _words(texts: Sequence[str]) -> Markup:
    return join([[" " if index else None, tag("code", text, class_="word")] for index, text in enumerate(texts)])


def _pages(listing: Listing, query: str, only: str) -> Child:
    if listing.pages < 2:
        return None
    before = tag("a", "← before", href=_link(query, only, listing.page - 1), rel="prev") if listing.page > 1 else ""
    after = (
        tag("a", "after →", href=_link(query, only, listing.page + 1), rel="next")
        if listing.page < listing.pages
        else ""
    )
    here = f"page {number(listing.page)} of {number(listing.pages)}"
    return tag("div", tag("span", before), here, tag("span", after), class_="pages")


def _link(query: str, only: str, at: int) -> str:
    given = {"q": query, "only": only, "page": str(at) if at > 1 else ""}
    text = urlencode({key: value for key, value in given.items() if value})
    return f"/?{text}" if text else "/"

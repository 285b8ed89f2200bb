"""The measurements. Each takes a room and a proxy in it, and adds samples to a book."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from e2e.bench import clusters, kernel
from e2e.bench.clusters import Cluster
from e2e.bench.contestants import MIN_SYNC_SECONDS, Backend, Contestant, noted, size_of
from e2e.bench.dial import Dialer, rules_walked
from e2e.bench.kernel import Legacy, Nft
from e2e.bench.processes import ChildrenWatch, cost, memory, own_seconds
from e2e.bench.room import Room, Running

PAUSE = MIN_SYNC_SECONDS + 0.3
"""Seconds after a commit until the next change: the minimum sync period has passed, so the change is taken at once."""
NOBODY = Contestant("no rules", (), is_ours=False)
LATE = 2500
"""Endpoints that are added have indices from here on."""
ENTRIES_OF_ENDPOINT = 5
"""How many entries one more endpoint adds to a legacy table: one rule, and a chain of two rules."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How often each thing is measured."""

    starts: int = 3
    changes: int = 20
    rate_seconds: float = 60.0
    connects: int = 4000
    restarts: int = 2
    start_timeout: float = 900.0


QUICK = Effort(starts=1, changes=7, rate_seconds=10.0, connects=1500, restarts=1, start_timeout=300.0)


@dataclass
class Book:
    """Samples by (cluster, backend, contestant, measure)."""

    samples: dict[tuple[str, str, str, str], list[float]] = field(default_factory=dict)
    tell: Callable[[str], None] = print

    def values(self, room: Room, contestant: Contestant, measure: str) -> list[float]:
        """Return the samples of a measure."""
        return self.samples.get((str(room.cluster), room.backend, contestant.name, measure), [])

    def add(self, room: Room, contestant: Contestant, measure: str, *values: float) -> None:
        """Add samples and say them."""
        key = (str(room.cluster), room.backend, contestant.name, measure)
        self.samples.setdefault(key, []).extend(values)
        shown = " ".join(f"{value:.4g}" for value in values[:8])
        self.tell(f"{key[0]:>12} {key[1]:6} {key[2]:10} {measure}: {shown}{' …' if len(values) > 8 else ''}")


def start(room: Room, contestant: Contestant, book: Book, effort: Effort) -> Running:
    """Start it on empty tables until all services are in the kernel."""
    proxy = room.start(contestant)
    watch = ChildrenWatch(proxy.pid)
    at = kernel.wait(room.kernel, _all_there(room), "the first sync", timeout=effort.start_timeout, alive=proxy.check)
    book.add(room, contestant, "start", at - proxy.started)
    kernel.settled(room.kernel, 3.0)
    spent, held = cost(proxy.pid), memory(proxy.pid)
    book.add(room, contestant, "start cpu", spent.total)
    book.add(room, contestant, "start own cpu", spent.own)
    book.add(room, contestant, "rss after start", held.rss)
    book.add(room, contestant, "rss peak", held.peak)
    book.add(room, contestant, "children peak", watch.stop())
    return proxy


def _all_there(room: Room) -> Callable[[], bool]:
    found = room.kernel
    if isinstance(found, Legacy):
        return lambda: found.entries >= room.cluster.least_entries
    rules = room.cluster.rules_of_service
    return kernel.first_missing(
        list(range(room.cluster.services)), lambda number: found.uses(clusters.service_chain(number)) > rules
    )


class Changes:
    """The changes made in one room; it knows what was added to which service. ``proxy`` is the one that runs now."""

    def __init__(self, room: Room, proxy: Running) -> None:
        self._room = room
        self.proxy = proxy
        self._order = list(range(room.cluster.services))
        random.Random(1).shuffle(self._order)
        self._next = 0
        self._added: dict[int, int] = {}
        self._new = room.cluster.services

    def pick(self) -> int:
        """Return a service."""
        self._next += 1
        return self._order[self._next % len(self._order)]

    def grown(self, number: int) -> tuple[clusters.Json, str]:
        """Return a service's last slice with one endpoint more, and that endpoint's chain."""
        endpoints = self._room.cluster.endpoints
        added = self._added[number] = self._added.get(number, 0) + 1
        last = (endpoints - 1) // clusters.PER_SLICE
        indices = list(range(last * clusters.PER_SLICE, endpoints)) + [LATE + n for n in range(added)]
        return clusters.endpoint_slice(number, indices, last), clusters.endpoint_chain(number, indices[-1])

    def one_more(self) -> Callable[[], bool]:
        """Add an endpoint and do not wait; return the question whether it is in the kernel."""
        number = self.pick()
        obj, chain = self.grown(number)
        self._room.api.put_slice(obj)
        return self._leads(number, chain)

    def endpoint(self) -> float:
        """Add an endpoint; return the seconds until the service's chain leads to it."""
        number = self.pick()
        obj, chain = self.grown(number)
        return self._until(lambda: self._room.api.put_slice(obj), self._leads(number, chain), "an endpoint")

    def create(self) -> float:
        """Create a service whose endpoints are known; return the seconds until traffic reaches it."""
        number = self._new
        self._new += 1
        for obj in clusters.slices(number, list(range(self._room.cluster.endpoints))):
            self._room.api.create_slice(obj)
        time.sleep(PAUSE)
        rules = self._room.cluster.rules_of_service
        is_there = self._ask(lambda found: found.uses(clusters.service_chain(number)) > rules)
        return self._until(lambda: self._room.api.create_service(number), is_there, "a new service")

    def delete(self) -> float:
        """Delete the service that was created last; return the seconds until no rule leads to it."""
        self._new -= 1
        number = self._new
        rules = self._room.cluster.rules_of_service
        is_gone = self._ask(lambda found: found.uses(clusters.service_chain(number)) <= rules)
        taken = self._until(lambda: self._room.api.delete_service(number), is_gone, "a deleted service")
        for place in range(len(list(clusters.slices(number, list(range(self._room.cluster.endpoints)))))):
            self._room.api.delete_slice(number, place)
        time.sleep(PAUSE)
        return taken

    def burst(self, count: int, timeout: float) -> float:
        """Add an endpoint to ``count`` services at once; return the seconds until all are there."""
        grown = [self.grown(self.pick()) for _ in range(count)]
        before = self._room.kernel.stamp()
        found = self._room.kernel
        if isinstance(found, Legacy):
            goal = found.entries + count * ENTRIES_OF_ENDPOINT
            is_there: Callable[[], bool] = lambda: found.entries >= goal  # noqa: E731
        else:
            is_there = kernel.first_missing([chain for _, chain in grown], lambda chain: found.uses(chain) > 0)
        at = self._room.api.put_at_once(obj for obj, _ in grown)
        return self._wait(is_there, "a burst", before, timeout) - at

    def steadily(self, per_second: float, seconds: float) -> list[float]:
        """Add endpoints at a rate; return the seconds until each was there."""
        count = int(per_second * seconds)
        grown = [self.grown(self.pick()) for _ in range(count)]
        sent: list[float] = []
        trouble: list[Exception] = []
        begin = time.monotonic()

        def send() -> None:
            try:
                for number, (obj, _) in enumerate(grown):
                    time.sleep(max(0.0, begin + number / per_second - time.monotonic()))
                    sent.append(self._room.api.put_slice(obj))
            except (OSError, RuntimeError) as problem:
                trouble.append(problem)

        found = self._room.kernel
        before = found.entries if isinstance(found, Legacy) else 0
        sender = threading.Thread(target=send)
        sender.start()
        lags: list[float] = []
        place = 0

        def all_there() -> bool:
            nonlocal place
            if trouble:
                raise trouble[0]
            now = time.monotonic()
            if isinstance(found, Legacy):
                reached = min((found.entries - before) // ENTRIES_OF_ENDPOINT, len(sent))
            else:
                reached = place
                while reached < len(sent) and found.uses(grown[reached][1]) > 0:
                    reached += 1
            lags.extend(now - at for at in sent[place:reached])
            place = max(place, reached)
            return place == count

        self._wait(all_there, "steady changes", None, seconds * 3 + 60)
        sender.join()
        return lags

    def _leads(self, number: int, chain: str) -> Callable[[], bool]:
        name = chain.encode()
        service = clusters.service_chain(number)
        return self._ask(lambda found: any(name in bytes(rule) for rule in found.rules(service)))

    def _ask(self, ask: Callable[[Nft], bool]) -> Callable[[], bool]:
        """Return a question for nft; on legacy a table of another size is the answer."""
        found = self._room.kernel
        return (lambda: ask(found)) if isinstance(found, Nft) else (lambda: True)

    def _until(self, change: Callable[[], float], is_there: Callable[[], bool], what: str) -> float:
        before = self._room.kernel.stamp()
        at = change()
        taken = self._wait(is_there, what, before, 120.0) - at
        time.sleep(PAUSE)
        return taken

    def _wait(self, is_there: Callable[[], bool], what: str, after: object, timeout: float) -> float:
        return kernel.wait(self._room.kernel, is_there, what, timeout=timeout, after=after, alive=self.proxy.check)


def single_changes(room: Room, contestant: Contestant, changes: Changes, book: Book, effort: Effort) -> None:
    """Measure one endpoint, one new service, one deleted service at a time, and what a change costs in CPU."""
    proxy = changes.proxy
    time.sleep(PAUSE)
    changes.endpoint()  # the first one after a start may find something left to do
    own, all_of_it = own_seconds(proxy.pid), cost(proxy.pid)
    book.add(room, contestant, "endpoint changed", *(changes.endpoint() for _ in range(effort.changes)))
    book.add(room, contestant, "own cpu of a change", (own_seconds(proxy.pid) - own) / effort.changes)
    book.add(room, contestant, "cpu of a change", cost(proxy.pid).since(all_of_it).total / effort.changes)
    for _ in range(max(3, effort.changes // 2)):
        book.add(room, contestant, "service created", changes.create())
        book.add(room, contestant, "service deleted", changes.delete())


def many_changes(room: Room, contestant: Contestant, changes: Changes, book: Book, effort: Effort) -> None:
    """Measure 100 changes at ten a second and the memory after them, a burst of 1,000, and fifty a second."""
    proxy = changes.proxy
    changes.steadily(10, 10)
    time.sleep(PAUSE * 2)
    held = memory(proxy.pid)
    book.add(room, contestant, "rss after 100 changes", held.rss)
    book.add(room, contestant, "pss after 100 changes", held.pss)
    before = cost(proxy.pid)
    book.add(room, contestant, "burst of 1,000", changes.burst(min(1000, room.cluster.services), effort.start_timeout))
    time.sleep(PAUSE * 2)
    book.add(room, contestant, "cpu of the burst", cost(proxy.pid).since(before).total)
    before = cost(proxy.pid)
    lags = sorted(changes.steadily(50, effort.rate_seconds))
    book.add(room, contestant, "50 a second, median lag", lags[len(lags) // 2])
    book.add(room, contestant, "50 a second, 99 % lag", lags[len(lags) * 99 // 100])
    time.sleep(PAUSE)
    book.add(room, contestant, "50 a second, cpu", cost(proxy.pid).since(before).total / effort.rate_seconds)
    book.add(room, contestant, "rss at the end", memory(proxy.pid).rss)


def connections(room: Room, contestant: Contestant, book: Book, effort: Effort, *, floor: bool = False) -> None:
    """Measure new connections to the services that meet the fewest, the median and the most rules, and to none."""
    dialer = Dialer(room.netns, room.lab.remote.netns)
    try:
        outside = (clusters.endpoint_ip(0, 0), clusters.TARGET_PORT)
        if floor:
            dialer.median([outside], 500)
            book.add(room, contestant, "connect", *dialer.median([outside], effort.connects))
            return
        walked = rules_walked(room.save(), list(range(room.cluster.services)))
        order = sorted(walked, key=lambda number: walked[number])
        chosen = [order[0], order[len(order) // 2], order[-1]]
        targets = [(clusters.cluster_ip(number), clusters.PORT) for number in chosen] + [outside]
        dialer.median(targets, 300)
        names = ("first service", "middle service", "last service", "no service")
        for name, taken in zip(names, dialer.median(targets, effort.connects), strict=True):
            book.add(room, contestant, f"connect, {name}", taken)
        for name, number in zip(names, chosen, strict=False):
            book.add(room, contestant, f"rules to the {name}", walked[number])
    finally:
        dialer.close()


def restart(room: Room, contestant: Contestant, changes: Changes, book: Book, effort: Effort) -> None:
    """Restart with one endpoint changed meanwhile: seconds until it is in the kernel."""
    for _ in range(effort.restarts):
        changes.proxy.stop()
        is_there = changes.one_more()
        before = room.kernel.stamp()
        changes.proxy = room.start(contestant)
        at = kernel.wait(
            room.kernel,
            is_there,
            "the change after a restart",
            timeout=effort.start_timeout,
            after=before,
            alive=changes.proxy.check,
        )
        book.add(room, contestant, "restart", at - changes.proxy.started)
        kernel.settled(room.kernel, 5.0)


def restart_unchanged(room: Room, contestant: Contestant, changes: Changes, book: Book) -> None:
    """Restart with nothing changed: how many commits, and when the last one came. nft only: it counts commits."""
    if not isinstance(room.kernel, Nft):
        return
    changes.proxy.stop()
    before = last = room.kernel.stamp()
    changes.proxy = room.start(contestant)
    last_at = changes.proxy.started
    # A proxy that needed long to start may need as long again before it writes anything.
    quiet = max(35.0, 2 * max(book.values(room, contestant, "start"), default=0.0))
    while time.monotonic() < last_at + quiet:
        stamp = room.kernel.stamp()
        if stamp != last:
            last, last_at = stamp, time.monotonic()
        changes.proxy.check()
        time.sleep(0.01)
    book.add(room, contestant, "restart, commits", last - before)
    if last != before:
        book.add(room, contestant, "restart, last commit", last_at - changes.proxy.started)


def inputs(backend: Backend, cluster: Cluster, contestant: Contestant, book: Book, effort: Effort) -> None:
    """Keep what every restore is fed: bytes and chains by kind of change. Nothing is timed here."""
    with Room(backend, cluster) as room:
        notes = room.folder / f"notes-{contestant.name}"
        proxy = room.start(contestant, notes=notes)
        kernel.wait(room.kernel, _all_there(room), "the first sync", timeout=effort.start_timeout, alive=proxy.check)
        kernel.settled(room.kernel, 5.0)
        _book_inputs(room, contestant, book, "first sync", noted(notes))
        changes = Changes(room, proxy)
        for kind, change in (("endpoint", changes.endpoint), ("create", changes.create), ("delete", changes.delete)):
            known = len(noted(notes))
            change()
            _book_inputs(room, contestant, book, kind, noted(notes)[known:])
        known = len(noted(notes))
        proxy.stop()
        proxy = room.start(contestant, notes=notes)
        changes.proxy = proxy
        is_there, stamp = changes.one_more(), room.kernel.stamp()
        kernel.wait(room.kernel, is_there, "a restart", timeout=effort.start_timeout, after=stamp, alive=proxy.check)
        kernel.settled(room.kernel, 5.0)
        _book_inputs(room, contestant, book, "restart and one endpoint", noted(notes)[known:])
        proxy.stop()


def _book_inputs(room: Room, contestant: Contestant, book: Book, kind: str, documents: list[str]) -> None:
    sizes = [size_of(document) for document in documents]
    book.add(room, contestant, f"{kind}: restores", len(documents))
    book.add(room, contestant, f"{kind}: bytes", sum(size[0] for size in sizes))
    book.add(room, contestant, f"{kind}: largest", max((size[0] for size in sizes), default=0))
    book.add(room, contestant, f"{kind}: chains written", sum(size[1] for size in sizes))
    book.add(room, contestant, f"{kind}: chains deleted", sum(size[2] for size in sizes))


def whole(backend: Backend, cluster: Cluster, contestant: Contestant, book: Book, effort: Effort) -> None:
    """Measure everything at one size."""
    with Room(backend, cluster) as room:
        for number in range(effort.starts):
            proxy = start(room, contestant, book, effort)
            if number + 1 < effort.starts:
                proxy.stop()
                room.flush()
        changes = Changes(room, proxy)
        single_changes(room, contestant, changes, book, effort)
        many_changes(room, contestant, changes, book, effort)
        restart(room, contestant, changes, book, effort)
        restart_unchanged(room, contestant, changes, book)
        changes.proxy.stop()


def shape(backend: Backend, cluster: Cluster, contestant: Contestant, book: Book, effort: Effort) -> None:
    """Measure start and single endpoint changes at one size."""
    with Room(backend, cluster) as room:
        proxy = start(room, contestant, book, effort)
        changes = Changes(room, proxy)
        time.sleep(PAUSE)
        changes.endpoint()
        own = own_seconds(proxy.pid)
        book.add(room, contestant, "endpoint changed", *(changes.endpoint() for _ in range(effort.changes // 2 + 1)))
        book.add(room, contestant, "own cpu of a change", (own_seconds(proxy.pid) - own) / (effort.changes // 2 + 1))
        book.add(room, contestant, "service created", changes.create())
        book.add(room, contestant, "rss at the end", memory(proxy.pid).rss)
        proxy.stop()


def dialling(backend: Backend, cluster: Cluster, contestants: list[Contestant], book: Book, effort: Effort) -> None:
    """Measure new connections at one size: without rules, then with each contestant's."""
    with Room(backend, cluster) as room:
        connections(room, NOBODY, book, effort, floor=True)
        for contestant in contestants:
            proxy = room.start(contestant)
            kernel.wait(
                room.kernel, _all_there(room), "the first sync", timeout=effort.start_timeout, alive=proxy.check
            )
            kernel.settled(room.kernel, 3.0)
            proxy.stop()
            connections(room, contestant, book, effort)
            room.flush()

"""kube-proxy runs, this daemon takes over under load and gives back: nothing that was under way may notice."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Protocol

from e2e.lab.checks import await_that, service
from e2e.lab.site import CLIENT, Replies, Site
from e2e.netlab import wait_for

MORE = 60
"""Attempts of each kind of traffic that are awaited after each step."""


class Ongoing(Protocol):
    """Traffic that can be counted while it goes on."""

    def started(self) -> int:
        """Return how many attempts there were."""

    def stop(self) -> Replies:
        """End it."""


class Swappable(Site, Protocol):
    """A site on which the proxies can be exchanged."""

    def take_over(self) -> None:
        """Put this project's daemon in the place of what runs."""

    def give_back(self) -> None:
        """Put the real kube-proxy in the place of what runs."""


def run(site: Swappable, loads: dict[str, Ongoing], tell: Callable[[str], None] = lambda _: None) -> list[str]:
    """Take over and give back with changes under each; return complaints. The real kube-proxy runs at the start.

    ``loads`` is the traffic, already started; it is stopped here.
    """
    found: list[str] = []
    numbers = itertools.count()

    def more(step: str) -> None:
        tell(step)
        goals = {name: load.started() + MORE for name, load in loads.items()}

        def enough() -> bool:
            return all(load.started() >= goals[name] for name, load in loads.items())

        wait_for(enough, f"traffic after: {step}", timeout=90)

    more("kube-proxy runs")
    found += _changes(site, next(numbers))
    for step, swap in (
        ("pykubeproxy took over", site.take_over),
        ("kube-proxy came back", site.give_back),
        ("pykubeproxy took over again", site.take_over),
        ("kube-proxy came back again", site.give_back),
    ):
        swap()
        more(step)
        found += [f"{step}: {line}" for line in _changes(site, next(numbers))]
        more(f"{step}; services came and went")
    for name, load in loads.items():
        told = load.stop()
        tell(f"{name}: {told.answered} answered, {dict(told.failures)}")
        if told.failures or not told.answered:
            found.append(f"{name}: {told.answered} answered, failures: {dict(told.failures)}")
    return found


def _changes(site: Site, number: int) -> list[str]:
    """Create a service, scale it, delete it; each must arrive."""
    name = f"passing-{number}"
    site.deploy(name, 1)
    made: dict[str, Any] = site.expose(service(name, name))
    address = made["spec"]["clusterIP"]

    def answers_from(count: int) -> bool:
        told = site.ask(CLIENT, address, 80, n=20)
        return set(told.pods) == set(site.addresses(name)) and len(told.pods) == count and not told.failures

    found = await_that(lambda: answers_from(1), f"the new service {name} answers")
    site.deploy(name, 2)
    found += await_that(lambda: answers_from(2), f"{name} answers from two pods")
    site.deploy(name, 0)
    found += await_that(lambda: site.ask(CLIENT, address, 80).failures["refused"] == 1, f"{name} without pods refuses")
    site.withdraw(name)
    return found + await_that(lambda: not site.ask(CLIENT, address, 80).failures["refused"], f"{name} is gone")

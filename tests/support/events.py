"""Generated events, as sources send them, and what they do to a state and to the world that a source would list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hypothesis import strategies as st

from pykubeproxy.model.state import ClusterState
from pykubeproxy.watch.objects import EndpointSlice, Service
from tests.support.clusters import SERVICES, World, key_in, key_of, services, slice_key, slices


@dataclass(frozen=True, slots=True)
class Put:
    """An object was added or modified; ``told`` twice when an API server repeats itself."""

    obj: Service | EndpointSlice
    told: int = 1


@dataclass(frozen=True, slots=True)
class Drop:
    """An object was deleted, or something unknown."""

    kind: Literal["service", "slice"]
    key: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Relist:
    """A list of all objects came, after a gap in which these were put and dropped."""

    missed: tuple[Put | Drop, ...]


Event = Put | Drop | Relist


@st.composite
def small_events(draw: st.DrawFn) -> Put | Drop:
    """One object put or dropped."""
    number = draw(st.integers(0, SERVICES - 1))
    what = draw(st.integers(0, 9))
    if what < 3:
        return Put(draw(services(number)), draw(st.integers(1, 2)))
    if what < 7:
        return Put(draw(slices(number, draw(st.integers(0, 2)))))
    if what < 8:
        return Drop("service", key_of(number))
    return Drop("slice", slice_key(number, draw(st.integers(0, 2))))


def events() -> st.SearchStrategy[Event]:
    """One event, seldom a relist."""
    relists = st.lists(small_events(), max_size=4).map(lambda missed: Relist(tuple(missed)))
    return st.one_of(small_events(), small_events(), small_events(), small_events(), relists)


def happen(event: Event, world: World, state: ClusterState) -> World:
    """Let an event happen: tell the state, return the world afterwards."""
    match event:
        case Put(obj, told):
            for _ in range(told):
                if isinstance(obj, Service):
                    state.set_service(obj)
                else:
                    state.set_slice(obj)
            return world.put(obj)
        case Drop(kind, key):
            (state.delete_service if kind == "service" else state.delete_slice)(*key)
            return world.drop(kind, key)
        case Relist(missed):
            for one in missed:
                world = world.put(one.obj) if isinstance(one, Put) else world.drop(one.kind, one.key)
            objects = world.objects
            state.replace_services(sorted(objects.services, key=key_in, reverse=True))
            state.replace_slices(objects.slices)
            return world

"""Changes without end leave nothing behind. ``python -m e2e.faults.soak`` makes 100,000 of them; here are fewer."""

import gc
import random
import tracemalloc

import pytest

from e2e.faults import soak
from pykubeproxy.netfilter.read import parse, standing
from pykubeproxy.sync.diff import difference
from tests.faults.program import engine, objects
from tests.support.builders import desired, endpoint_slice, service, state
from tests.support.fake_kernel import FakeKernel, target_of

CHANGES = 3000


def test_an_engine_on_the_fake_kernel_while_the_clock_jumps():
    chance = random.Random(7)
    kernel = FakeKernel()
    services, slices = objects(30)
    held = state(*services, *slices)
    now = {s.metadata.name: s for s in services}, {s.metadata.name: s for s in slices}
    program = engine(
        kernel, held, clock=lambda: chance.choice((0.0, 1e6, -1e6)), wall_clock=lambda: chance.choice((0.0, 2e9, -1e9))
    )
    tracemalloc.start()
    warm = 0
    for number in range(CHANGES):
        name = f"s{chance.randrange(60)}" if chance.random() < 0.9 else f"new-{number}"
        if chance.random() < 0.6:
            now[1][name] = endpoint_slice(
                name, [f"10.244.{chance.randrange(9)}.{chance.randrange(1, 250)}"] * chance.randrange(2)
            )
            held.set_slice(now[1][name])
        elif chance.random() < 0.5:
            now[0][name] = service(name, ip=f"10.96.{number // 250 % 250}.{number % 250 + 1}")
            held.set_service(now[0][name])
        for kind, drop in ((0, held.delete_service), (1, lambda ns, one: held.delete_slice(ns, f"{one}-1"))):
            if len(now[kind]) > 60:
                gone = chance.choice(sorted(now[kind]))
                del now[kind][gone]
                drop("default", gone)
        if number % 5 == 4:
            program.sync(verify=number % 100 == 99)
            kernel.restores.clear()
        if number in (CHANGES // 3, CHANGES - 1):
            target_of.cache_clear()  # the fake kernel's memory is not the program's
            gc.collect()
            warm, last = tracemalloc.get_traced_memory()[0], warm
    tracemalloc.stop()
    assert warm < last * 1.1, f"{last} bytes became {warm}"
    wanted = desired(*now[0].values(), *now[1].values())
    assert not difference(standing(parse(kernel.save())), wanted.ruleset, None)


@pytest.mark.netns
@pytest.mark.slow
@pytest.mark.parametrize("backend", ["nft", "legacy"])
def test_the_daemon_under_changes_and_traffic(backend):
    result = soak.run(backend, changes=1500, rate=300, samples=10)
    assert [fault for fault in result.wrong() if "memory" not in fault] == []
    assert result.connections > 200

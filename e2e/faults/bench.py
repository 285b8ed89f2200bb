"""Does the faults of ``rows`` one after the other in a ``scene`` and measures what becomes of each."""

from __future__ import annotations

import signal
import time
from dataclasses import asdict, dataclass
from typing import Any

from e2e.faults.rows import Row
from e2e.faults.scene import Scene, seconds_until
from e2e.netlab import LabError


@dataclass(slots=True)
class Result:
    """One line of the table. Seconds; None: not within the limit."""

    fault: str
    backend: str
    noticed: float | None = None
    is_noticeable: bool = True
    healed: float | None = None
    connections: int = 0
    failed: int = 0
    lost: int = 0
    wrong: str = ""
    """What is not as it must be; "" is right."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as a value for JSON."""
        return asdict(self)


def run(scene: Scene, row: Row, patience: float = 1.0) -> Result:
    """Do one fault. The daemon is started anew for each, so that none pays for another's back-off."""
    result = Result(row.name, scene.backend, is_noticeable=row.notice is not None)
    try:
        _prepare(scene, row)
        descriptors = scene.descriptors()
        with scene.traffic() as tally:
            _harm(scene, row, result, patience)
        result.connections, result.failed = tally.made, tally.failed
        if tally.failed and not result.wrong:
            result.wrong = f"connections failed: {tally.kinds}"
        # A program that runs just now takes some; they must go again.
        if not result.wrong and not scene.wait_until(lambda: scene.descriptors() <= descriptors + 3, 10):
            result.wrong = f"{scene.descriptors() - descriptors} descriptors more than before"
    except LabError as problem:
        result.wrong = str(problem)
    finally:
        scene.recover()
        if result.failed:  # a flow that went wrong must not meet the next row's connections
            scene.lab.node.run(["conntrack", "-F"], check=False)
    return result


def _prepare(scene: Scene, row: Row) -> None:
    scene.log.write_text("")
    row.prepare(scene)
    scene.start(*row.arguments)
    scene.wait_ready()
    address = scene.change()
    if not scene.wait_for_answer(address, 20):
        raise LabError(f"before anything was done a new service did not work:\n{scene.last_words()}")


def _harm(scene: Scene, row: Row, result: Result, patience: float) -> None:
    acting = row.act(scene)
    began = time.monotonic()
    next(acting)
    address = scene.change()
    if row.notice is not None:
        notice = row.notice
        result.noticed = seconds_until(lambda: notice(scene), row.notice_within * patience, since=began)
        if result.noticed is None:
            result.wrong = f"not noticed within {row.notice_within:g} s"
    time.sleep(row.lasts)
    next(acting)
    over = time.monotonic()
    result.healed = seconds_until(lambda: scene.answers(address), row.heal_within * patience, since=over)
    if result.healed is None:
        result.wrong = result.wrong or f"not healed within {row.heal_within:g} s: {scene.last_words(6)}"
        return
    if not scene.wait_until(scene.is_ready, 20 * patience):
        result.wrong = result.wrong or "not ready after it"
    result.wrong = result.wrong or row.check(scene)
    # What was changed last need not be what arrives last.
    seconds_until(lambda: not scene.lost().count, 5 * patience)
    found = scene.lost()
    result.lost = found.count
    if found.count and not result.wrong:
        result.wrong = f"missing {found.missing[:3]}, surplus {found.surplus[:3]}"
    if not scene.is_running():
        result.wrong = f"the daemon has ended:\n{scene.last_words()}"
    if scene.said("Traceback"):
        result.wrong = result.wrong or "a traceback in the log"


def stop(scene: Scene) -> None:
    """End the daemon for good."""
    scene.stop(signal.SIGTERM)

"""What Go's pprof pages are good for, by Python's means: where the threads are, where the time goes, what lives.

It exists for the moment when a node's proxy is slow and nobody may install a profiler there. It must cost nothing until
asked: no hooks, no tracing, only looks at the interpreter's own frames. The formats are text, and the page says so:
this is not the pprof protocol.
"""

from __future__ import annotations

import collections
import gc
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType

SAMPLE_INTERVAL = 0.01
MAX_SECONDS = 60.0
_MAX_DEPTH = 100
_HEAP_LINES = 60


def thread_dump() -> str:
    """Return the stack of every thread, innermost call last."""
    names = {thread.ident: thread for thread in threading.enumerate()}
    blocks = []
    for ident, frame in sorted(sys._current_frames().items()):  # noqa: SLF001 - documented, for this very purpose
        thread = names.get(ident)
        title = f"thread {ident} [unknown]" if thread is None else f"thread {ident} [{thread.name}]"
        if thread is not None and thread.daemon:
            title += " daemon"
        blocks.append(f"{title}:\n{''.join(traceback.format_stack(frame))}")
    return "\n".join(blocks)


def sample_stacks(
    seconds: float,
    *,
    stopping: threading.Event,
    monotonic: Callable[[], float] = time.monotonic,
) -> str:
    """Look at all other threads every 10 ms for some seconds, and count the stacks.

    The answer has one line per stack, ``thread;outermost;…;innermost count``, most frequent first: the "collapsed" form
    that flame graph tools read. It ends early when ``stopping`` is set.
    """
    counts: collections.Counter[str] = collections.Counter()
    own = threading.get_ident()
    end = monotonic() + min(max(seconds, 0.0), MAX_SECONDS)
    while True:
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        for ident, frame in sys._current_frames().items():  # noqa: SLF001
            if ident != own:
                counts[";".join([names.get(ident, "unknown"), *_stack(frame)])] += 1
        if monotonic() >= end or stopping.wait(SAMPLE_INTERVAL):
            break
    return "".join(f"{stack} {count}\n" for stack, count in counts.most_common())


def _stack(frame: FrameType | None) -> list[str]:
    calls: list[str] = []
    while frame is not None and len(calls) < _MAX_DEPTH:
        module = frame.f_globals.get("__name__", "?")
        calls.append(f"{module}.{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return calls[::-1]


def heap_summary() -> str:
    """Return the number and shallow size of the objects that the garbage collector tracks, by type."""
    counts: collections.Counter[str] = collections.Counter()
    sizes: collections.Counter[str] = collections.Counter()
    for thing in gc.get_objects():
        kind = type(thing)
        name = f"{kind.__module__}.{kind.__qualname__}"
        counts[name] += 1
        sizes[name] += sys.getsizeof(thing, 0)
    lines = [f"{'objects':>10} {'bytes':>12} type"]
    lines += [f"{counts[name]:>10} {size:>12} {name}" for name, size in sizes.most_common(_HEAP_LINES)]
    return "\n".join(lines) + "\n"

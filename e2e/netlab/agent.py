"""The laboratory's side of the process that lives in a namespace (``inside/``).

One such process per namespace: starting a program in a namespace costs tens of milliseconds, a request to one that is
there costs less than one. It must know nothing of what the requests mean.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Any

from e2e.netlab.errors import LabError

_INSIDE = Path(__file__).parent / "inside"


class Agent:
    """A process in one namespace that answers requests.

    ``binds`` are (file, path) pairs: inside, ``path`` shows ``file``. They are mounts of the process's own mount
    namespace, which everything that it starts inherits and nobody else sees.
    """

    def __init__(self, netns: str, name: str, log: Path, binds: list[tuple[Path, str]]) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._pending: dict[int, Future[Any]] = {}
        self._next = 0
        mounts = "".join(f"mount --bind '{source}' '{target}' && " for source, target in binds)
        script = f"{mounts}exec '{sys.executable}' -E -s -S -B '{_INSIDE}' '{name}'"
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                ["ip", "netns", "exec", netns, "sh", "-c", script],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # Ctrl-C ends the laboratory, and the laboratory ends this
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        threading.Thread(target=self._read, name=f"agent {name}", daemon=True).start()

    @property
    def pid(self) -> int:
        """Return the process id: ``nsenter -t PID -n -m`` leads into its namespaces."""
        return self._process.pid

    def begin(self, do: str, **arguments: Any) -> Future[Any]:
        """Send a request; the future gets its result or a LabError."""
        future: Future[Any] = Future()
        with self._lock:
            if self._process.poll() is not None:
                raise LabError(self._obituary())
            self._next += 1
            self._pending[self._next] = future
            line = json.dumps({"id": self._next, "do": do, "with": arguments}).encode() + b"\n"
            try:
                assert self._process.stdin is not None
                self._process.stdin.write(line)
                self._process.stdin.flush()
            except (BrokenPipeError, ValueError) as problem:
                raise LabError(self._obituary()) from problem
        return future

    def call(self, do: str, *, patience: float = 120.0, **arguments: Any) -> Any:
        """Send a request and wait for its result, ``patience`` seconds at most."""
        try:
            return self.begin(do, **arguments).result(patience)
        except FutureTimeoutError as problem:
            raise LabError(f"no answer to {do!r} within {patience:g} s") from problem

    def close(self) -> None:
        """End the process and all that it started."""
        with self._lock:
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it died by itself
                self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            for line in stream:
                reply = json.loads(line)
                with self._lock:
                    future = self._pending.pop(reply["id"])
                if "error" in reply:
                    future.set_exception(LabError(reply["error"]))
                else:
                    future.set_result(reply["result"])
        self._process.wait()
        with self._lock:
            orphans, self._pending = list(self._pending.values()), {}
        for future in orphans:
            future.set_exception(LabError(self._obituary()))

    def _obituary(self) -> str:
        last = self._log.read_text(errors="replace").strip().splitlines()[-5:]
        return " | ".join(["the process in the namespace has ended", *last])

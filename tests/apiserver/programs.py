"""The stand-in as a program of its own, and calls to its control paths."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


@contextmanager
def program(*arguments: str, before: tuple[str, ...] = ()) -> Iterator[str]:
    """Run ``python -m e2e.apiserver`` and give its URL; it must end cleanly."""
    command = [*before, sys.executable, "-W", "error", "-m", "e2e.apiserver", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            url = process.stdout.readline().strip()
            assert url, process.stderr.read()
            yield url
        finally:
            process.terminate()
            left_over = process.stderr.read()
            status = process.wait(20)
    assert (status, left_over) == (0, "")


def control(url: str, path: str, body: Any = None, method: str | None = None) -> tuple[int, Any]:
    """Ask one of the control paths; return (status, body)."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{url}/_standin/{path}", data, method=method)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=20) as response:  # noqa: S310
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)

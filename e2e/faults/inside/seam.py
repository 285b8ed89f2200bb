"""Run in place of an iptables program: spoil this run if there is an order for it, else become the program.

Orders (``do``): ``fail`` with a status and words; ``hang`` until killed; ``kill`` the program after a share of its
input (``bytes``) or so many seconds after all of it (``seconds``); ``refuse`` inputs that hold a text, naming its line
or only COMMIT; ``part``: apply the first table only and fail; ``truncate`` the output in the middle, with status 0.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    """Do it."""
    folder, real, *arguments = sys.argv[1:]
    is_restore = real.endswith("-restore")
    data = sys.stdin.buffer.read() if is_restore else b""
    order = take(Path(folder), "restore" if is_restore else "save", data)
    if order is None:
        finish(real, arguments, data)
    with (Path(folder) / "done").open("a") as done:
        done.write(f"{order['do']} {real}\n")
    DO[order["do"]](order, real, arguments, data)


def take(folder: Path, program: str, data: bytes) -> dict | None:
    """Return the first order that is meant for this run, and use it up by one."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        file = folder / "orders"
        orders = json.loads(file.read_text() or "[]")
        for order in orders:
            if order["program"] != program or order.get("text", "").encode() not in data:
                continue
            if order["times"] is not None:
                order["times"] -= 1
                if order["times"] <= 0:
                    orders.remove(order)
                # Exchanged at once: who looks meanwhile whether there are orders must not find an empty file.
                fresh = folder / "orders.new"
                fresh.write_text(json.dumps(orders) if orders else "")
                fresh.replace(file)
            return order
    return None


def finish(real: str, arguments: list[str], data: bytes) -> None:
    """Be the program after all: in this process, so that others see no difference."""
    if data:
        memory = os.memfd_create("input")
        with os.fdopen(os.dup(memory), "wb") as file:
            file.write(data)
        os.lseek(memory, 0, os.SEEK_SET)
        os.dup2(memory, 0)
    os.execv(real, [real, *arguments])  # noqa: S606 - that is the point


def fail(order: dict, _real: str, _arguments: list[str], _data: bytes) -> None:
    """End with a status and words."""
    sys.stderr.write(order.get("words", ""))
    sys.exit(order["status"])


def hang(_order: dict, _real: str, _arguments: list[str], _data: bytes) -> None:
    """Never end."""
    while True:
        time.sleep(3600)


def kill(order: dict, real: str, arguments: list[str], data: bytes) -> None:
    """Kill the program at its work, and then this one."""
    program = subprocess.Popen([real, *arguments], stdin=subprocess.PIPE)
    assert program.stdin is not None
    if "bytes" in order:
        program.stdin.write(data[: int(len(data) * order["bytes"])])
        program.stdin.flush()
        time.sleep(order.get("seconds", 0.02))
    else:
        program.stdin.write(data)
        program.stdin.close()
        time.sleep(order["seconds"])
    program.kill()
    program.wait()
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(order: dict, _real: str, _arguments: list[str], data: bytes) -> None:
    """Name a line that is not to be had."""
    lines = data.decode().splitlines()
    at = next(number for number, line in enumerate(lines, 1) if order["text"] in line)
    if order.get("names", "line") == "commit":
        at = next(number for number, line in enumerate(lines, 1) if number >= at and line == "COMMIT")
    sys.stderr.write(f"iptables-restore: line {at} failed\n")
    sys.exit(1)


def part(_order: dict, real: str, arguments: list[str], data: bytes) -> None:
    """Apply the first table."""
    first = data[: data.index(b"COMMIT\n") + 7]
    subprocess.run([real, *arguments], input=first, check=False)
    sys.stderr.write("iptables-restore: line 1 failed\n")
    sys.exit(1)


def truncate(_order: dict, real: str, arguments: list[str], _data: bytes) -> None:
    """Print half of it."""
    text = subprocess.run([real, *arguments], stdout=subprocess.PIPE, check=False).stdout
    sys.stdout.buffer.write(text[: len(text) // 2])


DO = {"fail": fail, "hang": hang, "kill": kill, "refuse": refuse, "part": part, "truncate": truncate}
main()

"""A network namespace for a test: made on entry, removed on exit; functions run inside it in a thread of their own."""

import ctypes
import os
import secrets
import subprocess
import threading
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def namespace_id():
    return Path("/proc/thread-self/ns/net").stat().st_ino


class Namespace:
    def __init__(self):
        self.name = f"pkp-{secrets.token_hex(4)}"

    def __enter__(self):
        subprocess.run(["ip", "netns", "add", self.name], check=True)
        self.run("ip", "link", "set", "lo", "up")
        return self

    def __exit__(self, *_):
        subprocess.run(["ip", "netns", "del", self.name], check=True)

    def run(self, *argv, check=True):
        """Run a program inside; return its stdout."""
        argv = ["ip", "netns", "exec", self.name, *argv]
        return subprocess.run(argv, check=check, capture_output=True, text=True).stdout

    def call(self, function, *args, **kwargs):
        """Call a function in a thread that has entered the namespace; return or raise what it does."""
        outcome = {}

        def enter_and_call():
            try:
                descriptor = os.open(f"/run/netns/{self.name}", os.O_RDONLY)
                try:
                    if _libc.setns(descriptor, _CLONE_NEWNET):
                        raise OSError(ctypes.get_errno(), "setns")
                finally:
                    os.close(descriptor)
                outcome["value"] = function(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - handed to the caller's thread
                outcome["error"] = error

        thread = threading.Thread(target=enter_and_call)
        thread.start()
        thread.join()
        if "error" in outcome:
            raise outcome["error"]
        return outcome["value"]

    def assert_isolated(self):
        """The control of every test that touches the kernel: what runs inside is not the machine's own namespace."""
        assert self.call(namespace_id) != namespace_id()

"""A small cluster's network in throw-away namespaces, with real packets and real netfilter.

One node under test, an outside client, a remote node with one pod, and pods on the node's bridge as flannel would wire
them (``wiring`` draws it). The machine's own netfilter, sysctls and xtables lock are never touched: everything happens
inside the namespaces, and the lock file is one of the laboratory's own.

    with Lab(backend="nft") as lab:
        lab.add_pod("nginx-1", "10.244.2.13", http=[80])
        lab.restore("*nat ...")
        before = lab.save()
        traffic = lab.client.http("10.101.245.66", 80, n=100)
        print(traffic.pods, lab.save().since(before).chains("PREROUTING"))
"""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeVar

from e2e.netlab import counters, ownership, wiring
from e2e.netlab.errors import LabError
from e2e.netlab.namespace import LOCK, Done, Namespace, Pod

Backend = Literal["legacy", "nft"]
Family = Literal[4, 6]
T = TypeVar("T")


class Lab:
    """The whole of it; a context manager. ``backend`` is what reads and writes of rules use unless told otherwise."""

    def __init__(self, *, backend: Backend = "nft", resolver: str | None = None) -> None:
        self.backend: Backend = backend
        self.pods: dict[str, Pod] = {}
        self._resolver = resolver
        self._cables = itertools.count(1)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        ownership.sweep()
        with contextlib.ExitStack() as stack:
            self.claim = ownership.Claim()
            stack.callback(self.claim.release)
            self._build(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pod in self.pods.values():
            pod.agent.close()
        self._stack.close()

    def _build(self, stack: contextlib.ExitStack) -> None:
        (self.claim.folder / "xtables.lock").touch(mode=0o600)
        Path(LOCK).touch(mode=0o600)  # the place to mount on; iptables would make the same file
        names = [self.claim.netns(name) for name in ("node", "client", "remote")]
        _ip(wiring.namespaces(names))
        self.node, self.client, self.remote = (
            Namespace(self.claim, name, resolver=self._resolver if name == "client" else None)
            for name in ("node", "client", "remote")
        )
        for part in (self.node, self.client, self.remote):
            stack.callback(part.agent.close)
        self.sysctl(self.node, {**wiring.NODE_SYSCTLS, **wiring.QUICK_IPV6_SYSCTLS})
        for part in (self.client, self.remote):
            self.sysctl(part, wiring.QUICK_IPV6_SYSCTLS)
        _ip(wiring.long_cables(*names))
        _ip(wiring.node_setup(), self.node.netns)
        _ip(wiring.client_setup(), self.client.netns)
        _ip(wiring.remote_setup(), self.remote.netns)

    # Pods

    def add_pod(
        self,
        name: str,
        ip: str,
        *,
        ip6: str | None = None,
        http: Iterable[int] = (80,),
        udp: Iterable[int] = (),
        dns: Iterable[int] = (),
        hairpin: bool = True,
    ) -> Pod:
        """Wire a pod and let it serve. ``ip6`` defaults to the twin; any address of the cluster's range will do."""
        wires = wiring.PodWiring(self.claim.netns(name), ip, ip6 or wiring.twin(ip), next(self._cables))
        _ip(wiring.namespaces([wires.netns]))
        pod = Pod(self.claim, name, wires, resolver=self._resolver)
        self.pods[name] = pod
        self.sysctl(pod, wiring.QUICK_IPV6_SYSCTLS)
        _ip(wires.cable(self.node.netns))
        _ip(wires.node_end(hairpin=hairpin), self.node.netns)
        _ip(wires.pod_end(), pod.netns)
        pod.listen("http", [pod.ip, pod.ip6], http)
        pod.listen("echo", [pod.ip, pod.ip6], udp)
        pod.listen("dns", [pod.ip, pod.ip6], dns)
        return pod

    def remove_pod(self, name: str) -> None:
        """End a pod with all its connections: its address is gone from the network."""
        pod = self.pods.pop(name)
        pod.agent.close()
        ownership.remove_namespace(pod.netns)

    def client_addresses(self, count: int) -> list[str]:
        """Give the outside client ``count`` more addresses, from 192.168.77.100 on."""
        addresses = [f"192.168.77.{100 + number}" for number in range(count)]
        _ip([f"address replace {address}/24 dev eth0" for address in addresses], self.client.netns)
        return addresses

    # The node's rules

    def iptables(self, *arguments: str, family: Family = 4, backend: Backend | None = None) -> Done:
        """Run iptables (or ip6tables) of a backend in the node."""
        return self.node.run([self._program("", family, backend), "-w", "5", *arguments])

    def restore(
        self, document: str, *, family: Family = 4, backend: Backend | None = None, flush: bool = False
    ) -> Done:
        """Load an iptables-restore document in the node."""
        argv = [self._program("-restore", family, backend), "-w", "5", *([] if flush else ["--noflush"])]
        return self.node.run(argv, stdin=document)

    def save(self, family: Family = 4, backend: Backend | None = None) -> counters.Snapshot:
        """Read all tables of the node with their counters."""
        return counters.parse(self.node.run([self._program("-save", family, backend), "-c"]).stdout)

    def _program(self, what: str, family: Family, backend: Backend | None) -> str:
        return f"{'ip6tables' if family == 6 else 'iptables'}-{backend or self.backend}{what}"

    # The rest

    def exec(self, where: str, argv: Sequence[str], *, check: bool = True) -> Done:
        """Run a program in a namespace given by its short name: node, client, remote or a pod."""
        parts: dict[str, Namespace] = {"node": self.node, "client": self.client, "remote": self.remote, **self.pods}
        return parts[where].run(argv, check=check)

    def sysctl(self, where: Namespace, settings: dict[str, str]) -> None:
        """Write sysctls in a namespace, each if it is there."""
        script = "".join(
            f"[ -e /proc/sys/{key} ] && echo {value} > /proc/sys/{key}\n" for key, value in settings.items()
        )
        where.run(["sh", "-c", f"{script}true"])


def wait_for(condition: Callable[[], T], what: str, *, timeout: float = 20.0, interval: float = 0.03) -> T:
    """Poll until ``condition`` gives something true and return that; LabError when it does not come."""
    limit = time.monotonic() + timeout
    while True:
        if found := condition():
            return found
        if time.monotonic() > limit:
            raise LabError(f"waited {timeout:g} s in vain for: {what}")
        time.sleep(interval)


def _ip(commands: list[str], netns: str | None = None) -> None:
    where = ["-n", netns] if netns else []
    done = subprocess.run(
        ["ip", *where, "-batch", "-"], input="\n".join(commands) + "\n", capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise LabError(f"ip in {netns or 'the machine'}: {done.stderr.strip()}")

"""What every experiment works with: the laboratory, its pods, the proxy, the manifests, and the record of checks.

Convergence is awaited by polling the kernel's rules, never by sleeping.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from e2e.demo.foreign import Foreign, differences
from e2e.demo.show import Show
from e2e.netlab import Backend, Family, Lab, LabError, Pod, Proxy, Way, wait_for

T = TypeVar("T")

MANIFESTS = Path(__file__).parent / "manifests"
NGINX = "10.101.245.66"
PODS = {"nginx-1": "10.244.2.13", "nginx-2": "10.244.2.14", "nginx-3": "10.244.9.9"}
BRIDGE, INNER = "10.244.2.1", "192.168.78.1"
"""What a masqueraded sender looks like to a pod of this node, and to one of the other."""


class Stage:
    """One backend's laboratory with the proxy in it."""

    def __init__(self, backend: Backend, show: Show, command: Sequence[str] = ()) -> None:
        self.show = show
        self.failed: list[str] = []
        """What did not hold in the experiment under way."""
        self.lab = Lab(backend=backend, resolver="10.96.0.10")
        self._command = command
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            lab = stack.enter_context(self.lab)
            self.live = lab.claim.folder / "manifests"
            self.live.mkdir()
            self.nginx = [lab.add_pod(name, ip, udp=[5353]) for name, ip in list(PODS.items())[:2]]
            lab.remote.rename("nginx-3")
            lab.remote.listen("http", [PODS["nginx-3"], "fd00:10:244:9::9"], [80])
            self.curl: Pod = lab.add_pod("curl", "10.244.2.50", http=[])
            dns = lab.add_pod("kube-dns", "10.244.2.2", http=[], dns=[53])
            dns.zone(
                {"nginx-svc.default.svc.cluster.local": [NGINX], "kubernetes.default.svc.cluster.local": ["10.96.0.1"]}
            )
            self.foreign = Foreign(lab)
            self.foreign.install()
            self.controls = self.foreign.controls()
            self.baseline = self.foreign.snapshot()
            self.proxy = Proxy(lab, self.live, command=self._command)
            self.apply("00-cluster")
            self.proxy.start()
            self.proxy.wait_synced()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    # Manifests

    def apply(self, folder: str) -> None:
        """Put a folder's manifests over those that stand, each file in one step."""
        for source in sorted((MANIFESTS / folder).glob("*.yaml")):
            staged = self.live / f".{source.name}"
            shutil.copyfile(source, staged)
            staged.replace(self.live / source.name)

    def apply_and_await(self, folder: str, service: str, addresses: Sequence[str], family: Family = 4) -> None:
        """Apply a folder and wait until the kernel leads a service to exactly these addresses (with port)."""
        self.show.command(f"kubectl apply -f manifests/{folder}")
        self.apply(folder)
        self.await_endpoints(service, addresses, family)

    def await_endpoints(self, service: str, addresses: Sequence[str], family: Family = 4) -> None:
        """Wait until the kernel leads a service's cluster address to exactly these addresses."""
        wanted = sorted(addresses)
        self.await_kernel(
            lambda: self.endpoints(service, family) == wanted, f"{service} → {', '.join(wanted) or 'nothing'}"
        )

    def endpoints(self, service: str, family: Family = 4) -> list[str]:
        """Return the addresses that the kernel's rules lead a service's cluster address to."""
        saved = self.lab.save(family)
        found: set[str] = set()
        for _, portal in saved.find(f'"{service} cluster IP"'):
            if portal.target.startswith(("KUBE-SVC-", "KUBE-SVL-")):
                for jump in saved.chain("nat", portal.target):
                    found.update(r.destination for r in saved.chain("nat", jump.target) if r.destination)
        return sorted(found)

    def await_rule(self, *parts: str, family: Family = 4, table: str = "nat") -> None:
        """Wait until a rule with all these parts stands in the kernel."""
        self.await_kernel(lambda: self.lab.save(family).find(*parts, table=table), " ".join(parts))

    def await_kernel(self, condition: Callable[[], object], what: str) -> None:
        """Poll the kernel; the proxy's last words go with the failure."""
        try:
            wait_for(condition, what, timeout=20)
        except LabError as problem:
            raise LabError(f"{problem}\nthe proxy's last words:\n{self.proxy.last_words()}") from problem

    def withdraw(self, *files: str) -> None:
        """Take manifests away."""
        self.show.command(f"kubectl delete -f {' -f '.join(files)}")
        for name in files:
            (self.live / name).unlink(missing_ok=True)

    def recover(self) -> None:
        """Bring back the first manifests after an experiment that broke off, for the next one's sake."""
        for path in self.live.glob("*.yaml"):
            if not (MANIFESTS / "00-cluster" / path.name).exists():
                path.unlink()
        self.apply("00-cluster")

    # Rules of others, and of ours

    def report(self, before: dict[str, list[str]], after: dict[str, list[str]]) -> list[str]:
        """Return the differences between two snapshots of others' rules, and print them."""
        found = differences(before, after)
        for line in found:
            self.show.trouble(f"    {line}")
        return found

    def clean_up(self) -> None:
        """Stop the proxy and let it take out its rules."""
        self.proxy.stop()
        self.proxy.run("--cleanup")

    def left_behind(self) -> list[str]:
        """Return what is still there of ours; KUBE-FIREWALL is shared with kubelet and stays."""
        found = []
        for family in (4, 6):
            saved = self.lab.save(family)
            chains = [chain for chains in saved.tables.values() for chain in chains]
            found += [name for name in chains if name.startswith("KUBE-") and name != "KUBE-FIREWALL"]
        return found

    # Traffic

    def watch(self, action: Callable[[], T], family: Family = 4) -> tuple[T, Way]:
        """Do something and tell which way packets went meanwhile."""
        before = self.lab.save(family)
        result = action()
        return result, self.lab.save(family).since(before)

    # Checks

    def check(self, holds: object, text: str) -> bool:
        """Record one check."""
        self.show.tick(text, holds=bool(holds))
        if not holds:
            self.failed.append(text)
        return bool(holds)


def kube_chains(names: Sequence[str]) -> list[str]:
    """Shorten chain names to their kinds, each once: KUBE-SEP-… and another KUBE-SEP-… are KUBE-SEP."""
    return list(dict.fromkeys(re.sub(r"^(KUBE-(?:SVC|SVL|SEP|EXT|FW))-.*", r"\1", name) for name in names))

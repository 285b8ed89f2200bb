"""etcd, kube-apiserver and (if asked) kube-controller-manager, for as long as a ``with`` block lasts.

They run in a laboratory's node, or right here on loopback (``Here``). Two users besides the administrator: the
proxy's, who is ``system:kube-proxy`` and so has the rights of the cluster role system:node-proxier and no others, and
one without any rights.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from e2e.apiserver import certs, write_kubeconfig
from e2e.lab.api import Api, ApiError
from e2e.netlab import LabError, Namespace, wait_for

ADMIN, PROXY, NOBODY = "token-admin", "token-proxy", "token-nobody"
USERS = f'{ADMIN},admin,1,"system:masters"\n{PROXY},system:kube-proxy,2\n{NOBODY},nobody,3\n'
SERVICE_RANGES = "10.96.0.0/16,fd00:10:96::/112"


class Running(Protocol):
    """A program that goes on."""

    log: Path

    def running(self) -> bool:
        """Tell whether it still runs."""

    def signal(self, number: int = ...) -> None:
        """Send a signal."""

    def wait(self, timeout: float | None = ...) -> int | None:
        """Wait for the end."""


class Place(Protocol):
    """Where programs are started."""

    netns: str | None

    def spawn(self, argv: Sequence[str], *, log: Path | None = None) -> Running:
        """Start a program."""


class InNode:
    """A node of a laboratory."""

    def __init__(self, node: Namespace) -> None:
        self._node = node
        self.netns: str | None = node.netns

    def spawn(self, argv: Sequence[str], *, log: Path | None = None) -> Running:
        """Start a program in the node."""
        return self._node.spawn(argv, log=log)


class Here:
    """Loopback of the machine."""

    netns: str | None = None

    def spawn(self, argv: Sequence[str], *, log: Path | None = None) -> Running:
        """Start a program."""
        return _Child(argv, log or Path(os.devnull))


class _Child:
    def __init__(self, argv: Sequence[str], log: Path) -> None:
        self.log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def running(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: int = signal.SIGTERM) -> None:
        self._process.send_signal(number)

    def wait(self, timeout: float | None = 30.0) -> int | None:
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None


class ControlPlane:
    """See the module's docstring. ``ports`` are those of the API server, etcd's clients, its peers, the manager."""

    def __init__(
        self,
        binaries: Mapping[str, Path],
        place: Place,
        *,
        address: str = "127.0.0.1",
        ports: tuple[int, int, int] = (6443, 2379, 2380),
    ) -> None:
        self._binaries = binaries
        self._place = place
        self._address = address
        self._port, self._etcd_port, self._peer_port = ports
        self._stack = contextlib.ExitStack()
        self._running: list[tuple[str, Running]] = []

    @property
    def url(self) -> str:
        """The API server's URL."""
        return f"https://{self._address}:{self._port}"

    def kubeconfig(self, token: str) -> Path:
        """Return a kubeconfig for one of the users."""
        return write_kubeconfig(self.folder / f"{token}.kubeconfig", self.url, token=token, ca=self.certificates.ca)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pykubeproxy-lab-")))
            self.certificates = certs.make(self.folder / "pki", [self._address], name="kubernetes-ca")
            stack.callback(self._stop)
            self._start()
            self.api = Api(self.url, self.certificates.ca, ADMIN, self._place.netns)
            stack.callback(self.api.close)
            wait_for(self._is_ready, "kube-apiserver to be ready", timeout=120, interval=0.3)
            if "kube-controller-manager" in self._binaries:
                self._start_manager()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _start(self) -> None:
        (self.folder / "tokens.csv").write_text(USERS)
        key = self.folder / "sa.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        etcd, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        self._run(
            "etcd",
            f"--data-dir={self.folder}/etcd",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        )
        self._run(
            "kube-apiserver",
            f"--etcd-servers={etcd}",
            f"--bind-address={self._address}",
            f"--advertise-address={'10.255.255.254' if self._address.startswith('127.') else self._address}",
            f"--secure-port={self._port}",
            f"--tls-cert-file={self.certificates.cert}",
            f"--tls-private-key-file={self.certificates.key}",
            f"--cert-dir={self.folder}/apiserver",
            f"--token-auth-file={self.folder}/tokens.csv",
            "--authorization-mode=RBAC",
            f"--service-cluster-ip-range={SERVICE_RANGES}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--disable-admission-plugins=ServiceAccount",
            "--allow-privileged=true",
        )

    def _start_manager(self) -> None:
        """Start the controllers that a proxy depends on, and none that looks for kubelets."""
        kubeconfig = self.kubeconfig(ADMIN)
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={kubeconfig}",
            "--controllers=endpointslice-controller,garbage-collector-controller",
            "--leader-elect=false",
            "--secure-port=0",
            "--concurrent-service-endpoint-syncs=5",
        )

    def _run(self, name: str, *arguments: str) -> None:
        log = self.folder / f"{name}.log"
        self._running.append((name, self._place.spawn([str(self._binaries[name]), *arguments], log=log)))

    def _is_ready(self) -> bool:
        for name, process in self._running:
            if not process.running():
                last = "\n".join(process.log.read_text(errors="replace").splitlines()[-12:])
                raise LabError(f"{name} has ended by itself:\n{last}")
        try:
            return self.api.raw("/readyz") == "ok" and bool(self.api.get("Service", "default", "kubernetes"))
        except (OSError, ApiError):
            return False

    def _stop(self) -> None:
        for _, process in reversed(self._running):
            if process.running():
                process.signal(signal.SIGTERM)
            if process.wait(20) is None:
                process.signal(signal.SIGKILL)
                process.wait(10)

"""A real kube-apiserver with etcd, from the folder that KUBEBUILDER_ASSETS names, for as long as a test module runs."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self

VARIABLE = "KUBEBUILDER_ASSETS"
TOKENS = {"valid": "token-admin", "valid, no rights": "token-nobody", "unknown": "token-unknown"}


def why_absent() -> str:
    """Return why there is no real server, empty if there is one."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return f"{VARIABLE} is not set: no real kube-apiserver to compare with"
    missing = [name for name in ("kube-apiserver", "etcd") if not os.access(Path(folder) / name, os.X_OK)]
    return f"no {' and no '.join(missing)} in {VARIABLE}={folder}" if missing else ""


class RealCluster:
    """One etcd and one kube-apiserver on loopback."""

    def __init__(self) -> None:
        self._binaries = Path(os.environ[VARIABLE])
        self._folder = tempfile.TemporaryDirectory(prefix="real-apiserver-")
        self.path = Path(self._folder.name)
        self.port, self._etcd_port, self._peer_port = _free_ports(3)
        self._etcd: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self.context = ssl.create_default_context()
        self.context.check_hostname = False
        self.context.verify_mode = ssl.CERT_NONE

    def __enter__(self) -> Self:
        try:
            key = self.path / "sa.key"
            subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
            (self.path / "tokens.csv").write_text('token-admin,admin,1,"system:masters"\ntoken-nobody,nobody,2\n')
            etcd_url = f"http://127.0.0.1:{self._etcd_port}"
            peer_url = f"http://127.0.0.1:{self._peer_port}"
            self._etcd = self._run(
                "etcd",
                f"--data-dir={self.path / 'etcd'}",
                f"--listen-client-urls={etcd_url}",
                f"--advertise-client-urls={etcd_url}",
                f"--listen-peer-urls={peer_url}",
                f"--initial-advertise-peer-urls={peer_url}",
                f"--initial-cluster=default={peer_url}",
                "--unsafe-no-fsync",
                "--watch-progress-notify-interval=5s",
            )
            self._start_server()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self._server, self._etcd):
            if process is not None:
                _end(process)
        self._folder.cleanup()

    def restart(self) -> None:
        """Restart the API server; etcd stays."""
        assert self._server is not None
        _end(self._server)
        self._start_server()

    def compact(self) -> None:
        """Compact etcd up to its present revision."""
        header = self._etcd_call("range", {"key": "AA=="})["header"]
        self._etcd_call("compaction", {"revision": header["revision"], "physical": True})

    def call(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> tuple[int, dict[str, Any]]:
        """Ask as the administrator; return (HTTP status, body)."""
        headers = {"Authorization": f"Bearer {TOKENS['valid']}", "Content-Type": content_type}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=30) as response:  # noqa: S310
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def _start_server(self) -> None:
        self._server = self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--secure-port={self.port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=10.0.0.1",
            f"--cert-dir={self.path / 'certs'}",
            "--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/108",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.path / 'sa.key'}",
            f"--service-account-signing-key-file={self.path / 'sa.key'}",
            f"--token-auth-file={self.path / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--endpoint-reconciler-type=none",
            "--disable-admission-plugins=ServiceAccount",
        )
        ends = time.monotonic() + 120
        while time.monotonic() < ends:
            assert self._server.poll() is None, (self.path / "kube-apiserver.log").read_text()[-3000:]
            with contextlib.suppress(OSError, ValueError):
                if self.call("GET", "/api/v1/namespaces/default/services/kubernetes")[0] == 200:
                    return
            time.sleep(0.3)
        raise TimeoutError("kube-apiserver does not become ready")

    def _run(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.path / f"{name}.log").open("ab") as log:
            return subprocess.Popen([self._binaries / name, *arguments], stdout=log, stderr=log, cwd=self.path)

    def _etcd_call(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self._etcd_port}/v3/kv/{name}"
        with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=30) as response:
            answer: dict[str, Any] = json.load(response)
            return answer


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_ports(count: int) -> list[int]:
    socks = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in socks]
    for sock in socks:
        sock.close()
    return ports

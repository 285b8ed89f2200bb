"""Certificates for a TLS server, made by the openssl program: a CA, and a server certificate that it signs."""

from __future__ import annotations

import ipaddress
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# As strict as Python 3.13 wants it: key usages, and key identifiers that lead from one to the other.
_CONFIG = """
[req]
distinguished_name = name
[name]
[ca]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = {names}
"""


@dataclass(frozen=True, slots=True)
class Certificates:
    """Paths of one CA certificate and of a server's certificate and key under it."""

    ca: Path
    cert: Path
    key: Path


def make(folder: Path, hosts: Iterable[str] = (), *, name: str = "standin-ca", days: int = 2) -> Certificates:
    """Make a CA and a server certificate for loopback, ``localhost`` and ``hosts``, in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    ca, ca_key = folder / "ca.crt", folder / "ca.key"
    cert, key, request = folder / "server.crt", folder / "server.key", folder / "server.csr"
    names = []
    for host in dict.fromkeys(("127.0.0.1", "::1", "localhost", "kubernetes.default.svc", *hosts)):
        try:
            names.append(f"IP:{ipaddress.ip_address(host)}")
        except ValueError:
            names.append(f"DNS:{host}")
    config = folder / "openssl.cnf"
    config.write_text(_CONFIG.format(names=",".join(names)), encoding="ascii")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-config", config)
    subject = ("-subj", f"/CN={name}")
    _openssl("req", "-x509", *curve, "-keyout", ca_key, "-out", ca, "-days", days, *subject, "-extensions", "ca")
    _openssl("req", *curve, "-keyout", key, "-out", request, "-subj", "/CN=kube-apiserver")
    signed_by = ("-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-extfile", config, "-extensions", "server")
    _openssl("x509", "-req", "-in", request, *signed_by, "-out", cert, "-days", days)
    return Certificates(ca, cert, key)


def _openssl(*arguments: object) -> None:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"openssl {arguments[0]}: {done.stderr.strip()}")

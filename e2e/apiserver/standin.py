"""The stand-in as one object: a store, its faults and counts, and a server in a thread of this process."""

from __future__ import annotations

import json
import random
import ssl
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import yaml

from e2e.apiserver import certs, control, resources
from e2e.apiserver.access import Access, User
from e2e.apiserver.api import Api
from e2e.apiserver.clock import Clock, RealClock
from e2e.apiserver.edge import OWN_PATHS, Edge
from e2e.apiserver.faults import Faults
from e2e.apiserver.kubeconfig import write_kubeconfig
from e2e.apiserver.requests import Answer, Request
from e2e.apiserver.stats import Stats
from e2e.apiserver.store import Store, shown

Json = dict[str, Any]


class StandIn:
    """An API server for tests, demos and benchmarks: real HTTP, no etcd, faults on demand.

    ``tokens`` None: everybody may do everything; a list: these bearer tokens may; a mapping gives each token a User.
    ``tls`` True makes a CA and a certificate in a folder of its own (``ca_path``); else give ``tls_cert``, ``tls_key``.
    ``serves_faults`` opens ``/_standin/faults``, ``/_standin/stats`` and ``/_standin/objects`` on the same port.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tokens: Mapping[str, User] | Iterable[str] | None = None,
        tls: bool = False,
        tls_cert: str | Path | None = None,
        tls_key: str | Path | None = None,
        tls_hosts: Iterable[str] = (),
        serves_faults: bool = False,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        capacity: int = 50_000,
    ) -> None:
        self.clock = clock or RealClock()
        self.store = Store(self.clock, capacity=capacity)
        self.access = Access(tokens)
        self.stats = Stats()
        self.faults = Faults(self)
        self.ca_path: Path | None = None
        self._tls_hosts = (host, *tls_hosts)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._generation = 0
        self._serves_faults = serves_faults
        context = None
        if tls or tls_cert is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.edge = Edge(
            Api(self.store, rng),
            self.access,
            self.faults,
            self.stats,
            self.clock,
            host=host,
            port=port,
            own_paths=self._control,
            context=context,
        )
        if context is not None and tls_cert is not None:
            context.load_cert_chain(tls_cert, tls_key)
        elif context is not None:
            self.rotate_ca()

    # Life

    def start(self) -> StandIn:
        """Listen; return self."""
        self.edge.start()
        return self

    def stop(self) -> None:
        """Close every connection and stop listening. ``start`` may follow, on the same port."""
        self.edge.stop()

    def close(self) -> None:
        """Stop for good and remove what was made on disk."""
        self.stop()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Return the server's base URL; its port is known once it was started."""
        scheme = "http" if self.edge.context is None else "https"
        host = f"[{self.edge.host}]" if ":" in self.edge.host else self.edge.host
        return f"{scheme}://{host}:{self.edge.port}"

    @property
    def port(self) -> int:
        """Return the port."""
        return self.edge.port

    # Objects

    def put(self, obj: Json, *, version: int | None = None) -> int:
        """Create or replace one object as it is given; return its version."""
        return self.store.put(obj, version=version).version

    def bulk_put(self, objs: Iterable[Json]) -> int:
        """Create or replace many objects; watchers are woken once, at the end. Return the last version."""
        self.store.put_all(objs)
        return self.store.version

    def delete(self, kind: str, namespace: str, name: str) -> bool:
        """Delete an object by kind or resource name; tell whether there was one."""
        resource = resources.find(kind)
        return self.store.delete(resource, namespace if resource.namespaced else "", name) is not None

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        """Return an object as the server shows it, None if there is none."""
        resource = resources.find(kind)
        entry = self.store.get(resource, namespace if resource.namespaced else "", name)
        return None if entry is None else msgspec.json.decode(shown(resource, entry))

    def objects(self, kind: str) -> list[Json]:
        """Return all objects of a kind, in the order of their keys."""
        resource = resources.find(kind)
        return [msgspec.json.decode(shown(resource, entry)) for entry in self.store.entries(resource)[1]]

    def load_yaml(self, path: str | Path) -> int:
        """Put every object of a YAML or JSON file (documents and Lists); return how many."""
        objs = list(read_objects(Path(path)))
        self.bulk_put(objs)
        return len(objs)

    # Around it

    def write_kubeconfig(self, path: str | Path, *, token: str | None = None, **more: Any) -> Path:
        """Write a kubeconfig that leads here."""
        more.setdefault("ca", self.ca_path)
        return write_kubeconfig(path, self.url, token=token, **more)

    def rotate_ca(self) -> Path:
        """Make a new CA and certificate and use it for connections from now on; return the CA's path."""
        context = self.edge.context
        if context is None:
            raise RuntimeError("the server does not speak TLS")
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="standin-")
        self._generation += 1
        made = certs.make(
            Path(self._folder.name) / str(self._generation), self._tls_hosts, name=f"standin-ca-{self._generation}"
        )
        if self.edge.is_running:
            self.edge.call(lambda: context.load_cert_chain(made.cert, made.key))
        else:
            context.load_cert_chain(made.cert, made.key)
        self.ca_path = made.ca
        return made.ca

    def _control(self, request: Request) -> Answer | None:
        """Answer the stand-in's own paths; called in a thread that may wait for the server's loop."""
        if not self._serves_faults or not request.path.startswith(OWN_PATHS):
            return None
        return control.answer(self, request)


def read_objects(path: Path) -> Iterable[Json]:
    """Yield the objects of a YAML or JSON file: documents, and the items of Lists."""
    text = path.read_text(encoding="utf-8")
    documents = [json.loads(text)] if path.suffix == ".json" else yaml.load_all(text, Loader=_LOADER)
    for document in documents:
        if not document:
            continue
        if str(document.get("kind", "")).endswith("List"):
            yield from document.get("items") or []
        else:
            yield document


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

__all__ = ["StandIn", "read_objects"]

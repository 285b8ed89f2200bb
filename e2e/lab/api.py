"""A few requests to a real API server, from inside the network namespace it listens in."""

from __future__ import annotations

import json
import os
import queue
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from pyroute2 import netns as namespaces

T = TypeVar("T")
Json = dict[str, Any]

PATHS = {
    "Service": "/api/v1/namespaces/{namespace}/services",
    "Endpoints": "/api/v1/namespaces/{namespace}/endpoints",
    "Pod": "/api/v1/namespaces/{namespace}/pods",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "Event": "/api/v1/namespaces/{namespace}/events",
    "Node": "/api/v1/nodes",
    "EndpointSlice": "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
    "DaemonSet": "/apis/apps/v1/namespaces/{namespace}/daemonsets",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


class ApiError(Exception):
    """The server refused."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Api:
    """One server as one user. Calls are made by a thread that lives in the namespace (None: where we are)."""

    def __init__(self, url: str, ca: Path, token: str, netns: str | None = None) -> None:
        self._url = url
        self._token = token
        self._context = ssl.create_default_context(cafile=str(ca))
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._live, args=(netns,), name="api", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._work.put(None)
        self._thread.join(30)

    def call(self, method: str, path: str, body: Json | None = None, content_type: str = "application/json") -> Json:
        """Send one request. Raises ApiError, or OSError where nobody answers."""
        future: Future[Json] = Future()
        self._work.put((future, lambda: self._send(method, path, body, content_type)))
        return future.result(60)

    def raw(self, path: str) -> str:
        """GET any page."""
        future: Future[str] = Future()
        self._work.put((future, lambda: self._open("GET", path, None, "").decode()))
        return future.result(60)

    def apply(self, obj: Json, *, dry_run: bool = False, manager: str = "lab") -> Json:
        """Apply an object on the server's side; unknown fields are errors."""
        query = f"?fieldManager={manager}&force=true&fieldValidation=Strict{'&dryRun=All' if dry_run else ''}"
        return self.call("PATCH", f"{path_of(obj)}{query}", obj, APPLY)

    def patch(self, obj: Json, change: Json, subresource: str = "") -> Json:
        """Merge a change into an object or its subresource."""
        return self.call("PATCH", path_of(obj) + (f"/{subresource}" if subresource else ""), change, MERGE)

    def get(self, kind: str, namespace: str, name: str) -> Json:
        """Return one object."""
        return self.call("GET", f"{PATHS[kind].format(namespace=namespace)}/{name}")

    def list(self, kind: str, namespace: str, selector: str = "") -> list[Json]:
        """Return objects."""
        query = f"?labelSelector={selector}" if selector else ""
        items: list[Json] = self.call("GET", PATHS[kind].format(namespace=namespace) + query)["items"]
        return items

    def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete an object at once; one that is not there is no error."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        try:
            self.call("DELETE", f"{PATHS[kind].format(namespace=namespace)}/{name}", body)
        except ApiError as problem:
            if problem.code != 404:
                raise

    def _live(self, netns: str | None) -> None:
        if netns is not None:
            namespaces.setns(netns)
        while (item := self._work.get()) is not None:
            future, work = item
            try:
                future.set_result(work())
            except BaseException as problem:  # noqa: BLE001 - handed to the caller
                future.set_exception(problem)

    def _send(self, method: str, path: str, body: Json | None, content_type: str) -> Json:
        answer: Json = json.loads(self._open(method, path, body, content_type))
        return answer

    def _open(self, method: str, path: str, body: Json | None, content_type: str) -> bytes:
        headers = {"Authorization": f"Bearer {self._token}"} | ({"Content-Type": content_type} if body else {})
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, headers, method=method)  # noqa: S310
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self._context)
        )
        try:
            with opener.open(request, timeout=30) as response:
                read: bytes = response.read()
                return read
        except urllib.error.HTTPError as error:
            with error:
                told = error.read().decode(errors="replace")
            try:
                message = json.loads(told)["message"]
            except (ValueError, KeyError):
                message = told[:500]
            raise ApiError(error.code, message) from None


def path_of(obj: Json) -> str:
    """Return the path of an object."""
    meta = obj["metadata"]
    return f"{PATHS[obj['kind']].format(namespace=meta.get('namespace', 'default'))}/{meta['name']}"


def environment_without_proxies() -> dict[str, str]:
    """Return the environment for a program that must reach the server directly."""
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}

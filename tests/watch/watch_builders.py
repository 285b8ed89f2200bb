"""Objects as JSON, receivers that remember, and a session that follows a script: no sockets, no waiting."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pykubeproxy.errors import ApiError
from pykubeproxy.watch.reflector import Reflector


def service(name="web", namespace="default", *, version="1", cluster_ip="10.96.0.10", **more):
    meta = {"name": name, "namespace": namespace, "resourceVersion": version}
    spec = {"clusterIP": cluster_ip, "ports": [{"port": 80, "protocol": "TCP"}], **more.pop("spec", {})}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta | more.pop("metadata", {}), "spec": spec, **more}


def endpoint_slice(name="web-1", namespace="default", *, version="1", addresses=("10.1.0.1",), **more):
    labels = {"kubernetes.io/service-name": "web"}
    meta = {"name": name, "namespace": namespace, "resourceVersion": version, "labels": labels}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": meta | more.pop("metadata", {}),
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "nodeName": "node-a"} for address in addresses],
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
        **more,
    }


def node(name="node-a", *, version="1", **more):
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "resourceVersion": version}, **more}


def listing(*items, version="10", kind="ServiceList", more="", remaining=0):
    meta = {"resourceVersion": version}
    if more:
        meta |= {"continue": more, "remainingItemCount": remaining}
    return json.dumps({"kind": kind, "apiVersion": "v1", "metadata": meta, "items": list(items)}).encode()


def line(kind, obj):
    return json.dumps({"type": kind, "object": obj}).encode()


def bookmark(version):
    return line("BOOKMARK", {"kind": "Service", "apiVersion": "v1", "metadata": {"resourceVersion": version}})


def error_line(**status):
    return line("ERROR", {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", **status})


class Receiver:
    """A handler that keeps what it is told, and the order in which it was told."""

    def __init__(self):
        self.objects: dict[tuple[str, str], Any] = {}
        self.calls: list[tuple[str, Any]] = []

    def replace(self, objects):
        self.calls.append(("replace", [obj.metadata.name for obj in objects]))
        self.objects = {(obj.metadata.namespace, obj.metadata.name): obj for obj in objects}

    def upsert(self, obj):
        self.calls.append(("upsert", obj.metadata.name))
        self.objects[(obj.metadata.namespace, obj.metadata.name)] = obj

    def delete(self, namespace, name):
        self.calls.append(("delete", name))
        self.objects.pop((namespace, name), None)

    @property
    def names(self):
        return sorted(name for _, name in self.objects)


class Clock:
    """Monotonic time that moves when told to."""

    def __init__(self):
        self.now = 1000.0
        self.sleeps: list[float] = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.sleeps.append(seconds)
        self.now += seconds


class After:
    """In a script's watch: time passes before the next line."""

    def __init__(self, seconds):
        self.seconds = seconds


class Script:
    """A session that answers from a script. Lists: bytes or an error. Watches: a list of lines, Afters and errors.

    When the script is used up, the reflector is told to stop.
    """

    def __init__(self, *, lists=(), watches=()):
        self.lists = list(lists)
        self.watches = list(watches)
        self.asked: list[dict[str, str]] = []
        self.clock = Clock()
        self.open_streams = 0
        self.is_aborted = False
        self.is_closed = False
        self.on_end = lambda: None

    @property
    def lists_asked(self):
        return [params for params in self.asked if "watch" not in params]

    @property
    def watches_asked(self):
        return [params for params in self.asked if "watch" in params]

    def list(self, resource: str, params: Mapping[str, str]) -> bytes:
        return self._next(self.lists, params)

    def watch(self, resource: str, params: Mapping[str, str], *, read_timeout: float) -> Stream:
        return Stream(self, self._next(self.watches, params))

    def abort(self) -> None:
        self.is_aborted = True

    def close(self) -> None:
        self.is_closed = True

    def _next(self, answers, params):
        self.asked.append(dict(params))
        if not answers:
            self.on_end()
            raise ApiError("the script is used up")
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Stream:
    def __init__(self, script: Script, steps):
        self.script = script
        self.steps = steps
        script.open_streams += 1

    def __iter__(self) -> Iterator[bytes]:
        for step in self.steps:
            if isinstance(step, After):
                self.script.clock.now += step.seconds
            elif isinstance(step, Exception):
                raise step
            else:
                yield step

    def close(self) -> None:
        self.script.open_streams -= 1


def follow(
    script: Script, *, resource="services", receiver=None, node_name="node-a", random=lambda: 0.5
) -> tuple[Any, Any]:
    """Run a reflector over a script until the script is used up; return it and its receiver."""
    receiver = Receiver() if receiver is None else receiver
    reflector: Reflector[Any] = Reflector(
        resource,
        script,
        receiver,
        node_name=node_name,
        clock=script.clock,
        wall=lambda: 1.7e9 + script.clock.now,
        sleep=script.clock.sleep,
        random=random,
    )
    script.on_end = lambda: reflector.stop(0)
    reflector.run()
    return reflector, receiver

"""What a real kube-apiserver said, recorded: tests/apiserver/wire."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

WIRE = Path(__file__).parent.parent / "apiserver" / "wire"


class Recording:
    def __init__(self, document):
        self._document = document
        self.status = document["status"]
        self.headers = document["headers"]

    @property
    def body(self):
        return json.dumps(self._document["body"]).encode()

    @property
    def lines(self):
        return [json.dumps(entry["line"]).encode() for entry in self._document["body"]["lines"]]

    @property
    def last_version(self):
        return self._document["body"]["lines"][-1]["line"]["object"]["metadata"]["resourceVersion"]


@cache
def recording(name):
    return Recording(json.loads((WIRE / f"{name}.json").read_text()))


def names():
    return sorted(path.stem for path in WIRE.glob("[0-9]*.json"))

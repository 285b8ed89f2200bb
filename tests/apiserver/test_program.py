"""The stand-in as a program: its arguments, and its control paths over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.apiserver.asking import SERVICES, service
from tests.apiserver.programs import control, program


def listed(url: str) -> list[str]:
    with urllib.request.urlopen(url + SERVICES, timeout=20) as response:  # noqa: S310
        return [item["metadata"]["name"] for item in json.load(response)["items"]]


def test_it_starts_with_objects_and_writes_a_kubeconfig(tmp_path: Path) -> None:
    objects = tmp_path / "objects.json"
    objects.write_text(json.dumps({"kind": "List", "items": [service("a")]}))
    config = tmp_path / "kubeconfig"
    with program("--port", "0", "--objects", str(objects), "--kubeconfig", str(config)) as url:
        assert json.loads(config.read_text())["clusters"][0]["cluster"]["server"] == url
        assert listed(url) == ["a"]


def test_tls_and_tokens(tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    with program("--tls", "--token", "t", "--kubeconfig", str(config)) as url:
        assert url.startswith("https://")
        written = json.loads(config.read_text())
        assert Path(written["clusters"][0]["cluster"]["certificate-authority"]).exists()
        assert written["users"][0]["user"] == {"token": "t"}


def test_faults_and_counts_over_http() -> None:
    with program("--faults") as url:
        status, names = control(url, "faults")
        assert status == 200
        assert {"answer", "hang", "restart", "send_line"} <= names.keys()
        asked = [{"fault": "answer", "code": 503, "resource": "services"}, {"fault": "bookmarks", "on": False}]
        assert control(url, "faults", asked) == (200, {"results": [None, None]})
        with pytest.raises(urllib.error.HTTPError) as refused:
            listed(url)
        refused.value.close()
        assert listed(url) == []
        assert control(url, "stats")[1]["requests"] == {"list services": 2}
        assert control(url, "stats", method="DELETE") == (200, {})
        assert control(url, "stats")[1]["requests"] == {}


def test_objects_in_bulk_over_http() -> None:
    with program("--faults") as url:
        items = [service(f"s{number}") for number in range(3)]
        assert control(url, "objects", {"kind": "List", "items": items})[0] == 200
        assert control(url, "objects", service("t")) == (200, {"resourceVersion": "5"})
        assert listed(url) == ["s0", "s1", "s2", "t"]


def test_a_fault_that_ends_connections_answers_all_the_same() -> None:
    with program("--faults") as url:
        assert control(url, "faults", {"fault": "restart", "version": 1}) == (200, {"results": [None]})
        assert listed(url) == []


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"fault": "nosuch"}, "no such fault: 'nosuch'"),
        ({"fault": "answer"}, "missing 1 required positional argument: 'code'"),
        ({"fault": "take"}, "no such fault: 'take'"),
        ({"fault": "grow_object", "resource": "services"}, "no such Service"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(asked: dict[str, object], says: str) -> None:
    with program("--faults") as url:
        status, body = control(url, "faults", asked)
        assert (status, says in body["error"]) == (400, True)


def test_without_being_asked_for_there_are_no_control_paths() -> None:
    with program() as url, pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{url}/_standin/faults", timeout=20)  # noqa: S310
    assert refused.value.code == 404
    refused.value.close()

"""Versions that are gone, and a server that comes back with older ones."""

from __future__ import annotations

from e2e.apiserver import StandIn
from tests.apiserver.asking import SERVICES, answer, ask, event, names, service, watch


def test_after_a_compaction_old_versions_are_gone_for_lists_and_watches() -> None:
    with StandIn() as server:
        server.put(service("a"))
        server.put(service("b"))
        server.faults.compact()
        assert answer(server, f"{SERVICES}?resourceVersion=2&resourceVersionMatch=Exact")[0] == 410
        with ask(server, f"{SERVICES}?watch=1&resourceVersion=1") as client:
            assert client.head()[0] == 200
            assert client.line()["object"]["code"] == 410
            client.wait_end()


def test_an_open_watch_survives_a_compaction() -> None:
    with StandIn() as server, watch(server, resourceVersion=0) as client:
        server.faults.compact()
        server.put(service("a"))
        assert event(client.line()) == ("ADDED", "a")


def test_a_restart_from_a_backup_goes_on_from_a_lower_version() -> None:
    with StandIn() as server:
        for _ in range(5):
            server.put(service("a"))
        with watch(server, resourceVersion=server.store.version) as client:
            server.faults.restart(2)
            assert client.body() == b""
        body = answer(server, SERVICES)[1]
        assert (body["metadata"]["resourceVersion"], names(body)) == ("2", ["a"])
        assert server.put(service("b")) == 3


def test_a_watch_from_the_version_before_such_a_restart_hears_nothing() -> None:
    with StandIn() as server:
        for _ in range(5):
            server.put(service("a"))
        server.faults.restart(2)
        with watch(server, resourceVersion=5) as client:
            server.put(service("b"))
            server.edge.settle()
            assert client.is_quiet()
            for name in "cdef":
                server.put(service(name))
            assert event(client.line())[1] == "e"


def test_a_history_that_grew_too_long_forgets_its_beginning() -> None:
    with StandIn(capacity=100) as server:
        for number in range(150):
            server.put(service("a", annotations={"n": str(number)}))
        with ask(server, f"{SERVICES}?watch=1&resourceVersion=10") as client:
            client.head()
            assert client.line()["object"]["code"] == 410


def test_pages_of_one_list_are_of_one_version() -> None:
    with StandIn() as server:
        server.bulk_put([service(name) for name in "abcd"])
        first = answer(server, f"{SERVICES}?limit=2")[1]
        server.delete("Service", "default", "c")
        server.put(service("bb"))
        second = answer(server, f"{SERVICES}?limit=2&continue={first['metadata']['continue']}")[1]
        assert names(first) + names(second) == ["a", "b", "c", "d"]
        assert names(answer(server, SERVICES)[1]) == ["a", "b", "bb", "d"]


def test_an_expired_page_goes_on_inconsistently() -> None:
    with StandIn() as server:
        server.bulk_put([service(name) for name in "abcd"])
        first = answer(server, f"{SERVICES}?limit=2")[1]
        server.delete("Service", "default", "c")
        server.faults.compact()
        status, body = answer(server, f"{SERVICES}?limit=2&continue={first['metadata']['continue']}")
        assert status == 410
        rest = answer(server, f"{SERVICES}?limit=2&continue={body['metadata']['continue']}")[1]
        assert names(rest) == ["d"]

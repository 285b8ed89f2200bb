"""Tokens and certificates, and their replacement while the server runs."""

from __future__ import annotations

import ssl

import pytest

from e2e.apiserver import StandIn, User
from tests.apiserver.asking import SERVICES, SLICES, answer, ask


def test_tokens_are_replaced_at_run_time() -> None:
    with StandIn(tokens=["old"]) as server:
        assert answer(server, SERVICES, bearer="old")[0] == 200
        server.faults.set_tokens(["new"])
        assert answer(server, SERVICES, bearer="old")[0] == 401
        assert answer(server, SERVICES, bearer="new")[0] == 200
        server.faults.set_tokens(None)
        assert answer(server, SERVICES)[0] == 200


def test_rights_are_by_verb_and_resource() -> None:
    reader = User("reader", frozenset({("list", "services"), ("watch", "*")}))
    with StandIn(tokens={"t": reader}) as server:
        assert answer(server, SERVICES, bearer="t")[0] == 200
        status, body = answer(server, SLICES, bearer="t")
        assert status == 403
        assert body["message"] == (
            'endpointslices.discovery.k8s.io is forbidden: User "reader" cannot list resource "endpointslices" '
            'in API group "discovery.k8s.io" at the cluster scope'
        )
        assert answer(server, "/api/v1/namespaces/x/services/y", bearer="t")[1]["message"] == (
            'services "y" is forbidden: User "reader" cannot get resource "services" in API group "" '
            'in the namespace "x"'
        )


def test_without_a_token_one_is_anonymous() -> None:
    with StandIn(tokens=["t"]) as server:
        status, body = answer(server, SERVICES)
        assert (status, 'User "system:anonymous"' in body["message"]) == (403, True)


def test_a_new_ca_is_served_from_the_next_connection_on() -> None:
    with StandIn(tls=True) as server:
        old = ssl.create_default_context(cafile=server.ca_path)
        assert server.url.startswith("https://127.0.0.1:")
        assert answer(server, SERVICES, context=old)[0] == 200
        path = server.faults.rotate_ca()
        with pytest.raises(ssl.SSLCertVerificationError):
            ask(server, SERVICES, context=old)
        assert answer(server, SERVICES, context=ssl.create_default_context(cafile=path))[0] == 200


def test_rotation_ends_open_connections_unless_told_otherwise() -> None:
    with StandIn(tls=True) as server:
        context = ssl.create_default_context(cafile=server.ca_path)
        with ask(server, f"{SERVICES}?watch=1", context=context) as client:
            client.head()
            server.faults.rotate_ca(drop=False)
            server.edge.settle()
            assert client.is_quiet()
            server.faults.rotate_ca()
            client.body()
            assert client.is_cut

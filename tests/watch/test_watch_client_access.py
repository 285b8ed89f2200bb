"""Who we are and where the server is: kubeconfig, in-cluster, tokens and certificates that change."""

import base64
import json
import socket
import threading
from pathlib import Path

import pytest
from watch_server import client_of

from e2e.apiserver import StandIn
from pykubeproxy.config.options import ClientOptions
from pykubeproxy.errors import ApiError, ConfigurationError
from pykubeproxy.watch.client import connect


def token_of_last(server):
    return server.stats.seen[-1].token


class TestKubeconfig:
    def test_leads_to_its_server(self, tmp_path):
        with StandIn(tls=True, tokens=["secret"]) as server:
            client = client_of(server, tmp_path, token="secret")  # noqa: S106
            assert client.server == server.url
            assert client.server_host == "127.0.0.1"
            client.session().list("services", {})
            assert token_of_last(server) == "secret"

    def test_master_wins_over_its_server(self, tmp_path):
        with StandIn(tokens=["secret"]) as server:
            path = server.write_kubeconfig(tmp_path / "kubeconfig", token="secret")  # noqa: S106
            text = path.read_text().replace(server.url, "https://192.0.2.1:6443")
            path.write_text(text)
            client = connect(ClientOptions(kubeconfig=str(path), master=server.url), environ={})
            assert client.server == server.url
            client.session().list("services", {})
            assert token_of_last(server) == "secret"

    def test_embedded_certificates_serve(self, tmp_path):
        with StandIn(tls=True) as server:
            path = server.write_kubeconfig(tmp_path / "kubeconfig")
            document = json.loads(path.read_text())
            cluster = document["clusters"][0]["cluster"]
            ca = cluster.pop("certificate-authority")
            cluster["certificate-authority-data"] = base64.b64encode(Path(ca).read_bytes()).decode()
            path.write_text(json.dumps(document))
            connect(ClientOptions(kubeconfig=str(path)), environ={}).session().list("services", {})

    def test_paths_in_it_are_relative_to_it(self, tmp_path):
        with StandIn(tokens=["secret"]) as server:
            (tmp_path / "token").write_text("secret\n")
            client_of(server, tmp_path, token_file="token").session().list("services", {})  # noqa: S106

    def test_a_wrong_certificate_is_an_api_error(self, tmp_path):
        with StandIn(tls=True) as server, StandIn(tls=True) as other:
            client = client_of(server, tmp_path, ca=other.ca_path)
            with pytest.raises(ApiError, match="certificate verify failed"):
                client.session().list("services", {})


class TestInCluster:
    def account(self, tmp_path, server, token):
        folder = tmp_path / "serviceaccount"
        folder.mkdir()
        (folder / "token").write_text(token)
        (folder / "ca.crt").write_bytes(server.ca_path.read_bytes())
        return folder

    def test_uses_the_service_account(self, tmp_path):
        with StandIn(tls=True, tokens=["secret"]) as server:
            folder = self.account(tmp_path, server, "secret")
            environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port)}
            client = connect(ClientOptions(), environ=environ, service_account=folder)
            client.session().list("services", {})
            assert client.server == server.url

    def test_elsewhere_says_what_to_do(self):
        with pytest.raises(ConfigurationError, match="outside a cluster give --kubeconfig or --master"):
            connect(ClientOptions(), environ={})

    def test_takes_an_ipv6_address(self, tmp_path):
        with StandIn(tls=True) as server:
            folder = self.account(tmp_path, server, "secret")
            environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
            client = connect(ClientOptions(), environ=environ, service_account=folder)
            assert client.server == "https://[fd00::1]:443"
            assert client.server_host == "fd00::1"


class TestMaster:
    def test_alone_needs_no_files(self):
        with StandIn() as server:
            connect(ClientOptions(master=server.url), environ={}).session().list("services", {})
            connect(ClientOptions(master=f"127.0.0.1:{server.port}"), environ={}).session().list("services", {})


class TestTokens:
    def test_a_token_file_is_read_at_each_request(self, tmp_path):
        token = tmp_path / "token"
        token.write_text("one")
        with StandIn(tokens=["one", "two"]) as server:
            session = client_of(server, tmp_path, token_file=token).session()
            session.list("services", {})
            token.write_text("two\n")
            session.list("services", {})
            assert [seen.token for seen in server.stats.seen] == ["one", "two"]

    def test_a_token_file_that_is_gone_or_empty_leaves_the_last_token(self, tmp_path):
        token = tmp_path / "token"
        token.write_text("one")
        with StandIn(tokens=["one"]) as server:
            session = client_of(server, tmp_path, token_file=token).session()
            session.list("services", {})
            token.write_text("")
            session.list("services", {})
            token.unlink()
            session.list("services", {})

    def test_401_reads_the_kubeconfig_again_at_once(self, tmp_path):
        with StandIn(tokens=["old"]) as server:
            session = client_of(server, tmp_path, token="old").session()  # noqa: S106
            session.list("services", {})
            server.faults.set_tokens(["new"])
            server.write_kubeconfig(tmp_path / "kubeconfig", token="new")  # noqa: S106
            session.list("services", {})
            assert token_of_last(server) == "new"

    def test_a_token_that_changes_while_the_server_refuses_it_is_tried_once(self, tmp_path):
        token = tmp_path / "token"
        token.write_text("old")
        with StandIn(tokens=["old"]) as server:
            session = client_of(server, tmp_path, token_file=token).session()
            server.faults.set_tokens(["new"])
            access = session._access
            read = access.authorization

            def rotated_in_between():
                value = read()
                token.write_text("new")
                return value

            access.authorization = rotated_in_between
            session.list("services", {})
            assert [seen.status for seen in server.stats.seen] == [401, 200]

    def test_401_with_the_same_token_is_said_at_once(self, tmp_path):
        with StandIn(tokens=["new"]) as server:
            session = client_of(server, tmp_path, token="old").session()  # noqa: S106
            with pytest.raises(ApiError, match="401 Unauthorized") as caught:
                session.list("services", {})
            assert caught.value.code == 401
            assert len(server.stats.seen) == 1

    def test_a_half_written_kubeconfig_leaves_what_was_read(self, tmp_path):
        with StandIn(tokens=["one"]) as server:
            session = client_of(server, tmp_path, token="one").session()  # noqa: S106
            (tmp_path / "kubeconfig").write_text("{")
            session.list("services", {})
            server.write_kubeconfig(tmp_path / "kubeconfig", token="wrong")  # noqa: S106
            with pytest.raises(ApiError):
                session.list("services", {})


class TestCredentialPlugins:
    def session(self, tmp_path, server):
        """Return a session whose plugin prints what is in the file ``answer``."""
        program = tmp_path / "plugin"
        program.write_text(f"#!/bin/sh\ncat {tmp_path}/answer\n")
        program.chmod(0o755)
        path = server.write_kubeconfig(tmp_path / "kubeconfig")
        document = json.loads(path.read_text())
        plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program)}
        document["users"][0]["user"] = {"exec": plugin}
        path.write_text(json.dumps(document))
        return connect(ClientOptions(kubeconfig=str(path)), environ={}).session()

    def answer(self, tmp_path, token):
        credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
        (tmp_path / "answer").write_text(json.dumps(credential | {"status": {"token": token}}))

    def test_are_asked(self, tmp_path):
        self.answer(tmp_path, "secret")
        with StandIn(tokens=["secret"]) as server:
            self.session(tmp_path, server).list("services", {})

    def test_are_asked_again_after_401(self, tmp_path):
        self.answer(tmp_path, "one")
        with StandIn(tokens=["one"]) as server:
            session = self.session(tmp_path, server)
            session.list("services", {})
            server.faults.set_tokens(["two"])
            self.answer(tmp_path, "two")
            session.list("services", {})

    def test_that_failed_are_asked_again(self, tmp_path):
        with StandIn(tokens=["secret"]) as server:
            session = self.session(tmp_path, server)
            with pytest.raises(ApiError, match="403"):
                session.list("services", {})
            self.answer(tmp_path, "secret")
            session.list("services", {})


class TestCertificates:
    def test_a_new_ca_in_the_same_file_is_taken(self, tmp_path):
        with StandIn(tls=True) as server:
            ca = tmp_path / "ca.crt"
            ca.write_bytes(server.ca_path.read_bytes())
            session = client_of(server, tmp_path, ca=ca).session()
            session.list("services", {})
            server.faults.rotate_ca()
            with pytest.raises(ApiError):
                session.list("services", {})
            ca.write_bytes(server.ca_path.read_bytes())
            session.list("services", {})

    def test_a_new_ca_in_a_new_kubeconfig_is_taken(self, tmp_path):
        with StandIn(tls=True) as server:
            session = client_of(server, tmp_path).session()
            session.list("services", {})
            server.faults.rotate_ca()
            server.write_kubeconfig(tmp_path / "kubeconfig")
            session.list("services", {})

    def test_checking_can_be_switched_off(self, tmp_path):
        with StandIn(tls=True) as server:
            client_of(server, tmp_path, ca=None, insecure=True).session().list("services", {})


class TestProxies:
    def proxied(self, listener, asked):
        def serve():
            sock, _ = listener.accept()
            with sock:
                asked.append(sock.recv(65536).split(b"\r\n")[0])
                sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        return thread

    def test_of_the_kubeconfig_is_used(self, tmp_path):
        asked = []
        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = self.proxied(listener, asked)
            path = tmp_path / "kubeconfig"
            cluster = {"server": "http://192.0.2.1:8080", "proxy-url": f"http://127.0.0.1:{listener.getsockname()[1]}"}
            document = {
                "current-context": "x",
                "contexts": [{"name": "x", "context": {"cluster": "c"}}],
                "clusters": [{"name": "c", "cluster": cluster}],
            }
            path.write_text(json.dumps(document))
            assert connect(ClientOptions(kubeconfig=str(path)), environ={}).session().list("services", {}) == b"{}"
            thread.join(10)
        assert asked == [b"GET http://192.0.2.1:8080/api/v1/services HTTP/1.1"]

    def test_of_the_environment_is_used_but_for_what_no_proxy_names(self, monkeypatch):
        asked = []
        with socket.create_server(("127.0.0.1", 0)) as listener, StandIn() as server:
            thread = self.proxied(listener, asked)
            monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{listener.getsockname()[1]}")
            monkeypatch.setenv("NO_PROXY", "127.0.0.0/8")
            connect(ClientOptions(master=server.url), environ={}).session().list("services", {})
            assert asked == []
            connect(ClientOptions(master="http://192.0.2.1"), environ={}).session().list("services", {})
            thread.join(10)
        assert asked == [b"GET http://192.0.2.1/api/v1/services HTTP/1.1"]


class TestEvents:
    def test_are_created_and_counted(self, tmp_path):
        with StandIn() as server:
            client = client_of(server, tmp_path)
            meta = {"name": "web.1", "namespace": "default"}
            client.post_event({"apiVersion": "v1", "kind": "Event", "metadata": meta, "reason": "Test", "count": 1})
            client.patch_event("default", "web.1", {"count": 2})
            assert server.get("events", "default", "web.1")["count"] == 2
            client.close()

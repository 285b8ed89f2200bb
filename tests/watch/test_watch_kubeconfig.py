"""A kubeconfig that is no good: every fault in a line of its own, each with what to do, and exit status 2."""

import pytest
import yaml

from pykubeproxy.config.options import ClientOptions
from pykubeproxy.errors import ConfigurationError
from pykubeproxy.watch.client import connect

SERVER = {"server": "https://127.0.0.1:1"}


def document(cluster=None, user=None, **more):
    return {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": SERVER if cluster is None else cluster}],
        "users": [{"name": "u", "user": user or {}}],
        **more,
    }


def refusal(tmp_path, content, **options):
    """Return the problems of a kubeconfig in the folder, its path taken off each."""
    path = tmp_path / "kubeconfig"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        connect(ClientOptions(kubeconfig=str(path), **options), environ={})
    assert caught.value.exit_status == 2
    head = f"kubeconfig {path}: "
    assert all(problem.startswith(head) and "\n" not in problem for problem in caught.value.problems)
    return [problem.removeprefix(head) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no such file or directory; name a file that can be read with --kubeconfig"),
        ("", "is empty"),
        ("just text", "is no kubeconfig, that is a mapping with clusters, contexts and users"),
        ("- 1", "is no kubeconfig, that is a mapping with clusters, contexts and users"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        ("a: [\n", "line 2: not valid YAML: expected the node content, but found '<stream end>'"),
        ("contexts: {name: x}", "contexts must be a list of mappings, each with a name and a context"),
        (
            document(users=[{"name": "u", "user": "me"}]),
            "users must be a list of mappings, each with a name and a user",
        ),
        (
            document() | {"current-context": ""},
            "has no current-context; set it to one of its contexts (it has x)",
        ),
        (
            {"current-context": "nope"},
            "current-context 'nope' is not among its contexts (it has none at all); set it to one that is there",
        ),
        (document(clusters=[]), "context 'x' names the cluster 'c', which is not among its clusters"),
        (document(users=[]), "context 'x' names the user 'u', which is not among its users"),
        (document({}), "cluster 'c': server is missing"),
        (document({"server": 7}), "cluster 'c': server 7 must be a text"),
        (
            document(SERVER | {"certificate-authority-data": "%"}),
            "cluster 'c': certificate-authority-data is not base64",
        ),
    ],
)
def test_is_refused_in_one_line(tmp_path, content, said):
    assert refusal(tmp_path, content) == [said]


def test_a_folder_is_none(tmp_path):
    (tmp_path / "kubeconfig").mkdir()
    assert refusal(tmp_path, None) == ["is a directory; name a file that can be read with --kubeconfig"]


def test_every_file_that_it_names_is_looked_at(tmp_path):
    (tmp_path / "ca.crt").write_text("no certificate")
    user = {"client-certificate": "no.crt", "client-key": "/no/such/key", "tokenFile": "token"}
    assert refusal(tmp_path, document(SERVER | {"certificate-authority": "ca.crt"}, user)) == [
        f"cluster 'c': certificate-authority {tmp_path}/ca.crt holds no certificate",
        f"user 'u': client-certificate {tmp_path}/no.crt: no such file or directory",
        "user 'u': client-key /no/such/key: no such file or directory",
        f"user 'u': tokenFile {tmp_path}/token: no such file or directory",
    ]


def test_a_missing_ca_is_named_once(tmp_path):
    assert refusal(tmp_path, document(SERVER | {"certificate-authority": "ca.crt"})) == [
        f"cluster 'c': certificate-authority {tmp_path}/ca.crt: no such file or directory"
    ]


def test_a_credential_plugin_that_is_not_there(tmp_path):
    plugin = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin"}}
    assert refusal(tmp_path, document(user=plugin)) == [
        "user 'u': the credential plugin ./plugin is not there, or may not be run"
    ]


def test_a_token_beside_its_file_is_enough(tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(document(user={"token": "secret", "tokenFile": "gone"})))
    connect(ClientOptions(kubeconfig=str(path)), environ={}).close()


URLS = [
    ("https://", "must be a URL such as https://10.0.0.1:6443"),
    (":6443", "must be a URL such as https://10.0.0.1:6443"),
    ("foo bar", "must be a URL such as https://10.0.0.1:6443"),
    ("https://[::1", "must be a URL such as https://10.0.0.1:6443"),
    ("ftp://foo", "must begin with https:// or http://, as in https://10.0.0.1:6443"),
    ("https://foo:port", "must end in a port from 1 to 65535, as in https://10.0.0.1:6443"),
    ("https://foo:65536", "must end in a port from 1 to 65535, as in https://10.0.0.1:6443"),
    ("127.0.0.1:0", "must end in a port from 1 to 65535, as in https://10.0.0.1:6443"),
]


@pytest.mark.parametrize(("url", "fault"), URLS)
class TestAServerThatIsNoUrl:
    def test_in_the_file(self, tmp_path, url, fault):
        assert refusal(tmp_path, document({"server": url})) == [f"cluster 'c': server {url!r} {fault}"]

    def test_as_a_flag(self, url, fault):
        with pytest.raises(ConfigurationError) as caught:
            connect(ClientOptions(master=url), environ={})
        assert caught.value.problems == [f"--master {url!r} {fault}"]


class TestAServerWithoutScheme:
    def url(self, tmp_path, content, **options):
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(content))
        client = connect(ClientOptions(kubeconfig=str(path), **options), environ={})
        client.close()
        return client.server

    def test_is_asked_in_plain_http(self, tmp_path):
        assert self.url(tmp_path, document({"server": "10.0.0.1:6443"})) == "http://10.0.0.1:6443"

    def test_is_asked_over_tls_where_there_are_certificates(self, tmp_path):
        cluster = {"server": "10.0.0.1:6443", "insecure-skip-tls-verify": True}
        assert self.url(tmp_path, document(cluster)) == "https://10.0.0.1:6443"
        assert self.url(tmp_path, document(cluster), master="other") == "https://other"

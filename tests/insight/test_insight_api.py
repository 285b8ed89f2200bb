"""The commands ask the API server where no manifests are given, and say in one line when it does not answer."""

from insight_demo import ALL, FLAGS, gather, run, run_as_given

from e2e.apiserver import StandIn


def ask(*arguments):
    return run_as_given(*arguments, *FLAGS)


def test_objects_come_from_the_api_server(tmp_path):
    manifests = gather(tmp_path / "manifests", *ALL)
    with StandIn() as server:
        for file in sorted(manifests.glob("*.yaml")):
            server.load_yaml(file)
        kubeconfig = str(server.write_kubeconfig(tmp_path / "kubeconfig"))
        asked = ("explain", "--no-live", "shop", "--kubeconfig", kubeconfig)
        expected = run("explain", "--no-live", "shop", manifests=manifests)
        assert ask(*asked) == (0, expected.stdout, "")
        traced = ask("trace", "--to", "shop:80", "--kubeconfig", kubeconfig)
        assert traced == (0, run("trace", "--to", "shop:80", manifests=manifests).stdout, "")


def test_a_server_that_does_not_answer_is_one_line(tmp_path):
    with StandIn() as server:
        kubeconfig = str(server.write_kubeconfig(tmp_path / "kubeconfig"))
    status, out, err = ask("explain", "--no-live", "shop", "--kubeconfig", kubeconfig)
    assert (status, out, err.count("\n")) == (2, "", 1)


def test_what_the_server_does_not_list_for_a_proxy_is_looked_for_by_name(tmp_path):
    with StandIn() as server:
        for file in sorted(gather(tmp_path / "manifests", *ALL).glob("*.yaml")):
            server.load_yaml(file)
        spec = {"clusterIP": "None", "ports": [{"port": 80}]}
        meta = {"name": "bare", "namespace": "prod"}
        server.put({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec})
        kubeconfig = str(server.write_kubeconfig(tmp_path / "kubeconfig"))
        explained = ask("explain", "--no-live", "prod/bare", "--kubeconfig", kubeconfig)
        traced = ask("trace", "--to", "prod/bare", "--kubeconfig", kubeconfig)
        missing = ask("explain", "--no-live", "prod/bear", "--kubeconfig", kubeconfig)
    line = "prod/bare is headless: DNS gives its pods' addresses, so there are no rules for it\n"
    assert explained == (1, "", f"pykubeproxy: {line}")
    assert traced == (1, "", f"pykubeproxy: --to: {line}")
    assert missing.returncode == 1
    assert missing.stderr.startswith("pykubeproxy: there is no Service prod/bear; none is in namespace prod, but in ")

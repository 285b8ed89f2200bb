"""The commands ask the API server where no manifests are given, and say in one line when it does not answer."""

import contextlib
import io
import sys

import structlog
from insight_demo import ALL, FLAGS, gather, run

from e2e.apiserver import StandIn
from pykubeproxy import cli


def ask(*arguments):
    out, err, status = io.StringIO(), io.StringIO(), 0
    argv, sys.argv = sys.argv, ["pykubeproxy", *arguments, *FLAGS]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
    except SystemExit as end:
        status = int(end.code or 0)
    finally:
        sys.argv = argv
        structlog.reset_defaults()
    return status, out.getvalue(), err.getvalue()


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
    assert (status, out, err.count("\n")) == (1, "", 1)

"""The laboratory with a real control plane, and a real kube-proxy that is taken over from and given back to."""

import os

import pytest

from e2e.lab import binaries, checks, trial
from e2e.lab.site import LabSite, proxy_running

BACKENDS = ("nft", "legacy")
PROGRAMS, WITHOUT_CONTROL_PLANE = binaries.control_plane(
    os.environ, "etcd", "kube-apiserver", "kube-controller-manager"
)
KUBE_PROXY, WITHOUT_KUBE_PROXY = binaries.kube_proxy(os.environ)


@pytest.mark.netns
@pytest.mark.slow
@pytest.mark.skipif(bool(WITHOUT_CONTROL_PLANE), reason=WITHOUT_CONTROL_PLANE or "-")
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_checks_hold_on_a_real_control_plane(backend):
    with LabSite(PROGRAMS, backend) as site, proxy_running(site):
        assert {name: found for name, check in checks.CHECKS.items() if (found := check(site))} == {}
        assert site.rights_are_enough() == []


@pytest.mark.netns
@pytest.mark.slow
@pytest.mark.skipif(
    bool(WITHOUT_CONTROL_PLANE or WITHOUT_KUBE_PROXY), reason=WITHOUT_CONTROL_PLANE or WITHOUT_KUBE_PROXY or "-"
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_no_connection_notices_that_the_proxies_are_exchanged(backend):
    with LabSite(PROGRAMS, backend, KUBE_PROXY) as site:
        assert trial.swap(site) == []


def test_what_is_missing_is_named(tmp_path):
    assert "KUBEBUILDER_ASSETS is not set" in binaries.why_absent({})
    assert "no etcd, no kube-apiserver" in binaries.why_absent({"KUBEBUILDER_ASSETS": str(tmp_path)})
    assert "KUBE_PROXY is not set" in binaries.kube_proxy({})[1]
    assert "cannot be run" in binaries.kube_proxy({"KUBE_PROXY": str(tmp_path / "none")})[1]

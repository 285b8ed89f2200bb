"""Documents as kube-proxy, kubeadm and kind write them."""

import csv
import io

import pytest
from config_documents import recorded

from pykubeproxy.config.document import load_document
from pykubeproxy.config.flags import FLAGS, options_from_flags
from pykubeproxy.config.options import ConntrackOptions, IptablesOptions, Options
from pykubeproxy.config.write import to_configz, to_yaml


def test_the_defaults_are_written_as_kube_proxy_writes_them():
    assert to_yaml(Options()) == recorded("write-config-to.yaml")


def test_the_recorded_defaults_load_as_ours_and_silently():
    loaded = load_document(recorded("write-config-to.yaml"))
    assert loaded.notes == ()
    assert to_yaml(loaded.options) == recorded("write-config-to.yaml")


def test_configz_is_the_recorded_one_byte_for_byte():
    options = options_from_flags(
        {
            "kubeconfig": "/var/lib/kube-proxy/kubeconfig.conf",
            "v": "2",
            "hostname-override": "node-0",
            "healthz-bind-address": "127.0.0.1",
            "cluster-cidr": "10.244.0.0/16",
            "conntrack-max-per-core": "0",
            "conntrack-min": "0",
            "conntrack-tcp-timeout-established": "0",
            "conntrack-tcp-timeout-close-wait": "0",
        }
    )
    _, _, body = recorded("10249-configz.txt").partition("\n\n")
    assert to_configz(options) == body


def test_kubeadms_document_is_the_defaults_and_what_it_sets():
    loaded = load_document(recorded("kubeadm.yaml"))
    assert loaded.notes == ()
    options = loaded.options
    assert options.client.kubeconfig == "/var/lib/kube-proxy/kubeconfig.conf"
    assert (options.client.qps, options.client.burst) == (5.0, 10)
    assert options.cluster_cidrs == ("10.244.0.0/16",)
    assert options.iptables == IptablesOptions()
    assert options.conntrack == ConntrackOptions()
    assert (options.mode, options.detect_local_mode) == ("iptables", "ClusterCIDR")
    assert (options.healthz_bind_address, options.metrics_bind_address) == ("0.0.0.0:10256", "127.0.0.1:10249")
    assert options.config_sync_period == 900.0
    assert options.oom_score_adj == -999


def test_kinds_document_leaves_conntrack_alone():
    loaded = load_document(recorded("kind.yaml"))
    assert loaded.options.conntrack.max_per_core == 0
    assert loaded.options.conntrack.tcp_established_timeout is None
    assert loaded.options.conntrack.tcp_close_wait_timeout is None
    assert [(note.event, note.data["field"]) for note in loaded.notes] == [("unknown config field", "metadata")]


@pytest.mark.parametrize(
    "row", list(csv.DictReader(io.StringIO(recorded("flags.tsv")), delimiter="\t")), ids=lambda r: r["flag"]
)
def test_every_recorded_flag_has_its_type_and_default(row):
    flag = next(flag for flag in FLAGS if flag.name == row["flag"])
    assert (flag.kind.flag_type, flag.default) == (row["type"], row["default"] or "")

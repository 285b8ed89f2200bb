import json

import pytest
import yaml
from config_documents import load
from hypothesis import given
from hypothesis import strategies as st

from pykubeproxy.config.document import load_document
from pykubeproxy.config.options import Options
from pykubeproxy.config.write import to_configz, to_document, to_yaml, write_config
from pykubeproxy.errors import EnvironmentProblem

EVERYTHING = """
featureGates: {Foo: true}
clientConnection: {kubeconfig: /k, qps: 7.5, burst: 3, acceptContentTypes: a, contentType: b}
logging:
  {format: json, verbosity: 3, flushFrequency: 1s, vmodule: [{filePattern: a, verbosity: 2}],
   options: {text: {splitStream: true}}}
hostnameOverride: node
bindAddress: "fd00::1"
mode: iptables
iptables: {masqueradeBit: 0, masqueradeAll: true, localhostNodePorts: false, syncPeriod: 1m, minSyncPeriod: 1.5s}
ipvs: {scheduler: rr, excludeCIDRs: [10.0.0.0/8]}
nftables: {masqueradeBit: 3}
detectLocalMode: InterfaceNamePrefix
detectLocal: {interfaceNamePrefix: cali}
clusterCIDR: "10.0.0.0/8,fd00::/64"
nodePortAddresses: [primary]
oomScoreAdj: 0
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 2s, tcpBeLiberal: true, udpTimeout: 3s}
configSyncPeriod: 1h
portRange: 1-2
windowsRunAsService: true
pykubeproxy: {iptablesBackend: nft, manifests: [/a]}
"""


def test_what_is_written_loads_as_the_same():
    options = load(EVERYTHING)
    assert load_document(to_yaml(options)).options == options
    assert load_document(json.dumps(to_document(options))).options == options


def test_configz_is_the_document_in_json_under_its_group():
    options = load(EVERYTHING)
    assert json.loads(to_configz(options)) == {"kubeproxy.config.k8s.io": to_document(options)}


def test_our_block_is_written_only_where_it_differs():
    assert "pykubeproxy" not in to_document(Options())
    assert to_document(Options(status_page=True))["pykubeproxy"] == {"statusPage": True}


@given(st.text())
def test_any_text_survives_the_file(text):
    assert yaml.safe_load(to_yaml(Options(hostname_override=text)))["hostnameOverride"] == text


def test_the_file_is_written(tmp_path):
    path = tmp_path / "out.yaml"
    write_config(str(path), Options())
    assert load_document(path.read_text()).options.iptables == Options().iptables


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(EnvironmentProblem, match="cannot be written: No such file"):
        write_config(str(tmp_path / "no" / "out.yaml"), Options())

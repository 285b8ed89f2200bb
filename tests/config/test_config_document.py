"""What a document's fields mean: absent, null, zero, given twice, unknown, wrong."""

import json
from itertools import pairwise

import pytest
import yaml
from config_documents import HEAD, events, load, problems_of, with_field
from hypothesis import given
from hypothesis import strategies as st

from pykubeproxy.config.document import API_VERSION, KIND, load_document, read_document
from pykubeproxy.config.options import Options
from pykubeproxy.config.settings import SETTINGS
from pykubeproxy.errors import ConfigurationError


def test_an_empty_document_is_the_defaults():
    assert load("") == Options()


def test_json_is_a_document_too():
    text = {"apiVersion": API_VERSION, "kind": KIND, "iptables": {"syncPeriod": "1m"}}
    assert load_document(json.dumps(text)).options.iptables.sync_period == 60.0


@pytest.mark.parametrize(
    ("body", "path", "value"),
    [
        ("iptables: {masqueradeBit: 0}", "masquerade_bit", 0),
        ("iptables: {localhostNodePorts: false}", "localhost_nodeports", False),
    ],
)
def test_pointer_fields_of_iptables_keep_an_explicit_zero(body, path, value):
    assert getattr(load(body).iptables, path) == value


@pytest.mark.parametrize(
    ("field", "attribute", "value"),
    [
        ("maxPerCore: 0", "max_per_core", 0),
        ("min: 0", "min", 0),
        ("tcpEstablishedTimeout: 0s", "tcp_established_timeout", None),
        ("tcpCloseWaitTimeout: 0s", "tcp_close_wait_timeout", None),
    ],
)
def test_pointer_fields_of_conntrack_keep_an_explicit_zero(field, attribute, value):
    assert getattr(load(f"conntrack: {{{field}}}").conntrack, attribute) == value


def test_oom_score_keeps_an_explicit_zero():
    assert load("oomScoreAdj: 0").oom_score_adj == 0


@pytest.mark.parametrize(
    "body", ["iptables: {minSyncPeriod: 0s, syncPeriod: 0s}", "configSyncPeriod: 0s", 'bindAddress: ""', "mode: ''"]
)
def test_zero_of_other_fields_is_the_default(body):
    assert load(body) == Options()


def test_empty_server_addresses_are_the_defaults():
    assert load('healthzBindAddress: ""\nmetricsBindAddress: ""') == Options()


@pytest.mark.parametrize(
    "group", ["iptables", "conntrack", "clientConnection", "logging", "ipvs", "detectLocal", "pykubeproxy"]
)
def test_a_null_group_is_absent(group):
    assert load(f"{group}: null") == Options()


def test_an_ipv6_bind_address_moves_the_servers():
    options = load('bindAddress: "::"')
    assert (options.healthz_bind_address, options.metrics_bind_address) == ("[::]:10256", "[::1]:10249")


def test_an_ipv6_bind_address_leaves_given_addresses():
    options = load('bindAddress: "::"\nhealthzBindAddress: "1.2.3.4"\nmetricsBindAddress: "[fd00::1]:99"')
    assert (options.healthz_bind_address, options.metrics_bind_address) == ("1.2.3.4:10256", "[fd00::1]:99")


def test_unquoted_addresses_stay_text():
    assert load("bindAddress: ::0").bind_address == "::"


def test_an_unknown_field_is_told_and_the_rest_loads():
    body = "foo: bar\niptables: {masqueradeBit: 3, nosuch: 1}\nmasqueradebit: 4"
    assert load(body).iptables.masquerade_bit == 3
    assert [data["field"] for event, data in events(body) if event == "unknown config field"] == [
        "foo",
        "iptables.nosuch",
        "masqueradebit",
    ]


def test_a_field_given_twice_is_told_and_the_last_one_counts():
    body = "bindAddress: 1.1.1.1\niptables: {masqueradeBit: 1, masqueradeBit: 2}\nbindAddress: 2.2.2.2"
    assert load(body).bind_address == "2.2.2.2"
    assert load(body).iptables.masquerade_bit == 2
    event = "config field given twice, the last one counts"
    assert events(body) == [
        (event, {"field": "iptables.masqueradeBit", "line": 4}),
        (event, {"field": "bindAddress", "line": 5}),
    ]


@pytest.mark.parametrize(
    ("body", "meant"),
    [
        ("bindAdress: 1.2.3.4", "bindAddress"),
        ("iptables: {syncperiod: 3s}", "iptables.syncPeriod"),
        ("masqueradeAll: true", "iptables.masqueradeAll"),
        ("conntrack: {mode: iptables}", "mode"),
        ("iptable: {masqueradeBit: 3}", "iptables"),
        ("metadata: {name: kube-proxy}", None),
    ],
)
def test_of_an_unknown_field_the_one_that_may_be_meant_is_named(body, meant):
    assert [data.get("did_you_mean") for _, data in events(body)] == [meant]


def test_unknown_and_double_fields_are_told_with_the_errors():
    body = "oomScoreAdj: 5000\nmode: iptables\nmode: iptables\nbindAdress: 1.2.3.4"
    with pytest.raises(ConfigurationError) as caught:
        load(body)
    assert caught.value.problems == [
        "oomScoreAdj: 5000 must be from -1000 to 1000",
        "mode: config field given twice, the last one counts (line 5)",
        'bindAdress: unknown config field (value "1.2.3.4", did you mean bindAddress)',
    ]


def test_a_negative_rate_is_no_error_as_for_kube_proxy():
    assert load("clientConnection: {qps: -3}").client.qps == -3


def test_anchors_and_merges_are_read():
    assert load("nftables: &n {syncPeriod: 1m}\niptables: {<<: *n, masqueradeBit: 7}").iptables.sync_period == 60.0


def test_only_the_first_yaml_document_counts():
    text = f"{HEAD}oomScoreAdj: 5\n---\n{HEAD}oomScoreAdj: 6\n"
    loaded = load_document(text)
    assert loaded.options.oom_score_adj == 5
    assert [note.event for note in loaded.notes] == ["only the first document of the configuration file counts"]


def test_all_errors_come_at_once_each_with_field_and_value():
    text = HEAD + (
        "iptables: {masqueradeBit: 32, syncPeriod: 5x, minSyncPeriod: -1s}\n"
        "conntrack: {maxPerCore: -1, tcpEstablishedTimeout: -5s}\n"
        "oomScoreAdj: 1001\nmode: tables\nbindAddress: host\nhealthzBindAddress: localhost:80\n"
        "clusterCIDR: 10.0.0.0/8,10.1.0.0/16\nnodePortAddresses: [primary, 10.0.0.0/8]\n"
        "clientConnection: 7\nconfigSyncPeriod: -1s\nlogging: {format: xml}\n"
        "pykubeproxy: {iptablesBackend: bpf}\n"
    )
    found = dict(problem.split(": ", 1) for problem in problems_of(text))
    assert found == {
        "iptables.masqueradeBit": "32 must be from 0 to 31",
        "iptables.syncPeriod": '"5x" must be a duration with its unit, like "30s" or "1h15m"',
        "iptables.minSyncPeriod": '"-1s" must be 0 or more',
        "conntrack.maxPerCore": "-1 must be 0 or more",
        "conntrack.tcpEstablishedTimeout": '"-5s" must not be negative',
        "oomScoreAdj": "1001 must be from -1000 to 1000",
        "mode": '"tables" must be one of iptables, ipvs, nftables',
        "bindAddress": '"host" must be an IP address',
        "healthzBindAddress": '"localhost:80" must be an IP address and a port, '
        'like "127.0.0.1:10249" or "[::1]:10249"',
        "clusterCIDR": '"10.0.0.0/8,10.1.0.0/16" must hold at most one CIDR of each IP family',
        "nodePortAddresses": '["primary", "10.0.0.0/8"] must not hold both "primary" and CIDRs',
        "clientConnection": "7 must be a mapping, not a number",
        "configSyncPeriod": '"-1s" must be greater than 0',
        "logging.format": '"xml" must be one of text, json',
        "pykubeproxy.iptablesBackend": '"bpf" must be one of auto, legacy, nft',
    }


def refused_value(setting):
    for value in (7, "x", -1, 40, "-1s", {}, [7]):
        if problems_of(with_field(setting.document, value)):
            return value
    raise AssertionError(setting.document)


FAULTY = {setting.document: refused_value(setting) for setting in SETTINGS if setting.document}


@given(st.sets(st.sampled_from(sorted(FAULTY)), min_size=2))
def test_no_fault_hides_another(fields):
    tree = {}
    for field in fields:
        *groups, name = field.split(".")
        inner = tree
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[name] = FAULTY[field]
    assert sorted(problem.partition(":")[0] for problem in problems_of(HEAD + yaml.safe_dump(tree))) == sorted(fields)


def test_a_cluster_cidr_is_judged_where_the_mode_is_none_as_well():
    found = problems_of(HEAD + "clusterCIDR: nonsense\ndetectLocalMode: Nonsense")
    assert [problem.partition(":")[0] for problem in found] == ["clusterCIDR", "detectLocalMode"]


def test_a_wrong_version_hides_no_other_fault():
    found = problems_of("apiVersion: v1\nkind: KubeProxyConfiguration\noomScoreAdj: 1001")
    assert [problem.partition(":")[0] for problem in found] == ["apiVersion", "oomScoreAdj"]


def test_of_a_file_of_several_kinds_it_is_said_which_document_is_meant():
    other = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\noomScoreAdj: x\n"
    assert problems_of(f"{other}---\n{other}---\n{HEAD}") == [
        'apiVersion: "kubeadm.k8s.io/v1beta4" must be kubeproxy.config.k8s.io/v1alpha1',
        'kind: "ClusterConfiguration" must be KubeProxyConfiguration',
        "document 3 of the file is a KubeProxyConfiguration, but only the first counts: give that one alone",
    ]
    assert len(problems_of(other)) == len(problems_of(f"{other}---\n[\n")) == 2


@pytest.mark.parametrize("name", ["node 0", "node_0", "-node", "node.", "n" * 254, "nöde", "a..b", "  "])
def test_a_host_name_that_no_node_can_have_is_refused(name):
    (problem,) = problems_of(with_field("hostnameOverride", name))
    assert problem.startswith("hostnameOverride: ")


@pytest.mark.parametrize("name", [" Node-0.example ", "10.0.0.1", "n" * 253, ""])
def test_a_host_name_is_judged_trimmed_and_in_lower_case(name):
    assert problems_of(with_field("hostnameOverride", name)) == []


def test_the_minimal_period_is_at_most_the_sync_period():
    assert problems_of(HEAD + "iptables: {syncPeriod: 10s, minSyncPeriod: 11s}") == [
        'iptables.minSyncPeriod: "11s" must not be longer than the sync period (10s)'
    ]


@pytest.mark.parametrize(
    ("mode", "field"), [("BridgeInterface", "bridgeInterface"), ("InterfaceNamePrefix", "interfaceNamePrefix")]
)
@pytest.mark.parametrize("value", ["", "sixteen-letters-", "a b", "a/b"])
def test_a_mode_needs_its_interface(mode, field, value):
    (problem,) = problems_of(f'{HEAD}detectLocalMode: {mode}\ndetectLocal: {{{field}: "{value}"}}')
    assert problem.startswith(f'detectLocal.{field}: "{value}" must ')


def test_interface_names_of_other_modes_are_not_judged():
    assert load('detectLocal: {bridgeInterface: "a name that is much too long"}').detect_local_mode == "ClusterCIDR"


def test_a_cluster_cidr_is_judged_only_where_it_is_used():
    body = "detectLocalMode: NodeCIDR\nclusterCIDR: nonsense"
    assert load(body).cluster_cidrs == ()
    assert events(body)[0][0] == "config field ignored in this detectLocalMode"


@pytest.mark.parametrize("mode", ["ipvs", "nftables"])
def test_another_proxy_mode_is_read_as_iptables_and_told(mode):
    assert load(f"mode: {mode}").mode == "iptables"
    assert events(f"mode: {mode}") == [("proxy mode not supported, using iptables", {"mode": mode})]


def test_nftables_mode_keeps_node_ports_on_the_primary_addresses():
    assert load("mode: nftables").nodeport_addresses == ("primary",)
    assert load("mode: nftables\nnodePortAddresses: [10.0.0.0/8]").nodeport_addresses == ("10.0.0.0/8",)


def test_what_only_other_modes_use_is_told_in_one_line():
    body = "ipvs: {scheduler: rr, syncPeriod: 0s}\nwinkernel: {enableDSR: true}\nfeatureGates: {Foo: true}"
    assert events(body) == [
        (
            "config fields without effect here",
            {"fields": {"ipvs.scheduler": "rr", "winkernel.enableDSR": True}},
        )
    ]


def test_our_own_block():
    options = load(
        "pykubeproxy: {iptablesBackend: nft, serviceDispatch: tree, strictSourceRanges: true, connectionMetrics: true,"
        " connectionMetricsPeriod: 30s, statusPage: true, assumeNfacct: true, manifests: [/a, /b]}"
    )
    assert (options.iptables_backend, options.service_dispatch, options.manifests) == ("nft", "tree", ("/a", "/b"))
    assert options.strict_source_ranges
    assert options.connection_metrics
    assert options.connection_metrics_period == 30
    assert options.status_page
    assert options.assume_nfacct


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "a KubeProxyConfiguration document must be a mapping, not null"),
        ("- 1", "a KubeProxyConfiguration document must be a mapping, not a list"),
        ("Twas bryllyg, and ye slythy toves", "a KubeProxyConfiguration document must be a mapping, not a string"),
        ("kind: KubeProxyConfiguration", "apiVersion: null must be kubeproxy.config.k8s.io/v1alpha1"),
        (
            "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeSchedulerConfiguration",
            'kind: "KubeSchedulerConfiguration" must be KubeProxyConfiguration',
        ),
        ("a: b: c", "line 1: not valid YAML: mapping values are not allowed here"),
        ("? [a]\n: b", "document: line 1: a key must be a string"),
        ("a: &a [*a]", "a[0]: line 1: an alias refers to itself"),
        ("a: !!python/object/apply:os.system [x]", "apiVersion: null must be kubeproxy.config.k8s.io/v1alpha1"),
        ("a: !!python/name:os.system ''", "a: line 1: '' cannot be read"),
        (
            "a: \x00",
            (
                "not valid YAML: unacceptable character #x0000: special characters are not allowed "
                'in "<unicode string>", position 3'
            ),
        ),
        (
            "a: &a [x, x, x, x, x, x, x, x]\n"
            + "".join(
                f"{new}: &{new} [{', '.join(f'*{old}' for _ in range(9))}]\n" for old, new in pairwise("abcdefghi")
            ),
            "f[0][4][8][1][4][4]: line 1: the document grows too large through its aliases",
        ),
        ("[" * 5000, "not valid YAML: nested too deeply"),
    ],
)
def test_what_is_no_document_is_refused_in_one_line(text, problem):
    found = problems_of(text)
    assert "\n" not in "".join(found)
    assert found[0] == problem


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    missing = tmp_path / "config.conf"
    with pytest.raises(ConfigurationError, match=f"^{missing}: cannot be read: No such file"):
        read_document(str(missing))


def test_a_folder_is_no_document(tmp_path):
    with pytest.raises(ConfigurationError, match="Is a directory"):
        read_document(str(tmp_path))


def test_a_file_that_is_no_text_is_named(tmp_path):
    path = tmp_path / "config.conf"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="is not UTF-8 text"):
        read_document(str(path))


def test_problems_of_a_file_are_headed_by_its_path(tmp_path):
    path = tmp_path / "config.conf"
    path.write_text(HEAD + "oomScoreAdj: 5000\nmode: x\n")
    with pytest.raises(ConfigurationError) as caught:
        read_document(str(path))
    assert [problem.partition(": ")[0] for problem in caught.value.problems] == [str(path)] * 2

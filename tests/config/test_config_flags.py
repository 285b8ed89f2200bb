"""The command line: how arguments are read, what they set, what wins over what."""

import click
import pytest
from click.testing import CliRunner
from config_documents import HEAD, recorded

from pykubeproxy.config.flags import (
    FLAGS,
    FlagGroup,
    flag_options,
    flag_texts,
    invocation_from_flags,
    options_from_flags,
    parse_arguments,
    resolve,
)
from pykubeproxy.config.options import Options
from pykubeproxy.config.settings import BY_FLAG
from pykubeproxy.errors import ConfigurationError, UsageError


@pytest.fixture
def document(tmp_path):
    def write(body: str) -> str:
        path = tmp_path / "config.conf"
        path.write_text(HEAD + body)
        return str(path)

    return write


def parsed(*arguments: str) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for name, text in parse_arguments(arguments)[0]:
        values.setdefault(name, []).append(text)
    return values


@pytest.mark.parametrize(
    ("arguments", "flags"),
    [
        (["--cluster-cidr=10.0.0.0/8"], {"cluster-cidr": ["10.0.0.0/8"]}),
        (["--cluster-cidr", "10.0.0.0/8"], {"cluster-cidr": ["10.0.0.0/8"]}),
        (["--cluster_cidr=10.0.0.0/8"], {"cluster-cidr": ["10.0.0.0/8"]}),
        (["--cleanup"], {"cleanup": ["true"]}),
        (["--cleanup=false"], {"cleanup": ["false"]}),
        (["--v=2"], {"v": ["2"]}),
        (["-v", "2"], {"v": ["2"]}),
        (["-v=2"], {"v": ["2"]}),
        (["-v2"], {"v": ["2"]}),
        (["--v", "2"], {"v": ["2"]}),
        (["--oom-score-adj", "-5"], {"oom-score-adj": ["-5"]}),
        (["--metrics-bind-address="], {"metrics-bind-address": [""]}),
        (["--manifests", "/a", "--manifests=/b"], {"manifests": ["/a", "/b"]}),
        (["-h"], {"help": ["true"]}),
        ([], {}),
    ],
)
def test_arguments_are_read_as_pflag_reads_them(arguments, flags):
    assert parsed(*arguments) == flags


def test_flags_end_at_the_first_argument_that_is_none():
    assert parse_arguments(["--dry-run", "trace", "--nosuch"]) == ([("dry-run", "true")], ["trace", "--nosuch"])


def test_a_bare_boolean_does_not_take_the_next_argument():
    assert parse_arguments(["--masquerade-all", "false"]) == ([("masquerade-all", "true")], ["false"])


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--nosuch", "unknown flag: --nosuch; see --help"),
        ("--cluster-cidrs=1", "unknown flag: --cluster-cidrs; did you mean --cluster-cidr? see --help"),
        ("-x", "unknown flag: -x; see --help"),
        ("-proxy-mode=iptables", "unknown flag: -proxy-mode; did you mean --proxy-mode? see --help"),
        ("--config", "flag needs an argument: --config; see --help"),
    ],
)
def test_what_is_no_flag_is_refused_with_a_hint(argument, message):
    with pytest.raises(UsageError) as caught:
        parse_arguments([argument])
    assert str(caught.value) == message
    assert caught.value.exit_status == 2


def test_no_flag_is_the_defaults():
    assert options_from_flags({}) == Options()


def test_not_given_is_not_set():
    assert options_from_flags({flag.name.replace("-", "_"): () for flag in FLAGS}) == Options()


@pytest.mark.parametrize(
    ("flag", "text", "value"),
    [
        ("iptables-masquerade-bit", "0x10", 16),
        ("iptables-masquerade-bit", "0", 0),
        ("masquerade-all", "T", True),
        ("iptables-localhost-nodeports", "false", False),
        ("iptables-sync-period", "1m30s", 90.0),
        ("iptables-min-sync-period", "0", 0.0),
        ("iptables-min-sync-period", "0s", 0.0),
        ("conntrack-tcp-timeout-established", "0", None),
        ("conntrack-tcp-timeout-close-wait", "10s", 10.0),
        ("conntrack-max-per-core", "0", 0),
        ("cluster-cidr", "10.0.0.0/14,2002:0:0:1234::/64", ("10.0.0.0/14", "2002:0:0:1234::/64")),
        ("nodeport-addresses", "10.0.0.0/8,fd00::/64", ("10.0.0.0/8", "fd00::/64")),
        ("nodeport-addresses", "primary", ("primary",)),
        ("feature-gates", "A=true,B=false", {"A": True, "B": False}),
        ("kube-api-qps", "7.5", 7.5),
        ("oom-score-adj", "-1000", -1000),
        ("proxy-mode", "", "iptables"),
        ("detect-local-mode", "NodeCIDR", "NodeCIDR"),
        ("bind-address", "::", "::"),
        ("healthz-bind-address", "127.0.0.1", "127.0.0.1:10256"),
        ("metrics-bind-address", "", ""),
        ("v", "4", 4),
        ("vmodule", "goo.go=8,foo=1", (("goo.go", 8), ("foo", 1))),
        ("hostname-override", "  Bar ", "bar"),
        ("manifests", "/a,b", ("/a,b",)),
        ("service-dispatch", "tree", "tree"),
        ("ipvs-scheduler", "rr", "rr"),
    ],
)
def test_a_flag_sets_its_option(flag, text, value):
    setting = BY_FLAG[flag]
    head, _, key = setting.option.partition("/")
    found: object = options_from_flags({flag: text})
    for name in head.split("."):
        found = getattr(found, name)
    assert (found[key] if key else found) == value


@pytest.mark.parametrize(
    ("flag", "texts", "value"),
    [
        ("v", ("1", "2"), 2),
        ("manifests", ("/a", "/b"), ("/a", "/b")),
        ("nodeport-addresses", ("10.0.0.0/8", "fd00::/64,11.0.0.0/8"), ("10.0.0.0/8", "fd00::/64", "11.0.0.0/8")),
        ("feature-gates", ("A=true", "A=false,B=true"), {"A": False, "B": True}),
    ],
)
def test_a_flag_given_again_replaces_or_adds(flag, texts, value):
    path = {"v": "verbosity"}.get(flag, flag.replace("-", "_"))
    options = options_from_flags({flag: texts})
    assert getattr(options.logging if flag == "v" else options, path) == value


def test_all_bad_flags_are_told_in_one_message():
    with pytest.raises(UsageError) as caught:
        options_from_flags(
            {"iptables-masquerade-bit": "32", "cluster-cidr": "x", "profiling": "maybe", "ip-family": "ipv5", "v": "-1"}
        )
    assert sorted(str(caught.value).split("; ")) == [
        '--cluster-cidr: "x" must be a CIDR, like "10.244.0.0/16" or "fd00:10:244::/56"',
        '--ip-family: "ipv5" must be ipv4 or ipv6',
        "--iptables-masquerade-bit: 32 must be from 0 to 31",
        '--profiling: "maybe" must be true or false',
        '--v: "-1" must be a whole number, 0 or more',
    ]


def test_an_empty_path_of_manifests_is_refused():
    for paths in ([""], ["/a", ""]):
        with pytest.raises(UsageError, match=r"--manifests: .* must not hold an empty path"):
            options_from_flags({"manifests": paths})


def test_a_master_that_is_no_url_is_told_with_the_others():
    with pytest.raises(UsageError) as caught:
        options_from_flags({"master": "foo bar", "oom-score-adj": "1001"})
    assert str(caught.value).split("; ") == [
        "--oom-score-adj: 1001 must be from -1000 to 1000",
        '--master: "foo bar" must be a URL such as https://10.0.0.1:6443',
    ]
    assert options_from_flags({"master": "foo"}).client.master == "foo"


def test_a_bad_cluster_cidr_does_not_hide_behind_a_bad_mode():
    with pytest.raises(UsageError, match=r"--cluster-cidr: .*; --detect-local-mode: "):
        options_from_flags({"cluster-cidr": "x", "detect-local-mode": "y"})


def test_bad_flags_are_told_with_what_is_wrong_in_the_document(document):
    with pytest.raises(ConfigurationError) as caught:
        options_from_flags({"config": document("oomScoreAdj: 1001"), "v": "x", "hostname-override": "a b"})
    assert [problem.split(": ")[-2] for problem in caught.value.problems] == [
        "oomScoreAdj",
        "--v",
        "--hostname-override",
    ]


@pytest.mark.parametrize(
    "flags",
    [
        {"iptables-sync-period": "0"},
        {"iptables-sync-period": "1s", "iptables-min-sync-period": "2s"},
        {"hostname-override": "   "},
        {"config-sync-period": "0s"},
        {"oom-score-adj": "1001"},
        {"detect-local-mode": "BridgeInterface"},
        {"nodeport-addresses": ("primary", "10.0.0.0/8")},
        {"nosuch": "1"},
    ],
)
def test_flags_are_validated_as_the_document_is(flags):
    with pytest.raises(UsageError):
        options_from_flags(flags)


def test_with_a_document_other_flags_are_ignored_and_told(document):
    path = document("iptables: {masqueradeBit: 3}")
    invocation, notes = resolve({"config": path, "iptables-masquerade-bit": "5", "metrics-port": "0", "cleanup": True})
    assert invocation.options.iptables.masquerade_bit == 3
    assert invocation.options.metrics_bind_address == "127.0.0.1:10249"
    assert invocation.cleanup
    assert [(note.event, note.data) for note in notes] == [
        ("flags ignored because of --config", {"flags": ["iptables-masquerade-bit", "metrics-port"]})
    ]


def test_a_flag_that_is_ignored_may_hold_anything(document):
    assert options_from_flags({"config": document(""), "cluster-cidr": "nonsense"}).cluster_cidrs == ()


def test_logging_flags_and_the_host_name_win_over_the_document(document):
    path = document(
        "hostnameOverride: foo\nlogging: {format: json, verbosity: 10, vmodule: [{filePattern: a, verbosity: 1}]}"
    )
    options = options_from_flags({"config": path, "v": "7", "hostname-override": "BAR", "vmodule": "b=2"})
    assert options.hostname_override == "bar"
    assert (options.logging.verbosity, options.logging.format) == (7, "json")
    assert options.logging.vmodule == (("b", 2), ("a", 1))


def test_our_own_flags_win_over_the_document(document):
    path = document("pykubeproxy: {iptablesBackend: nft, serviceDispatch: tree, statusPage: true, manifests: [/a]}")
    options = options_from_flags(
        {
            "config": path,
            "iptables-backend": "legacy",
            "status-page": "false",
            "connection-metrics": "true",
            "strict-source-ranges": True,
            "assume-nfacct": True,
            "manifests": ("/b",),
        }
    )
    assert (options.iptables_backend, options.service_dispatch) == ("legacy", "tree")
    assert not options.status_page
    assert options.connection_metrics
    assert options.strict_source_ranges
    assert options.assume_nfacct
    assert options.manifests == ("/b",)


def test_a_faulty_document_is_a_configuration_error(document):
    with pytest.raises(ConfigurationError, match="oomScoreAdj: 4000 must be from -1000 to 1000"):
        options_from_flags({"config": document("oomScoreAdj: 4000")})


def test_the_digest_of_the_document_comes_along(document):
    first = invocation_from_flags({"config": document("oomScoreAdj: 1")}).config_digest
    assert first
    assert first != invocation_from_flags({"config": document("oomScoreAdj: 2")}).config_digest


@pytest.mark.parametrize(
    ("flags", "address"),
    [
        ({"metrics-port": "0"}, ""),
        ({"metrics-port": "23456"}, "127.0.0.1:10249"),
        ({"metrics-port": "23456", "metrics-bind-address": "2.3.4.5"}, "2.3.4.5:23456"),
        ({"metrics-port": "23456", "metrics-bind-address": "2.3.4.5:99"}, "2.3.4.5:99"),
        ({"metrics-port": "23456", "metrics-bind-address": "fd00:1::6"}, "[fd00:1::6]:23456"),
        ({"metrics-port": "0", "metrics-bind-address": "2.3.4.5:99"}, ""),
    ],
)
def test_deprecated_ports_do_what_they_do_in_kube_proxy(flags, address):
    assert options_from_flags(flags).metrics_bind_address == address


def test_a_deprecated_port_that_is_none_is_refused():
    with pytest.raises(UsageError, match="--healthz-port: 70000"):
        options_from_flags({"healthz-port": "70000", "healthz-bind-address": "1.2.3.4"})


def test_what_to_do_is_apart_from_options():
    invocation = invocation_from_flags(
        {"dry_run": True, "ip_family": ("ipv6",), "write-config-to": "/x", "init-only": "1"}
    )
    assert (invocation.dry_run, invocation.ip_family, invocation.write_config_to) == (True, "ipv6", "/x")
    assert invocation.init_only
    assert not invocation.cleanup
    assert invocation_from_flags({"version": "raw"}).version


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.name)
@pytest.mark.parametrize("text", ["", "0", "0s", "x", "-1", "1,2", '"', "a=b", "9" * 30, "\n"])
def test_any_text_of_any_flag_is_read_or_refused_by_name(flag, text):
    try:
        options_from_flags({flag.name: text})
    except (UsageError, ConfigurationError) as error:
        message = str(error)
    else:
        message = ""
    assert not message or flag.name in message or (flag.name == "config" and "cannot be read" in message)
    assert "\n" not in message or flag.name == "config"  # that one quotes the path as it is


def test_flagz_shows_what_the_recorded_one_shows():
    shown = flag_texts(
        {
            "bind-address": "0.0.0.0",
            "cluster-cidr": "10.244.0.0/16",
            "conntrack-max-per-core": "0",
            "conntrack-min": "0",
            "conntrack-tcp-timeout-close-wait": "0",
            "conntrack-tcp-timeout-established": "0",
            "healthz-bind-address": "127.0.0.1:10256",
            "hostname-override": "node-0",
            "kubeconfig": "…",
            "v": "2",
        }
    )
    lines = recorded("10249-flagz.txt").splitlines()
    recorded_flags = dict(line.split("=", 1) for line in lines if line[:1].islower() and "=" in line)
    assert len(recorded_flags) > 50
    assert {name: shown[name] for name in recorded_flags} == recorded_flags


@pytest.mark.parametrize(
    ("flag", "texts", "shown"),
    [
        ("nodeport-addresses", ("10.0.0.0/8", "fd00::/64"), "[10.0.0.0/8,fd00::/64]"),
        ("feature-gates", "B=false,A=true", "A=true,B=false"),
        ("vmodule", "a=1,b=2", "a=1,b=2"),
        ("cleanup", True, "true"),
        ("iptables-sync-period", "90s", "1m30s"),
        ("manifests", "/a", "[/a]"),
    ],
)
def test_flagz_shows_given_flags(flag, texts, shown):
    assert flag_texts({flag: texts})[flag] == shown


@click.group(cls=FlagGroup, invoke_without_command=True)
@flag_options
@click.pass_context
def command(ctx, **values):
    if ctx.invoked_subcommand is None:
        click.echo(repr(options_from_flags(values).logging.verbosity))


@command.command()
def sub():
    click.echo("sub")


def test_click_gets_the_flags():
    assert CliRunner().invoke(command, ["-v", "3"]).output == "3\n"


def test_click_gets_the_subcommand():
    assert CliRunner().invoke(command, ["--masquerade-all", "sub"]).output == "sub\n"


def test_help_names_every_flag_that_is_not_deprecated():
    output = CliRunner().invoke(command, ["--help"]).output
    for flag in FLAGS:
        assert (f"--{flag.name} " in output) != (flag.is_hidden and flag.name != "help"), flag.name


def test_an_unknown_flag_reaches_the_caller_as_usage_error():
    assert isinstance(CliRunner().invoke(command, ["--nosuch"]).exception, UsageError)


def test_what_is_odd_in_a_document_is_told_with_faulty_flags(document):
    with pytest.raises(UsageError) as caught:
        resolve({"config": document("bindAdress: 1.2.3.4"), "hostname-override": "A B"})
    assert "--hostname-override: " in str(caught.value)
    assert 'bindAdress: unknown config field (value "1.2.3.4", did you mean bindAddress)' in str(caught.value)

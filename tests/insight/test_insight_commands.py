"""The subcommands' arguments: flags as the daemon takes them, one clear line for what is wrong, exit statuses."""

import io
import json
import os
import sys
import threading

import pytest
from insight_demo import ALL, FLAGS, gather, run, run_as_given

from pykubeproxy import commands
from pykubeproxy.sync.desired import TREE_PORTALS


@pytest.fixture
def demo(tmp_path):
    return gather(tmp_path / "manifests", *ALL)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("trace",), "Missing option '--to'."),
        (
            ("trace", "--to", "10.0.0.1"),
            "--to: '10.0.0.1' is neither IP:PORT (IPv6: [IP]:PORT) nor [NAMESPACE/]SERVICE",
        ),
        (("trace", "--to", "10.0.0.1:99999"), "--to: '10.0.0.1:99999': a port is a number from 1 to 65535"),
        (("trace", "--to", "10.0.0.1:80/icmp"), "is neither IP:PORT"),
        (("trace", "--to", "a/b/c:80"), "--to: 'a/b/c:80' is neither IP:PORT (IPv6: [IP]:PORT) nor [NAMES"),
        (("trace", "--to", "10.0.0.1:http"), "is neither IP:PORT"),
        (("trace", "--to", "[fd00::1]"), "is neither IP:PORT"),
        (("trace", "--to", ""), "is neither IP:PORT"),
        (("trace", "--to", "::1:80"), "--to: an IPv6 address stands in brackets before its port: [::1]:80"),
        (("trace", "--to", "fd00::1"), "--to: an IPv6 address stands in brackets before its port: [fd00::1]:80"),
        (("trace", "--to", "10.96.1.300:80"), "--to: '10.96.1.300' is not an IP address"),
        (("trace", "--to", "[fd00::zz]:80"), "--to: 'fd00::zz' is not an IP address"),
        (("trace", "--to", "::ffff:10.0.0.1"), "--to: '::ffff:10.0.0.1' is an IPv4-mapped IPv6 address"),
        (("trace", "--to", "fd00::1:http"), "stands in brackets before its port: [fd00::1]:80"),
        (("trace", "--to", "10.96.0.0/12:80"), "--to: '10.96.0.0/12:80' is neither IP:PORT"),
        (("trace", "--to", f"shop:{'1' * 5000}"), "…': a port is a number from 1 to 65535"),
        (("trace", "--to", "shop:"), "--to: 'shop:' is neither IP:PORT"),
        (("trace", "--to", "Käse\n:80"), "--to: 'Käse\\n:80' is neither IP:PORT"),
        (
            ("trace", "--to", "kube-system/kube-dns"),
            "has several ports: dns 53/UDP, dns-tcp 53/TCP; say which, such as kube-system/kube-dns:dns",
        ),
        (
            ("trace", "--to", "10.0.0.1:80", "--from", "mars"),
            "--from: 'mars' is neither an IP address nor node nor outside",
        ),
        (("trace", "--to", "10.0.0.1:80", "--from", "fd00::1"), "are of two IP families"),
        (("trace", "--to", "10.0.0.1:80", "-o", "xml"), "'xml' is not one of"),
        (("trace", "--to", "10.0.0.1:80", "--cleanup"), "--cleanup and trace exclude each other"),
        (("trace", "--to", "10.0.0.1:80", "--version"), "--version and trace exclude each other"),
        (
            ("trace", "--to", "10.0.0.1:80", "--ip-family", "ipv6"),
            "--to: 10.0.0.1 is no IPv6 address, which --ip-family",
        ),
        (
            ("trace", "--to", "shop", "--from", "node", "--in-interface", "eth0"),
            "--in-interface: what this node sends comes in by no interface",
        ),
        (("trace", "--to", "10.0.0.1:80", "--no-such-flag"), "No such option"),
        (("explain",), "Missing argument '[NAMESPACE/]SERVICE[:PORT]|IP[:PORT]'."),
        (("explain", "a/b/c"), "explain: 'a/b/c' is neither IP[:PORT] (IPv6: [IP]:PORT) nor [NAMESPACE/]SERVICE"),
        (("explain", "10.96.1.300"), "explain: '10.96.1.300' is not an IP address"),
        (("explain", "10.96.0.0/12"), "explain: '10.96.0.0/12' is neither IP[:PORT]"),
        (("explain", "::ffff:10.0.0.1"), "explain: '::ffff:10.0.0.1' is an IPv4-mapped IPv6 address"),
        (("explain", "shop:99999"), "explain: 'shop:99999': a port is a number from 1 to 65535"),
        (("explain", "fd00::1", "--ip-family", "ipv4"), "explain: fd00::1 is no IPv4 address, which --ip-family asks"),
        (
            ("explain", "192.168.77.1"),
            "is an address of this node; say which node port, such as explain 192.168.77.1:3",
        ),
        (("explain", "shop", "--graph", "dot", "-o", "json"), "--graph and -o json exclude each other"),
        (("diff", "a", "b"), "--manifests and OLD NEW exclude each other: neither kernel nor cluster is looked at"),
        (("explain", "shop", "--graph", "svg"), "'svg' is not one of"),
        (("explain", "shop", "--masquerade-all=maybe"), '--masquerade-all: "maybe" must be true or false'),
    ],
)
def test_bad_usage_exits_2_with_one_line(demo, arguments, message):
    done = run(*arguments, manifests=demo)
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr.splitlines()[0]
    hint = done.stderr.splitlines()[1:]
    assert hint in ([], [f"See 'pykubeproxy {arguments[0]} --help' for usage."])


def test_flags_may_stand_before_and_behind_the_command_and_in_the_daemons_spelling(demo, monkeypatch):
    expected = run("explain", "--no-live", "shop", manifests=demo)
    before = run("--ip_family=ipv4", "-v2", "explain", "shop", "--no-live", "--masquerade_all=false", manifests=demo)
    assert before == expected
    bare = run("explain", "shop", "--no-live", "--masquerade-all", manifests=demo)
    assert "masquerades every sender" in bare.stdout.partition("port 30080")[0]


def test_a_configuration_file_is_read(demo, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nclusterCIDR: 10.1.0.0/16\n"
        "hostnameOverride: node-b\n"
    )
    done = run("explain", "--no-live", "nginx-svc", "--config", str(config), manifests=demo)
    assert "masquerades senders outside 10.1.0.0/16" in done.stdout


def test_an_unknown_node_is_noted(demo, monkeypatch):
    monkeypatch.setattr("insight_demo.FLAGS", (*FLAGS[:3], "node-z"))
    done = run("explain", "--no-live", "nginx-svc", manifests=demo)
    assert "note: no Node is called node-z; --hostname-override says which one this" in done.stdout


def test_help_shows_the_commands_own_flags_and_few_of_the_daemons(demo):
    done = run("trace", "--help", manifests=demo)
    assert done.returncode == 0
    shown = {word for word in done.stdout.split() if word.startswith("--")}
    assert {"--from", "--to", "--live", "--manifests", "--cluster-cidr"} <= shown
    assert "--healthz-bind-address" not in shown


def test_the_commands_stand_in_the_programs_help(demo):
    done = run("--help", manifests=demo)
    for line in (
        "explain  Show what a Service is",
        "trace    Show the way of one packet",
        "diff     Show how the kernel's",
    ):
        assert line in done.stdout


def test_json_can_be_read_by_programs(demo):
    (one,) = json.loads(run("explain", "--no-live", "shop", "-o", "json", manifests=demo).stdout)
    assert [share["target"] for share in one["ports"][0]["spreads"][0]["endpoints"]] == [
        "10.244.2.13:80",
        "10.244.2.14:80",
        "10.244.9.9:80",
    ]
    trace = json.loads(run("trace", "--to", "shop:80", "-o", "json", manifests=demo).stdout)
    assert sum(one["probability"] for one in trace["outcomes"]) == pytest.approx(1)
    assert {one["service"] for one in trace["outcomes"]} == {"default/shop"}


@pytest.mark.parametrize(
    ("sides", "message"),
    [
        (("one",), "diff takes no file (the kernel is compared) or two"),
        (("one", "two"), "one: no such file or folder"),
        (("", "two"), "'': no such file or folder"),
        (("/proc/self/mem", "/dev/null"), "/proc/self/mem: Input/output error"),
        (("-", "-"), "diff: standard input cannot be both OLD and NEW"),
    ],
)
def test_diff_exits_2_when_it_cannot_tell(demo, sides, message):
    done = run_as_given("diff", *sides)
    hint = "See 'pykubeproxy diff --help' for usage.\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"pykubeproxy: {message}\n{hint}")


def test_bad_usage_of_the_daemon_points_at_its_own_help(demo):
    assert run("--no-such-flag", manifests=demo).stderr.endswith("See 'pykubeproxy --help' for usage.\n")


@pytest.mark.parametrize(
    ("target", "packet"),
    [
        ("shop", "TCP 203.0.113.1 (from outside) → 10.101.0.7:80"),
        ("default/orphan:web", "TCP 203.0.113.1 (from outside) → 10.101.0.9:80"),
        ("kube-system/kube-dns:dns", "UDP 203.0.113.1 (from outside) → 10.96.0.10:53"),
        ("kube-system/kube-dns:dns-tcp", "TCP 203.0.113.1 (from outside) → 10.96.0.10:53"),
        ("kube-system/kube-dns:53", "TCP 203.0.113.1 (from outside) → 10.96.0.10:53"),
        ("kube-system/kube-dns:53/udp", "UDP 203.0.113.1 (from outside) → 10.96.0.10:53"),
        ("[fd00:77::1]:30066", "TCP 2001:db8::1 (from outside) → [fd00:77::1]:30066"),
        ("10.96.0.10:53/UDP", "UDP 203.0.113.1 (from outside) → 10.96.0.10:53"),
    ],
)
def test_what_a_packet_may_be_sent_to(demo, target, packet):
    done = run("trace", "--to", target, manifests=demo)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, packet)


def test_a_port_that_a_service_does_not_have_is_traced_and_noted(demo):
    done = run("trace", "--to", "shop:81", manifests=demo)
    assert done.stdout.splitlines()[0].endswith("10.101.0.7:81")
    assert done.stdout.splitlines()[-1] == "note: default/shop has no port 81; it has 80/TCP"


def test_a_service_of_two_families_is_asked_in_the_senders(demo):
    (demo / "dual.yaml").write_text(
        "apiVersion: v1\nkind: Service\nmetadata: {name: dual}\nspec: {clusterIP: 10.96.0.77, clusterIPs: "
        "[10.96.0.77, 'fd00:10:96::77'], ipFamilies: [IPv4, IPv6], ports: [{port: 80}]}\n"
    )
    for sender, address in (("10.244.2.13", "10.96.0.77:80"), ("fd00:10:244::5", "[fd00:10:96::77]:80")):
        done = run("trace", "--from", sender, "--to", "dual", manifests=demo)
        assert done.stdout.splitlines()[0].endswith(f"→ {address}")


def test_the_kernel_needs_root_and_says_so(demo, monkeypatch):
    monkeypatch.setattr("pykubeproxy.insight.live.os.geteuid", lambda: 1000)
    for arguments, instead in (
        (("trace", "--live", "--to", "10.0.0.1:80"), "without --live the rules are those that follow from the objects"),
        (("explain", "--live", "shop"), "without --live the objects alone are looked at"),
        (("diff",), "diff OLD NEW compares files without"),
    ):
        line = f"pykubeproxy: needs root to read the kernel's rules; {instead}\n"
        assert run(*arguments, manifests=demo) == (2, "", line)
    assert run("explain", "shop", manifests=demo).returncode == 0


def test_cleaning_up_needs_root_and_nothing_is_recommended_instead(monkeypatch):
    monkeypatch.setattr("pykubeproxy.once.os.geteuid", lambda: 1000)
    line = "pykubeproxy: needs root (uid 0 with CAP_NET_ADMIN and CAP_NET_RAW) to remove rules\n"
    assert run_as_given("--cleanup") == (1, "", line)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--cleanup", "--dry-run"), "--dry-run and --cleanup exclude each other"),
        (("--init-only", "--cleanup"), "--cleanup and --init-only exclude each other"),
        (("--dry-run", "--write-config-to", "/nowhere/x"), "--write-config-to and --dry-run exclude each other"),
        (
            ("--cleanup", "--ip-family", "ipv4"),
            "--ip-family: is for --dry-run, explain, trace and diff; all else serves",
        ),
    ],
)
def test_flags_of_which_one_would_be_ignored_are_refused(arguments, message):
    done = run_as_given(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"pykubeproxy: {message}")


def test_faults_that_keep_a_command_from_answering_exit_2(demo):
    for arguments in (("explain", "shop", "--no-live"), ("trace", "--to", "shop"), ("diff",)):
        done = run_as_given(*arguments, "--master", "http://127.0.0.1:1")
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_rules_that_nothing_can_walk_are_one_line(demo, monkeypatch):
    def refuse(*_):
        raise ValueError("a rule of table nat jumps to chain KUBE-SVC-X, which does not exist")

    monkeypatch.setattr("pykubeproxy.insight.tracer.Tracer.trace", refuse)
    done = run("trace", "--to", "shop", manifests=demo)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "KUBE-SVC-X" in done.stderr


def test_an_old_dry_run_is_compared_with_new_manifests(demo, tmp_path):
    old = tmp_path / "old.txt"
    old.write_text(run("--dry-run", manifests=demo).stdout)
    gather(demo, "09-first-endpoint")
    done = run_as_given("diff", str(old), str(demo), *FLAGS)
    assert done.returncode == 1
    assert done.stderr == "pykubeproxy: 10 chains differ: default/orphan:echo, default/orphan:web\n"


def test_what_can_be_read_only_once_is_read_once(demo, tmp_path, monkeypatch):
    dry = run("--dry-run", manifests=demo).stdout.encode()
    objects = (demo / "nginx-service.yaml").read_bytes()
    for data, other, status in ((dry, demo, 0), (objects, demo / "nginx-service.yaml", 0), (objects, demo, 1)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        assert run_as_given("diff", "-", str(other), *FLAGS).returncode == status
        reading, writing = os.pipe()
        with os.fdopen(writing, "wb") as pipe:
            threading.Thread(target=lambda pipe=pipe, data=data: (pipe.write(data), pipe.close())).start()
            assert run_as_given("diff", f"/dev/fd/{reading}", str(other), *FLAGS).returncode == status
        os.close(reading)
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input is closed" in run_as_given("diff", "-", str(demo), *FLAGS).stderr


def test_a_file_that_is_no_manifest_and_holds_no_rules_is_named(demo, tmp_path):
    for text, message in (
        ("*nat\n:X - [0:0]\n", "ends within a table, without COMMIT"),
        ("kind: [", "no YAML: "),
        ("a: b", "an object has no kind and apiVersion"),
    ):
        (tmp_path / "bad.yaml").write_text(text)
        done = run_as_given("diff", str(tmp_path / "bad.yaml"), str(demo), *FLAGS)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith(f"pykubeproxy: {tmp_path}/bad.yaml:")
        assert message in done.stderr


def test_manifests_that_are_not_there_are_named(demo):
    for path, message in (
        ("/no/such.yaml", "--manifests: /no/such.yaml: No such file or directory\n"),
        ("-", "--manifests: -: No such file or directory; standard"),
    ):
        done = run_as_given("explain", "shop", "--no-live", "--manifests", path)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert message in done.stderr


def test_a_missing_argument_points_at_the_commands_own_help():
    assert run_as_given("explain", "shop", "--manifests").stderr.endswith(
        "See 'pykubeproxy explain --help' for usage.\n"
    )


def test_the_form_of_rules_that_stand_is_no_difference_where_both_are_allowed(tmp_path):
    manifests = tmp_path / "many"
    manifests.mkdir()
    spec = {"type": "NodePort", "ipFamilies": ["IPv4"]}
    items = []
    for number in range(TREE_PORTALS * 3 // 4):
        meta = {"name": f"s{number}", "namespace": "default"}
        address = f"10.96.0.{number + 1}"
        ports = [{"port": 80, "nodePort": 30000 + number, "protocol": "TCP"}]
        items.append({"apiVersion": "v1", "kind": "Service", "metadata": meta,
                      "spec": spec | {"clusterIP": address, "clusterIPs": [address], "ports": ports}})  # fmt: skip
        items.append({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": meta | {"labels": {"kubernetes.io/service-name": meta["name"]}}, "addressType": "IPv4",
            "ports": [{"port": 8080, "protocol": "TCP"}], "endpoints": [{"addresses": ["10.244.0.1"]}],
        })  # fmt: skip
    (manifests / "all.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    for form in ("tree", "flat"):
        rules = tmp_path / form
        only = ("--ip-family", "ipv4")
        rules.write_text(run("--dry-run", "--service-dispatch", form, *only, manifests=manifests).stdout)
        assert ("KUBE-SVC-NP-" in rules.read_text()) == (form == "tree")
        for sides in ((rules, manifests), (manifests, rules)):
            assert run_as_given("diff", *map(str, sides), *only, *FLAGS) == (0, "", "")


def test_interfaces_that_tell_pods_apart_are_assumed_or_given(demo, monkeypatch):
    monkeypatch.setattr("insight_demo.FLAGS", ("--hostname-override", "node-a"))
    by_name = ("--detect-local-mode", "InterfaceNamePrefix", "--pod-interface-name-prefix", "cali")
    outside = run("trace", "--to", "nginx-svc:80", *by_name, "-o", "json", manifests=demo)
    assert {one["masqueraded"] for one in json.loads(outside.stdout)["outcomes"]} == {True}
    pod = run("trace", "--to", "nginx-svc:80", "--in-interface", "cali12", *by_name, "-o", "json", manifests=demo)
    assert {one["masqueraded"] for one in json.loads(pod.stdout)["outcomes"]} == {False}


def test_every_daemon_flag_is_known_to_the_commands():
    for command in (commands.explain, commands.trace, commands.diff):
        known = {option.lstrip("-") for parameter in command.params for option in parameter.opts}
        assert {"config", "manifests", "cluster-cidr", "v", "iptables-backend", "masquerade-all"} <= known


FAULTY = """
{kind: Service, apiVersion: v1, metadata: {name: odd}, spec: {clusterIP: 10.96.9.9,
  ports: [{port: "80"}, {port: 99999, name: b}, {port: 81, name: c}]}}
---
{kind: EndpointSlice, apiVersion: discovery.k8s.io/v1, addressType: IPv4,
  metadata: {name: odd-1, labels: {kubernetes.io/service-name: odd}},
  ports: [{name: c, port: 81}], endpoints: [{addresses: 10.0.0.1}, {addresses: [10.0.0.2]}]}
---
{kind: Service, apiVersion: v1, metadata: {name: worse}, spec: {clusterIP: 7}}
"""


def test_explain_lists_what_could_not_be_read(tmp_path):
    (tmp_path / "odd.yaml").write_text(FAULTY)
    done = run("explain", "odd", "--no-live", "-o", "json", manifests=tmp_path)
    assert json.loads(done.stdout)[0]["problems"] == [
        "Service default/odd: spec.ports[0].port: expected int, got str; the port is left out",
        "EndpointSlice default/odd-1: endpoints[0].addresses: expected array | null, got str; the endpoint is left out",
        "Service default/odd: spec.ports[1].port: 99999 is not between 1 and 65535; the port is left out",
    ]
    refused = run("explain", "worse", "--no-live", manifests=tmp_path)
    assert refused.stderr.splitlines()[-1] == (
        "pykubeproxy: default/worse cannot be used: Service default/worse: spec.clusterIP: expected str | null, got int"
    )


def test_what_may_be_in_a_file_that_cannot_be_read_is_no_answer(demo):
    (demo / "broken.yaml").write_text("{ kind: Service,\n  metadata: {name: lost\n")
    fault = f"{demo}/broken.yaml:3: no YAML: while parsing a flow mapping did not find expected ',' or '}}'"
    kept = "a running daemon keeps what it has read of it before, or what stands"
    lost = ("explain", "lost", "--no-live")
    for command in (lost, ("explain", "10.96.99.99", "--no-live"), ("trace", "--to", "lost")):
        done = run(*command, manifests=demo)
        assert done.returncode == 2
        warned, nothing, told = done.stderr.splitlines()
        assert warned == f"warning: manifest problem: {fault}"
        assert "no Service" in nothing
        assert told == f"pykubeproxy: it may be there all the same: {fault}; {kept}"
    there = run("explain", "shop", "--no-live", manifests=demo)
    assert there.returncode == 0
    assert "a running daemon keeps" in " ".join(there.stdout.split())


def test_warnings_are_sentences_unless_a_format_is_asked_for(demo):
    (demo / "broken.json").write_text("{")
    said = run("--logging-format", "json", "explain", "shop", "--no-live", manifests=demo).stderr
    assert json.loads(said)["event"] == "manifest problem"
    assert run("explain", "shop", "--no-live", manifests=demo).stderr.startswith("warning: manifest problem: ")
    said = run(
        "--bind-address", "10.0.0.11", "--healthz-port", "0", "explain", "shop", "--no-live", manifests=demo
    ).stderr
    assert said.splitlines()[0] == "warning: deprecated flag: flag healthz-port, instead healthz-bind-address"


def test_no_differences_are_a_word_on_a_terminal_and_nothing_elsewhere(demo, monkeypatch):
    sides = (str(demo), str(demo))
    assert (run_as_given("diff", *sides).stderr, run_as_given("diff", *sides).stdout) == ("", "")
    monkeypatch.setattr(io, "StringIO", type("Terminal", (io.StringIO,), {"isatty": lambda _: True}))
    assert run_as_given("diff", *sides).stderr == "pykubeproxy: no differences\n"

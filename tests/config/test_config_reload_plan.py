from dataclasses import fields, is_dataclass

import pytest
from config_documents import load

from pykubeproxy.config.options import Options
from pykubeproxy.config.reload import ReloadDecision, plan_reload
from pykubeproxy.config.settings import SETTINGS

LIVE = {
    "iptables.masqueradeBit": "iptables: {masqueradeBit: 3}",
    "iptables.masqueradeAll": "iptables: {masqueradeAll: true}",
    "iptables.localhostNodePorts": "iptables: {localhostNodePorts: false}",
    "iptables.syncPeriod": "iptables: {syncPeriod: 1m}",
    "iptables.minSyncPeriod": "iptables: {minSyncPeriod: 2s}",
    "clusterCIDR": "clusterCIDR: 10.0.0.0/8",
    "detectLocalMode": "detectLocalMode: NodeCIDR",
    "nodePortAddresses": "nodePortAddresses: [primary]",
    "logging.verbosity": "logging: {verbosity: 3}",
    "pykubeproxy.serviceDispatch": "pykubeproxy: {serviceDispatch: tree}",
    "pykubeproxy.strictSourceRanges": "pykubeproxy: {strictSourceRanges: true}",
}
RESTART = {
    "healthzBindAddress": "healthzBindAddress: 127.0.0.1",
    "metricsBindAddress": "metricsBindAddress: 0.0.0.0",
    "bindAddress": "bindAddress: 10.0.0.1",
    "clientConnection.kubeconfig": "clientConnection: {kubeconfig: /k}",
    "hostnameOverride": "hostnameOverride: other",
    "pykubeproxy.iptablesBackend": "pykubeproxy: {iptablesBackend: nft}",
}


@pytest.mark.parametrize(("name", "body"), LIVE.items())
def test_what_the_rules_and_the_pace_depend_on_is_live(name, body):
    assert plan_reload(Options(), load(body)) == ReloadDecision(live=(name,))


@pytest.mark.parametrize(("name", "body"), RESTART.items())
def test_what_is_bound_or_connected_at_start_needs_a_restart(name, body):
    decision = plan_reload(Options(), load(body))
    assert decision == ReloadDecision(restart=(name,))
    assert decision.needs_restart


def test_what_has_no_effect_needs_nothing():
    assert plan_reload(Options(), load("ipvs: {scheduler: rr}")) == ReloadDecision(ignored=("ipvs.scheduler",))
    assert not plan_reload(Options(), load("clientConnection: {qps: 9}")).needs_restart


def test_equal_options_need_nothing():
    assert plan_reload(load("mode: iptables"), Options()) == ReloadDecision()


def test_both_kinds_are_told_apart():
    new = load("iptables: {syncPeriod: 1m}\nhostnameOverride: other")
    assert plan_reload(Options(), new) == ReloadDecision(live=("iptables.syncPeriod",), restart=("hostnameOverride",))


def paths_of(value: object, prefix: str = "") -> list[str]:
    found: list[str] = []
    for item in fields(value):
        inner = getattr(value, item.name)
        found += paths_of(inner, f"{prefix}{item.name}.") if is_dataclass(inner) else [prefix + item.name]
    return found


def test_no_option_is_missing_from_the_table():
    assert set(paths_of(Options())) == {setting.option.partition("/")[0] for setting in SETTINGS}

import pytest
from structlog.testing import capture_logs

from pykubeproxy.config.hostname import hostname
from pykubeproxy.config.options import Options
from pykubeproxy.errors import ConfigurationError


@pytest.mark.parametrize(
    ("override", "machine", "name"),
    [
        ("", "Node-0", "node-0"),
        (" NODE-1 ", "node-0", "node-1"),
        ("", " node-0\n", "node-0"),
        ("ip-10-0-0-1.ec2", "x", "ip-10-0-0-1.ec2"),
    ],
)
def test_the_override_wins_and_names_are_trimmed_and_lower_case(override, machine, name):
    assert hostname(Options(hostname_override=override), machine) == name


@pytest.mark.parametrize(("override", "machine"), [("", ""), ("", "  "), ("  ", "node-0")])
def test_no_name_at_all_is_an_error(override, machine):
    with pytest.raises(ConfigurationError, match="hostnameOverride"):
        hostname(Options(hostname_override=override), machine)


def test_a_machine_whose_name_no_node_can_have_is_warned_of():
    with capture_logs() as logs:
        assert hostname(Options(), "node_0") == "node_0"
        assert hostname(Options(), "node-0") == "node-0"
    assert [entry["hostname"] for entry in logs] == ["node_0"]

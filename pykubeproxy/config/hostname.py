"""The name under which this machine's Node object is known.

The machine's own name is an argument: nothing here asks the machine.
"""

from __future__ import annotations

import structlog

from pykubeproxy.config.options import Options
from pykubeproxy.config.validate import NODE_NAME_RULE, is_node_name
from pykubeproxy.errors import ConfigurationError

log = structlog.get_logger(__name__)


def hostname(options: Options, os_hostname: str) -> str:
    """Return the Node's name: the override if there is one, else ``os_hostname``, trimmed and lower-cased.

    Raises ConfigurationError where that leaves nothing. A machine's name that no Node can have is only warned of:
    kube-proxy runs with it too, and without its Node. The override was judged with the rest of the configuration.
    """
    name = (options.hostname_override or os_hostname).strip().lower()
    if not name:
        raise ConfigurationError("hostnameOverride: there is no host name; name the Node with --hostname-override")
    if not is_node_name(name):
        log.warning(
            "no Node can have this host name",
            hostname=name,
            rule=NODE_NAME_RULE,
            hint="name the Node with --hostname-override",
        )
    return name

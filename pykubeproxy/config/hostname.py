"""The name under which this machine's Node object is known.

The machine's own name is an argument: nothing here asks the machine.
"""

from __future__ import annotations

from pykubeproxy.config.options import Options
from pykubeproxy.errors import ConfigurationError


def hostname(options: Options, os_hostname: str) -> str:
    """Return the Node's name: the override if there is one, else ``os_hostname``, trimmed and lower-cased.

    Raises ConfigurationError where that leaves nothing.
    """
    name = (options.hostname_override or os_hostname).strip().lower()
    if not name:
        raise ConfigurationError("hostnameOverride: there is no host name; name the Node with --hostname-override")
    return name

"""A laboratory of network namespaces: a small cluster's network with real packets. Start reading at ``lab``."""

from e2e.netlab.counters import Snapshot, Way
from e2e.netlab.errors import LabError
from e2e.netlab.lab import Backend, Family, Lab, wait_for
from e2e.netlab.namespace import Connection, Namespace, Pod, Process, Soak
from e2e.netlab.proxy import Proxy
from e2e.netlab.stats import chi_square
from e2e.netlab.traffic import Answer, Failure, Traffic

__all__ = [
    "Answer",
    "Backend",
    "Connection",
    "Failure",
    "Family",
    "Lab",
    "LabError",
    "Namespace",
    "Pod",
    "Process",
    "Proxy",
    "Snapshot",
    "Soak",
    "Traffic",
    "Way",
    "chi_square",
    "wait_for",
]

"""A kube-apiserver stand-in: real HTTP, the answers of a real 1.36.2 server, no etcd, and faults on demand.

``store`` (objects, versions, history), ``watching``, ``selectors``, ``patches`` and ``api`` are pure; ``edge`` owns
sockets, TLS and time; ``faults`` is what can be made to go wrong; ``standin.StandIn`` puts them together.
It must not import the daemon: what it says comes from recordings of the real server, not from what we expect.
"""

from e2e.apiserver.access import ADMIN, NOBODY, User
from e2e.apiserver.clock import ManualClock, RealClock
from e2e.apiserver.kubeconfig import write_kubeconfig
from e2e.apiserver.standin import StandIn, read_objects

__all__ = ["ADMIN", "NOBODY", "ManualClock", "RealClock", "StandIn", "User", "read_objects", "write_kubeconfig"]

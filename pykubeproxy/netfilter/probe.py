"""What this kernel and iptables can do, found out by a trial restore into a scratch chain that is removed again.

Asking for the module, or ``iptables-restore --test``, is not enough: on nft a missing match is noticed only when the
rule is loaded (k/k#142068). What already stands in the kernel needs no trial, so a restart writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from pykubeproxy.errors import EnvironmentProblem, LockBusyError, NetfilterError
from pykubeproxy.model.addresses import Family
from pykubeproxy.netfilter.backend import Backend
from pykubeproxy.netfilter.process import Runner
from pykubeproxy.netfilter.read import is_unprintable
from pykubeproxy.netfilter.restore import failure, restore
from pykubeproxy.rules.base import INVALID_COUNTER
from pykubeproxy.rules.names import NAT

log = structlog.get_logger()

SCRATCH = "KUBE-SVC-PROBE"
"""Should a crash leave it, the next start of this program or of kube-proxy removes it as a stale service chain."""

_TRIALS: dict[str, str] = {
    "comment": '-m comment --comment "probe" -j RETURN',
    "conntrack": "-m conntrack --ctstate NEW -j RETURN",
    "addrtype": "-m addrtype --dst-type LOCAL -j RETURN",
    "statistic": "-m statistic --mode random --probability 0.50000000000 -j RETURN",
    "recent": "-m recent --rcheck --seconds 1 --reap --name pkp-probe --mask {mask} --rsource -j RETURN",
    "mark": "-j MARK --set-xmark 0x4000/0x4000",
    "nfacct": f"-m nfacct --nfacct-name  {INVALID_COUNTER} -j RETURN",
}
_SIGNS: dict[str, str] = {
    "comment": "-m comment ",
    "conntrack": "-m conntrack ",
    "addrtype": "-m addrtype ",
    "statistic": "-m statistic ",
    "recent": "-m recent ",
    "mark": "-j MARK ",
    "nfacct": "-m nfacct ",
}
FEATURES = tuple(_TRIALS)


@dataclass(frozen=True, slots=True)
class Features:
    """Names of the matches that do not work here, and what iptables said of each."""

    missing: dict[str, str]

    def has(self, name: str) -> bool:
        """Tell whether a match works."""
        return name not in self.missing


def probe(backend: Backend, runner: Runner, standing: Iterable[str], wanted: Iterable[str] = FEATURES) -> Features:
    """Try the features that no standing rule already shows to work. ``standing`` are chain texts.

    All are tried in one restore; only if that fails, one by one, and what fails twice, though a trial of nothing
    works, is missing: a program that fails for a moment says nothing about the kernel.

    Raises:
        LockBusyError, NetfilterError: nothing can be told now.
        EnvironmentProblem: no rights, no program, or no lock file.

    """
    text = "".join(standing)
    names = [name for name in wanted if _SIGNS[name] not in text]
    if not names or _works(backend, runner, names) == "":
        return Features({})
    missing = {}
    for name in names:
        if not _works(backend, runner, [name]):
            continue
        refused = _works(backend, runner, [])
        if refused:
            raise NetfilterError(f"what the kernel can do cannot be found out: {refused}")
        complaint = _works(backend, runner, [name])
        if complaint:
            missing[name] = complaint
    return Features(missing)


def _works(backend: Backend, runner: Runner, names: list[str]) -> str:
    """Try features together; return "" or the complaint."""
    mask = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff" if backend.family == "IPv6" else "255.255.255.255"
    rules = "".join(f"-A {SCRATCH} {_TRIALS[name].format(mask=mask)}\n" for name in names)
    try:
        restore(backend, runner, f"*{NAT}\n:{SCRATCH} - [0:0]\n{rules}COMMIT\n")
    except (LockBusyError, EnvironmentProblem):
        raise
    except NetfilterError as exc:
        return str(exc)
    restore(backend, runner, f"*{NAT}\n:{SCRATCH} - [0:0]\n-X {SCRATCH}\nCOMMIT\n")
    return ""


def is_supported(backend: Backend, runner: Runner) -> str:
    """Tell whether this family's tables can be used at all: "" or why not (kube-proxy asks the same way).

    Raises:
        EnvironmentProblem: no rights, no program, or no lock file.
        LockBusyError: nothing can be told now.

    """
    finished = runner.run(backend.tool(NAT, "-S", "POSTROUTING"))
    if finished.status == 0 or is_unprintable(finished.complaint):
        return ""
    problem = failure(finished, "")
    if isinstance(problem, EnvironmentProblem | LockBusyError):
        raise problem
    return finished.complaint


def tell(family: Family, features: Features) -> None:
    """Log one line for each missing feature: what follows from it."""
    consequences = {
        "comment": "rules carry no comments",
        "recent": "services with session affinity are left out",
        "statistic": "services with more than one endpoint are left out",
        "addrtype": "node ports and external traffic policy Local do not work",
        "conntrack": "filter rules are refused",
        "nfacct": "two packet counters are missing from the metrics",
        "mark": "nothing can be masqueraded",
    }
    for name, complaint in features.missing.items():
        say = log.info if name == "nfacct" else log.warning
        say("match missing", family=family, match=name, consequence=consequences[name], complaint=complaint)

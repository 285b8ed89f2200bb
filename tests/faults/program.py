"""An engine on the fake kernel, for tests of what it does when the kernel refuses."""

from pykubeproxy.netfilter.backend import Backend
from pykubeproxy.netfilter.process import Finished
from pykubeproxy.rules.names import NAT
from pykubeproxy.serving.metrics import BuildInfo, Metrics
from pykubeproxy.sync.engine import Engine
from tests.support.builders import endpoint_slice, service, settings
from tests.support.fake_kernel import FakeKernel


class BlindKernel(FakeKernel):
    """Names the COMMIT line only, as legacy iptables does when the kernel refuses a rule."""

    def run(self, argv, stdin=b"", *, timeout=30.0, on_start=None):
        done = super().run(argv, stdin, timeout=timeout, on_start=on_start)
        if argv[0].endswith("-restore") and done.status == 1 and b"does not know" in done.stderr:
            refused = int(done.stderr.split(b"line ")[1].split()[0])
            lines = stdin.decode().splitlines()
            commit = next(n for n, line in enumerate(lines, 1) if n >= refused and line == "COMMIT")
            return Finished(1, b"", f"iptables-restore: line {commit} failed\n".encode())
        return done


class Told:
    """A reporter that remembers."""

    def __init__(self):
        self.found = []

    def service(self, key, reason, message):
        self.found.append((str(key), reason, message))


def objects(count, *, endpoints=1):
    services = [service(f"s{i}", ip=f"10.96.0.{i + 1}") for i in range(count)]
    slices = [endpoint_slice(f"s{i}", [f"10.244.{j}.{i + 11}" for j in range(endpoints)]) for i in range(count)]
    return services, slices


def metrics():
    return Metrics(families=["IPv4"], build=BuildInfo(version="0"))


def engine(kernel, held, *, told=None, kind="nft", make=Engine, **more):
    given = {"metrics": metrics(), "dispatch": "flat", "reporter": told, "clock": lambda: 0.0, "batch": None} | more
    return make(held, Backend(kind, "IPv4"), kernel, given.pop("settings", settings()), **given)


def portals(kernel):
    return [rule for rule in kernel.tables[NAT].chains["KUBE-SERVICES"] if "cluster IP" in rule]

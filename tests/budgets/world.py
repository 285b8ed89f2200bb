"""An engine on the verified fake kernel that tells what was run: restores by their chains, and any other program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pykubeproxy.model.service import ServiceKey
from pykubeproxy.netfilter.backend import Backend
from pykubeproxy.netfilter.suspects import NOTHING
from pykubeproxy.serving.metrics import BuildInfo, Metrics
from pykubeproxy.sync.engine import NFT_BATCH, Engine
from tests.support.builders import endpoint_slice, service, settings, state
from tests.support.fake_kernel import FakeKernel


@dataclass(slots=True)
class Kernel(FakeKernel):
    """The fake kernel, with a list of the programs that were run."""

    ran: list[str] = field(default_factory=list)

    def run(self, argv: list[str], stdin: bytes = b"", **more: Any) -> Any:
        self.ran.append(argv[0])
        return super(Kernel, self).run(argv, stdin, **more)


def service_ip(number: int) -> str:
    """Addresses all over a /16, as an API server gives them."""
    place = number * 40503 & 0xFFFF
    return f"10.96.{place >> 8}.{place & 255}"


def pod_ip(number: int, index: int) -> str:
    return f"10.244.{number >> 4 & 255}.{(number & 15) * 16 + index}"


def a_service(number: int) -> Any:
    return service(f"s{number}", ip=service_ip(number))


def a_slice(number: int, indices: range | list[int] = range(3), **more: Any) -> Any:
    return endpoint_slice(f"s{number}", [pod_ip(number, index) for index in indices], **more)


class World:
    """``count`` services of three endpoints each, synced once; ``written`` and ``ran`` begin empty after that."""

    def __init__(self, count: int, *, kind: str = "nft", dispatch: str = "tree", batch: int | None = NFT_BATCH) -> None:
        self.kernel = Kernel()
        self.kind = kind
        self.dispatch = dispatch
        self.batch = batch
        self.state = state(
            *(a_service(number) for number in range(count)), *(a_slice(number) for number in range(count))
        )
        self.engine = self.new_engine()
        self.engine.sync("first")
        self.forget()

    def new_engine(self) -> Engine:
        return Engine(
            self.state,
            Backend(self.kind, "IPv4"),  # type: ignore[arg-type]
            self.kernel,
            settings(),
            metrics=Metrics(families=["IPv4"], build=BuildInfo(version="0")),
            dispatch=self.dispatch,
            look=lambda: NOTHING,
            batch=self.batch,
        )

    def forget(self) -> None:
        self.kernel.restores.clear()
        self.kernel.ran.clear()

    @property
    def restores(self) -> list[str]:
        return self.kernel.restores

    def chains_of(self, number: int) -> set[str]:
        """The nat chains of a service that are wanted now."""
        wanted = self.engine.wanted
        assert wanted is not None
        return set(wanted.chains_of(a_service_key(number)))


def a_service_key(number: int) -> ServiceKey:
    return ServiceKey("default", f"s{number}")


def chains(document: str) -> list[str]:
    """The chains that an input names: made, rewritten or deleted."""
    return [line[1:].split()[0] for line in document.splitlines() if line.startswith(":")]


def lines(document: str) -> int:
    """The lines of an input that are not its frame."""
    return sum(not line.startswith(("*", "COMMIT")) for line in document.splitlines())

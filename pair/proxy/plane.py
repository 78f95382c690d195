"""What the parts of the data path share in one process (PX-4)."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, Protocol

from pair.protocols.calls import Target

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IReactorTime

    from pair.interfaces import IErrorBook, IJobLedger, ILocalEngines
    from pair.protocols.pool import ClientPool
    from pair.proxy.meters import Meters
    from pair.proxy.scheduling import SchedulerService
    from pair.proxy.sweep import Sweep
    from pair.records.engines import EngineAddress
    from pair.settings import Proxy


StopCode = Literal["stopping", "cancelled"]
"""Why a request is broken off: the service stops, or a person cancelled it."""


class Underway(Protocol):
    """A request that is being served and can be broken off."""

    @property
    def facade(self) -> str:
        """Where it came in."""

    @property
    def engine(self) -> str | None:
        """The id of the engine that it is at; None while it is at none."""

    @property
    def job(self) -> str | None:
        """The id of its job; None: it is none."""

    def stop(self, code: StopCode) -> None:
        """Tell the client why, and end (PX-49, PX-68)."""


class Budget:
    """A number of bytes or requests of which no more than ``limit`` are out at once."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def take(self, amount: int) -> bool:
        """Take ``amount`` if it fits."""
        if self.used + amount > self.limit:
            return False
        self.used += amount
        return True

    def give(self, amount: int) -> None:
        """Give back what was taken."""
        self.used -= amount


class Members(Protocol):
    """The other nodes of the cluster, as far as requests go to them (PX-53 to PX-56)."""

    pool: ClientPool
    """Connections with them."""

    def target(self, node: str, facade: str) -> Target | None:
        """Where a facade of a member is; None: it is no member, or nobody knows where it is."""

    def silence(self, node: str) -> float:
        """Seconds since the last sign of life of a member."""

    def gone(self, node: str) -> bool:
        """Whether a member is proven to be dead (PX-64)."""

    def moved(self, node: str) -> None:
        """Bytes of an answer came from it: it lives (discovery page, section 9)."""


@dataclass(frozen=True)
class Plane:
    """The shared parts, handed to all that serve requests.

    ``active`` counts inference requests in flight, ``bodies`` the bytes of the
    bodies that are kept for replay; ``underway`` holds what is being served.
    ``members``: None where there can be none.
    """

    clock: IReactorTime
    monotonic: Callable[[], float]
    node: str
    settings: Proxy
    engines: ILocalEngines
    scheduling: SchedulerService
    jobs: IJobLedger
    pool: ClientPool
    sweep: Sweep
    errors: IErrorBook
    meters: Meters
    active: Budget
    bodies: Budget
    members: Members | None = None
    underway: dict[Underway, None] = field(default_factory=dict)
    random: Callable[[], float] = random.random

    def alive(self, node: str, engine: str) -> bool:
        """Whether there is hope that an engine goes on (PX-56, PX-64)."""
        if node == self.node:
            return self.engines.alive(engine)
        return self.members is not None and not self.members.gone(node)

    def moved(self, node: str, engine: str) -> None:
        """Bytes of an answer came from an engine."""
        if node == self.node:
            self.engines.note_bytes((engine,))
        elif self.members is not None:
            self.members.moved(node)

    def in_flight(self, engine: str) -> int:
        """How many requests an engine of this node is at."""
        return sum(each.engine == engine for each in self.underway)

    def cancel(self, job: str) -> bool:
        """Break off the request of a job, for a person (PX-49); False: there is none of that id."""
        found = next((each for each in self.underway if each.job == job), None)
        if found is not None:
            found.stop("cancelled")
        return found is not None


def target_of(plane: Plane, engine: str) -> Target | None:
    """Where requests for an engine of this node go now; None while it does not run."""
    address = plane.engines.address(engine)
    return None if address is None else _target(engine, address, plane.engines.dialect(engine).idle)


@lru_cache(maxsize=64)
def _target(engine: str, address: EngineAddress, idle: float) -> Target:
    """One and the same for all requests to an engine, as long as it stays where it is."""
    return Target(engine, address.host, address.port, address.authority.encode("ascii"), address.tls, idle)


def credential_of(plane: Plane, engine: str) -> bytes | None:
    """The token that this engine is sent on the last hop (EN-5)."""
    secret = plane.engines.credential(engine)
    return None if secret is None else secret.reveal().encode("ascii")

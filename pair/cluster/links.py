"""One sync with a peer at a time; whatever asks for another meanwhile causes one more (CL-83).

A machine for each peer: ``Resting`` → ``Syncing``; asked again, ``Owing``, from
which the end of a sync leads to the next one; and ``Stopped``. It must not know
what a sync is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from automat import TypeMachineBuilder
from twisted.internet.defer import CancelledError, Deferred

from pair.logs import Logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.python.failure import Failure

Outcome = Literal["synced", "refused", "evidence", "unreachable", "failed"]
"""How a sync ended.

``synced``: what each lacked was told; ``refused``: the peer does not count us
as a member, and does not say why; ``evidence``: it does; ``unreachable``:
nobody answered; ``failed``: what came was no answer, or could not be stored.
"""

log = Logger()


class _Syncs(Protocol):
    """The machine's inputs."""

    def sync(self) -> None:
        """There is a reason for a sync."""

    def ended(self) -> None:
        """The sync under way has ended."""

    def stop(self) -> None:
        """There are to be no more."""


@dataclass
class _Core:
    begin: Callable[[], Deferred[Outcome]]
    root: Callable[[], bytes]
    began: bytes | None = None
    under_way: Deferred[None] | None = None
    waiting: list[Deferred[Outcome]] = field(default_factory=list)
    later: list[Deferred[Outcome]] = field(default_factory=list)

    def start(self, machine: _Syncs) -> None:
        self.began = self.root()
        self.waiting, self.later = self.later, []
        outcome = self.begin().addErrback(_of_failure)
        self.under_way = outcome.addCallback(self._tell).addCallback(lambda _: machine.ended())

    def _tell(self, outcome: Outcome) -> None:
        self.began = self.under_way = None
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each.callback(outcome)


def _of_failure(failure: Failure) -> Outcome:
    if failure.check(CancelledError):
        return "unreachable"
    log.failure("A sync failed.", failure)
    return "failed"


def _build() -> Callable[[_Core], _Syncs]:
    builder = TypeMachineBuilder(_Syncs, _Core)
    resting = builder.state("Resting")
    syncing = builder.state("Syncing")
    owing = builder.state("Owing")
    stopped = builder.state("Stopped")

    @resting.upon(_Syncs.sync).to(syncing)
    @owing.upon(_Syncs.ended).to(syncing)
    def begin(machine: _Syncs, core: _Core) -> None:
        core.start(machine)

    syncing.upon(_Syncs.sync).to(owing).returns(None)
    syncing.upon(_Syncs.ended).to(resting).returns(None)
    owing.upon(_Syncs.sync).loop().returns(None)

    @syncing.upon(_Syncs.stop).to(stopped)
    @owing.upon(_Syncs.stop).to(stopped)
    def give_up(machine: _Syncs, core: _Core) -> None:
        core.waiting += core.later
        core.later = []
        if core.under_way is not None:
            core.under_way.cancel()

    resting.upon(_Syncs.stop).to(stopped).returns(None)
    stopped.upon(_Syncs.sync).loop().returns(None)
    stopped.upon(_Syncs.ended).loop().returns(None)
    stopped.upon(_Syncs.stop).loop().returns(None)
    return builder.build()


_make = _build()


class PeerLink:
    """The syncs with one peer."""

    def __init__(self, begin: Callable[[], Deferred[Outcome]], root: Callable[[], bytes]) -> None:
        """None is under way.

        Args:
            begin: Begins one; cancelled, it is given up.
            root: The present set root.
        """
        self._core = _Core(begin, root)
        self._machine = _make(self._core)

    def sync(self) -> None:
        """Sync now, or once more when the one that is under way has ended."""
        self._machine.sync()

    def brought_up_to_date(self) -> Deferred[Outcome]:
        """The outcome of the first sync that began with all that this node has now; one is begun if need be."""
        told: Deferred[Outcome] = Deferred()
        if self._core.began == self._core.root():
            self._core.waiting.append(told)
        else:
            self._core.later.append(told)
            self._machine.sync()
        return told

    def stop(self) -> None:
        """Give up the sync that is under way, and begin no more."""
        self._machine.stop()

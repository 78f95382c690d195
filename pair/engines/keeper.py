"""Keeps the child of one engine as its machine wants it: start, ready, end, proof (EN-18 to EN-27, EN-35 to EN-37)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.task import deferLater

from pair.engines import ports
from pair.engines.charge import Charge, Entries, Surroundings
from pair.engines.children import Child, ChildLost
from pair.engines.facts import Found, LaunchOptions, ProbeRequest
from pair.engines.lifecycle import Core, Lifecycle, machine
from pair.engines.probe import NoAnswer, Refused, Sighting, sight
from pair.engines.tasks import Tasks
from pair.logs import Logger
from pair.records.engines import EngineAddress

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.defer import Deferred
    from twisted.python.failure import Failure

    from pair.records.engines import EngineState

LOOPBACK = "127.0.0.1"
READY_POLL_SECONDS = 0.3
REFUSALS = 3
REFUSAL_SECONDS = 0.1
CLOSE_SECONDS = 3.0
"""From TERM to KILL when PAIR itself stops (EN-37)."""

log = Logger()


class Keeper:
    """The machine of one engine, and what it has done to a child.

    Args:
        entered: told each state that is entered.
        became_ready: told who answered, once the child is ready or taken back.

    Attributes:
        found: the program to start; None while there is none.
        child: the child; None while there is none.
        address: where the child listens, or is about to; None while there is none.
        left: an address that still answers though the child was ended (EN-36).
        trouble: in words for a person, why the last start or run ended; empty while all is well.
    """

    def __init__(
        self,
        charge: Charge,
        around: Surroundings,
        entered: Callable[[EngineState], None],
        became_ready: Callable[[Sighting], None],
    ) -> None:
        self.found: Found | None = None
        self.child: Child | None = None
        self.address: EngineAddress | None = None
        self.left: EngineAddress | None = None
        self.trouble = ""
        self._entered = entered
        self.core = Core(around.clock, self, charge.kind.timing.ready or 0.0)
        self.machine: Lifecycle = machine(self.core)
        self._became_ready = became_ready
        self._charge = charge
        self._around = around
        self._entries = Entries(charge.id, around.errors)
        self._tasks = Tasks(f"the engine {charge.id}")
        self._launching = False
        self._closing = False
        self._ran = False

    # Effects of the machine

    def entered(self, state: EngineState) -> None:
        """See :class:`~pair.engines.lifecycle.Effects`."""
        spent = state == "failed" and self.core.retry_at is not None
        if spent or (state == "backoff" and self._ran):
            self._entries.hold("crashed", count=self.core.streak.failures, reason=self.trouble)
        if state == "stopped" and self.left is not None:
            self.left = None
            self._entries.end("stop_failed")
        self._entered(state)

    def spawn(self) -> None:
        """See :class:`~pair.engines.lifecycle.Effects`."""
        self._ran = False
        self._tasks.run(self._spawn())

    def kill(self) -> None:
        """See :class:`~pair.engines.lifecycle.Effects`."""
        self.trouble = f"it was not ready within {self.core.ready_seconds:.0f} s"
        if self.child is not None:
            self._tasks.run(self._stop(self.child))
        elif not self._launching:
            self._failed(self.trouble, "")

    def end(self) -> None:
        """See :class:`~pair.engines.lifecycle.Effects`."""
        self._ran = False
        self._tasks.run(self._end())

    def recovered(self) -> None:
        """See :class:`~pair.engines.lifecycle.Effects`."""
        self.trouble = ""
        self._entries.end("crashed")

    # Life

    async def take_back(self) -> None:
        """Look for the child of our former self; one whose port refuses is ended (EN-23)."""
        record = self._around.memory.child(self._charge.id)
        if record is None:
            return
        child = self._around.children.take_back(record)
        if child is None:
            self._forget()
            return
        address = EngineAddress(LOOPBACK, record.port)
        sighting = await sight(self._around.ask, self._charge.kind, address, None)
        if sighting.who == "nothing":
            log.info("The engine {engine} of an earlier run does not answer: it is ended.", engine=self._charge.id)
            if await child.stop(self._charge.kind.timing.grace):
                self._forget()
            return
        log.info("The engine {engine} of an earlier run is taken back.", engine=self._charge.id)
        self._hold(child)
        self.machine.taken_back()
        self._became_ready(sighting)

    async def close(self) -> None:
        """End what is ours at once, and leave nothing running (EN-37). What others started stays."""
        self._closing = True
        if self.child is not None or self.core.state != "running":
            self.machine.stop()
        if self.child is not None:
            await self.child.stop(CLOSE_SECONDS)
        await self._tasks.finished()

    async def refused(self, address: EngineAddress, times: int = REFUSALS) -> bool:
        """Whether ``times`` questions in a row, 100 ms apart, are refused (EN-35, EN-38)."""
        question = next(iter(self._charge.kind.requests.values()), ProbeRequest("GET", "/"))
        for turn in range(times):
            if turn:
                await deferLater(self._around.clock, REFUSAL_SECONDS)
            try:
                await self._around.ask(address, question, None)
            except Refused:
                continue
            except NoAnswer:
                return False
            return False
        return True

    async def _spawn(self) -> None:
        charge, around = self._charge, self._around
        port = self._port()
        if port is None:
            self._failed("no port is free for it", "")
            return
        assert self.found is not None, "started only while there is a program"
        self.address = EngineAddress(LOOPBACK, port)
        options = LaunchOptions(model=self.found.model, slots=charge.settings.slots)
        self._launching = True
        try:
            child = await around.children.start(charge.id, port, charge.kind.launch(self.found, port, options))
        except (ChildLost, OSError):
            self.address = None
            self._failed("no process could be made", "")
            return
        finally:
            self._launching = False
        self._hold(child)
        if self.core.state != "starting":  # it was stopped meanwhile
            await self._end()
        elif child.running:
            await self._until_ready(child)

    async def _until_ready(self, child: Child) -> None:
        assert self.address is not None
        while child is self.child and self.core.state == "starting":
            sighting = await sight(self._around.ask, self._charge.kind, self.address, None)
            if sighting.who == "engine" and child is self.child:
                self._keep(child)
                self._entries.end("start_failed", "wedged")
                self.machine.ready()
                self._became_ready(sighting)
                return
            await deferLater(self._around.clock, READY_POLL_SECONDS)

    async def _end(self) -> None:
        if self._launching:
            return  # _spawn goes on here
        await self._drained()
        child, address = self.child, self.address
        proven = True
        if child is not None and address is not None:
            proven = await child.stop(self._charge.kind.timing.grace) and await self.refused(address)
        self.trouble = ""
        if proven:
            self._entries.end("start_failed", "crashed")
            self.machine.closed()
        else:
            assert address is not None
            self.left = address
            self._entries.hold("stop_failed", port=address.port, holder="")
            self.machine.lingering()

    async def _drained(self) -> None:
        """Wait for the requests in flight, for as long as the settings allow (EN-35)."""
        deadline = self._around.clock.seconds() + self._charge.settings.drain_seconds
        while self.child is not None and self._around.in_flight(self._charge.id):
            if self._closing or self._around.clock.seconds() >= deadline:
                return
            await deferLater(self._around.clock, REFUSAL_SECONDS)

    async def _stop(self, child: Child) -> None:
        await child.stop(self._charge.kind.timing.grace)

    # The child

    def _hold(self, child: Child) -> None:
        self.child, self.address = child, EngineAddress(LOOPBACK, child.record.port)
        child.when_ended().addCallback(self._ended, child)

    def _ended(self, reason: str, child: Child) -> None:
        self.child = self.address = None
        self._forget()
        if self.core.state == "starting":
            self._failed(self.trouble or reason, child.ring.end())
        elif self.core.state == "running":
            self.trouble, self._ran = reason, True
            self.machine.exited()

    def _failed(self, reason: str, output: str) -> None:
        self.trouble = reason
        self._entries.hold("start_failed", reason=reason, output=output)
        self.machine.exited()

    def _port(self) -> int | None:
        chosen = self._charge.settings.port
        base = self._charge.kind.ports.base
        if chosen is not None or base is None:
            return chosen
        return ports.first_free(base, self._around.reserved | self._around.taken(), self._around.free)

    # What is kept for the next start

    def _keep(self, child: Child) -> None:
        self._noted(self._around.memory.keep_child(child.identify()))

    def _forget(self) -> None:
        self._noted(self._around.memory.forget_child(self._charge.id))

    def _noted(self, written: Deferred[None]) -> None:
        def failed(failure: Failure) -> None:
            log.failure("The record of the engine {engine} could not be written.", failure, engine=self._charge.id)

        written.addErrback(failed)

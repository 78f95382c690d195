"""One engine of this node: found, adopted or kept, probed, listed (AR-5). What it is to be, others decide.

It never asks of which kind its engine is (EN-2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from twisted.internet.defer import succeed

from pair.engines.charge import Charge, Entries, Surroundings
from pair.engines.facts import Answer, Found, Identity
from pair.engines.health import Pulse, finding
from pair.engines.keeper import Keeper
from pair.engines.lists import Lists
from pair.engines.probe import NoAnswer, Refused, Sighting, sight
from pair.engines.tasks import Tasks
from pair.logs import Logger
from pair.records.engines import EngineInventory, EngineStatus
from pair.settings.grammar import is_local

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twisted.internet.defer import Deferred
    from twisted.internet.interfaces import IDelayedCall

    from pair.privacy import Secret
    from pair.records.engines import Desired, EngineAddress, EngineState, Health
    from pair.routing.dialects import Dialect

REREAD_SECONDS = 0.5
"""From a model that was found missing to the reading of the list (EN-80: within 1 s)."""

_USABLE: frozenset[Health] = frozenset({"ok", "busy", "degraded"})
_TOLD: frozenset[Health] = frozenset({"unhealthy", "degraded", "needs_credential"})
"""Those that are conditions of the same name."""

log = Logger()


class Runner:
    """One engine.

    Args:
        charge: what the settings say of it.
        around: what all engines of the node share.
        changed: called when more than ages differs in :meth:`inventory`.

    Attributes:
        credential: what is sent to it as a bearer token (EN-5).
        keeper: its machine and its child.
    """

    def __init__(self, charge: Charge, around: Surroundings, changed: Callable[[], None]) -> None:
        self.charge = charge
        self.credential: Secret | None = None
        self.keeper = Keeper(charge, around, self._entered, self._became_ready)
        self._around = around
        self._entries = Entries(charge.id, around.errors)
        self._changed = changed
        self._tasks = Tasks(f"the engine {charge.id}")
        self._desired: Desired | None = "off" if charge.settings.mode == "off" else None
        self._founds: Sequence[Found] = ()
        self._configured: tuple[EngineAddress, ...] = ()
        self._adopted_at: EngineAddress | None = None
        self._identity = Identity()
        self._slots: int | None = None
        self._pulse = Pulse()
        self._health_at: int | None = None
        self._held: str | None = None
        self._refused = False
        self._lists = Lists(
            charge,
            around,
            self._entries,
            self._tasks,
            lambda: self.address,
            lambda: self.credential,
            self._publish,
        )
        self._models = self._lists.models
        self._rereading: IDelayedCall | None = None
        self._shown: object = None
        self._closing = False

    # What is known

    @property
    def state(self) -> EngineState:
        """The run state."""
        return self.keeper.core.state

    @property
    def address(self) -> EngineAddress | None:
        """Where it answers; None while it does not run."""
        if self.state != "running":
            return None
        return self._adopted_at if self.keeper.child is None else self.keeper.address

    @property
    def alive(self) -> bool:
        """Whether it is worth waiting for (EN-32)."""
        return self.address is not None and not self._refused

    @property
    def dialect(self) -> Dialect:
        """What it speaks: as its kind, but for what this one loads for a request (RT-8)."""
        dialect = self.charge.dialect
        return msgspec.structs.replace(dialect, eligible="loaded") if self._lists.loaded_only else dialect

    @property
    def routable(self) -> bool:
        """Whether requests may be sent to it."""
        address = self.address
        return (
            address is not None
            and self._desired != "off"
            and self._pulse.health in _USABLE
            and not (is_local(address) and address.port in self._around.own_ports())
        )

    def inventory(self) -> EngineInventory:
        """The engine with its models."""
        return EngineInventory(self._status(), self._models.shown, self._models.revision)

    # What it is told

    async def begin(self) -> None:
        """Remember, take back what was ours, and look for it a first time."""
        self._lists.remember()
        await self.keeper.take_back()
        await self.poll()

    def located(self, founds: Sequence[Found], configured: Sequence[EngineAddress] = ()) -> None:
        """The programs that this host has of it now, and where its own files say that it listens (EN-9)."""
        self._founds, self._configured = founds, tuple(configured)
        self.keeper.found = next((each for each in founds if each.missing is None), None)
        self._tell_found()
        if self.address is not None:
            self._tasks.run(self._look_again(self.address))
        self._judge_missing()
        self._publish()

    def desire(self, desired: Desired) -> None:
        """Whether it is to run."""
        if desired != self._desired:
            self._desired = desired
            self._reconcile()
            self._publish()

    async def poll(self) -> None:
        """Probe it and read its lists while it runs, else look for it."""
        address = self.address
        if address is not None and self.keeper.child is None and self._ours(address):
            self.keeper.machine.silent()  # it left the port, and a facade took it
            await self._look()
        elif address is not None:
            await self._check(address)
        elif self.state not in ("starting", "stopping", "detached") and self.charge.settings.mode != "off":
            await self._look()
        self._publish()

    async def close(self) -> None:
        """End what is ours and all that is under way."""
        self._closing = True
        if self._rereading is not None and self._rereading.active():
            self._rereading.cancel()
        self._tasks.cancel()
        await self.keeper.close()
        await self._tasks.finished()

    def note_missing(self, model: str) -> None:
        """See :meth:`pair.interfaces.ILocalEngines.note_missing`."""
        self._models.hide(model)
        self._publish()
        if self._rereading is None or not self._rereading.active():
            self._rereading = self._around.clock.callLater(REREAD_SECONDS, self.refresh)

    def note_outcome(self, good: bool) -> None:
        """See :meth:`pair.interfaces.ILocalEngines.note_outcome`."""
        before = self._pulse.health
        self._pulse.outcome(good)
        if self._pulse.health != before:
            self._publish()

    def note_bytes(self) -> None:
        """See :meth:`pair.interfaces.ILocalEngines.note_bytes`."""
        self._pulse.moved(self._around.clock.seconds())

    def refresh(self) -> Deferred[None]:
        """See :meth:`pair.interfaces.ILocalEngines.refresh`."""
        return succeed(None) if self.address is None else self._tasks.run(self._lists.read(self.address, {}))

    # The machine

    def _entered(self, state: EngineState) -> None:
        log.info("Engine {engine}: {state}.", engine=self.charge.id, state=state)
        self._pulse, self._health_at, self._refused = Pulse(), None, False
        if state != "running":
            self._identity, self._slots = Identity(), None
            self._models.stopped()
        self._publish()
        if state == "stopped":
            self._tell_found()

    def _became_ready(self, sighting: Sighting) -> None:
        self._identity, self._slots = sighting.identity, sighting.slots
        self._tasks.run(self.poll())

    def _tell_found(self) -> None:
        if self.keeper.found is None:
            self.keeper.machine.lost()
        else:
            self.keeper.machine.found()
        self._reconcile()

    def _reconcile(self) -> None:
        if self._closing:
            return
        startable = self.keeper.found is not None and self.charge.kind.control == "process"
        if self._desired == "on" and (self.state == "detached" or (self.state == "stopped" and startable)):
            self.keeper.machine.start()
        elif self._desired == "off":
            self.keeper.machine.stop()

    # Who is there

    async def _look(self) -> None:
        """Ask at all places where it may be; the first that is it is adopted (EN-9)."""
        if self.keeper.left is not None:
            if await self.keeper.refused(self.keeper.left, 1):
                self.keeper.machine.silent()
            return
        foreign, silent = False, True
        for address in dict.fromkeys((*self.charge.addresses, *self._configured, *self.charge.guesses)):
            if self._ours(address):
                continue
            sighting = await sight(self._around.ask, self.charge.kind, address, self.credential)
            if self._ours(address):
                continue  # a facade took the port while we asked: it was a facade that answered
            if sighting.who == "engine" or (sighting.who == "locked" and self.charge.settings.url is not None):
                await self._adopt(address, sighting)
                return
            silent = silent and sighting.who == "nothing"
            foreign = foreign or (sighting.who in ("foreign", "locked") and address in self.charge.addresses)
        if foreign:
            self.keeper.machine.foreign()
        elif silent:
            self.keeper.machine.silent()

    def _ours(self, address: EngineAddress) -> bool:
        """Whether this process, or a child of it, listens there: no engine is to be found there (EN-10)."""
        return is_local(address) and address.port in self._around.taken()

    async def _adopt(self, address: EngineAddress, sighting: Sighting) -> None:
        self._adopted_at = address
        self.keeper.machine.identified()
        if self.address == address:
            self._identity, self._slots = sighting.identity, sighting.slots
            self._judge_missing()
            await self._check(address)

    async def _look_again(self, address: EngineAddress) -> None:
        """Whether it is still the same engine: another version, or another program (RT-10)."""
        sighting = await sight(self._around.ask, self.charge.kind, address, self.credential)
        if self.address != address:
            return
        if sighting.who == "engine":
            self._identity, self._slots = sighting.identity, sighting.slots
        elif sighting.who == "foreign":
            self.keeper.machine.foreign()
        self._publish()

    # How it is

    async def _check(self, address: EngineAddress) -> None:
        """One probe of its health, then its lists (EN-28, EN-78)."""
        pulse, request = self._pulse, self.charge.kind.requests["health"]
        answer: Answer | None = None
        refused = False
        try:
            answer = await self._around.ask(address, request, self.credential)
        except Refused:
            refused = True
        except NoAnswer:
            pass
        if pulse is not self._pulse:
            return  # it stopped meanwhile
        self._refused = refused
        if refused and self.keeper.child is None and await self.keeper.refused(address, 2):
            self.keeper.machine.silent()
            return
        # The list comes before the verdict: nobody is sent to an engine whose models are not known yet.
        if answer is not None and finding(answer) == "ok":
            await self._lists.read(address, {request: answer})
        else:
            self._models.failed()
        if pulse is not self._pulse:
            return
        now = self._around.clock.seconds()
        pulse.probed(finding(answer), now)
        self._health_at = self._around.now()
        self._publish()
        since = pulse.wedged_since(now)
        if since is not None and self.keeper.child is not None and self.charge.settings.restart_wedged:
            self._entries.hold("wedged", seconds=round(now - since))
            self.keeper.machine.wedged(since)

    # What is shown

    def _status(self) -> EngineStatus:
        core, found = self.keeper.core, self.keeper.found
        running = self.state == "running"
        wait = 0.0 if core.retry_at is None else core.retry_at - self._around.clock.seconds()
        return EngineStatus(
            id=self.charge.id,
            kind=self.charge.kind.name,
            facade=self.charge.kind.facade,
            state=self.state,
            health=self._pulse.health,
            health_at=self._health_at,
            ownership="owned" if self.keeper.child else "adopted" if running else None,
            desired=self._desired,
            routable=self.routable,
            version=self._identity.version,
            path=None if found is None else found.path,
            found_by=found.found_by if found is not None else "port" if running else None,
            slots=self.charge.settings.slots or self._slots or 1,
            models=self._models.models,
            loaded=self._models.loaded,
            models_at=self._models.at,
            retry_at=self._around.now() + round(wait * 1000) if wait else None,
            detail=self._detail(),
        )

    def _detail(self) -> str | None:
        if self.state in ("backoff", "failed"):
            return self.keeper.trouble or None
        if self.state in ("absent", "stopped") and self.keeper.found is None:
            return next((each.missing for each in self._founds), None)
        return None

    def _publish(self) -> None:
        status = self._status()
        bare = msgspec.structs.replace(status, health_at=None, models_at=None, retry_at=None)
        shown = (bare, self._models.revision, self._models.hidden, self._lists.loaded_only)
        if shown != self._shown:
            self._shown = shown
            self._judge_health(status.health)
            self._changed()

    # Entries

    def _judge_health(self, health: Health) -> None:
        entry = health if health in _TOLD else None
        if entry == self._held:
            return
        if self._held is not None:
            self._entries.end(self._held)
        self._held = entry
        if entry is not None:
            self._entries.hold(entry, count=self._pulse.bad_outcomes)

    def _judge_missing(self) -> None:
        if self.charge.required and self.keeper.found is None and self.state in ("absent", "stopped"):
            self._entries.hold("missing", detail=self._detail() or "")
        else:
            self._entries.end("missing")

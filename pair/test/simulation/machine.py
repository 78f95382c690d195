"""A modelled node: slots, a line of waiting requests, models that come and go in memory, and faults (RT-69)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pair.records.engines import EngineInventory, EngineStatus, LoadedInstance, Model, NodeInventory
from pair.test.simulation.events import Events, Progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from pair.test.simulation.scenario import Ask, NodeSpec

ENGINE = "ollama"
"""The id of the one engine of each machine, and its kind."""

NOT_FOUND = b'{"error":"model \'%b\' not found"}'
BUSY = b'{"error":"server busy, please try again.  maximum pending requests exceeded"}'


class Caller(Protocol):
    """Who has a request at a machine. What a machine says reaches it a hop later."""

    @property
    def ask(self) -> Ask:
        """What is asked for."""

    def refused(self) -> None:
        """Nobody listens there."""

    def answered(self, status: int, body: bytes) -> None:
        """An answer without a stream."""

    def began(self) -> None:
        """The first byte of the answer."""

    def ended(self) -> None:
        """The last one."""

    def cut(self) -> None:
        """The connection broke."""


class Machine:
    """Serves what it is offered, in the order in which it came.

    The first in line starts when its model is in memory and a slot is free.
    Where the model is not, it is loaded as soon as there is room, if need be in
    the place of the one that no answer is being made with and that began to
    serve longest ago; while a model loads, nothing starts.

    Args:
        spec: what it is.
        events: the time.
        hop: seconds until a caller hears.
        changed: is told of each new inventory.
        trace: is told of loads and faults.

    Attributes:
        loads: how often a model was loaded.
        running: the work under way, by caller, with what is left of its present part.
        waiting: who is in line.
        loaded: the models in memory, the one that began to serve longest ago first.
        loading: what is left of a load.
    """

    def __init__(
        self,
        spec: NodeSpec,
        events: Events,
        hop: float,
        changed: Callable[[NodeInventory], None],
        trace: Callable[..., None],
    ) -> None:
        self.spec = spec
        self.loads = 0
        self.running: dict[Caller, Progress] = {}
        self.waiting: list[Caller] = []
        self.loaded = list(spec.loaded)
        self.loading: Progress | None = None
        self.missing: set[str] = set()
        self._events = events
        self._hop = hop
        self._changed = changed
        self._trace = trace
        self._listed = list(spec.models)
        self._revision = 1
        self._unread: list[Caller] = []
        self._busy = self._frozen = self._gone = False
        self._factor = 1.0

    @property
    def silent(self) -> bool:
        """Nothing is heard of it."""
        return self._frozen or self._gone

    @property
    def frozen(self) -> bool:
        """It is there, and nothing of it moves."""
        return self._frozen

    @property
    def callers(self) -> tuple[Caller, ...]:
        """Whose requests are here."""
        return (*self._unread, *self.waiting, *self.running)

    @property
    def utilisation(self) -> float:
        """Of its GPU, in percent: one answer takes half of it, all slots the whole; so does what makes it slow."""
        if self._factor < 1:
            return 100.0
        return 50.0 + 50.0 * len(self.running) / self.spec.slots if self.running else 0.0

    def inventory(self) -> NodeInventory:
        """What it says that it has."""
        status = EngineStatus(
            ENGINE,
            ENGINE,
            "ollama",
            state="running",
            health="ok",
            routable=True,
            slots=self.spec.slots,
            models="known",
            loaded="known",
        )
        models = [
            Model(each, ENGINE, "ollama", loaded=(LoadedInstance(each),) if each in self.loaded else ())
            for each in self._listed
        ]
        return NodeInventory(self.spec.id, (EngineInventory(status, tuple(models), self._revision),))

    # What callers do

    def offer(self, caller: Caller) -> None:
        """A request arrives."""
        if self._frozen:
            self._unread.append(caller)
        elif self._gone:
            self._say(caller.refused)
        elif self._busy or len(self.waiting) >= self.spec.queue:
            self._say(caller.answered, 503, BUSY)
        elif caller.ask.model in self.missing:
            self._say(caller.answered, 404, NOT_FOUND % caller.ask.model.encode())
        else:
            self.waiting.append(caller)
            self._go_on()

    def abort(self, caller: Caller) -> None:
        """Its caller has hung up; of one that is not here any more, nothing."""
        for line in (self._unread, self.waiting):
            if caller in line:
                line.remove(caller)
        progress = self.running.pop(caller, None)
        if progress is not None:
            progress.cancel()
        self._go_on()

    # Faults

    def set_busy(self, on: bool) -> None:
        """It refuses all new work, or no more."""
        self._busy = on

    def set_missing(self, model: str, on: bool) -> None:
        """A model is gone and still listed; then, for good, it is not listed any more."""
        if on:
            self.missing.add(model)
            if model in self.loaded:
                self.loaded.remove(model)
            for caller in [each for each in self.waiting if each.ask.model == model]:
                self.waiting.remove(caller)
                self._say(caller.answered, 404, NOT_FOUND % model.encode())
            self._go_on()
        else:
            self._listed.remove(model)
            self._news()

    def set_speed(self, factor: float) -> None:
        """It has so much of its speed."""
        self._factor = factor
        self._pace()

    def set_frozen(self, on: bool) -> None:
        """Nothing moves; then all goes on where it was."""
        self._frozen = on
        self._pace()
        if not on:
            unread, self._unread = self._unread, []
            for caller in unread:
                self.offer(caller)
            self._go_on()

    def set_gone(self, on: bool) -> None:
        """It is not there, and what it was at is lost; then it is there again, with nothing in memory."""
        self._gone = on
        if not on:
            self._news()
            return
        lost = self.callers
        for progress in (*self.running.values(), *filter(None, [self.loading])):
            progress.cancel()
        self.running, self.waiting, self.loaded, self.loading = {}, [], [], None
        for caller in lost:
            self._say(caller.cut)

    # The work

    def _go_on(self) -> None:
        """Start what can be started."""
        while self.waiting and self.loading is None and not self._frozen:
            model = self.waiting[0].ask.model
            if model not in self.loaded:
                if self._has_room():
                    self._load(model)
                return
            if len(self.running) >= self.spec.slots:
                return
            self._start(self.waiting.pop(0))

    def _has_room(self) -> bool:
        """Whether another model fits, if need be in the place of one that is idle."""
        if len(self.loaded) < self.spec.holds:
            return True
        busy = {each.ask.model for each in self.running}
        idle = [each for each in self.loaded if each not in busy]
        if not idle:
            return False
        self.loaded.remove(idle[0])
        self._trace("unload", node=self.spec.id, model=idle[0])
        return True

    def _load(self, model: str) -> None:
        def loaded() -> None:
            self.loading = None
            self.loaded.append(model)
            self._trace("loaded", node=self.spec.id, model=model)
            self._news()
            self._go_on()

        self.loads += 1
        self._trace("load", node=self.spec.id, model=model)
        self._news()
        self.loading = Progress(self._events, self.spec.models[model], self._speed, loaded)

    def _start(self, caller: Caller) -> None:
        ask = caller.ask
        self.loaded.remove(ask.model)
        self.loaded.append(ask.model)

        def began() -> None:
            self.running[caller] = Progress(self._events, (ask.output - 1) / self.spec.decode, self._speed, ended)
            self._say(caller.began)

        def ended() -> None:
            del self.running[caller]
            self._say(caller.ended)
            self._go_on()

        first = ask.prompt / self.spec.prefill + 1 / self.spec.decode
        self.running[caller] = Progress(self._events, first, self._speed, began)

    @property
    def _speed(self) -> float:
        return 0.0 if self._frozen else self._factor

    def _pace(self) -> None:
        for progress in (*self.running.values(), *filter(None, [self.loading])):
            progress.set_speed(self._speed)

    def _say(self, what: Callable[..., None], *given: object) -> None:
        self._events.after(self._hop, what, *given)

    def _news(self) -> None:
        self._revision += 1
        self._changed(self.inventory())

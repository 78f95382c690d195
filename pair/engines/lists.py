"""Reads what one engine lists, and asks of each model what its list leaves out (EN-78). It knows no kind by name.

The list is read as often as the runner says. What is told of a single model is
asked once for each name and digest, beside the polls and two at a time, and is
kept with the list for the next start.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
from twisted.internet.defer import DeferredLock

from pair.engines.facts import Details
from pair.engines.inventory import ModelList
from pair.engines.probe import NoAnswer, Refused
from pair.logs import Logger
from pair.routing import names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from twisted.python.failure import Failure

    from pair.engines.charge import Charge, Entries, Surroundings
    from pair.engines.facts import Answer, Listing, ProbeRequest
    from pair.engines.tasks import Tasks
    from pair.privacy import Secret
    from pair.records.engines import EngineAddress, Model

AT_ONCE = 2
"""How many questions about single models are under way (EN-78)."""

log = Logger()


class Lists:
    """The lists of one engine.

    Args:
        charge: what the settings say of it.
        around: what all engines of the node share.
        entries: of this engine.
        tasks: runs the questions about single models.
        address: where it answers; None while it does not run.
        credential: what is sent to it as a bearer token.
        changed: called when a list was folded in, or could not be.

    Attributes:
        models: what is shown of it.
        loaded_only: it serves only what is in memory, whatever others of its kind do.
    """

    def __init__(
        self,
        charge: Charge,
        around: Surroundings,
        entries: Entries,
        tasks: Tasks,
        address: Callable[[], EngineAddress | None],
        credential: Callable[[], Secret | None],
        changed: Callable[[], None],
    ) -> None:
        self.models = ModelList(partial(names.key, charge.dialect.naming))
        self.loaded_only = False
        self._charge = charge
        self._around = around
        self._entries = entries
        self._tasks = tasks
        self._address = address
        self._credential = credential
        self._changed = changed
        self._reading = DeferredLock()
        self._bodies: object = None
        self._told: Listing | None = None
        self._completed: Listing | None = None
        self._details: dict[tuple[str, str | None], Details] = {}
        self._open: list[Model] = []
        self._asking: set[tuple[str, str | None]] = set()

    def remember(self) -> None:
        """Begin with what it listed before our start, if that is known."""
        remembered = self._around.memory.models(self._charge.id)
        if remembered is None:
            return
        self.models.remembered(remembered.models, remembered.at)
        for each in remembered.models:
            if each.digest is not None and (each.capabilities or each.context_max is not None):
                self._details[_key(each)] = Details(each.capabilities, each.context_max)

    async def read(self, address: EngineAddress, answered: dict[ProbeRequest, Answer]) -> None:
        """Ask for its lists; a question that has its answer is not asked again."""
        await self._reading.acquire()
        try:
            answers: dict[str, Answer] = {}
            for purpose, request in self._charge.kind.requests.items():
                if not purpose.startswith(("list", "loaded")):
                    continue
                try:
                    if request not in answered:
                        answered[request] = await self._around.ask(address, request, self._credential())
                except (Refused, NoAnswer):
                    continue
                answers[purpose] = answered[request]
            if self._address() == address:
                self._fold(answers)
                self._changed()
        finally:
            self._reading.release()

    def _fold(self, answers: Mapping[str, Answer]) -> None:
        # Most of the time nothing has changed, and then a long list need not be decoded.
        bodies = {purpose: (each.status, each.body) for purpose, each in answers.items()}
        if self._bodies != bodies:
            self._bodies = bodies
            self._told = self._offered(self._charge.kind.models(self._charge.id, answers))
            self._complete()
        if self._completed is None:
            self.models.failed()
            return
        self._show(self._completed)
        self._ask_for_details()

    def _show(self, listing: Listing) -> None:
        now = self._around.now()
        self.loaded_only = listing.loaded_only
        if self.models.read(listing, now):
            self._around.memory.keep_models(self._charge.id, listing.models, now).addErrback(self._unkept)
        if listing.dropped:
            self._entries.hold("too_many_models", dropped=listing.dropped)
        else:
            self._entries.end("too_many_models")

    def _offered(self, listing: Listing | None) -> Listing | None:
        """Only the models that the settings name, where they name any."""
        only = self._charge.settings.models
        if listing is None or not only:
            return listing
        return msgspec.structs.replace(listing, models=tuple(each for each in listing.models if each.id in only))

    def _unkept(self, failure: Failure) -> None:
        log.failure("The list of the engine {engine} could not be stored.", failure, engine=self._charge.id)

    # Single models

    def _complete(self) -> None:
        """Put together what the list says and what was told of its models."""
        self._completed = told = self._told
        if told is None:
            return
        listed = [(each, self._details.get(_key(each))) for each in told.models]
        self._details = {_key(model): details for model, details in listed if details is not None}
        models = tuple(model if details is None else details.added_to(model) for model, details in listed)
        self._completed = msgspec.structs.replace(told, models=models)

    def _ask_for_details(self) -> None:
        models: Sequence[Model] = () if self._told is None else self._told.models
        known = self._details.keys() | self._asking
        # The last is asked for first; so the list is turned round.
        self._open = [
            each
            for each in reversed(models)
            if _key(each) not in known and self._charge.kind.describe(each) is not None
        ]
        while self._open and len(self._asking) < AT_ONCE:
            self._tasks.run(self._ask_in_turn())

    async def _ask_in_turn(self) -> None:
        """Ask of one model after the other; the last of us to end shows what was told."""
        while self._open:
            model = self._open.pop()
            self._asking.add(_key(model))
            try:
                await self._ask(model)
            finally:
                self._asking.discard(_key(model))
        if not self._asking and self._address() is not None:
            self._complete()
            if self._completed is not None and self.models.models == "known":
                self._show(self._completed)
                self._changed()

    async def _ask(self, model: Model) -> None:
        address, request = self._address(), self._charge.kind.describe(model)
        if address is None or request is None:
            return
        try:
            answer = await self._around.ask(address, request, self._credential())
        except (Refused, NoAnswer):
            return  # asked again with the next poll
        self._details[_key(model)] = self._charge.kind.details(answer)


def _key(model: Model) -> tuple[str, str | None]:
    return model.id, model.digest

"""What a runner is given: its engine, its surroundings, and the book of entries for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pair.records.errors import Subject

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IReactorTime

    from pair.engines.children import Children
    from pair.engines.memory import EngineMemory
    from pair.engines.probe import Ask
    from pair.interfaces import IEngineKind, IErrorBook
    from pair.records.engines import EngineAddress
    from pair.routing.dialects import Dialect
    from pair.settings import EngineSettings


@dataclass(frozen=True)
class Charge:
    """One engine, as the settings have it.

    Attributes:
        addresses: where it is looked for; who else answers there keeps its place (``occupied``).
        guesses: where it may be found too.
        required: that nothing is found is an error.
    """

    id: str
    kind: IEngineKind
    dialect: Dialect
    settings: EngineSettings
    addresses: tuple[EngineAddress, ...] = ()
    guesses: tuple[EngineAddress, ...] = ()
    required: bool = False


@dataclass(frozen=True)
class Surroundings:
    """What the engines of one node share.

    Attributes:
        now: epoch milliseconds.
        own_ports: the ports that this process listens on.
        taken: these, and those of all our children: no engine is to be found there.
        reserved: the ports that no engine is given (EN-43).
        free: whether an engine could listen on a port of 127.0.0.1.
        in_flight: how many requests an engine is at, by its id.
    """

    clock: IReactorTime
    now: Callable[[], int]
    ask: Ask
    children: Children
    memory: EngineMemory
    errors: IErrorBook
    own_ports: Callable[[], frozenset[int]]
    taken: Callable[[], frozenset[int]]
    reserved: frozenset[int]
    free: Callable[[int], bool]
    in_flight: Callable[[str], int]


class Entries:
    """The error entries of one engine, each named by its condition: ``crashed`` is ``engines:crashed:<engine>``."""

    def __init__(self, engine: str, errors: IErrorBook) -> None:
        self._engine = engine
        self._errors = errors
        self._subject = Subject(component="engines", engine=engine)

    def hold(self, condition: str, **values: Any) -> None:
        """The condition holds."""
        self._errors.raise_entry(self._id(condition), subject=self._subject, engine=self._engine, **values)

    def end(self, *conditions: str) -> None:
        """They hold no more."""
        for condition in conditions:
            self._errors.clear(self._id(condition))

    def _id(self, condition: str) -> str:
        return f"engines:{condition}:{self._engine}"

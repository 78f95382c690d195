"""Stand-ins for what the data path is joined to: this node's engines, and books that remember."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from msgspec.structs import replace
from twisted.internet.defer import Deferred, fail, succeed
from zope.interface import implementer

from pair.engines.conditions import CONDITIONS as ENGINES
from pair.engines.kinds import embedded, llamacpp, ollama, openai_compatible
from pair.errors.book import ErrorBook
from pair.errors.conditions import CONDITIONS as ERRORS
from pair.errors.registry import Registry
from pair.events import Signal
from pair.interfaces import ILocalEngines, IRoutingPolicy
from pair.jobs.conditions import CONDITIONS as JOBS
from pair.proxy.conditions import CONDITIONS as PROXY
from pair.records.engines import EngineAddress, EngineInventory, NodeInventory
from pair.routing.policies import Ranked
from pair.supervision.conditions import CONDITIONS as SUPERVISION
from pair.test.routing.facts import LMSTUDIO

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from pair.privacy import Secret
    from pair.records.engines import Drain
    from pair.routing.candidates import Candidate, Request
    from pair.routing.dialects import Dialect
    from pair.routing.policies import View

DIALECTS = {
    each.kind: each
    for each in (ollama.DIALECT, llamacpp.DIALECT, embedded.DIALECT, openai_compatible.DIALECT, LMSTUDIO)
}


def error_book(node: str, now: Callable[[], int]) -> ErrorBook:
    """An empty book that knows the conditions of all areas."""
    return ErrorBook(node, Registry((*PROXY, *ERRORS, *JOBS, *ENGINES, *SUPERVISION)), now)


@implementer(ILocalEngines)
class FakeEngines:
    """The engines of a node, as a test says they are. What it is told is kept.

    Attributes:
        dead: Those that are not worth waiting for.
        addresses: Where an engine is, by its id, if not at a port of its own from 11435 on.
        credentials: What is sent to an engine, by its id.
        missing: Each ``note_missing``; it does not change the inventory.
        outcomes: Each ``note_outcome``.
        moved: The engines of each ``note_bytes``.
        reading: The lists being read: fire one to end its reading.
        refreshed: How often an engine's lists were asked for.
        reads_at_once: Whether a reading ends as it begins.
        drained: Whether the node takes no new work.
    """

    def __init__(self, node: str, *engines: EngineInventory) -> None:
        self.changed: Signal[NodeInventory] = Signal()
        self.dead: set[str] = set()
        self.addresses: dict[str, EngineAddress] = {}
        self.credentials: dict[str, Secret] = {}
        self.missing: list[tuple[str, str]] = []
        self.outcomes: list[tuple[str, bool]] = []
        self.moved: list[str] = []
        self.reading: dict[str, Deferred[None]] = {}
        self.refreshed: list[str] = []
        self.reads_at_once = True
        self.drained = False
        self._node = node
        self._engines = {each.status.id: each for each in engines}

    def put(self, engine: EngineInventory) -> None:
        """An engine is now so."""
        self._engines[engine.status.id] = engine
        self.changed.emit(self.inventory())

    def drain(self, drain: Drain | None) -> None:
        """The node takes no new work, or takes it again."""
        self.drained = drain is not None
        self.changed.emit(self.inventory())

    def set_status(self, engine: str, **fields: Any) -> None:
        """Change what is known of one engine."""
        known = self._engines[engine]
        self.put(replace(known, status=replace(known.status, **fields)))

    def stop(self, engine: str) -> None:
        """It runs no more."""
        self.set_status(engine, state="stopped", routable=False)

    def inventory(self) -> NodeInventory:
        """See :class:`pair.interfaces.ILocalEngines`, as all that follows."""
        return NodeInventory(self._node, tuple(self._engines.values()), self.drained)

    def dialect(self, engine: str) -> Dialect:
        return DIALECTS[self._engines[engine].status.kind]

    def address(self, engine: str) -> EngineAddress | None:
        if not self._engines[engine].status.routable:
            return None
        own = EngineAddress("127.0.0.1", 11435 + list(self._engines).index(engine))
        return self.addresses.get(engine, own)

    def credential(self, engine: str) -> Secret | None:
        return self.credentials.get(engine)

    def alive(self, engine: str) -> bool:
        return engine not in self.dead

    def note_missing(self, engine: str, model: str) -> None:
        self.missing.append((engine, model))

    def note_outcome(self, engine: str, good: bool) -> None:
        self.outcomes.append((engine, good))

    def note_bytes(self, engines: Sequence[str]) -> None:
        self.moved += engines

    def refresh(self, engine: str) -> Deferred[None]:
        self.refreshed.append(engine)
        if self.reads_at_once:
            return succeed(None)
        reading = self.reading[engine] = Deferred()
        return reading


class MemoryStore:
    """A store of choices. With ``broken`` it takes none."""

    def __init__(self) -> None:
        self.broken = False
        self._connection = sqlite3.connect(":memory:")
        self._connection.execute("CREATE TABLE choices (key TEXT PRIMARY KEY, value BLOB, at INTEGER)")

    def read(self, work: Callable[[Any], Any]) -> Any:
        """See :class:`pair.store.Store`."""
        return work(self._connection)

    def write(self, work: Callable[[Any], Any]) -> Deferred[Any]:
        """The same."""
        return fail(OSError()) if self.broken else succeed(work(self._connection))

    def close(self) -> None:
        """The end."""
        self._connection.close()


@implementer(IRoutingPolicy)
class Backwards:
    """By node id from the end."""

    name = "backwards"

    def rank(self, request: Request, candidates: Sequence[Candidate], view: View) -> Sequence[Ranked]:
        return [Ranked(each, 0) for each in sorted(candidates, key=lambda each: each.node, reverse=True)]

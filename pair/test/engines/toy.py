"""A made-up kind of engine, and a made-up host for it to run on: ports, processes, memory, entries.

Nothing here is real, so that a test decides what happens and when.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ProcessDone, ProcessTerminated
from twisted.internet.interfaces import IReactorProcess
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from pair.engines.charge import Charge, Surroundings
from pair.engines.children import Children
from pair.engines.conditions import CONDITIONS
from pair.engines.facts import (
    Answer,
    Answers,
    Details,
    EnginePorts,
    EngineTiming,
    Found,
    HostFacts,
    Identity,
    Launch,
    LaunchOptions,
    Listing,
    ProbeRequest,
)
from pair.engines.memory import RememberedModels
from pair.engines.probe import NoAnswer, Refused
from pair.engines.processes import ChildRecord, Mark, same
from pair.events import Signal
from pair.interfaces import IEngineKind, IErrorBook
from pair.records.engines import EngineAddress, LoadedInstance, Model
from pair.routing.dialects import Dialect
from pair.settings import EngineSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from twisted.internet.protocol import ProcessProtocol

    from pair.privacy import Secret
    from pair.records.errors import ServiceError, Subject

STANDARD = 7000
BASE = 7100
PROGRAM = Found("/opt/toy/bin/toy", "path")
SHIM = "/usr/bin/python"


@implementer(IEngineKind)
class Toy:
    """Says ``toy VERSION``; its list has a name a line, with ``*`` behind what is in memory.

    A name may have a digest behind an ``@``; of such a model ``/more/NAME`` tells the context length. A lone dash
    says that it loads nothing for a request.
    """

    name = "toy"
    facade = "lmstudio"
    dialect = Dialect(kind="toy", routes={}, eligible="on_disk")
    control = "process"
    places: tuple[int, ...] = ()
    ports = EnginePorts(standard=STANDARD, base=BASE, probe=(7050,))
    timing = EngineTiming(ready=30.0, health=5.0, grace=5.0)
    requests: Mapping[str, ProbeRequest] = {
        "identity": ProbeRequest("GET", "/who"),
        "health": ProbeRequest("GET", "/health"),
        "list": ProbeRequest("GET", "/list"),
        "loaded": ProbeRequest("GET", "/list"),
    }

    def locate(self, facts: HostFacts) -> Sequence[Found]:
        return (PROGRAM,) if facts.is_executable(PROGRAM.path) else ()

    def configured(self, facts: HostFacts) -> Sequence[int]:
        return self.places

    def identify(self, answers: Answers) -> Identity | None:
        answer = answers.get("identity")
        if answer is None or not answer.body.startswith(b"toy "):
            return None
        return Identity(version=answer.body.decode().split()[1])

    def launch(self, found: Found, port: int, options: LaunchOptions) -> Launch:
        return Launch((found.path, "--port", str(port)), {"TOY_KEY": "sesame"})

    def models(self, engine: str, answers: Answers) -> Listing | None:
        answer = answers.get("list")
        if answer is None or answer.status != 200 or answer.body == b"null":
            return None
        lines = answer.body.decode().split()
        models = tuple(self._model(engine, line) for line in lines if line != "-")
        return Listing(models, loaded_only="-" in lines)

    def describe(self, model: Model) -> ProbeRequest | None:
        """Only of what is told with a digest there is more to know."""
        return ProbeRequest("GET", f"/more/{model.id}") if model.digest else None

    def details(self, answer: Answer) -> Details:
        return Details(context_max=int(answer.body)) if answer.status == 200 else Details()

    def slots(self, answers: Answers) -> int | None:
        return 3

    def _model(self, engine: str, line: str) -> Model:
        name, _, digest = line.rstrip("*").partition("@")
        loaded = (LoadedInstance(instance=name),) if line.endswith("*") else ()
        return Model(id=name, engine=engine, facade=self.facade, digest=digest or None, loaded=loaded)


class Wire:
    """Who answers what, by port.

    A port that is not set refuses, one set to None gave no answer in time, and
    one in ``hangs`` gives none until it is cancelled.
    """

    def __init__(self) -> None:
        self.servers: dict[int, Callable[[ProbeRequest], Answer] | None] = {}
        self.hangs: set[int] = set()
        self.asked: list[tuple[int, str]] = []
        self.credentials: list[Secret | None] = []

    def __call__(self, address: EngineAddress, request: ProbeRequest, credential: Secret | None) -> Deferred[Answer]:
        self.asked.append((address.port, request.path))
        self.credentials.append(credential)
        if address.port in self.hangs:
            return Deferred()
        if address.host == "::1" or address.port not in self.servers:
            return fail(Refused())
        server = self.servers[address.port]
        return fail(NoAnswer()) if server is None else succeed(server(request))

    def toy(self, port: int, models: str = "alpha beta*", version: str = "1.0", **statuses: int) -> None:
        """A toy engine answers at ``port``; ``statuses`` by last part of the path."""
        bodies = {"/who": f"toy {version}", "/health": "", "/list": models}

        def answer(request: ProbeRequest) -> Answer:
            status = statuses.get(request.path[1:], 200)
            return Answer(status, {}, bodies[request.path].encode() if status == 200 else b"")

        self.servers[port] = answer

    def stranger(self, port: int) -> None:
        """Something else answers at ``port``."""
        self.servers[port] = lambda request: Answer(404, {}, b"<html>")


class Table:
    """A process table. A process in ``deaf`` ignores TERM; one in ``immortal`` KILL too."""

    boot = "boot-1"

    def __init__(self) -> None:
        self.marks: dict[int, Mark] = {}
        self.kin: dict[int, tuple[int, ...]] = {}
        self.deaf: set[int] = set()
        self.immortal: set[int] = set()
        self.sent: list[tuple[int, int, bool]] = []
        self.dying: dict[int, Callable[[int], None]] = {}

    def look(self, pid: int) -> Mark | None:
        return self.marks.get(pid)

    def descendants(self, pid: int) -> tuple[Mark, ...]:
        return tuple(self.marks[each] for each in self.kin.get(pid, ()))

    def send(self, mark: Mark, number: int, group: bool = False) -> bool:
        if not same(mark, self.look(mark.pid)):
            return False
        self.sent.append((mark.pid, number, group))
        if mark.pid not in self.immortal and (number == signal.SIGKILL or mark.pid not in self.deaf):
            self.end(mark.pid, number)
        return True

    def end(self, pid: int, number: int = 0) -> None:
        """The process ends, by a signal or with code 0."""
        del self.marks[pid]
        if pid in self.dying:
            self.dying.pop(pid)(number)


class Transport:
    """The parent's end of a made-up child."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.written = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def closeStdin(self) -> None:
        self.closed = True

    def loseConnection(self) -> None:
        self.closed = True


@implementer(IReactorProcess)
class Spawner:
    """Makes children in a :class:`Table`; what they were asked to be is kept."""

    def __init__(self, table: Table) -> None:
        self.spawned: list[tuple[Sequence[str], Mapping[str, str]]] = []
        self.transports: list[Transport] = []
        self.protocols: list[ProcessProtocol] = []
        self._table = table

    def spawnProcess(  # type: ignore[override]
        self,
        processProtocol: ProcessProtocol,  # noqa: N803
        executable: str,
        args: Sequence[str],
        env: Mapping[str, str],
        childFDs: Mapping[int, int | str],  # noqa: N803
    ) -> Transport:
        pid = 1000 + len(self.spawned)
        self.spawned.append((args, env))
        transport = Transport(pid)
        self.transports.append(transport)
        self.protocols.append(processProtocol)
        processProtocol.makeConnection(transport)
        self._table.marks[pid] = Mark(pid, float(pid), SHIM)

        def died(number: int) -> None:
            error = ProcessTerminated(signal=number) if number else ProcessDone(None)
            processProtocol.processExited(Failure(error))
            processProtocol.processEnded(Failure(error))

        self._table.dying[pid] = died
        return transport


class Memory:
    """An :class:`~pair.engines.memory.EngineMemory` that forgets with the test."""

    def __init__(self) -> None:
        self.children: dict[str, ChildRecord] = {}
        self.lists: dict[str, RememberedModels] = {}
        self.broken = False
        self.writes = 0

    def child(self, engine: str) -> ChildRecord | None:
        return self.children.get(engine)

    def keep_child(self, record: ChildRecord) -> Deferred[None]:
        if self.broken:
            return fail(OSError("disk full"))
        self.children[record.engine] = record
        return succeed(None)

    def forget_child(self, engine: str) -> Deferred[None]:
        self.children.pop(engine, None)
        return succeed(None)

    def models(self, engine: str) -> RememberedModels | None:
        return self.lists.get(engine)

    def keep_models(self, engine: str, models: Sequence[Model], at: int) -> Deferred[None]:
        self.writes += 1
        self.lists[engine] = RememberedModels(at, tuple(models))
        return succeed(None)


@implementer(IErrorBook)
class Book:
    """The entries that hold, by condition: ``crashed`` for ``engines:crashed:toy``. Each must be a declared one."""

    def __init__(self) -> None:
        self.changed: Signal[ServiceError] = Signal()
        self.removed: Signal[str] = Signal()
        self.held: dict[str, dict[str, Any]] = {}
        self.raised: list[str] = []

    def raise_entry(self, id: str, *, subject: Subject | None = None, **values: Any) -> None:
        declared = next(each for each in CONDITIONS if each.stem == id.rpartition(":")[0])
        declared.text.format(**values)
        condition = id.split(":")[1]
        self.held[condition] = values
        self.raised.append(condition)

    def clear(self, id: str) -> None:
        self.held.pop(id.split(":")[1], None)


class Host:
    """All of it together."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.wire = Wire()
        self.table = Table()
        self.spawner = Spawner(self.table)
        self.memory = Memory()
        self.book = Book()
        self.own_ports: frozenset[int] = frozenset()
        self.held_ports: set[int] = set()
        self.in_flight = 0
        self.children = Children(
            self.spawner, self.clock, self.table, self.memory, {"PATH": "/bin"}, self.now, "/home/me"
        )

    def now(self) -> int:
        """Epoch milliseconds."""
        return round(self.clock.seconds() * 1000)

    def around(self) -> Surroundings:
        """What a runner on this host is given."""
        return Surroundings(
            clock=self.clock,
            now=self.now,
            ask=self.wire,
            children=self.children,
            memory=self.memory,
            errors=self.book,
            own_ports=lambda: self.own_ports,
            taken=lambda: self.own_ports,
            reserved=frozenset(),
            free=lambda port: port not in self.held_ports,
            in_flight=lambda engine: self.in_flight,
        )

    def tie(self, pid: int, port: int) -> None:
        """From now on what answers at ``port`` ends with the process."""
        died = self.table.dying.get(pid, lambda number: None)

        def both(number: int) -> None:
            self.wire.servers.pop(port, None)
            died(number)

        self.table.dying[pid] = both

    def pass_time(self, seconds: float, step: float = 0.1) -> None:
        """Let time pass in small steps, so that what waits for what sees it in order."""
        self.clock.pump([step] * round(seconds / step))


def charge(
    settings: EngineSettings | None = None,
    ports: Collection[int] = (STANDARD,),
    guesses: Collection[int] = (),
    required: bool = False,
    host: str = "127.0.0.1",
) -> Charge:
    """The toy engine, looked for at these ports."""
    return Charge(
        id="toy",
        kind=Toy(),
        dialect=Toy.dialect,
        settings=settings or EngineSettings(),
        addresses=tuple(EngineAddress(host, port) for port in ports),
        guesses=tuple(EngineAddress(host, port) for port in guesses),
        required=required,
    )

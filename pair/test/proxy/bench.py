"""A facade of a node in memory, whole but for the sockets: what the tests of the data path are made on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from pair.jobs.ledger import JobLedger
from pair.protocols.calls import Target
from pair.protocols.http_server import HTTPServerFactory, HTTPServerProtocol
from pair.protocols.pool import ClientPool
from pair.proxy.admission import Admission
from pair.proxy.browser import BrowserPolicy
from pair.proxy.identity import Banners
from pair.proxy.listings import Listings
from pair.proxy.meters import Meters
from pair.proxy.plane import Budget, Plane
from pair.proxy.replies import family_of, refusal, reply
from pair.proxy.scheduling import SchedulerService
from pair.proxy.sweep import Sweep
from pair.routing.policies.pressure import PressurePolicy
from pair.settings import Proxy
from pair.test.fakes import FakeEngines, error_book
from pair.test.proxy.network import Client, Engine, Socket, response
from pair.test.routing.facts import engine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pair.interfaces import IRoutingPolicy
    from pair.protocols.http1 import Fields
    from pair.records.engines import EngineInventory
    from pair.records.jobs import Job
    from pair.routing.candidates import NodeFacts
    from pair.routing.labels import LabelRule

NODE = "7ab2"
NONCE = "0123abcd"
START = 1_700_000_000.0
"""Where the clock stands at first."""

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
LINE = b'{"message":{"content":"x"},"done":false}\n'
DONE = b'{"message":{"content":""},"done":true,"prompt_eval_count":3,"eval_count":5}\n'


class FakeMembers:
    """Other members. Provides :class:`pair.proxy.plane.Members`.

    Attributes:
        machines: each of them, as far as we connect to it.
        away: those of whom nobody knows where they are.
        dead: those that are proven to be.
        alive: those of whom bytes were told, each time.
        silences: since when nothing has come of one, in seconds; long, where it is not said.
    """

    def __init__(self, clock: Clock, nodes: Sequence[str]) -> None:
        self.machines = {each: Engine(clock) for each in nodes}
        self.pool = ClientPool(clock, lambda target: self.machines[target.host])
        self.away: set[str] = set()
        self.dead: set[str] = set()
        self.alive: list[str] = []
        self.silences: dict[str, float] = {}

    def target(self, node: str, facade: str) -> Target | None:
        if node in self.away:
            return None
        return Target(f"{node}/{facade}", node, 11434, f"{node}:11434".encode(), idle_seconds=60.0)

    def silence(self, node: str) -> float:
        return self.silences.get(node, 3600.0)

    def gone(self, node: str) -> bool:
        return node in self.dead

    def moved(self, node: str) -> None:
        self.alive.append(node)


class Bench:
    """One facade with a client, its engines, and a clock that a test turns.

    Args:
        engines: of this node; without any, ``a`` and ``b``, both Ollama, with the model ``m``.
        facade: its name.
        allowed_hosts: as in the settings.
        origins: as in the settings.
        rules: of routing.
        policy: of routing.
        peers: the other members, by their UUIDs.
        settings: of ``[proxy]``, where they are not the default.
    """

    def __init__(
        self,
        *engines: EngineInventory,
        facade: str = "ollama",
        allowed_hosts: Sequence[str] = (),
        origins: Sequence[str] = (),
        rules: Sequence[LabelRule] = (),
        policy: IRoutingPolicy | None = None,
        peers: Sequence[NodeFacts] = (),
        **settings: Any,
    ) -> None:
        self.clock = clock = Clock()
        clock.rightNow = START
        self.facade = facade
        if not engines:
            engines = (engine("ollama", "m", name="a"), engine("ollama", "m", name="b"))
        self.engines = FakeEngines(NODE, *engines)
        self.machines = {each.status.id: Engine(clock) for each in engines}
        self.errors = error_book(NODE, self.now)
        self.jobs = JobLedger(NODE, "f" * 16, self.now)
        self.scheduling = SchedulerService(
            clock,
            clock.seconds,
            NODE,
            self.engines,
            policy or PressurePolicy(),
            rules,
            lambda kinds: ("os=linux", *(f"engine={each}" for each in sorted(set(kinds)))),
            False,
            self.errors,
        )
        self.members = FakeMembers(clock, [each.id for each in peers])
        self.pool = ClientPool(clock, lambda target: self.machines[target.key])
        self.sweep = Sweep(clock)
        self.settings = replace(Proxy(), **settings)
        self.plane = Plane(
            clock,
            clock.seconds,
            NODE,
            self.settings,
            self.engines,
            self.scheduling,
            self.jobs,
            self.pool,
            self.sweep,
            self.errors,
            Meters(clock.seconds),
            Budget(self.settings.max_active),
            Budget(self.settings.body_budget),
            random=lambda: 0.5,
            members=self.members,
        )
        self._browser = BrowserPolicy(allowed_hosts, origins)
        self.admission = self.admission_of(facade)
        self.http = HTTPServerFactory(clock, self.admission.received, self._refusal)
        self.scheduling.startService()
        for each in peers:
            self.scheduling.set_peer(each)
        self.sweep.startService()
        self.client = self.connect()

    def now(self) -> int:
        """In epoch milliseconds."""
        return int(self.clock.seconds() * 1000)

    def admission_of(self, facade: str) -> Admission:
        """What takes the requests of one facade of this node."""
        nodes = self.scheduling.catalogue.nodes
        listings = Listings(self.clock, self.engines, nodes, self.settings.list_wait, self.settings.explain)
        return Admission(self.plane, facade, self._browser, listings, Banners(self.engines), NONCE, "run")

    def connect(self, peer: str = "127.0.0.1") -> Client:
        """One more client."""
        protocol = self.http.buildProtocol(None)
        assert isinstance(protocol, HTTPServerProtocol)
        socket = Socket(self.clock, peer)
        socket.protocol = protocol
        protocol.makeConnection(socket)
        return Client(socket)

    def advance(self, seconds: float = 0) -> None:
        """Time passes, in steps in which what repeats is seen to; at least a few turns do."""
        for _ in range(3):
            self.clock.advance(0)
        while seconds > 0:
            self.clock.advance(min(seconds, 0.5))
            seconds -= 0.5

    @property
    def a(self) -> Engine:
        """The engine that comes first."""
        return next(iter(self.machines.values()))

    @property
    def b(self) -> Engine:
        """The engine that comes second."""
        return list(self.machines.values())[1]

    @property
    def job(self) -> Job:
        """The newest."""
        return max((*self.jobs.active(), *self.jobs.ended()), key=lambda each: int(each.id.partition(".")[2]))

    @property
    def ending(self) -> tuple[str, str | None]:
        """State and error code of the newest job."""
        return self.job.state, self.job.error.code if self.job.error else None

    @property
    def outcomes(self) -> list[str]:
        """How the attempts of the newest job ended."""
        return [each.outcome for each in self.job.attempts]

    @property
    def entries(self) -> list[str]:
        """The ids of the error entries."""
        return [each.id for each in self.errors.entries()]

    def contacted(self) -> list[str]:
        """The engines that were ever connected to."""
        return [name for name, each in self.machines.items() if each.contacted]

    def in_use(self) -> dict[str, int]:
        """What is held for requests, by what is not at zero (RT-42, PX-22, PX-29)."""
        held = {
            "active": self.plane.active.used,
            "bodies": self.plane.bodies.used,
            "underway": len(self.plane.underway),
            "reservations": len(self.scheduling.book),
            "jobs": len(self.jobs.active()),
        }
        return {name: number for name, number in held.items() if number}

    def close(self) -> None:
        """All clients leave and all that repeats ends; what is scheduled still was forgotten."""
        self.http.abort_all()
        self.pool.close()
        self.members.pool.close()
        self.advance()
        self.scheduling.stopService()
        self.sweep.stopService()
        self.advance()

    def _refusal(self, status: int, code: str) -> tuple[Fields, bytes]:
        answer = reply(refusal(code), family_of(self.facade, "/"), "run.0")
        return answer.fields, answer.body


class BenchCase(SynchronousTestCase):
    """A case whose benches must be found with nothing left in use, and what several of them say."""

    def setUp(self) -> None:
        """No bench yet."""
        self._benches: list[Bench] = []

    def bench(self, *engines: EngineInventory, **settings: Any) -> Bench:
        """A bench that is checked when the test has ended."""
        made = Bench(*engines, **settings)
        self._benches.append(made)
        return made

    def ask(self, *engines: EngineInventory, path: str = "/api/chat", body: Any = CHAT, **settings: Any) -> Bench:
        """A bench whose client has asked; the first engine is contacted, if one may be."""
        bench = self.bench(*engines, **settings)
        bench.client.asks("POST", path, body)
        bench.advance()
        return bench

    def assert_served_by_b(self, bench: Bench) -> None:
        """The second engine answers, and the client has that answer and no other."""
        bench.advance()
        bench.b.answers(response(200, DONE))
        self.assertEqual((bench.client.answer.status, bench.client.answer.body), (200, DONE))
        self.assertEqual(bench.client.received.count(b"HTTP/1.1"), 1)
        self.assertEqual(bench.job.state, "completed")

    def tearDown(self) -> None:
        """Counts are back at zero on every path, and no timer is left."""
        for each in self._benches:
            each.close()
            self.assertEqual(each.in_use(), {})
            self.assertEqual([str(call) for call in each.clock.getDelayedCalls()], [])

    def assert_refused(self, bench: Bench, status: int, code: str) -> None:
        """The client has an answer of ours, and nothing is held for it."""
        answer = bench.client.answer
        self.assertEqual((answer.status, answer.fields.get("x-pair-error")), (status, code))
        self.assertEqual(bench.in_use(), {})

"""The engines of a node together (EN-1 to EN-12, EN-108)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from twisted.internet.defer import Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from pair.engines.facts import EnginePorts, Found, HostFacts
from pair.engines.kinds.llamacpp import LlamaCpp
from pair.engines.kinds.ollama import Ollama
from pair.engines.kinds.openai_compatible import OpenAICompatible
from pair.engines.service import STANDBY_ENGINE, EngineService, Sweep, charges
from pair.interfaces import ILocalEngines
from pair.privacy import Secret
from pair.records.engines import Drain, EngineAddress, EngineInventory, NodeInventory
from pair.settings import EngineSettings, Settings
from pair.test.engines.toy import PROGRAM, STANDARD, Host, Toy

if TYPE_CHECKING:
    from collections.abc import Callable


class Spare(Toy):
    """The toy in the place of the embedded engine: installed, with no port of its own."""

    name = STANDBY_ENGINE
    ports = EnginePorts(base=8081)

    def locate(self, facts: HostFacts) -> tuple[Found, ...]:
        return (PROGRAM,)


class Node(Host):
    """A host with the reactor that the service is given: time and processes."""

    def reactor(self) -> Any:
        clock = self.clock
        clock.spawnProcess = self.spawner.spawnProcess  # type: ignore[attr-defined]
        return clock


class ServiceCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.host = Node()
        self.wire = self.host.wire
        self.threads = 0

    def in_thread(self, work: Callable[[], Sweep]) -> Deferred[Sweep]:
        self.threads += 1
        return succeed(work())

    def make(self, settings: Settings | None = None, environment: dict[str, str] | None = None) -> EngineService:
        return EngineService(
            self.host.reactor(),
            settings or Settings(),
            [Toy(), Spare(), OpenAICompatible()],
            node="n1",
            errors=self.host.book,
            memory=self.host.memory,
            now=self.host.now,
            own_ports=lambda: self.host.own_ports,
            in_flight=lambda engine: 0,
            environment=environment or {},
            ask=self.wire,
            processes=self.host.table,
            free=lambda port: True,
            in_thread=self.in_thread,
        )

    def start(self, settings: Settings | None = None) -> EngineService:
        service = self.make(settings)
        self.successResultOf(service.startService())
        self.addCleanup(self.stop, service)
        return service

    def stop(self, service: EngineService) -> None:
        stopping = service.stopService()
        self.host.pass_time(5)
        self.successResultOf(stopping)
        self.assertEqual(self.host.clock.getDelayedCalls(), [])

    def engine(self, service: EngineService, name: str) -> EngineInventory:
        return next(each for each in service.inventory().engines if each.status.id == name)


class DrainTests(ServiceCase):
    """RT-22: the flag is this node's, and no engine is told."""

    def test_drained(self) -> None:
        """It stands in the inventory with its reason, and each change of it is told once."""
        service = self.start()
        seen: list[NodeInventory] = []
        service.changed.subscribe(seen.append)
        before = service.inventory()
        for drain in (Drain("paint"), Drain("paint"), Drain(), None, None):
            service.drain(drain)
        told = [(each.drained, each.drain_reason) for each in seen]
        self.assertEqual(told, [(True, "paint"), (True, None), (False, None)])
        self.assertEqual(service.inventory(), before)


class EngineServiceTests(ServiceCase):
    def test_interface(self) -> None:
        """It is what the data path asks for."""
        verifyObject(ILocalEngines, self.make())

    def test_inventory(self) -> None:
        """All engines, in order of their ids."""
        settings = msgspec.structs.replace(
            Settings(), embedded="off", engines={"far": EngineSettings(kind="openai-compatible", url="http://[::1]:9")}
        )
        self.wire.toy(STANDARD)
        service = self.start(settings)
        inventory = service.inventory()
        self.assertEqual(
            [(each.status.id, each.status.kind, each.status.state) for each in inventory.engines],
            [("embedded", "embedded", "stopped"), ("far", "openai-compatible", "absent"), ("toy", "toy", "running")],
        )
        self.assertEqual(inventory.node, "n1")

    def test_questions(self) -> None:
        """What the data path asks of one engine; an unknown one is an error."""
        self.wire.toy(STANDARD)
        service = self.start()
        self.assertEqual(service.address("toy"), EngineAddress("127.0.0.1", STANDARD))
        self.assertEqual(
            (service.dialect("toy").kind, service.alive("toy"), service.credential("toy")), ("toy", True, None)
        )
        self.assertRaises(KeyError, service.dialect, "none")

    def test_news(self) -> None:
        """What the data path tells reaches the engine, and each change is told on."""
        self.wire.toy(STANDARD)
        service = self.start()
        heard: list[NodeInventory] = []
        service.changed.subscribe(heard.append)
        for _ in range(3):
            service.note_outcome("toy", False)
        service.note_bytes(["toy"])
        service.note_missing("toy", "alpha")
        toy = self.engine(service, "toy")
        self.assertEqual((toy.status.health, [each.id for each in toy.models]), ("degraded", ["beta"]))
        self.assertEqual((len(heard), heard[-1]), (2, service.inventory()))
        self.successResultOf(service.refresh("toy"))
        self.assertEqual(len(self.engine(service, "toy").models), 2)

    def test_polls(self) -> None:
        """Each engine is polled at its kind's pace, and the host searched once a minute, off the reactor (EN-7)."""
        self.start()
        self.wire.asked.clear()
        self.threads = 0
        self.host.pass_time(60, 1)
        self.assertEqual(self.wire.asked.count((STANDARD, "/who")), 12 * 2)  # at both loopback addresses
        self.assertEqual(self.threads, 1)

    def test_credential(self) -> None:
        """The token of an engine by URL is read anew with each search (EN-5)."""
        environment = {"KEY": "one"}
        settings = msgspec.structs.replace(
            Settings(),
            engines={"far": EngineSettings(kind="openai-compatible", url="http://127.0.0.1:9", credential_env="KEY")},
        )
        service = self.make(settings, environment)
        self.successResultOf(service.startService())
        self.assertEqual(service.credential("far"), Secret("one"))
        self.assertIsNone(service.credential("toy"))
        environment["KEY"] = "two"
        self.host.pass_time(61, 1)
        self.assertEqual(service.credential("far"), Secret("two"))
        self.stop(service)

    def test_configured(self) -> None:
        """An engine is looked for where its own files say; one given by URL is there and nowhere else (EN-9)."""
        self.patch(Toy, "places", (7070,))
        self.wire.toy(7070)
        service = self.start()
        self.assertEqual(service.address("toy"), EngineAddress("127.0.0.1", 7070))
        self.stop(service)
        far = EngineSettings(kind="toy", url="http://127.0.0.1:7071")
        service = self.start(msgspec.structs.replace(Settings(), engines={"far": far}))
        self.assertIsNone(service.address("far"))

    def test_search_that_fails(self) -> None:
        """A search of the host that fails is logged, and engines are looked for all the same."""
        self.wire.toy(STANDARD)
        service = self.make()
        service._in_thread = lambda work: fail(OSError())
        self.successResultOf(service.startService())
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 2)
        self.assertEqual(self.engine(service, "toy").status.state, "running")
        self.stop(service)

    def test_stop_before_started(self) -> None:
        """A stop in the middle of the start leaves nothing under way."""
        self.wire.hangs.add(STANDARD)
        service = self.make()
        started = service.startService()
        self.assertNoResult(started)
        self.successResultOf(service.stopService())
        self.successResultOf(started)
        self.assertEqual(self.host.clock.getDelayedCalls(), [])


class StandbyEngineTests(ServiceCase):
    def test_alone(self) -> None:
        """Where nothing else runs the embedded engine is started at once (EN-108)."""
        service = self.start()
        self.assertEqual(self.engine(service, STANDBY_ENGINE).status.state, "starting")

    def test_not_alone(self) -> None:
        """Where another engine runs at the first detection, it is not."""
        self.wire.toy(STANDARD)
        service = self.start()
        self.host.pass_time(10)
        self.assertEqual(self.engine(service, STANDBY_ENGINE).status.state, "stopped")

    def test_makes_way(self) -> None:
        """It is stopped when another engine has run for 60 s."""
        service = self.start()
        self.wire.toy(8081)
        self.host.tie(1000, 8081)
        self.host.pass_time(2)
        self.assertTrue(self.engine(service, STANDBY_ENGINE).status.routable)
        self.wire.toy(STANDARD)
        self.host.pass_time(60, 0.5)
        self.assertTrue(self.engine(service, STANDBY_ENGINE).status.routable)
        self.host.pass_time(15, 0.5)
        status = self.engine(service, STANDBY_ENGINE).status
        self.assertEqual((status.state, status.desired), ("stopped", "off"))

    def test_off(self) -> None:
        """``off``: never; so with the mode of its table."""
        for settings in (
            msgspec.structs.replace(Settings(), embedded="off"),
            msgspec.structs.replace(Settings(), engines={STANDBY_ENGINE: EngineSettings(mode="off")}),
        ):
            service = self.make(settings)
            self.successResultOf(service.startService())
            self.assertEqual(self.engine(service, STANDBY_ENGINE).status.state, "stopped")
            self.stop(service)

    def test_taken_back(self) -> None:
        """No port of a child of ours is taken for another engine (EN-10)."""
        service = self.start(msgspec.structs.replace(Settings(), engines={"toy": EngineSettings(port=8081)}))
        self.assertEqual(self.engine(service, STANDBY_ENGINE).status.state, "starting")
        self.assertIn("8082", self.host.spawner.spawned[0][0])


class ChargesTests(SynchronousTestCase):
    def addresses(self, kind: Any, settings: Settings | None = None, **environment: str) -> set[tuple[str, int]]:
        (found,) = charges(settings or Settings(), [kind], environment)
        return {(each.host, each.port) for each in (*found.addresses, *found.guesses)}

    def test_standard_port(self) -> None:
        """The kind's standard and probe ports, at both loopback addresses (EN-9)."""
        self.assertEqual(self.addresses(Ollama()), {("127.0.0.1", 11434), ("::1", 11434)})
        self.assertEqual(self.addresses(LlamaCpp()), {("127.0.0.1", 8080), ("::1", 8080)})

    def test_configured_port(self) -> None:
        """The port that is set, before all others."""
        settings = msgspec.structs.replace(Settings(), engines={"ollama": EngineSettings(port=11500)})
        (found,) = charges(settings, [Ollama()], {})
        self.assertEqual([each.port for each in found.addresses], [11500, 11500, 11434, 11434])

    def test_alias(self) -> None:
        """The local target of ``OLLAMA_HOST``, for the kind that it is about; another machine is ignored (EN-53)."""
        self.assertIn(("127.0.0.1", 11500), self.addresses(Ollama(), OLLAMA_HOST="127.0.0.1:11500"))
        self.assertNotIn(("127.0.0.1", 11500), self.addresses(LlamaCpp(), OLLAMA_HOST="127.0.0.1:11500"))
        self.assertEqual(len(self.addresses(Ollama(), OLLAMA_HOST="10.0.0.1:11500")), 2)

    def test_by_url(self) -> None:
        """X07: as many as are set, each at its own address; no resolver is asked for ``localhost`` (EN-3, EN-4)."""
        settings = msgspec.structs.replace(
            Settings(),
            engines={
                "a": EngineSettings(kind="openai-compatible", url="http://localhost:8000/v1"),
                "b": EngineSettings(
                    kind="openai-compatible", url="https://gpu.lan", remote=True, routes=("/v1/rerank",)
                ),
                "c": EngineSettings(mode="off"),
            },
        )
        first, second = charges(settings, [OpenAICompatible()], {})
        self.assertEqual(first.addresses, (EngineAddress("127.0.0.1", 8000), EngineAddress("::1", 8000)))
        self.assertEqual(second.addresses, (EngineAddress("gpu.lan", 443, True),))
        self.assertIn("POST /v1/rerank", second.dialect.routes["lmstudio"])
        self.assertEqual((first.id, first.kind.control), ("a", "none"))

    def test_required(self) -> None:
        """``on`` makes an engine one that must be there."""
        modes = {"ollama": EngineSettings(mode="on")}
        found = charges(
            msgspec.structs.replace(Settings(), engines=modes, embedded="on"), [Ollama(), LlamaCpp(), Spare()], {}
        )
        self.assertEqual([each.required for each in found], [True, False, True])

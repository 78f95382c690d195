"""Tests of :mod:`pair.proxy.facades`: all facades of a node, and what people choose for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.defer import succeed
from zope.interface.verify import verifyObject

from pair.choices import Choices, SettingLocked, facade_port, served_facades
from pair.hostports import Holder
from pair.proxy.facades import Facades, NoSuchFacade, PortOccupied, PortReserved
from pair.proxy.listeners import PortDenied
from pair.records.engines import EngineAddress
from pair.settings import load
from pair.supervision.components import IComponents
from pair.test.fakes import MemoryStore
from pair.test.proxy.bench import CHAT, DONE, LINE, NONCE, BenchCase
from pair.test.proxy.network import LAST_CHUNK, Client, Engine, Ports, Socket, chunk, stream
from pair.test.routing.facts import engine

if TYPE_CHECKING:
    from pair.records.endpoints import Endpoint

BLOCKED = "proxy:alias_blocked:ollama"


class FacadesCase(BenchCase):
    """Both facades of a node."""

    options: tuple[str, ...] = ()
    environment: dict[str, str] = {}

    def setUp(self) -> None:
        """They run, on a host on which nothing listens."""
        super().setUp()
        self.ports = Ports()
        self.node = self.bench(engine("ollama", "m", name="a"), engine("llamacpp", loaded=("m",), name="b"))
        self.node.machines["ourselves"] = Engine(self.node.clock)
        self.node.machines["ourselves"].refuses = True  # no dial leads astray
        self.store = MemoryStore()
        self.addCleanup(self.store.close)
        self.holder: Holder | None = None
        self.begin(*self.options)

    def begin(self, *options: str, **environment: str) -> None:
        """The node starts, with these options."""
        store: Any = self.store
        self.choices = Choices(store, load(options), self.node.clock)
        self.choices.load()
        self.facades = Facades(
            self.node.clock,
            self.node.plane,
            self.choices,
            self.ports.listen,
            NONCE,
            {**self.environment, **environment},
            lambda port: succeed(self.holder),
        )
        self.seen: list[Endpoint] = []
        self.facades.changed.subscribe(self.seen.append)
        for each in self.facades.services.values():
            self.successResultOf(each.startService())

    def end(self) -> None:
        """The node stops."""
        stopped = [each.stopService() for each in self.facades.services.values()]
        self.node.advance(4)
        for each in stopped:
            self.successResultOf(each)

    def restart(self, *options: str, **environment: str) -> None:
        """It stops, and starts again on the same store."""
        self.end()
        self.begin(*options, **environment)

    def tearDown(self) -> None:
        """Nothing is left."""
        self.end()
        self.assertEqual(self.ports.open, [])
        super().tearDown()

    def states(self) -> list[tuple[str, str, int | None]]:
        """What is shown."""
        return [(each.facade, each.state, each.port) for each in self.facades.endpoints()]

    def entries(self) -> list[str]:
        """Of the book, by id."""
        return [each.id for each in self.node.errors.entries()]

    def change(self, name: str = "ollama", **values: Any) -> None:
        """A person's change, that is done."""
        changed = self.facades.change(name, **values)
        self.node.advance()
        self.successResultOf(changed)

    def connect(self, port: int) -> Client:
        """A client at a port."""
        socket = Socket(self.node.clock, "127.0.0.1")
        (found,) = (each for each in self.ports.open if (each.port, each.host) == (port, "0.0.0.0"))
        protocol = found.factory.buildProtocol(socket.getPeer())
        assert protocol is not None
        socket.protocol = protocol
        protocol.makeConnection(socket)
        return Client(socket)


class StartTests(FacadesCase):
    """PX-2, PX-97."""

    def test_both(self) -> None:
        """Each on its standard port; all ports are ours."""
        self.assertEqual(self.states(), [("ollama", "bound", 11434), ("lmstudio", "bound", 1234)])
        self.assertEqual(self.facades.ports, {11434, 1234})
        for each in self.facades.services.values():
            verifyObject(IComponents, each)
            self.assertEqual([component.state for component in each.tree()], ["up"])

    def test_serves(self) -> None:
        """Each speaks as its kind does, and answers our probes with our nonce."""
        for port, banner in ((11434, b"Ollama is running"), (1234, b"PAIR is running")):
            client = self.connect(port)
            client.asks("GET", "/")
            self.assertEqual(client.answer.body, banner)
            client = self.connect(port)
            client.asks("GET", "/", X_Pair_Probe="1")
            self.assertEqual(client.answer.fields["x-pair-facade"], NONCE)

    def test_request_ids(self) -> None:
        """X10: no request has the id of one at the other facade, nor that of a job."""
        ids = set()
        for port in (11434, 1234):
            client = self.connect(port)
            client.asks("POST", "/v1/chat/completions", {"model": "nobody"})
            ids.add(client.answer.fields["x-pair-request"])
        self.assertEqual(ids, {f"{NONCE}.ollama.1", f"{NONCE}.lmstudio.1"})

    def test_settings(self) -> None:
        """A port of the settings is a chosen one: no other stands in for it."""
        self.ports.hold(11440)
        self.restart("proxy.ports.ollama=11440", 'proxy.facades=["ollama"]')
        self.assertEqual(self.states(), [("ollama", "failed", None), ("lmstudio", "off", None)])

    def test_takeover_never(self) -> None:
        """EN-47: the setting leaves the standard port to the engine, by facade."""
        self.restart('proxy.takeover={ollama = "never"}')
        self.assertEqual(self.states(), [("ollama", "bypassed", 11435), ("lmstudio", "bound", 1234)])
        self.assertEqual((self.facades.endpoints()[0].reason, self.entries()), ("setting", []))

    def test_stand_in(self) -> None:
        """EN-43: the first port from the base on that is not given to something else."""
        self.ports.hold(11434)
        self.restart("engines.ollama.port=11435", OLLAMA_HOST="127.0.0.1:11436")
        self.assertEqual(self.states()[0], ("ollama", "bypassed", 11437))


class HolderTests(FacadesCase):
    """EN-49, EN-50."""

    def test_engine_that_stops(self) -> None:
        """A port at which an engine of ours answers is tried as soon as that engine's state changes."""
        self.ports.hold(11434)
        self.restart()
        self.assertEqual(self.facades.endpoints()[0].reason, "foreign")
        self.node.engines.addresses["a"] = EngineAddress("127.0.0.1", 11434)
        self.node.advance(5)
        self.assertEqual(self.facades.endpoints()[0].reason, "engine")
        self.ports.free(11434)
        self.node.engines.set_status("a", health="busy")
        self.assertEqual(self.states()[0], ("ollama", "bypassed", 11435))
        self.node.engines.stop("a")
        self.assertEqual(self.states()[0], ("ollama", "bound", 11434))

    def test_engine_elsewhere(self) -> None:
        """An engine of another machine holds no port of this one."""
        self.ports.hold(11434)
        self.node.engines.addresses["a"] = EngineAddress("192.168.1.9", 11434)
        self.restart()
        self.assertEqual(self.facades.endpoints()[0].reason, "foreign")

    def test_named(self) -> None:
        """Whoever else it is, is named."""
        self.ports.hold(11434)
        self.holder = Holder(812, "nginx", "www")
        self.restart()
        self.assertIn("nginx (pid 812, user www)", self.facades.endpoints()[0].detail or "")


class PortTests(FacadesCase):
    """PX-96, PX-97: a facade's port as people choose it."""

    def test_kept(self) -> None:
        """It moves at once, and is there at the next start."""
        self.change(port=11500)
        self.assertEqual(self.states(), [("ollama", "bound", 11500), ("lmstudio", "bound", 1234)])
        self.assertEqual(self.seen[-1], self.facades.endpoints()[0])
        self.restart()
        self.assertEqual(self.states()[0], ("ollama", "bound", 11500))
        self.assertEqual(self.facades.ports, {11500, 1234})

    def test_default_again(self) -> None:
        """The choice can be taken back; where there is none, nothing happens."""
        self.change(port=11500)
        for _ in range(2):
            self.successResultOf(self.facades.default_port("ollama"))
            self.assertEqual(self.states()[0], ("ollama", "bound", 11434))
        self.assertIsNone(self.choices.get(facade_port("ollama")))

    def test_reserved(self) -> None:
        """EN-43: no port of another part or of an engine; its own, and its standard one, are no others."""
        self.restart("engines.llamacpp.port=8090", OLLAMA_HOST="127.0.0.1:11600")
        for port in (1234, 14300, 14318, 14323, 8090, 11600):
            self.failureResultOf(self.facades.change("ollama", port=port), PortReserved)
        self.change(port=11434)
        self.change("lmstudio", port=1300)
        self.failureResultOf(self.facades.change("ollama", port=1300), PortReserved)
        self.change("lmstudio", port=1234)
        self.change("lmstudio", port=1300)

    def test_occupied(self) -> None:
        """A port that another program has is refused with its name, and nothing has changed."""
        self.ports.hold(11500)
        for holder, words in ((None, "another program"), (Holder(9, "nc", "me"), "nc (pid 9, user me)")):
            self.holder = holder
            refused = self.failureResultOf(self.facades.change("ollama", port=11500), PortOccupied)
            self.assertEqual((refused.value.port, refused.value.holder), (11500, words))
        self.ports.troubles[80] = 13
        self.failureResultOf(self.facades.change("ollama", port=80), PortDenied)
        self.assertEqual(self.states()[0], ("ollama", "bound", 11434))
        self.assertIsNone(self.choices.get(facade_port("ollama")))

    def test_locked(self) -> None:
        """OP-7: what a setting fixes cannot be changed; the refusal says where it is set."""
        self.restart("proxy.ports.ollama=11440")
        for refused in (self.facades.change("ollama", port=11500), self.facades.default_port("ollama")):
            locked = self.failureResultOf(refused, SettingLocked).value
            self.assertEqual((locked.key, locked.source.name), ("proxy.ports.ollama", "option"))
        self.change("lmstudio", port=1300)

    def test_store_that_fails(self) -> None:
        """Nothing has changed then."""
        self.store.broken = True
        self.failureResultOf(self.facades.change("ollama", port=11500), OSError)
        self.failureResultOf(self.facades.change("ollama", on=False), OSError)
        self.assertEqual(self.states()[0], ("ollama", "bound", 11434))
        self.assertEqual(self.facades.ports, {11434, 1234})

    def test_unknown(self) -> None:
        """There are two facades."""
        self.failureResultOf(self.facades.change("vllm", port=11500), NoSuchFacade)
        self.failureResultOf(self.facades.default_port("vllm"), NoSuchFacade)


class SwitchTests(FacadesCase):
    """PX-2: one that is off leaves the other serving."""

    def test_off_and_on(self) -> None:
        """It stops, and starts again where it was; the choice outlives a start of the node."""
        self.change(on=False)
        self.assertEqual(self.states(), [("ollama", "off", None), ("lmstudio", "bound", 1234)])
        self.assertEqual(self.facades.ports, {1234})
        self.assertEqual(self.seen[-1].state, "off")
        self.change(on=False)
        self.restart()
        self.assertEqual(self.states()[0], ("ollama", "off", None))
        self.change(on=True)
        self.assertEqual(self.states()[0], ("ollama", "bound", 11434))
        self.assertEqual(self.choices.get(served_facades()), ("ollama", "lmstudio"))
        client = self.connect(11434)
        client.asks("GET", "/")
        self.assertEqual(client.answer.status, 200)

    def test_open_answers(self) -> None:
        """Answers under way have the time of a drain, those of the other facade all the time they want."""
        mine, others = self.connect(11434), self.connect(1234)
        for client in (mine, others):
            client.asks("POST", "/v1/chat/completions", CHAT)
        sockets = [each for machine in self.node.machines.values() for each in machine.connections]
        for each in sockets:
            each.receive(stream(b"text/event-stream") + chunk(b"data: x\n\n"))
        self.change(on=False)
        self.node.advance(2.5)
        self.assertFalse(mine.socket.closed)
        self.node.advance(1)
        self.assertIn(b"stopping", mine.received)
        self.assertTrue(mine.socket.closed)
        for each in sockets:
            if not each.closed:
                each.receive(chunk(b"data: [DONE]\n\n") + LAST_CHUNK)
        self.assertTrue(others.received.endswith(LAST_CHUNK))
        self.assertNotIn(b"stopping", others.received)

    def test_on_while_it_ends(self) -> None:
        """It starts when the last answer has ended."""
        client = self.connect(11434)
        client.asks("POST", "/api/chat", CHAT)
        self.node.a.answers(stream(), chunk(LINE))
        self.change(on=False)
        switched = self.facades.change("ollama", on=True)
        self.node.advance(1)
        self.assertNoResult(switched)
        self.node.a.answers(chunk(DONE) + LAST_CHUNK)
        self.node.advance()
        self.successResultOf(switched)
        self.assertEqual(self.states()[0], ("ollama", "bound", 11434))

    def test_move_while_off(self) -> None:
        """A port can be chosen for one that is off, and both at once."""
        self.change(on=False)
        self.change(port=11500)
        self.assertEqual(self.facades.endpoints()[0].wanted_port, 11500)
        self.successResultOf(self.facades.default_port("ollama"))
        self.assertEqual(self.facades.endpoints()[0].wanted_port, 11434)
        self.change(port=11600, on=True)
        self.assertEqual(self.states()[0], ("ollama", "bound", 11600))

    def test_taken_meanwhile(self) -> None:
        """E02: if another program takes the port while it is off, it stands in, and says so."""
        self.change(on=False)
        self.ports.hold(11434)
        self.change(on=True)
        self.assertEqual(self.states()[0], ("ollama", "bypassed", 11435))
        self.assertEqual(self.entries(), ["proxy:port_bypassed:ollama"])
        self.change(on=False)
        self.assertEqual(self.entries(), [])

    def test_locked(self) -> None:
        """A setting may fix which are served; nothing of the change is done then."""
        self.restart('proxy.facades=["lmstudio"]')
        self.failureResultOf(self.facades.change("ollama", port=11500, on=True), SettingLocked)
        self.assertEqual(self.facades.endpoints()[0].wanted_port, 11434)

    def test_nothing(self) -> None:
        """No change is none."""
        self.change()
        self.assertEqual(self.states()[0], ("ollama", "bound", 11434))


class AliasTests(FacadesCase):
    """EN-54: what ``OLLAMA_HOST`` and the setting come to."""

    def test_environment(self) -> None:
        """A local target is listened on, by the Ollama facade alone."""
        self.restart(OLLAMA_HOST="localhost:11500")
        self.assertEqual(self.facades.ports, {11434, 11500, 1234})
        self.assertEqual([host for port, host in self.ports.numbers if port == 11500], ["127.0.0.1", "::1"])

    def test_setting(self) -> None:
        """The setting switches it off, or names another place."""
        self.restart("facade.ollama.alias=off", OLLAMA_HOST="localhost:11500")
        self.assertEqual(self.facades.ports, {11434, 1234})
        self.restart("facade.ollama.alias=127.0.0.1:11600", OLLAMA_HOST="localhost:11500")
        self.assertEqual(self.facades.ports, {11434, 11600, 1234})

    def test_reserved(self) -> None:
        """A reserved port is reported, as long as the facade is on."""
        self.restart(OLLAMA_HOST="localhost:1234")
        self.assertEqual((self.facades.ports, self.entries()), ({11434, 1234}, [BLOCKED]))
        self.assertIn("Port 1234 is reserved", self.node.errors.entries()[0].message)
        self.change(on=False)
        self.assertEqual(self.entries(), [])

    def test_port_of_the_engine(self) -> None:
        """The port that the settings give to Ollama itself is its own."""
        self.restart("engines.ollama.port=11500", OLLAMA_HOST="localhost:11500")
        self.assertEqual((self.facades.ports, self.entries()), ({11434, 1234}, []))

    def test_program_there(self) -> None:
        """Another program keeps its place, and is named."""
        self.ports.hold(11500)
        self.holder = Holder(9, "nc", "me")
        self.restart(OLLAMA_HOST="localhost:11500")
        self.assertEqual((self.states()[0][1], self.entries()), ("bound", [BLOCKED]))
        self.assertIn("nc (pid 9, user me)", self.node.errors.entries()[0].message)
        self.ports.free(11500)
        self.node.advance(5)
        self.assertEqual((self.facades.ports, self.entries()), ({11434, 11500, 1234}, []))

"""Tests of :mod:`pair.proxy.facade`: one facade from its sockets to its stop."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed

from pair.engines.alias import Alias
from pair.engines.ports import Wish
from pair.protocols.http_server import HTTPServerFactory
from pair.proxy.claim import Host
from pair.proxy.facade import LAST_WORDS, FacadeService
from pair.proxy.ingress import LIMITS, Ingress, Peers
from pair.test.proxy.bench import CHAT, DONE, LINE, Bench, BenchCase
from pair.test.proxy.network import LAST_CHUNK, Client, Ports, Socket, chunk, response, stream

if TYPE_CHECKING:
    from twisted.internet.interfaces import IProtocolFactory

    from pair.records.endpoints import Endpoint

DRAIN = 3.0


class FacadeCase(BenchCase):
    """The Ollama facade on a host of its own."""

    def setUp(self) -> None:
        """It has its port."""
        super().setUp()
        self.ports = Ports()
        self.node = self.bench()
        self.service = self.make(self.node)
        self.service.startService()

    def make(self, bench: Bench, **values: Any) -> FacadeService:
        """A facade in front of a bench's engines; ``values`` in place of what is usual."""
        host = Host(lambda port: False, lambda port: succeed(None), lambda: (), lambda listeners: succeed(True))
        usual: dict[str, Any] = {
            "addresses": ("0.0.0.0", "::"),
            "wish": Wish(11434, base=11435),
            "alias": None,
            "host": host,
        }
        return FacadeService(
            bench.clock,
            bench.facade,
            bench.admission,
            self.ports.listen,
            errors=bench.errors,
            drain=DRAIN,
            **(usual | values),
        )

    def connect(self, peer: str = "127.0.0.1") -> Client:
        """A client of the newest socket."""
        socket = Socket(self.node.clock, peer)
        protocol = self.ports.open[-1].factory.buildProtocol(IPv4Address("TCP", peer, 50000))
        assert protocol is not None
        socket.protocol = protocol
        protocol.makeConnection(socket)
        return Client(socket)

    def asking(self, *answers: bytes) -> Client:
        """A client whose request the engine has answered so far."""
        client = self.connect()
        client.asks("POST", "/api/chat", CHAT)
        self.node.a.answers(*answers)
        return client

    def stop(self) -> Deferred[None]:
        """Begin to stop; no more connections are accepted."""
        stopped = self.service.stopService()
        self.assertEqual(self.ports.numbers, [])
        return stopped

    def tearDown(self) -> None:
        """It stops, if a test did not stop it."""
        if self.service.running:
            stopped = self.service.stopService()
            self.node.advance(DRAIN + LAST_WORDS)
            self.successResultOf(stopped)
        super().tearDown()


class FacadeTests(FacadeCase):
    """While it runs."""

    def test_listens_everywhere(self) -> None:
        """PX-5: on each address; the endpoint and the service's name say so."""
        self.assertEqual(self.ports.numbers, [(11434, "0.0.0.0"), (11434, "::")])
        self.assertEqual((self.service.endpoint.state, self.service.name), ("bound", "ollama"))
        self.assertEqual(self.service.ports, {11434})

    def test_listens_on_loopback_too(self) -> None:
        """PX-5: also where the addresses leave it out, as only clients there are served."""
        self.successResultOf(self.stop())
        self.service = self.make(self.node, addresses=("192.168.1.7",))
        self.service.startService()
        self.assertEqual(self.ports.numbers, [(11434, each) for each in ("192.168.1.7", "127.0.0.1", "::1")])
        self.assertEqual(self.service.endpoint.url, "http://127.0.0.1:11434")

    def test_serves(self) -> None:
        """A request passes from the first byte on; the connection is counted while it is open."""
        client = self.asking(response(200, DONE))
        self.assertEqual((client.answer.body, self.service.connections), (DONE, 1))
        client.leaves()
        self.assertEqual(self.service.connections, 0)

    def test_tls_is_refused(self) -> None:
        """PX-6: where there is no cluster a handshake is refused."""
        client = self.connect()
        client.sends(b"\x16\x03\x01\x00\x05hello")
        self.assertEqual(client.received[:1], b"\x15")
        self.node.advance()
        self.assertTrue(client.socket.closed)

    def test_members(self) -> None:
        """PX-9: they have limits of their own."""
        servers: list[IProtocolFactory] = []

        def secure(server: IProtocolFactory) -> IProtocolFactory:
            servers.append(server)
            return server

        peers = Peers(secure, lambda leaf, address: None)
        self.make(self.node, ingress=Ingress(self.node.plane, "ollama", peers, lambda: "run.9"))
        (server,) = servers
        assert isinstance(server, HTTPServerFactory)
        self.assertEqual(server.limits, LIMITS)

    def test_silence(self) -> None:
        """PX-7: 10 s for the first byte."""
        client = self.connect()
        self.node.advance(10)
        self.assertTrue(client.socket.aborted)

    def test_others(self) -> None:
        """PX-14: another machine is refused, byte by byte or not."""
        client = self.connect("192.168.1.7")
        client.sends(*[bytes([each]) for each in b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"])
        self.assertEqual(client.answer.fields["x-pair-error"], "loopback_only")

    def test_what_is_no_request(self) -> None:
        """PX-84: also that is answered in the facade's dialect, with an id."""
        client = self.connect()
        client.sends(b"nonsense\r\n\r\n")
        self.assertEqual(client.answer.status, 400)
        self.assertEqual(client.answer.fields["x-pair-error"], "bad_request")
        self.assertIsInstance(client.answer.json["error"], str)

    def test_port_that_is_held(self) -> None:
        """E02: it stands aside, and takes its place when it is free (PX-94)."""
        self.ports.hold(1234)
        service = self.make(self.node, wish=Wish(1234, base=1235))
        seen: list[Endpoint] = []
        service.changed.subscribe(seen.append)
        service.startService()
        self.assertEqual((service.endpoint.state, service.ports), ("bypassed", {1235}))
        self.ports.free(1234)
        self.node.advance(5)
        self.assertEqual((service.endpoint.state, service.ports), ("bound", {1234, 1235}))
        self.assertEqual([each.state for each in seen], ["bypassed", "bound"])
        self.successResultOf(service.stopService())


class MoveTests(FacadeCase):
    """PX-96."""

    def test_streams_go_on(self) -> None:
        """An answer under way is whole, though its port accepts no more; new clients come to the new one."""
        client = self.asking(stream(), chunk(LINE))
        moved = self.service.move(Wish(11500, base=11435, chosen=True), lambda: succeed(None))
        self.successResultOf(moved)
        self.assertEqual((self.service.endpoint.port, self.service.ports), (11500, {11434, 11500}))
        self.node.advance(61)
        self.assertEqual(self.service.ports, {11500})
        self.node.a.answers(chunk(DONE) + LAST_CHUNK)
        self.assertTrue(client.answer.body.endswith(LAST_CHUNK))
        other = self.connect()
        other.asks("GET", "/")
        self.assertEqual(other.answer.status, 200)

    def test_default_again(self) -> None:
        """PX-97: what was chosen can be taken back."""
        self.successResultOf(self.service.move(Wish(11500, base=11435, chosen=True), lambda: succeed(None)))
        self.service.wish(Wish(11434, base=11435))
        self.assertEqual(self.service.endpoint.port, 11434)


class AliasTests(FacadeCase):
    """EN-54, PX-100: the facade has a second place."""

    BLOCKED = "proxy:alias_blocked:ollama"

    def make(self, bench: Bench, **values: Any) -> FacadeService:
        """It has an alias on both loopback addresses."""
        return super().make(bench, **{"alias": Alias("local", ("127.0.0.1", "::1"), 11500), **values})

    def entries(self) -> list[str]:
        """Of the book, by id."""
        return [each.id for each in self.node.errors.entries()]

    def again(self, **values: Any) -> None:
        """Another facade in place of the one that runs."""
        self.successResultOf(self.service.stopService())
        self.node.admission.stopping = False
        self.service = self.make(self.node, **values)
        self.service.startService()

    def test_answers_there(self) -> None:
        """On loopback only, the same facade; both ports are its own."""
        self.assertEqual(self.ports.numbers[2:], [(11500, "127.0.0.1"), (11500, "::1")])
        self.assertEqual((self.service.ports, self.service.endpoint.port), ({11434, 11500}, 11434))
        client = self.asking(response(200, DONE))
        self.assertEqual(client.answer.body, DONE)
        self.assertEqual(self.service.connections, 1)

    def test_plain_only(self) -> None:
        """TLS is not spoken there."""
        client = self.connect()
        client.sends(b"\x16\x03\x01\x00\x05hello")
        self.node.advance()
        self.assertTrue(client.socket.closed)

    def test_moves_leave_it(self) -> None:
        """It stays where it is when the facade moves."""
        self.successResultOf(self.service.move(Wish(11600, base=11435, chosen=True), lambda: succeed(None)))
        self.node.advance(61)
        self.assertEqual(self.service.ports, {11500, 11600})

    def test_all_or_none(self) -> None:
        """One address that is taken: nothing is opened, an entry says so; when it frees both are."""
        self.ports.troubles["::1"] = errno.EADDRINUSE
        self.again()
        self.assertEqual((self.service.ports, self.service.endpoint.state), ({11434}, "bound"))
        self.assertEqual(self.entries(), [self.BLOCKED])
        self.assertIn("Port 11500 is held by another program", self.node.errors.entries()[0].message)
        del self.ports.troubles["::1"]
        self.node.advance(5)
        self.assertEqual((self.service.ports, self.entries()), ({11434, 11500}, []))

    def test_engine_there(self) -> None:
        """An engine of ours that answers there is what the variable names: nothing is wrong (EN-54)."""
        host = Host(lambda port: port == 11500, lambda port: succeed(None), lambda: (), lambda at: succeed(True))
        self.ports.hold(11500)
        self.again(host=host)
        self.assertEqual((self.service.ports, self.entries()), ({11434}, []))

    def test_facade_there(self) -> None:
        """Nor is it wrong that the facade itself is there; when it leaves, the alias takes its place."""
        self.again(wish=Wish(11500, base=11435, chosen=True))
        self.assertEqual((self.service.ports, self.entries()), ({11500}, []))
        self.successResultOf(self.service.move(Wish(11434, base=11435, chosen=True), lambda: succeed(None)))
        self.node.advance(66)
        self.assertEqual((self.service.ports, self.entries()), ({11434, 11500}, []))
        self.assertIn((11500, "127.0.0.1"), self.ports.numbers)

    def test_stop(self) -> None:
        """Both end together."""
        self.successResultOf(self.stop())


class StopTests(FacadeCase):
    """PX-68."""

    def test_with_nobody(self) -> None:
        """Without a client it ends at once, and leaves no timer."""
        self.successResultOf(self.stop())

    def test_idle_connections_close(self) -> None:
        """One between two requests is closed at once."""
        client = self.asking(response(200, DONE))
        stopped = self.stop()
        self.node.advance()
        self.assertTrue(client.socket.closed and not client.socket.aborted)
        self.successResultOf(stopped)

    def test_new_requests(self) -> None:
        """A new request on an open connection is refused, and the connection closes."""
        client = self.connect()
        client.sends(b"GET /api/tags HTTP/1.1\r\nHost: localh")
        stopped = self.stop()
        client.sends(b"ost\r\n\r\n")
        self.assertEqual((client.answer.status, client.answer.fields["x-pair-error"]), (503, "stopping"))
        self.assertEqual(client.answer.fields["connection"], "close")
        self.node.advance()
        self.assertTrue(client.socket.closed)
        self.successResultOf(stopped)

    def test_streams_may_end(self) -> None:
        """An answer that ends within the drain is whole, and so ends the stop."""
        client = self.asking(stream(), chunk(LINE))
        stopped = self.stop()
        self.node.advance(DRAIN - 1)
        self.assertNoResult(stopped)
        self.node.a.answers(chunk(DONE) + LAST_CHUNK)
        self.node.advance()
        self.assertTrue(client.answer.body.endswith(LAST_CHUNK))
        self.assertEqual(self.node.ending, ("completed", None))
        self.successResultOf(stopped)

    def test_streams_are_broken_off(self) -> None:
        """After the drain a stream gets its frame and a request its 503; the jobs are cancelled."""
        streaming = self.asking(stream(), chunk(LINE))
        waiting = self.connect()
        waiting.asks("POST", "/api/chat", CHAT)
        stopped = self.stop()
        self.node.advance(DRAIN - 0.5)
        self.assertEqual((waiting.received, streaming.answer.body), (b"", chunk(LINE)))
        self.node.advance(1)
        self.assertIn(b"this node is stopping", streaming.answer.body)
        self.assertEqual(waiting.answer.fields["x-pair-error"], "stopping")
        self.assertEqual(
            {(each.state, each.error and each.error.code) for each in self.node.jobs.ended()},
            {("cancelled", "stopping")},
        )
        self.assertEqual(self.node.in_use(), {})
        self.successResultOf(stopped)

    def test_clients_that_do_not_read(self) -> None:
        """Nor does a client hold up the stop that takes nothing, or one that has not sent its request."""
        streaming = self.asking(stream(), chunk(LINE))
        streaming.stops_reading()
        half = self.connect()
        half.sends(b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
        stopped = self.stop()
        self.node.advance(DRAIN + LAST_WORDS + 0.5)
        self.assertTrue(streaming.socket.aborted and half.socket.aborted)
        self.assertEqual(self.node.in_use(), {})
        self.successResultOf(stopped)

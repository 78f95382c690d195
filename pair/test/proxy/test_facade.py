"""Tests of :mod:`pair.proxy.facade`: one facade from its sockets to its stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.address import IPv4Address

from pair.proxy.facade import LAST_WORDS, FacadeService
from pair.test.proxy.bench import CHAT, DONE, LINE, Bench, BenchCase
from pair.test.proxy.network import LAST_CHUNK, Client, Ports, Socket, chunk, response, stream

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

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
        usual: dict[str, Any] = {"port": 11434, "chosen": False, "takes_over": True, "holder": lambda port: "foreign"}
        return FacadeService(
            bench.clock,
            bench.facade,
            bench.admission,
            self.ports.listen,
            ("0.0.0.0", "::"),
            stand_ins=lambda: iter((14318,)),
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
        service = self.make(self.node, port=1234)
        seen: list[Endpoint] = []
        service.changed.subscribe(seen.append)
        service.startService()
        self.assertEqual((service.endpoint.state, service.ports), ("bypassed", {14318}))
        self.ports.free(1234)
        self.node.advance(5)
        self.assertEqual((service.endpoint.state, service.ports), ("bound", {1234, 14318}))
        self.assertEqual([each.state for each in seen], ["bypassed", "bound"])
        self.successResultOf(service.stopService())


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

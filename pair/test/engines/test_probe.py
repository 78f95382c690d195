"""Questions to an engine, and who answers them (EN-9 to EN-11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet import error
from twisted.internet.address import IPv4Address
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from pair.engines.facts import Answer, ProbeRequest
from pair.engines.probe import ANSWER_SECONDS, BODY_BYTES, NoAnswer, Prober, Refused, Sighting, sight
from pair.privacy import Secret
from pair.records.engines import EngineAddress
from pair.test.engines.toy import Toy, Wire

if TYPE_CHECKING:
    from twisted.internet.interfaces import IProtocol

HERE = EngineAddress("127.0.0.1", 7000)
LIST = ProbeRequest("GET", "/v1/models")


class SightTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.wire = Wire()

    def sight(self) -> Sighting:
        return self.successResultOf(Deferred.fromCoroutine(sight(self.wire, Toy(), HERE, None)))

    def test_nothing(self) -> None:
        """Refused: nothing is there."""
        self.assertEqual(self.sight().who, "nothing")

    def test_engine(self) -> None:
        """Identified, with version and slots."""
        self.wire.toy(7000)
        sighting = self.sight()
        self.assertEqual((sighting.who, sighting.identity.version, sighting.slots), ("engine", "1.0", 3))

    def test_others(self) -> None:
        """An answer that does not identify is another's; a lock is a lock; silence is no statement."""
        self.wire.stranger(7000)
        self.assertEqual(self.sight().who, "foreign")
        self.wire.toy(7000, who=403)
        self.assertEqual(self.sight().who, "locked")
        self.wire.servers[7000] = None
        self.assertEqual(self.sight().who, "unclear")


class ProberTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.reactor = MemoryReactorClock()
        self.prober = Prober(self.reactor)

    def ask(
        self,
        request: ProbeRequest = LIST,
        address: EngineAddress = HERE,
        credential: Secret | None = None,
    ) -> Deferred[Answer]:
        return self.prober(address, request, credential)

    def connected(self) -> tuple[IProtocol, StringTransport]:
        """The connection that is being made, made."""
        factory = self.reactor.tcpClients[-1][2]
        protocol = factory.buildProtocol(IPv4Address("TCP", "127.0.0.1", 7000))
        assert protocol is not None
        transport = StringTransport()
        protocol.makeConnection(transport)
        return protocol, transport

    def test_question(self) -> None:
        """It says that it is a probe, and carries no token where there is none (EN-10)."""
        self.ask()
        _, transport = self.connected()
        head, _, body = transport.value().partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        self.assertEqual((lines[0], body), (b"GET /v1/models HTTP/1.1", b""))
        self.assertIn(b"Host: 127.0.0.1:7000", lines)
        self.assertIn(b"X-Pair-Probe: 1", lines)
        self.assertNotIn(b"uthorization", head)

    def test_question_with_all(self) -> None:
        """A body is sent with its length, a token as a bearer's (EN-5); an IPv6 address has its brackets."""
        self.ask(ProbeRequest("POST", "/api/show", b"{}"), EngineAddress("::1", 7000), Secret("sesame"))
        self.assertEqual(self.reactor.tcpClients[0][:2], ("::1", 7000))
        _, transport = self.connected()
        head, _, body = transport.value().partition(b"\r\n\r\n")
        self.assertEqual(body, b"{}")
        for line in (b"Host: [::1]:7000", b"Content-Length: 2", b"Authorization: Bearer sesame"):
            self.assertIn(line, head.split(b"\r\n"))

    def test_limits(self) -> None:
        """500 ms to connect (EN-11)."""
        self.ask()
        self.assertEqual(self.reactor.tcpClients[0][3], 0.5)

    def test_answer(self) -> None:
        """Status, fields by lower-case name, body; the connection is not kept."""
        asking = self.ask()
        protocol, transport = self.connected()
        protocol.dataReceived(
            b"HTTP/1.1 404 No\r\nSERVER: x\r\nServer: llama.cpp\r\nX-A: 1\r\nContent-Length: 2\r\n\r\nhi"
        )
        self.assertEqual(self.successResultOf(asking), Answer(404, {"server": "llama.cpp", "x-a": "1"}, b"hi"))
        self.assertTrue(transport.disconnecting)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_answer_without_length(self) -> None:
        """A body that ends with the connection is whole."""
        asking = self.ask()
        protocol, _ = self.connected()
        protocol.dataReceived(b"HTTP/1.1 200 OK\r\n\r\nhi")
        protocol.connectionLost(Failure(error.ConnectionDone()))
        self.assertEqual(self.successResultOf(asking).body, b"hi")

    def test_refused(self) -> None:
        """Nobody listens."""
        asking = self.ask()
        refused = error.ConnectionRefusedError()
        self.reactor.tcpClients[0][2].clientConnectionFailed(self.reactor.connectors[0], Failure(refused))
        self.failureResultOf(asking, Refused)

    def test_silence(self) -> None:
        """No answer within 3 s, before or within the body, is no answer (EN-11)."""
        for sent in (b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi"):
            asking = self.ask()
            protocol, transport = self.connected()
            protocol.dataReceived(sent)
            self.reactor.advance(ANSWER_SECONDS - 0.1)
            self.assertNoResult(asking)
            self.reactor.advance(0.2)
            self.failureResultOf(asking, NoAnswer)
            self.assertTrue(transport.disconnecting or transport.disconnected)

    def test_given_up(self) -> None:
        """An asker that gives up hears just that, at every stage: it must not go on with its next question."""
        connecting = self.ask()
        connecting.cancel()
        self.failureResultOf(connecting, CancelledError)
        for received in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"):
            asked = self.ask()
            protocol, _ = self.connected()
            protocol.dataReceived(received)
            asked.cancel()
            self.failureResultOf(asked, CancelledError)

    def test_cut(self) -> None:
        """A body that is cut short is no answer."""
        asking = self.ask()
        protocol, _ = self.connected()
        protocol.dataReceived(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi")
        protocol.connectionLost(Failure(error.ConnectionDone()))
        self.failureResultOf(asking, NoAnswer)

    def test_too_long(self) -> None:
        """A body over 8 MiB is dropped as it comes (EN-11)."""
        asking = self.ask()
        protocol, transport = self.connected()
        protocol.dataReceived(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(9):
            protocol.dataReceived(b"x" * (BODY_BYTES // 8))
        self.assertTrue(transport.disconnecting)
        protocol.connectionLost(Failure(error.ConnectionDone()))
        self.failureResultOf(asking, NoAnswer)

    def test_not_http(self) -> None:
        """What does not speak HTTP gives no answer."""
        asking = self.ask()
        protocol, _ = self.connected()
        protocol.dataReceived(b"SSH-2.0-OpenSSH_9\r\n")
        protocol.connectionLost(Failure(error.ConnectionDone()))
        self.failureResultOf(asking, NoAnswer)

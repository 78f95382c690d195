"""Eager writes: what is sent at once, what is queued, and what is left to the base class."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING, Any

from twisted.internet import abstract, tcp
from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import Protocol, ServerFactory
from twisted.internet.testing import MemoryReactor
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from pair.protocols.eager import EagerPort, EagerServer, IUnsent, listen_eager

if TYPE_CHECKING:
    from collections.abc import Iterable


class Reactor:
    """Notes who waits for what."""

    def __init__(self) -> None:
        self.writers: list[object] = []

    def addReader(self, reader: object) -> None:
        """Nothing is read here."""

    def removeReader(self, reader: object) -> None:
        """Nor here."""

    def addWriter(self, writer: object) -> None:
        if writer not in self.writers:
            self.writers.append(writer)

    def removeWriter(self, writer: object) -> None:
        if writer in self.writers:
            self.writers.remove(writer)

    def callLater(self, delay: float, function: object, *arguments: object) -> None:
        """Never."""


class Socket:
    """A socket that takes ``room`` octets, or fails with ``error``."""

    def __init__(self) -> None:
        self.room = 2**20
        self.error: int | None = None
        self.sends: list[bytes] = []

    def send(self, data: memoryview) -> int:
        if self.error is not None:
            raise OSError(self.error, "failed")
        if not self.room:
            raise OSError(errno.EWOULDBLOCK, "full")
        taken = bytes(data[: self.room])
        self.room -= len(taken)
        self.sends.append(taken)
        return len(taken)

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def fileno(self) -> int:
        return 99

    def shutdown(self, how: int) -> None:
        """Nothing to shut down."""

    close = setsockopt = shutdown


class Pulled:
    def resumeProducing(self) -> None:
        """Called once when registered."""


@implementer(IPushProducer)
class Pushing:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def pauseProducing(self) -> None:
        self.calls.append("pause")

    def resumeProducing(self) -> None:
        self.calls.append("resume")

    def stopProducing(self) -> None:
        self.calls.append("stop")


class Noting(Protocol):
    lost = False

    def connectionLost(self, reason: object = None) -> None:
        self.lost = True


class Recording:
    """Stands for the protocol of a transport in TLS mode."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def writeSequence(self, data: Iterable[bytes]) -> None:
        self.written.extend(data)


class EagerServerTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.reactor = Reactor()
        self.socket = Socket()
        self.protocol = Noting()
        self.server: Any = EagerServer(self.socket, self.protocol, ("127.0.0.1", 1), None, 0, self.reactor)  # type: ignore[arg-type]

    def test_tells_what_is_unsent(self) -> None:
        """It provides ``IUnsent``: queued octets less those sent, in both queues of the base class."""
        verifyObject(IUnsent, self.server)
        self.assertEqual(self.server.unsent, 0)
        self.socket.room = 4
        self.server.write(b"123456")
        self.assertEqual(self.server.unsent, 2)
        self.server.write(b"78")
        self.assertEqual(self.server.unsent, 4)
        self.socket.room = 1
        self.server.doWrite()
        self.assertEqual(self.server.unsent, 3)
        self.socket.room = 9
        self.server.doWrite()
        self.assertEqual(self.server.unsent, 0)

    def test_at_once(self) -> None:
        """With nothing queued a write is one send, and the reactor is asked for nothing (AR-8)."""
        self.server.write(b"token")
        self.assertEqual((self.socket.sends, self.reactor.writers), ([b"token"], []))

    def test_sequence(self) -> None:
        """A sequence is one send."""
        self.server.writeSequence([b"a", b"b", b"c"])
        self.assertEqual(self.socket.sends, [b"abc"])

    def test_rest_is_queued(self) -> None:
        """What the socket does not take waits, and later writes wait behind it."""
        self.socket.room = 2
        self.server.write(b"abcd")
        self.assertEqual(self.reactor.writers, [self.server])
        self.socket.room = 100
        self.server.write(b"ef")
        self.assertEqual(self.socket.sends, [b"ab"])
        self.server.doWrite()
        self.assertEqual((self.socket.sends, self.reactor.writers), ([b"ab", b"cdef"], []))
        self.server.write(b"g")
        self.assertEqual(self.socket.sends, [b"ab", b"cdef", b"g"])

    def test_full_socket(self) -> None:
        """A socket that takes nothing is no error."""
        self.socket.room = 0
        self.server.write(b"a")
        self.assertEqual((self.server.unsent, self.reactor.writers), (1, [self.server]))

    def test_any_size(self) -> None:
        """The socket is offered all of a write, whatever its size, and the rest is queued."""
        data = bytes(3 * self.server.SEND_LIMIT)
        self.socket.room = len(data) - 1
        self.server.write(data)
        self.assertEqual((len(self.socket.sends), self.server.unsent), (1, 1))

    def test_failing_send(self) -> None:
        """A failing send raises nothing, ends nothing within the call, and ends the connection in the reactor's."""
        self.socket.error = errno.ECONNRESET
        self.server.write(b"a")
        self.assertFalse(self.protocol.lost)
        self.assertEqual(self.reactor.writers, [self.server])
        self.assertIsInstance(self.server.doWrite(), ConnectionLost)

    def test_producer(self) -> None:
        """A push producer is paused when more than the base class's buffer size waits, and then resumed."""
        producer = Pushing()
        self.server.registerProducer(producer, True)
        self.server.write(b"a")
        self.assertEqual(producer.calls, [])
        self.socket.room = 0
        self.server.write(bytes(self.server.bufferSize))
        self.assertEqual(producer.calls, [])
        self.server.write(b"a")
        self.assertEqual(producer.calls, ["pause"])
        self.socket.room = 2**20
        self.server.doWrite()
        self.assertEqual(producer.calls, ["pause", "resume"])

    def test_pull_producer(self) -> None:
        """A pull producer is fed by the reactor, so its writes are queued."""
        self.server.registerProducer(Pulled(), False)
        self.server.write(b"a")
        self.assertEqual((self.socket.sends, self.reactor.writers), ([], [self.server]))

    def test_closing(self) -> None:
        """A connection that is closing sends in order, by the reactor; what the base class drops is dropped."""
        self.server.loseConnection()
        self.server.write(b"a")
        self.assertEqual((self.socket.sends, self.server.unsent), ([], 1))

    def test_half_closing(self) -> None:
        """Nothing overtakes a half-close, and nothing is sent after it."""
        self.server.loseWriteConnection()
        self.server.write(b"a")
        self.assertEqual(self.socket.sends, [])
        self.server.doWrite()
        self.assertEqual(self.socket.sends, [b"a"])
        self.server.write(b"b")
        self.assertEqual((self.socket.sends, self.server.unsent), ([b"a"], 0))

    def test_aborted(self) -> None:
        """An aborted connection sends nothing more."""
        self.server.abortConnection()
        self.server.write(b"a")
        self.assertEqual(self.socket.sends, [])

    def test_lost(self) -> None:
        """Nor does a lost one."""
        self.server.connected = False
        self.server.write(b"a")
        self.assertEqual((self.socket.sends, self.server.unsent), ([], 0))

    def test_tls_mode(self) -> None:
        """A transport in TLS mode writes what its TLS protocol makes of it, never the plain text (AR-8)."""
        self.server.TLS = True
        self.server.protocol = recording = Recording()
        self.server.write(b"secret")
        self.server.writeSequence([b"a", b"b"])
        self.assertEqual((self.socket.sends, recording.written), ([], [b"secret", b"ab"]))

    def test_private_names(self) -> None:
        """The names of Twisted that are touched here are still what they were (25.5 to 26.10)."""
        fresh = abstract.FileDescriptor(self.reactor)  # type: ignore[arg-type]
        self.assertEqual((fresh._tempDataBuffer, fresh._tempDataLen, fresh.dataBuffer, fresh.offset), ([], 0, b"", 0))
        self.assertEqual((fresh.connected, fresh.disconnecting, fresh._writeDisconnecting), (0, 0, False))
        self.assertIs(tcp.Connection._aborting, False)
        self.assertIs(tcp.Connection.TLS, False)
        self.assertIs(tcp.Port.transport, tcp.Server)
        self.socket.room = 0
        self.server.write(b"ab")
        self.assertEqual((self.server._tempDataBuffer, self.server._tempDataLen), ([b"ab"], 2))
        self.server.loseWriteConnection()
        self.assertIs(self.server._writeDisconnecting, True)
        self.server.abortConnection()
        self.assertIs(self.server._aborting, True)


class ListenTests(SynchronousTestCase):
    def test_reactor_in_memory(self) -> None:
        """A reactor without sockets listens as it always does."""
        reactor, factory = MemoryReactor(), ServerFactory()
        listen_eager(reactor, 1234, factory, "::1", backlog=7)
        self.assertEqual(reactor.tcpServers, [(1234, factory, 7, "::1")])

    def test_options(self) -> None:
        """Sockets are undelayed and kept alive (30 s, 10 s, 3 probes); IPv6 is IPv6 only (PX-5, PX-67)."""
        for interface, family in (("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)):
            port = EagerPort(0, ServerFactory(), interface=interface, reactor=Reactor())
            with port.createInternetSocket() as skt:
                self.assertEqual(skt.family, family)
                options = [
                    skt.getsockopt(level, name)
                    for level, name in (
                        (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                        (socket.IPPROTO_TCP, socket.TCP_NODELAY),
                        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
                        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL),
                        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT),
                    )
                ]
                self.assertEqual(options, [1, 1, 30, 10, 3])
                if family == socket.AF_INET6:
                    self.assertEqual(skt.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY), 1)

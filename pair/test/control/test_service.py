"""Tests of pair.control.service and pair.control.tokens."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from twisted.internet.address import IPv4Address
from twisted.internet.error import CannotListenError
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from pair import __version__
from pair.control.service import ControlService, build_control
from pair.control.tokens import TokenFile
from pair.settings import Settings, load
from pair.statedir import StateDirectory
from pair.test.control.samples import NOW, Node
from pair.test.surfaces.wire import request

if TYPE_CHECKING:
    from twisted.internet.interfaces import IProtocolFactory

WARNING = "control.token held no token; there is a new one in it."


class Port:
    """A listening port: an entry in the list of its host."""

    def __init__(self, host: Host, address: str, port: int, factory: IProtocolFactory) -> None:
        self.host = host
        self.at = (address, port)
        self.factory = factory

    def getHost(self) -> IPv4Address:
        return IPv4Address("TCP", *self.at)

    def stopListening(self) -> None:
        self.host.open.remove(self)


class Host:
    """A machine on which some ports are taken, and which has IPv6 or has it not."""

    def __init__(self, taken: tuple[int, ...] = (), ipv6: bool = True) -> None:
        self.clock = Clock()
        self.open: list[Port] = []
        self.taken = taken
        self.ipv6 = ipv6

    def listen(self, port: int, factory: IProtocolFactory, address: str) -> Any:
        number = 0
        if port in self.taken:
            number = errno.EADDRINUSE
        elif address == "::1" and not self.ipv6:
            number = errno.EADDRNOTAVAIL
        if number:
            raise CannotListenError(address, port, OSError(number, os.strerror(number)))
        self.open.append(Port(self, address, port or 50000, factory))
        return self.open[-1]

    @property
    def bound(self) -> list[tuple[str, int]]:
        return [port.at for port in self.open]


class ServiceTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.addCleanup(os.umask, os.umask(0o077))
        self.state = StateDirectory(Path(self.mktemp()))
        self.state.prepare()
        self.node = Node()

    def build(self, host: Host, settings: Settings | None = None) -> ControlService:
        return build_control(
            host.clock,
            host.listen,
            settings or Settings(),
            self.state,
            self.node.errors,
            self.node.sources,
            self.node.revision,
        )

    def file(self) -> Any:
        return msgspec.json.decode((self.state.path / "control.json").read_bytes())


class ControlServiceTests(ServiceTestCase):
    def test_listens_on_loopback_alone(self) -> None:
        """It listens at 14300 of both loopback addresses and nowhere else (UI-1)."""
        host = Host()
        service = self.build(host)
        self.assertEqual((service.url, service.listener.state), (None, "failed"))
        service.startService()
        self.assertEqual(host.bound, [("127.0.0.1", 14300), ("::1", 14300)])
        self.assertEqual((service.listener.address, service.listener.state), ("127.0.0.1:14300", "bound"))
        self.assertEqual(self.node.errors.entries(), ())

    def test_without_ipv6(self) -> None:
        """On a host without IPv6 the other address is enough."""
        host = Host(ipv6=False)
        self.build(host).startService()
        self.assertEqual(host.bound, [("127.0.0.1", 14300)])

    def test_says_where_it_is(self) -> None:
        """While it runs a file says where, for the owner alone; then the file is gone (UI-2)."""
        service = self.build(Host())
        service.startService()
        expected = {"url": "http://127.0.0.1:14300", "pid": 42, "version": __version__, "startedAt": NOW - 5000}
        self.assertEqual(self.file(), expected)
        self.assertEqual(stat.S_IMODE((self.state.path / "control.json").stat().st_mode), 0o600)
        self.successResultOf(service.stopService())
        self.assertFalse((self.state.path / "control.json").exists())
        self.assertIsNone(service.url)

    def test_port_taken(self) -> None:
        """If 14300 is taken it takes another, tells so, and the file has the real one (UI-2)."""
        host = Host(taken=(14300,))
        service = self.build(host)
        service.startService()
        self.assertEqual(host.bound, [("127.0.0.1", 50000), ("::1", 50000)])
        self.assertEqual(self.file()["url"], "http://127.0.0.1:50000")
        self.assertEqual(service.listener.state, "moved")
        (entry,) = self.node.errors.entries()
        self.assertEqual((entry.id, entry.subject.port), ("ports:moved:console", 14300))

    def test_started_again(self) -> None:
        """When it gets its port at the next start the entry is gone."""
        host = Host(taken=(14300,))
        service = self.build(host)
        service.startService()
        self.successResultOf(service.stopService())
        host.taken = ()
        service.startService()
        self.assertEqual((service.listener.state, self.node.errors.entries()), ("bound", ()))

    def test_serves(self) -> None:
        """What it listens with is the API, opened by the token of the file (UI-13); TLS is closed (UI-3)."""
        host = Host()
        self.build(host).startService()
        token = (self.state.path / "control.token").read_text().strip()
        factory = host.open[0].factory
        for data, expected in (
            (request("GET", "/api/v1/service", authorization=f"Bearer {token}"), b"HTTP/1.1 200 "),
            (request("GET", "/api/v1/service", authorization="Bearer pair_ct_other"), b"HTTP/1.1 401 "),
            (b"\x16\x03\x01", b"\x15\x03"),
        ):
            transport = StringTransport()
            protocol = factory.buildProtocol(transport.getPeer())
            assert protocol is not None
            protocol.makeConnection(transport)
            protocol.dataReceived(data)
            self.assertEqual(transport.value()[: len(expected)], expected)

    def test_unwritable(self) -> None:
        """If the file cannot be written the start fails and no socket stays open."""
        host = Host()
        service = self.build(host)
        (self.state.path / "control.token").write_text("x")
        self.state.path.chmod(0o500)
        self.addCleanup(self.state.path.chmod, 0o700)
        if os.geteuid() == 0:
            (self.state.path / "control.json").mkdir()
        self.assertRaises(OSError, service.startService)
        self.assertEqual(host.bound, [])
        self.assertIsNone(service.url)

    def test_metrics_token(self) -> None:
        """With metrics.auth = "token" there is a token for the metrics, else none (OP-40)."""
        path = self.state.path / "metrics.token"
        self.build(Host()).startService()
        self.assertFalse(path.exists())
        self.build(Host(), load(["metrics.auth=token"]).settings).startService()
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)


class TokenTests(ServiceTestCase):
    def token(self) -> TokenFile:
        token = TokenFile(self.state, "control.token", "pair_ct_")
        token.ensure()
        return token

    def text(self) -> bytes:
        return (self.state.path / "control.token").read_bytes().strip()

    def test_made_once(self) -> None:
        """It is made at the first start, for the owner alone, and kept at the next (UI-15)."""
        self.token()
        first = self.text()
        self.assertRegex(first, rb"^pair_ct_[A-Za-z0-9_-]{43}$")
        self.assertEqual(stat.S_IMODE((self.state.path / "control.token").stat().st_mode), 0o600)
        self.token()
        self.assertEqual(self.text(), first)

    def test_no_token_in_the_file(self) -> None:
        """A file that holds none is given a new one at the start, with a warning that does not show it (UI-15)."""
        for content in (b"", b"\n", b"pair_ct_", b"pair_mt_" + b"x" * 43, b"pair_ct_" + b"x" * 42, b"a\nb", b"\xff"):
            self.state.replace("control.token", content, 0o600)
            with capturedLogs() as events:
                token = self.token()
            self.assertRegex(self.text(), rb"^pair_ct_[A-Za-z0-9_-]{43}$")
            self.assertTrue(token.matches(self.text()))
            self.assertEqual([formatEvent(each) for each in events], [WARNING], content)
        longer = b"pair_ct_" + b"x" * 64
        self.state.replace("control.token", longer, 0o600)
        self.token()
        self.assertEqual(self.text(), longer)

    def test_matches(self) -> None:
        """It matches itself and nothing else."""
        token, text = self.token(), self.text()
        self.assertTrue(token.matches(text))
        for other in (b"", text[:-1], text + b"x", b"pair_ct_"):
            self.assertFalse(token.matches(other), other)

    def test_replaced(self) -> None:
        """Once its file is replaced the old one fails at once (UI-15)."""
        token, old = self.token(), self.text()
        self.assertTrue(token.matches(old))
        self.state.replace("control.token", b"pair_ct_new\n", 0o600)
        self.assertFalse(token.matches(old))
        self.assertTrue(token.matches(b"pair_ct_new"))

    def test_file_gone_or_empty(self) -> None:
        """Without a token in the file nothing matches, the empty text neither."""
        token, old = self.token(), self.text()
        self.state.replace("control.token", b"", 0o600)
        self.assertFalse(token.matches(b""))
        self.state.remove("control.token")
        self.assertFalse(token.matches(old))

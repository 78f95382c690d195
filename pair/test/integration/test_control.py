"""The control API at a real port, and the real ``pair-admin`` in front of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from twisted.internet import reactor as global_reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol, ServerFactory
from twisted.internet.utils import getProcessOutputAndValue
from twisted.trial.unittest import TestCase

import pair
from pair.control.auth import BODY_LIMIT
from pair.control.service import ControlService, build_control
from pair.protocols.eager import listen_eager
from pair.settings import load
from pair.statedir import StateDirectory
from pair.test.control.samples import NODE, Node
from pair.test.surfaces.wire import request

if TYPE_CHECKING:
    from twisted.python.failure import Failure

reactor: Any = global_reactor
ROOT = Path(pair.__file__).parents[1]
ADMIN = "from pair.admin.main import main; main()"


class Collector(Protocol):
    """Keeps what comes until the connection ends."""

    def __init__(self) -> None:
        self.data = b""
        self.ended: Deferred[bytes] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        self.data += data

    def connectionLost(self, reason: Failure | None = None) -> None:
        self.ended.callback(self.data)


class ControlTests(TestCase):
    timeout = 60

    def setUp(self) -> None:
        self.addCleanup(os.umask, os.umask(0o077))
        self.state = StateDirectory(Path(self.mktemp()).absolute())
        self.state.prepare()
        self.node = Node()
        self.service = self.build(0)
        self.service.startService()
        self.addCleanup(self.stop)

    def stop(self) -> Deferred[None] | None:
        return self.service.stopService() if self.service.running else None

    def build(self, port: int) -> ControlService:
        def listen(port: int, factory: Any, address: str) -> Any:
            return listen_eager(reactor, port, factory, address)

        settings = load([f"ports.control={port}"]).settings
        return build_control(
            reactor, listen, settings, self.state, self.node.errors, self.node.sources, self.node.revision
        )

    @property
    def port(self) -> int:
        return int(str(self.service.url).rpartition(":")[2])

    async def admin(self, *arguments: str) -> tuple[bytes, bytes, int]:
        environ = {
            **os.environ,
            "PAIR_STATE_DIR": str(self.state.path),
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        out, err, code = await getProcessOutputAndValue(sys.executable, ["-c", ADMIN, *arguments], environ)
        return out, err, code

    async def send(self, data: bytes) -> bytes:
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", self.port)
        collector = await connectProtocol(endpoint, Collector())
        collector.transport.write(data)
        answer: bytes = await collector.ended
        return answer

    async def test_pair_admin(self) -> None:
        """The command finds the service by its file, enters by its token, and prints one JSON value (UI-101)."""
        out, err, code = await self.admin("status", "--json")
        self.assertEqual((code, err), (0, b""))
        self.assertEqual(msgspec.json.decode(out)["service"]["node"], NODE)

    async def test_rotated_token(self) -> None:
        """After a rotation the new token is good and the old one is not (UI-15)."""
        old = (self.state.path / "control.token").read_text().strip()
        self.assertEqual((await self.admin("token", "rotate"))[2], 0)
        self.assertEqual((await self.admin("engine", "list"))[2], 0)
        answer = await self.send(request("GET", "/api/v1/engines", authorization=f"Bearer {old}", connection="close"))
        self.assertTrue(answer.startswith(b"HTTP/1.1 401 "))

    async def test_stopped(self) -> None:
        """Once it has stopped, the command says that it does not run (UI-102)."""
        await self.service.stopService()
        out, err, code = await self.admin("status")
        self.assertEqual((code, out), (3, b""))
        self.assertIn(str(self.state.path / "control.json").encode(), err)

    async def test_refused_while_it_is_sent(self) -> None:
        """A body that is too long is refused at its head, and the refusal is not lost for the rest of it (UI-12)."""
        token = (self.state.path / "control.token").read_text().strip()
        data = request(
            "POST", "/api/v1/errors/self/dismiss/a:b", b"x" * (2 * BODY_LIMIT), authorization=f"Bearer {token}"
        )
        answer = await self.send(data)
        self.assertTrue(answer.startswith(b"HTTP/1.1 413 "))
        self.assertIn(b'"code":"too_large"', answer)

    async def test_port_taken(self) -> None:
        """A port that another program has is left to it (UI-2)."""
        port = reactor.listenTCP(0, ServerFactory(), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        await self.service.stopService()
        self.service = self.build(port.getHost().port)
        self.service.startService()
        self.assertEqual(self.service.listener.state, "moved")
        self.assertEqual((await self.admin("health"))[2], 0)

    async def test_stop_with_a_client(self) -> None:
        """A stop closes the connections that are open."""
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", self.port)
        collector = await connectProtocol(endpoint, Collector())
        collector.transport.write(request("GET", "/healthz"))
        answered: Deferred[None] = Deferred()
        collector.dataReceived = lambda data: answered.callback(None)
        await answered
        await self.service.stopService()
        await collector.ended

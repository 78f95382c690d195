"""The control API at a real port, and the real ``pair-admin`` in front of it."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from twisted.internet import reactor as global_reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import ProcessProtocol, Protocol, ServerFactory
from twisted.internet.task import deferLater
from twisted.internet.utils import getProcessOutputAndValue
from twisted.trial.unittest import TestCase

import pair
from pair.control.auth import BODY_LIMIT
from pair.control.service import ControlService, build_control
from pair.protocols.eager import listen_eager
from pair.records.jobs import Job, JobChanged
from pair.settings import load
from pair.statedir import StateDirectory
from pair.test.control.samples import NODE, NOW, RACK, Node
from pair.test.surfaces.wire import request

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.python.failure import Failure

reactor: Any = global_reactor
ROOT = Path(pair.__file__).parents[1]
ADMIN = "from pair.admin.main import main; main()"


class Collector(Protocol):
    """Keeps what comes until the connection ends."""

    transport: Any

    def __init__(self) -> None:
        self.data = b""
        self.ended: Deferred[bytes] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        self.data += data

    def connectionLost(self, reason: Failure | None = None) -> None:
        self.ended.callback(self.data)


class Printed(ProcessProtocol):
    """A command that prints a line whenever something happens."""

    def __init__(self) -> None:
        self.ended: Deferred[int | None] = Deferred()
        self.err = b""
        self._out = b""
        self._wanted: list[Deferred[bytes]] = []

    def outReceived(self, data: bytes) -> None:
        self._out += data
        self._give()

    def errReceived(self, data: bytes) -> None:
        self.err += data

    def processEnded(self, reason: Failure) -> None:
        self.ended.callback(reason.value.exitCode)  # type: ignore[union-attr]

    def line(self) -> Deferred[bytes]:
        """The next one."""
        self._wanted.append(Deferred())
        wanted = self._wanted[-1]
        self._give()
        return wanted

    def _give(self) -> None:
        while self._wanted and b"\n" in self._out:
            line, _, self._out = self._out.partition(b"\n")
            self._wanted.pop(0).callback(line)


class ControlCase(TestCase):
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

    @property
    def environ(self) -> dict[str, str]:
        return {
            **os.environ,
            "PAIR_STATE_DIR": str(self.state.path),
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    @property
    def token(self) -> str:
        return (self.state.path / "control.token").read_text().strip()

    async def admin(self, *arguments: str) -> tuple[bytes, bytes, int]:
        out, err, code = await getProcessOutputAndValue(sys.executable, ["-c", ADMIN, *arguments], self.environ)
        return out, err, code

    async def send(self, data: bytes) -> bytes:
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", self.port)
        collector = await connectProtocol(endpoint, Collector())
        collector.transport.write(data)
        answer: bytes = await collector.ended
        return answer


class ControlTests(ControlCase):
    async def test_pair_admin(self) -> None:
        """The command finds the service by its file, enters by its token, and prints one JSON value (UI-101)."""
        out, err, code = await self.admin("status", "--json")
        self.assertEqual((code, err), (0, b""))
        self.assertEqual(msgspec.json.decode(out)["service"]["node"], NODE)

    async def test_rotated_token(self) -> None:
        """After a rotation the new token is good and the old one is not (UI-15)."""
        old = self.token
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
        token = f"Bearer {self.token}"
        data = request("POST", "/api/v1/errors/self/dismiss/a:b", b"x" * (2 * BODY_LIMIT), authorization=token)
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


class StreamTests(ControlCase):
    """The event stream over real sockets (UI-61 to UI-66)."""

    async def follow(self, topic: str = "errors") -> Collector:
        """A follower whose first event is here."""
        collector: Collector = await connectProtocol(TCP4ClientEndpoint(reactor, "127.0.0.1", self.port), Collector())
        token = f"Bearer {self.token}"
        collector.transport.write(request("GET", f"/api/v1/events?topics={topic}", authorization=token))
        await self.until(lambda: b"event: snapshot" in collector.data)
        self.addCleanup(collector.transport.abortConnection)
        return collector

    def has(self, collector: Collector, job: Job) -> bool:
        return f'"id":"{job.id}"'.encode() in collector.data[-600_000:]

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            await deferLater(reactor, 0.01)

    async def test_pair_admin(self) -> None:
        """The command prints what there is and what changes at once, and ends with the service: exit 3 (UI-101)."""
        printed = Printed()
        command = [sys.executable, "-c", ADMIN, "events", "--topics", "errors", "--json"]
        reactor.spawnProcess(printed, sys.executable, command, self.environ)
        self.assertEqual(msgspec.json.decode(await printed.line())["topics"], {"errors": []})
        self.node.errors.raise_entry("test:broken:lamp", thing="lamp")
        found = msgspec.json.decode(await printed.line())
        self.assertEqual((found["event"], found["value"]["id"]), ("upsert", "test:broken:lamp"))
        await self.service.stopService()
        self.assertEqual(await printed.ended, 3)
        self.assertIn(b'"unreachable"', await printed.line())

    async def test_interrupted(self) -> None:
        """Ctrl-C ends it: exit 130 (UI-100)."""
        printed = Printed()
        process = reactor.spawnProcess(printed, sys.executable, [sys.executable, "-c", ADMIN, "events"], self.environ)
        await printed.line()
        process.signalProcess("INT")
        self.assertEqual(await printed.ended, 130)

    async def test_slow_reader(self) -> None:
        """One that does not read is dropped with more than 1 MiB unsent; another gets all, in time (UI-66)."""
        slow, fast = await self.follow("jobs"), await self.follow("jobs")
        slow.transport.pauseProducing()
        for number in range(30):
            # Larger by far than any real one: the kernel too keeps some megabytes for a reader.
            job = Job(f"b2.{number}", RACK, 1, "queued", "ollama", "ollama", "chat", "/", True, "x" * 500_000, NOW)
            self.node.job_changes.emit(JobChanged(job, None))
            await self.until(partial(self.has, fast, job))
        slow.transport.resumeProducing()
        await slow.ended
        self.assertFalse(self.has(slow, job))

    async def test_rotated_token(self) -> None:
        """A stream that the former token opened ends (UI-15)."""
        follower = await self.follow()
        self.assertEqual((await self.admin("token", "rotate"))[2], 0)
        self.node.errors.raise_entry("test:broken:lamp", thing="lamp")
        await self.until(lambda: follower.data.endswith(b"0\r\n\r\n"))
        self.assertNotIn(b"lamp", follower.data)

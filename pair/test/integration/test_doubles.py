"""Doubles as programs, real engines under the same contract, and PAIR's engines over both (EN-109 to EN-112)."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.error import ConnectError, ProcessDone, ProcessExitedAlready, ProcessTerminated
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import deferLater
from twisted.internet.utils import getProcessOutputAndValue
from twisted.trial.unittest import SkipTest, TestCase

import pair
from pair.engines.data import EMBEDDED_WEIGHTS
from pair.engines.kinds.embedded import PACKAGE
from pair.engines.kinds.lmstudio import LMStudio as LMStudioKind
from pair.engines.kinds.ollama import Ollama as OllamaKind
from pair.engines.service import EngineService
from pair.settings import EngineSettings, Settings
from pair.test.doubles import lmstudio_shapes as lm
from pair.test.doubles.contract import SAY, CompatibleContract
from pair.test.doubles.lms import install
from pair.test.doubles.lmstudio import LMStudio
from pair.test.doubles.ollama import Ollama
from pair.test.doubles.program import STATUS, Listening
from pair.test.doubles.shelf import SMOLLM
from pair.test.doubles.telling import Pace
from pair.test.doubles.wire import Got, ask
from pair.test.engines.toy import Book, Memory
from pair.test.integration.test_embedded_engine import data_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from twisted.internet.interfaces import IStreamClientEndpoint
    from twisted.python.failure import Failure

    from pair.records.engines import EngineInventory

ROOT = Path(pair.__file__).parent.parent
CHAT = {"model": SMOLLM.name, "messages": SAY}


class Program(ProcessProtocol):
    """A program whose first line may say where it listens.

    Attributes:
        ready: fires with the port.
        ended: fires with the status, or with the signal below zero.
    """

    def __init__(self) -> None:
        self.ready: Deferred[int] = Deferred()
        self.ended: Deferred[int] = Deferred()
        self.output = b""

    def outReceived(self, data: bytes) -> None:
        self.output += data
        told = re.match(rb"Listening on .*:(\d+)\n", self.output)
        if told and not self.ready.called:
            self.ready.callback(int(told[1]))

    def errReceived(self, data: bytes) -> None:
        self.output += data

    def processEnded(self, reason: Failure) -> None:
        error = reason.value
        assert isinstance(error, ProcessDone | ProcessTerminated)
        if not self.ready.called:
            self.ready.errback(RuntimeError(self.output.decode()))
        self.ended.callback(-error.signal if error.signal else error.exitCode or 0)


async def got(port: int, method: str, path: str, body: object = b"") -> Got:
    """Ask a server on this machine."""
    asking = await ask(TCP4ClientEndpoint(reactor, "127.0.0.1", port), method, path, body)
    return await asking.over


class ProgramCase(TestCase):
    timeout = 60

    async def start(self, module: str, *arguments: str, **environment: str) -> tuple[Program, int]:
        """A double as a program, at a port of its own choice; it is gone when the test is."""
        program = Program()
        env = {**os.environ, "PYTHONPATH": str(ROOT), "OLLAMA_HOST": "127.0.0.1:0", **environment}
        argv = [sys.executable, "-m", f"pair.test.doubles.{module}", *arguments]
        reactor.spawnProcess(program, sys.executable, argv, env=env)
        self.addCleanup(self.end, program)
        return program, await program.ready

    async def end(self, program: Program) -> None:
        if not program.ended.called:
            assert program.transport is not None
            with contextlib.suppress(ProcessExitedAlready):
                program.transport.signalProcess("KILL")
            await program.ended

    async def until_refused(self, port: int) -> None:
        while True:
            try:
                await got(port, "GET", "/")
            except ConnectError:
                return
            await deferLater(reactor, 0.02)


class ProgramTests(ProgramCase):
    async def test_ollama(self) -> None:
        """It serves where ``OLLAMA_HOST`` says, keeps models where ``OLLAMA_MODELS`` says, and ends by TERM."""
        folder = self.mktemp()
        program, port = await self.start("ollama", "serve", OLLAMA_MODELS=folder)
        self.assertEqual((await got(port, "POST", "/api/chat", CHAT)).lines[-1]["done"], True)
        await got(port, "DELETE", "/api/delete", {"model": SMOLLM.name})
        assert program.transport is not None
        program.transport.signalProcess("TERM")
        self.assertEqual(await program.ended, 0)
        _, port = await self.start("ollama", "serve", OLLAMA_MODELS=folder)
        names = [each["name"] for each in (await got(port, "GET", "/api/tags")).json["models"]]
        self.assertNotIn(SMOLLM.name, names)

    async def test_version(self) -> None:
        """``ollama --version`` (EN-8)."""
        out, _, status = await getProcessOutputAndValue(
            sys.executable,
            ["-m", "pair.test.doubles.ollama", "--version"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self.assertEqual((out, status), (b"ollama version is 0.13.1\n", 0))

    async def test_lmstudio(self) -> None:
        """It serves, with and without just-in-time loading."""
        chat = {"model": lm.OSS.name, "messages": SAY}
        for arguments, status in (((), 200), (("--no-just-in-time",), 400)):
            _, port = await self.start("lmstudio", "--port", "0", *arguments)
            self.assertEqual((await got(port, "POST", "/v1/chat/completions", chat)).status, status)

    async def test_exit(self) -> None:
        """The process ends in the middle of a request."""
        program, port = await self.start("ollama", "serve", "--fault", "exit")
        answer = await got(port, "POST", "/api/chat", CHAT)
        self.assertEqual((answer.status, await program.ended), (0, STATUS))

    async def test_deaf(self) -> None:
        """It ignores TERM."""
        program, port = await self.start("ollama", "serve", "--fault", "deaf")
        assert program.transport is not None
        program.transport.signalProcess("TERM")
        self.assertEqual((await got(port, "GET", "/")).status, 200)
        self.assertFalse(program.ended.called)

    async def test_fork(self) -> None:
        """Who answers has left the group of the process that was started, and outlives it."""
        program, port = await self.start("lmstudio", "--port", "0", "--fault", "fork")
        assert program.transport is not None
        first = program.transport.pid
        assert first is not None
        served = (await got(port, "GET", "/_double/process")).json["pid"]
        self.addCleanup(_kill, served)
        self.assertNotEqual(served, first)
        self.assertNotEqual(os.getpgid(served), os.getpgid(first))
        program.transport.signalProcess("KILL")
        while os.path.exists(f"/proc/{first}"):
            await deferLater(reactor, 0.02)
        self.assertEqual((await got(port, "GET", "/lmstudio-greeting")).status, 200)
        _kill(served)
        await self.until_refused(port)

    async def test_refuse(self) -> None:
        """The port is closed, and opens again by itself at the same place."""
        _, port = await self.start("ollama", "serve")
        await got(port, "POST", "/_double/fault", {"fault": "refuse", "seconds": 0.5})
        await self.until_refused(port)
        while True:
            try:
                self.assertEqual((await got(port, "GET", "/")).status, 200)
                return
            except ConnectError:
                await deferLater(reactor, 0.05)

    async def test_cut_is_a_reset(self) -> None:
        """What came before is there; then the connection breaks."""
        _, port = await self.start("ollama", "serve", "--fault", '{"fault":"cut","after":2}', "--rate", "50")
        answer = await got(port, "POST", "/api/chat", CHAT)
        self.assertEqual((len(answer.lines), answer.lost, answer.ended), (2, True, False))

    async def test_lms(self) -> None:
        """The command starts and stops the server, loads and unloads, and tells who is busy; state is in its home."""
        home, folder = Path(self.mktemp()).absolute(), Path(self.mktemp())
        folder.mkdir()
        program = install(folder)

        async def lms(*arguments: str) -> tuple[str, int]:
            env = {**os.environ, "LMS_HOME": str(home)}
            out, err, status = await getProcessOutputAndValue(str(program), arguments, env=env)
            return (out + err).decode(), status

        port = _free_port()
        self.assertEqual((await lms("ps"))[1], 1)
        self.assertIn("--bind", (await lms("server", "start", "--help"))[0])
        self.assertIn(str(port), (await lms("server", "start", "--port", str(port), "--bind", "127.0.0.1"))[0])
        self.addCleanup(lms, "server", "stop")
        config = json.loads((home / ".internal" / "http-server-config.json").read_text())
        self.assertEqual(config["port"], port)
        self.assertEqual(json.loads((await lms("server", "status", "--json"))[0]), {"running": True, "port": port})
        self.assertEqual((await lms("load", lm.OSS.name, "-y"))[1], 0)
        self.assertIn(f"{lm.OSS.name}:2", (await lms("load", lm.OSS.name))[0])
        told = json.loads((await lms("ps", "--json"))[0])
        self.assertEqual([each["identifier"] for each in told], [lm.OSS.name, f"{lm.OSS.name}:2"])
        self.assertEqual({each["status"] for each in told}, {"idle"})
        self.assertEqual((await lms("get", lm.GRANITE.name, "--yes"))[1], 0)
        self.assertIn(lm.GRANITE.name, [each["modelKey"] for each in json.loads((await lms("ls", "--json"))[0])])
        await lms("unload", f"{lm.OSS.name}:2")
        await lms("server", "stop")
        await self.until_refused(port)
        await lms("server", "start")
        told = json.loads((await lms("ps", "--json"))[0])
        self.assertEqual([each["identifier"] for each in told], [lm.OSS.name])
        self.assertEqual((await lms("load", "nonsense"))[1], 1)


class Real(CompatibleContract):
    """A real engine, asked by real sockets."""

    model = EMBEDDED_WEIGHTS.name

    def __init__(self, port: int) -> None:
        self._port = port

    def endpoint(self) -> IStreamClientEndpoint:
        return TCP4ClientEndpoint(reactor, "127.0.0.1", self._port)

    def settle(self, work: Coroutine[Deferred[Any], Any, None]) -> Deferred[None]:
        return Deferred.fromCoroutine(work)


class RealEngineTests(ProgramCase):
    async def test_contract(self) -> None:
        """llama.cpp's own server keeps, one by one, the contract that the doubles keep (EN-110)."""
        if importlib.util.find_spec(PACKAGE) is None:
            raise SkipTest(f"the package {PACKAGE} is not installed")
        weights = data_dir() / "models" / EMBEDDED_WEIGHTS.file
        if not weights.is_file():
            raise SkipTest(f"the weights {weights} are missing")
        program, port = Program(), _free_port()
        argv = [sys.executable, "-m", "pair.engines.embedded", "--port", str(port)]
        argv += ["--model", str(weights), "--alias", EMBEDDED_WEIGHTS.name]
        program.ready.addErrback(lambda _: None)
        reactor.spawnProcess(program, sys.executable, argv, env={**os.environ, "PYTHONPATH": str(ROOT)})
        self.addCleanup(self.end, program)
        await self.until_ready(port, program)
        real = Real(port)
        for name in dir(real):
            if name.startswith("test_"):
                await getattr(real, name)()

    async def until_ready(self, port: int, program: Program) -> None:
        while not program.ended.called:
            with contextlib.suppress(ConnectError):
                if (await got(port, "GET", "/health")).status == 200:
                    return
            await deferLater(reactor, 0.05)
        self.fail(program.output.decode())


class EngineTests(TestCase):
    """PAIR's engines over the doubles, by real sockets."""

    timeout = 60

    async def until(self, holds: Callable[[], object]) -> None:
        while not holds():
            await deferLater(reactor, 0.02)

    def serve(self, double: Any) -> str:
        listening = Listening(reactor, double)
        self.addCleanup(listening.close)
        return f"http://127.0.0.1:{listening.port}"

    async def adopt(self, **engines: EngineSettings) -> EngineService:
        service = EngineService(
            reactor,
            msgspec.structs.replace(Settings(), engines=engines, embedded="off"),
            [OllamaKind(), LMStudioKind()],
            node="n1",
            errors=Book(),
            memory=Memory(),
            now=lambda: round(time.time() * 1000),
            own_ports=frozenset,
            in_flight=lambda engine: 0,
            environment={"OLLAMA_HOST": "https://ollama.com"},
        )
        await service.startService()
        self.addCleanup(service.stopService)
        return service

    def engine(self, service: EngineService, name: str) -> EngineInventory:
        return next(each for each in service.inventory().engines if each.status.id == name)

    async def test_adopted(self) -> None:
        """Both are found, listed, and what is loaded is known; Ollama's details come with ``/api/show`` (EN-78)."""
        ollama = Ollama(reactor)
        studio = LMStudio(reactor)
        studio.load(lm.OSS.name)
        service = await self.adopt(
            one=EngineSettings(kind="ollama", url=self.serve(ollama)),
            two=EngineSettings(kind="lmstudio", url=self.serve(studio)),
        )
        one, two = self.engine(service, "one"), self.engine(service, "two")
        self.assertEqual((one.status.state, one.status.version, one.status.routable), ("running", "0.13.1", True))
        self.assertEqual((two.status.state, two.status.slots, two.status.routable), ("running", 4, True))
        loaded = {each.id for each in two.models if each.loaded}
        self.assertEqual((len(two.models), loaded), (3, {lm.OSS.name}))
        await self.until(lambda: all(each.context_max for each in self.engine(service, "one").models))
        model = next(each for each in self.engine(service, "one").models if each.id == SMOLLM.name)
        self.assertEqual((model.context_max, model.capabilities), (SMOLLM.context, SMOLLM.can))
        shown = [each for each in ollama.asked if each.path == "/api/show"]
        self.assertEqual(len(shown), 3)
        await service.refresh("one")
        self.assertEqual([each for each in ollama.asked if each.path == "/api/show"], shown)

    async def test_loads_nothing(self) -> None:
        """Without just-in-time loading only loaded models can be asked for, as long as it is so (RT-8)."""
        studio = LMStudio(reactor, just_in_time=False)
        service = await self.adopt(two=EngineSettings(kind="lmstudio", url=self.serve(studio)))
        self.assertEqual(service.dialect("two").eligible, "loaded")
        studio.just_in_time = True
        await service.refresh("two")
        self.assertEqual(service.dialect("two"), LMStudioKind.dialect)

    async def test_needs_a_token(self) -> None:
        """401 to a probe: ``needs_credential``, and not routable (E08)."""
        studio = LMStudio(reactor)
        studio.faults.add("401", path="/")
        service = await self.adopt(two=EngineSettings(kind="lmstudio", url=self.serve(studio)))
        status = self.engine(service, "two").status
        self.assertEqual((status.health, status.routable), ("needs_credential", False))

    async def test_idle_busy_and_loading(self) -> None:
        """A model that is being loaded keeps others waiting, not the lists."""
        ollama = Ollama(reactor, pace=Pace(load=0.3))
        service = await self.adopt(one=EngineSettings(kind="ollama", url=self.serve(ollama)))
        address = service.address("one")
        assert address is not None
        began = time.monotonic()
        asking = await ask(TCP4ClientEndpoint(reactor, address.host, address.port), "POST", "/api/chat", CHAT)
        await service.refresh("one")
        self.assertFalse(asking.over.called)
        await asking.over
        self.assertGreater(time.monotonic() - began, 0.29)
        await service.refresh("one")
        self.assertEqual([each.id for each in self.engine(service, "one").models if each.loaded], [SMOLLM.name])


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number

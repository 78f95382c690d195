"""The real embedded engine: start, list, chat, cancel, crash, restart, stop (EN-112)."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import platformdirs
import treq
from twisted.internet import reactor
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater
from twisted.trial.unittest import SkipTest, TestCase
from twisted.web.client import HTTPConnectionPool

import pair
from pair.engines.data import EMBEDDED_WEIGHTS
from pair.engines.kinds.embedded import PACKAGE, Embedded
from pair.engines.processes import HostProcesses
from pair.engines.service import EngineService
from pair.settings import Settings
from pair.settings.structs import Node
from pair.test.engines.toy import Book, Memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from pair.records.engines import EngineInventory

STORY = {"model": EMBEDDED_WEIGHTS.name, "stream": True, "max_tokens": 2000, "prompt": "Once upon a time"}


def data_dir() -> Path:
    """Where ``make run`` puts the weights, unless ``TEST_DATA_DIR`` names another folder."""
    return Path(os.environ.get("TEST_DATA_DIR") or platformdirs.user_data_dir("pair", appauthor=False))


class Listener(Protocol):
    """Sends one request and counts what comes back."""

    def __init__(self, request: bytes) -> None:
        self.received = 0
        self._request = request

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.transport.write(self._request)

    def dataReceived(self, data: bytes) -> None:
        self.received += len(data)


class EmbeddedEngineTests(TestCase):
    timeout = 120

    def setUp(self) -> None:
        if importlib.util.find_spec(PACKAGE) is None:
            raise SkipTest(f"the package {PACKAGE} is not installed")
        weights = data_dir() / "models" / EMBEDDED_WEIGHTS.file
        if not weights.is_file():
            raise SkipTest(f"the weights {weights} are missing")
        self.memory = Memory()
        self.service = self.made()

    def made(self) -> EngineService:
        settings = msgspec.structs.replace(Settings(), node=Node(data_dir=str(data_dir())), embedded="on")
        # The child is to find this very checkout, wherever the tests run.
        root = str(Path(pair.__file__).parent.parent)
        return EngineService(
            reactor,
            settings,
            [Embedded()],
            node="n1",
            errors=Book(),
            memory=self.memory,
            now=lambda: round(time.time() * 1000),
            own_ports=frozenset,
            in_flight=lambda engine: 0,
            environment={**os.environ, "PYTHONPATH": root},
        )

    @property
    def engine(self) -> EngineInventory:
        return self.service.inventory().engines[0]

    @property
    def pid(self) -> int:
        return self.memory.children["embedded"].mark.pid

    async def until(self, holds: Callable[[], object]) -> None:
        while not holds():
            await deferLater(reactor, 0.02)

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        address = self.service.address("embedded")
        assert address is not None
        pool = HTTPConnectionPool(reactor, persistent=False)
        response = await treq.request(method, f"http://{address.authority}{path}", json=body, pool=pool)
        self.assertEqual(response.code, 200)
        return await response.json()

    async def busy_slots(self) -> int:
        return sum(each["is_processing"] for each in await self.ask("GET", "/slots"))

    async def test_life(self) -> None:
        """It starts, lists, talks, frees the slot of a client that leaves, comes back when killed, and stops."""
        await self.service.startService()
        self.addCleanup(self.service.stopService)
        await self.until(lambda: self.engine.status.routable)
        status = self.engine.status
        self.assertEqual((status.ownership, status.slots, status.models), ("owned", 2, "known"))
        self.assertEqual([each.id for each in self.engine.models], [EMBEDDED_WEIGHTS.name])

        question = {"messages": [{"role": "user", "content": "Name a colour."}], "max_tokens": 8, "temperature": 0}
        told = await self.ask("POST", "/v1/chat/completions", {"model": EMBEDDED_WEIGHTS.name, **question})
        self.assertTrue(told["choices"][0]["message"]["content"].strip())

        await self.leave_in_the_middle()

        first = self.pid
        os.kill(first, signal.SIGKILL)
        await self.until(lambda: self.engine.status.state == "backoff")
        self.assertFalse(self.service.alive("embedded"))
        await self.until(lambda: self.engine.status.routable)
        self.assertNotEqual(self.pid, first)

        last = self.pid
        await self.service.stopService()
        self.assertEqual((HostProcesses().look(last), self.memory.children), (None, {}))

    async def test_taken_back(self) -> None:
        """A child that outlived us is taken back at the next start, not started twice (EN-23)."""
        await self.service.startService()
        await self.until(lambda: self.engine.status.routable)
        pid, lost = self.pid, self.service
        self.service = self.made()
        await self.service.startService()
        self.addCleanup(lost.stopService)
        self.addCleanup(self.service.stopService)
        self.assertEqual((self.engine.status.state, self.engine.status.ownership, self.pid), ("running", "owned", pid))

    async def leave_in_the_middle(self) -> None:
        """A client that hangs up frees its slot within 1 s."""
        address = self.service.address("embedded")
        assert address is not None
        body = json.dumps(STORY).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {address.authority}\r\nContent-Length: {len(body)}\r\n\r\n"
        client = Listener(head.encode() + body)
        endpoint = TCP4ClientEndpoint(reactor, address.host, address.port)
        await endpoint.connect(Factory.forProtocol(lambda: client))
        await self.until(lambda: client.received > 500)
        self.assertEqual(await self.busy_slots(), 1)
        assert client.transport is not None
        client.transport.abortConnection()  # type: ignore[attr-defined]
        await deferLater(reactor, 1.0)
        self.assertEqual(await self.busy_slots(), 0)

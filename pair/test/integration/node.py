"""A real node for the tests: ``twistd -n pair`` in a process of its own (QA-5).

All that it writes goes into one folder of the test's; it listens on loopback,
at ports that the kernel chooses, and looks for no engine of this machine.
Tests that use it block: they are made of requests and of waits that end as
soon as what they wait for holds.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from unittest import SkipTest
from urllib.parse import urlsplit

import platformdirs
import psutil
from twisted.trial.unittest import SynchronousTestCase

import pair
from pair.engines.data import EMBEDDED_WEIGHTS
from pair.engines.kinds.embedded import PACKAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from email.message import Message

T = TypeVar("T")

LIMIT = 30.0
"""Seconds after which a wait fails its test. Nothing takes nearly as long."""

MODEL = EMBEDDED_WEIGHTS.name

ROOT = Path(pair.__file__).parents[1]
_TWISTD = "from twisted.scripts.twistd import run; run()"
_ADMIN = "from pair.admin.main import main; main()"
_MARK = "TEST_NODE"
"""A variable of the environment that a node's children inherit; by it they are found, whoever their parent is."""


def wait_for(what: str, look: Callable[[], T], seconds: float = LIMIT) -> T:
    """Look again and again until there is something to see, and return that."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() >= deadline:
            raise AssertionError(f"waited {seconds:g} s for {what}")
        time.sleep(0.02)


class Answer:
    """A whole answer."""

    def __init__(self, response: HTTPResponse) -> None:
        self.status = response.status
        self.fields: Message = response.headers
        self.body = response.read()

    @property
    def value(self) -> Any:
        """The body, which is JSON."""
        return json.loads(self.body)


class Stream:
    """An answer that is read bit by bit, or left."""

    def __init__(
        self, url: str, path: str, body: object, fields: Mapping[str, str] | None = None, method: str = "POST"
    ) -> None:
        self._connection = _send(url, path, body, fields or {}, method)

    def answer(self) -> HTTPResponse:
        """Wait for its head."""
        return self._connection.getresponse()

    def leave(self) -> None:
        """Hang up."""
        if self._connection.sock is not None:
            # Also where a response still holds the socket open.
            with suppress(OSError):
                self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def ask(
    url: str, path: str, body: object = None, fields: Mapping[str, str] | None = None, method: str | None = None
) -> Answer:
    """Send one request and wait for the whole answer. A ``body`` that is not bytes is sent as JSON."""
    connection = _send(url, path, body, fields or {}, method or ("GET" if body is None else "POST"))
    try:
        return Answer(connection.getresponse())
    finally:
        connection.close()


def _send(url: str, path: str, body: object, fields: Mapping[str, str], method: str) -> HTTPConnection:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=LIMIT)
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, data, {"Content-Type": "application/json", **fields})
    return connection


def embedded_data_dir() -> Path:
    """Where ``make test`` puts the weights, unless ``TEST_DATA_DIR`` names another folder.

    Raises:
        SkipTest: The embedded engine is not installed, or has no weights.
    """
    if importlib.util.find_spec(PACKAGE) is None:
        raise SkipTest(f"the package {PACKAGE} is not installed")
    folder = Path(os.environ.get("TEST_DATA_DIR") or platformdirs.user_data_dir("pair", appauthor=False))
    weights = folder / "models" / EMBEDDED_WEIGHTS.file
    if not weights.is_file():
        raise SkipTest(f"the weights {weights} are missing")
    return folder


class Node:
    """One node, which may be started again after its end.

    Args:
        folder: for all that it writes.
        settings: as ``KEY=VALUE``.
        environ: variables besides those of a bare environment.
        embedded: whether it has the embedded engine.

    Attributes:
        state: its state directory.

    Raises:
        SkipTest: It cannot have the embedded engine.
    """

    def __init__(self, folder: Path, *settings: str, environ: Mapping[str, str] | None = None, embedded: bool) -> None:
        self._folder = folder.absolute()
        self.state = self._folder / "state"
        self._home = self._folder / "home"
        self._home.mkdir(parents=True)
        self._mark = uuid.uuid4().hex
        self._environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._home),
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            **(environ or {}),
        }
        self._settings = [
            'node.bind=["127.0.0.1"]',
            "proxy.ports.ollama=0",
            "proxy.ports.lmstudio=0",
            *(f"ports.{each}=0" for each in ("control", "node_info", "errors", "workloads", "cluster", "inventory")),
            "discovery.mdns=false",
            *(f"engines.{kind}.mode=off" for kind in ("ollama", "lmstudio", "llamacpp")),
            f"embedded={'on' if embedded else 'off'}",
        ]
        if embedded:
            self._settings += [f"node.data_dir={embedded_data_dir()}", f"engines.embedded.port={_free_port()}"]
        self._settings += settings
        self._embedded = embedded
        self._process: subprocess.Popen[bytes] | None = None

    # Life

    def start(self) -> None:
        """Launch it, and wait until it serves, its embedded engine too."""
        self.launch()
        self.wait_until_ready()

    def launch(self, *options: str) -> None:
        """Begin a start, and do not wait for it."""
        given = [argument for each in self._settings for argument in ("--set", each)]
        command = [sys.executable, "-c", _TWISTD, "-n", "pair", "--state-dir", str(self.state), *given, *options]
        with (self._folder / "stdout").open("ab") as stdout, (self._folder / "stderr").open("ab") as stderr:
            self._process = subprocess.Popen(
                command,
                env={**self._environ, _MARK: self._mark},
                cwd=self._home,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
            )

    def wait_until_ready(self) -> None:
        """Wait until it serves, its embedded engine too."""
        wait_for("the node to be ready", self._is_ready)
        if self._embedded:
            wait_for("the engine to be ready", lambda: self.engine()["routable"])

    def stop(self) -> None:
        """Ask it to stop; it must end with 0, and nothing that it started may be left."""
        self.signal(signal.SIGTERM)
        code = self.end()
        assert (code, self.processes()) == (0, []), f"exit code {code}, left: {self.processes()}\n{self.output()}"

    def signal(self, number: int) -> None:
        """Send a signal to the service."""
        self._running.send_signal(number)

    def end(self) -> int:
        """Wait for its end, and return its exit code."""
        return self._running.wait(LIMIT)

    @property
    def ended(self) -> bool:
        """Whether it has ended, however."""
        return self._running.poll() is not None

    def destroy(self) -> None:
        """End all that is left of it."""
        for each in self.processes():
            with suppress(psutil.NoSuchProcess):
                each.kill()
        if self._process is not None:
            self._process.wait(LIMIT)

    # What is to be seen from outside

    @property
    def pid(self) -> int:
        """Of the service."""
        return self._running.pid

    def processes(self) -> list[psutil.Process]:
        """The service and its children that run, also those that outlived it."""
        found = []
        for each in psutil.process_iter():
            with suppress(psutil.Error):  # it ended, or is another user's
                if each.environ().get(_MARK) == self._mark:
                    found.append(each)
        return found

    def output(self) -> str:
        """All that it wrote on standard output and standard error."""
        return "".join((self._folder / name).read_text() for name in ("stdout", "stderr"))

    def last_line(self) -> str:
        """The last line on standard error."""
        return ((self._folder / "stderr").read_text().splitlines() or [""])[-1]

    # What it is asked

    @property
    def control(self) -> str:
        """The URL of the control API."""
        url: str = json.loads((self.state / "control.json").read_text())["url"]
        return url

    def facade(self, name: str) -> str:
        """The URL of a facade."""
        (url,) = (each["url"] for each in self.get("/endpoints")["endpoints"] if each["facade"] == name)
        return str(url)

    def get(self, path: str) -> Any:
        """What the control API has at ``path``."""
        token = (self.state / "control.token").read_text().strip()
        answer = ask(self.control, f"/api/v1{path}", fields={"Authorization": f"Bearer {token}"})
        assert answer.status == 200, answer.body
        return answer.value

    def jobs(self) -> list[Any]:
        """All jobs: those under way, then those that ended, newest first."""
        jobs: list[Any] = self.get("/jobs")["jobs"]
        return jobs

    def ended_job(self) -> Any:
        """The job that is the only one, once it has ended."""

        def ended() -> list[Any]:
            return [each for each in self.jobs() if each["completedAt"] is not None]

        (job,) = wait_for("the job to end", ended)
        return job

    def errors(self) -> list[str]:
        """The ids of the error entries."""
        return [each["id"] for each in self.get("/errors")["errors"]]

    def engine(self, id: str = "embedded") -> Any:
        """What is shown of an engine."""
        (engine,) = (each for each in self.get("/engines")["engines"] if each["id"] == id)
        return engine

    @property
    def engine_url(self) -> str:
        """Where the embedded engine itself answers."""
        return f"http://{self.engine()['address']}"

    def engine_process(self) -> psutil.Process:
        """The process of the embedded engine."""
        (found,) = (each for each in self.processes() if each.pid != self.pid)
        return found

    def busy_slots(self) -> int:
        """How many requests the embedded engine works at."""
        return sum(each["is_processing"] for each in ask(self.engine_url, "/slots").value)

    def admin(self, *arguments: str) -> Any:
        """What ``pair-admin`` prints with ``--json``; it must succeed."""
        done = subprocess.run(
            [sys.executable, "-c", _ADMIN, *arguments, "--json"],
            env={**self._environ, "PAIR_STATE_DIR": str(self.state)},
            capture_output=True,
            timeout=LIMIT,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b""), done
        return json.loads(done.stdout)

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "it was not launched"
        return self._process

    def _is_ready(self) -> bool:
        code = self._running.poll()
        assert code is None, f"exit code {code}\n{self.output()}"
        try:
            place = json.loads((self.state / "control.json").read_text())
            return place["pid"] == self.pid and ask(place["url"], "/readyz").status == 200
        except OSError:
            return False  # it is not there yet


class NodeTestCase(SynchronousTestCase):
    """Makes nodes, and ends what a test leaves of them."""

    def make_node(self, *settings: str, environ: Mapping[str, str] | None = None, embedded: bool = True) -> Node:
        """A node with a folder of its own, not started. See :class:`Node`."""
        node = Node(Path(self.mktemp()), *settings, environ=environ, embedded=embedded)
        self.addCleanup(node.destroy)
        return node

    def start_node(self, *settings: str, environ: Mapping[str, str] | None = None, embedded: bool = True) -> Node:
        """The same, started."""
        node = self.make_node(*settings, environ=environ, embedded=embedded)
        node.start()
        return node


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port

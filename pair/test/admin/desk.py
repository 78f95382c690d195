"""``pair-admin`` at a desk: a made-up node behind its real control API, and streams that can be read."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from pair.admin.main import run
from pair.admin.session import Session
from pair.test.control.samples import NOW, TOKEN, Node
from pair.test.surfaces.wire import Conversation, request, unchunked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from twisted.trial.unittest import SynchronousTestCase

URL = "http://127.0.0.1:14300"


class Terminal(io.StringIO):
    """A stream that is one."""

    def isatty(self) -> bool:
        return True


class Desk:
    """One user, with a state directory of the test's own.

    Attributes:
        asked: method and target of each request.
        fault: raised by each request, if set.
        stdin: standard input.
        typed: what is typed at a prompt that does not show it.
        prompts: those prompts.
        then: what happens while a command sleeps, or waits for events, one after the other. Ctrl-C ends an empty one.
        pace: how much longer than it wanted a command sleeps.
    """

    def __init__(self, test: SynchronousTestCase, running: bool = True) -> None:
        self.node = Node()
        self.state = Path(test.mktemp()).absolute()
        self.state.mkdir()
        (self.state / "control.token").write_bytes(TOKEN + b"\n")
        if running:
            file = {"url": URL, "pid": 42, "version": "0.1.0", "startedAt": NOW}
            (self.state / "control.json").write_bytes(msgspec.json.encode(file))
        self.asked: list[tuple[str, str]] = []
        self.timeouts: list[float] = []
        self.fault: Exception | None = None
        self.out: io.StringIO = io.StringIO()
        self.err = io.StringIO()
        self.stdin = io.StringIO()
        self.typed = ""
        self.prompts: list[str] = []
        self.then: list[Callable[[], object]] = []
        self.pace = 1
        self.now = NOW
        self.environ: dict[str, str] = {"PAIR_STATE_DIR": str(self.state)}

    def fetch(
        self, method: str, url: str, fields: Mapping[str, str], timeout: float, body: bytes | None = None
    ) -> tuple[int, bytes]:
        """A request, given to the API without a socket."""
        parts = urlsplit(url)
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        self.asked.append((method, target))
        self.timeouts.append(timeout)
        if self.fault is not None:
            raise self.fault
        given = {name.lower().replace("-", "_"): value for name, value in fields.items()}
        answer = self.node.ask(method, target, body, **{"authorization": None, "host": parts.netloc, **given})
        return answer.status, answer.body

    def follow(self, url: str, fields: Mapping[str, str], timeout: float) -> tuple[int, Iterator[bytes]]:
        """A request whose answer goes on, in small pieces; while it waits, something happens."""
        parts = urlsplit(url)
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        self.asked.append(("GET", target))
        self.timeouts.append(timeout)
        if self.fault is not None:
            raise self.fault
        conversation = Conversation(self.node.site())
        conversation.send(request("GET", target, host=parts.netloc, authorization=fields["Authorization"]))
        head, _, body = conversation.transport.value().partition(b"\r\n\r\n")
        status = int(head.split()[1])
        return status, self._pieces(conversation) if status == 200 else iter((body,))

    def _pieces(self, conversation: Conversation) -> Iterator[bytes]:
        sent = 0
        while True:
            _, _, data = conversation.transport.value().partition(b"\r\n\r\n")
            body = unchunked(data)
            while sent < len(body):
                yield body[sent : sent + 100]
                sent += 100
            sent = len(body)
            if data.endswith(b"\r\n0\r\n\r\n"):
                return
            if not self.then:
                raise KeyboardInterrupt
            self.then.pop(0)()
            self.node.clock.advance(0.2)

    def run(self, *arguments: str) -> int:
        """Run one command; the exit code."""
        self.out.seek(0)
        self.out.truncate()
        self.err.seek(0)
        self.err.truncate()
        session = Session(
            self.environ,
            now=lambda: self.now,
            fetch=self.fetch,
            follow=self.follow,
            out=self.out,
            err=self.err,
            stdin=self.stdin,
            ask=self.ask,
            sleep=self.sleep,
        )
        return run(arguments, session)

    def ask(self, prompt: str) -> str:
        """A prompt at the terminal, answered."""
        self.prompts.append(prompt)
        return self.typed

    def sleep(self, seconds: float) -> None:
        """Time passes, and something happens meanwhile."""
        self.now += round(seconds * 1000 * self.pace)
        if self.then:
            self.then.pop(0)()

    @property
    def json(self) -> Any:
        """The one JSON value of the output."""
        return msgspec.json.decode(self.out.getvalue())

    @property
    def lines(self) -> list[str]:
        """The output by lines."""
        return self.out.getvalue().splitlines()

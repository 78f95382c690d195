"""An engine for tests of real nodes that says, and does, what a test makes up: a server of OpenAI's API in threads.

The engines' doubles (:mod:`pair.test.doubles`) are honest; this one is not.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CHUNKED = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}
"""How a stream is announced."""


class Request(BaseHTTPRequestHandler):
    """One request, and how it may be answered."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        engine = self.server.engine
        if not self._allowed():
            self.refuse(401)
        elif self.path == "/v1/models":
            self.reply(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in engine.scripts]})
        else:
            self.refuse()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self._allowed():
            self.server.engine.scripts.get(_model(body), Request.refuse)(self)
        else:
            self.refuse(401)

    def refuse(self, status: int = 404) -> None:
        """The answer to what has no script."""
        self.reply(status, {"error": {"message": self.server.engine.refusal}})

    def reply(self, status: int, value: object, reason: str | None = None, **fields: str) -> None:
        """A whole answer in JSON; an underscore in a field's name stands for a hyphen."""
        data = json.dumps(value).encode()
        self.begin(
            status,
            {
                "Content-Type": "application/json",
                "Content-Length": str(len(data)),
                **{name.replace("_", "-"): text for name, text in fields.items()},
            },
            reason,
        )
        self.wfile.write(data)

    def begin(self, status: int, fields: Mapping[str, str], reason: str | None = None) -> None:
        """The head of an answer."""
        self.send_response(status, reason)
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()

    def event(self, value: object) -> None:
        """One event of a stream that was begun as ``CHUNKED``."""
        data = f"data: {json.dumps(value)}\n\n".encode()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def finish_stream(self) -> None:
        """The last frame, and the end."""
        self.wfile.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")

    def cut(self) -> None:
        """Break off."""
        self.close_connection = True

    def go_on(self, value: object) -> None:
        """The same event again and again, until the other side has left."""
        try:
            while True:
                self.event(value)
                time.sleep(0.02)
        except OSError:
            self.cut()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _allowed(self) -> bool:
        return bool(self.headers["Authorization"] == f"Bearer {self.server.engine.credential}")


class ScriptedEngine:
    """Serves from its making to :meth:`close`.

    Args:
        credential: the bearer token that it asks for.
        refusal: what it says to those who have it not, or ask for what has no script.
        scripts: what it does for a request, by the model that it is for.
    """

    def __init__(self, credential: str, refusal: str, scripts: Mapping[str, Callable[[Request], None]]) -> None:
        self.credential = credential
        self.refusal = refusal
        self.scripts = scripts
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _model(body: bytes) -> str:
    """The model that a request is for; empty where it is no JSON."""
    try:
        return str(json.loads(body)["model"])
    except ValueError:
        return ""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that has left."""
        if not isinstance(sys.exc_info()[1], OSError):
            raise

    def __init__(self, engine: ScriptedEngine) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.engine = engine

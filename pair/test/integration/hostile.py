"""A page of somebody else's, the servers that it comes from, and the browser that opens it.

Names are mapped to this machine by the browser's own rules: nothing leaves it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler, TCPServer, ThreadingTCPServer
from typing import Any, cast
from unittest import SkipTest
from urllib.parse import urlsplit

Attempts = dict[str, dict[str, Any]]
"""What a page tries, by name; see ``hostile_page.js``."""

SCRIPT = Path(__file__).with_name("hostile_page.js")

NAMES = {"evil.example": "127.0.0.1", "friend.example": "127.0.0.1", "rebind.example": "127.0.0.2"}
"""The hosts of this test's web, and where they are."""

REBOUND = "127.0.0.2"


def attempts_at(url: str, posts: tuple[str, ...], gets: tuple[str, ...], body: object) -> Attempts:
    """All that a page can do to a server: simple and preflighted requests, elements, a form, a websocket."""
    text = json.dumps(body)
    simple, preflighted = ({"Content-Type": each} for each in ("text/plain", "application/json"))
    made: Attempts = {f"socket {url}": {"way": "socket", "url": f"ws{url.removeprefix('http')}/llm"}}
    for path in posts:
        to = {"url": url + path}
        post = {"method": "POST", "body": text}
        made |= {
            f"simple {to['url']}": {"way": "fetch", **to, "init": {**post, "headers": simple}},
            f"preflighted {to['url']}": {"way": "fetch", **to, "init": {**post, "headers": preflighted}},
            f"blind {to['url']}": {"way": "fetch", **to, "init": {**post, "mode": "no-cors"}},
            f"delete {to['url']}": {"way": "fetch", **to, "init": {"method": "DELETE"}},
            f"form {to['url']}": {"way": "form", **to, "body": text},
        }
    for path in gets:
        to = {"url": url + path}
        made |= {
            f"get {to['url']}": {"way": "fetch", **to, "init": {}},
            f"blind get {to['url']}": {"way": "fetch", **to, "init": {"mode": "no-cors"}},
            f"img {to['url']}": {"way": "element", **to, "name": "img"},
            f"script {to['url']}": {"way": "element", **to, "name": "script"},
        }
    return made


def page(name: str, attempts: Attempts, report: str, frames: tuple[str, ...] = ()) -> bytes:
    """The document: it makes its attempts, opens other pages in frames, and reports."""
    given = {"PAGE": name, "ATTEMPTS": attempts, "REPORT": report, "FRAMES": frames}
    constants = "".join(f"const {each} = {json.dumps(value)};\n" for each, value in given.items())
    return f"<!doctype html><body><script>\n{constants}{SCRIPT.read_text()}</script>".encode()


class Site:
    """Serves pages, at all names that are mapped to 127.0.0.1, and takes their reports.

    Attributes:
        pages: by path.
        reports: how the attempts of a page ended, by its name.
    """

    def __init__(self) -> None:
        self.pages: dict[str, bytes] = {}
        self.reports: dict[str, dict[str, str]] = {}
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(site.pages.get(self.path))

            def do_POST(self) -> None:
                told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                site.reports[told["page"]] = told["ends"]
                self._answer(b"")

            def _answer(self, body: bytes | None) -> None:
                self.send_response(404 if body is None else 200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, format: str, *args: object) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        _serve(self._server)

    def url(self, host: str) -> str:
        """Of the site, under one of its names."""
        return f"http://{host}:{self._server.server_port}"

    def close(self) -> None:
        """Serve no more."""
        _close(self._server)


class Rebinder:
    """What DNS rebinding comes to: ``/page`` is the attacker's, and all else of that origin is our server.

    It listens at the same port as the server that is attacked, on another
    loopback address; bytes go on as they are.
    """

    def __init__(self, attacked: str, document: bytes) -> None:
        to = urlsplit(attacked)
        place = (to.hostname, to.port)
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(document)}\r\nConnection: close"

        class Handler(BaseRequestHandler):
            def handle(self) -> None:
                first = self.request.recv(65536)
                if first.startswith(b"GET /page "):
                    self.request.sendall(head.encode() + b"\r\n\r\n" + document)
                elif first:
                    with socket.create_connection(cast("Any", place)) as server:
                        server.sendall(first)
                        threading.Thread(target=_pump, args=(self.request, server), daemon=True).start()
                        _pump(server, self.request)

        self._server = ThreadingTCPServer((REBOUND, cast("int", to.port)), Handler)
        self._server.daemon_threads = True
        _serve(self._server)
        self.url = f"http://rebind.example:{to.port}"

    def close(self) -> None:
        """Serve no more."""
        _close(self._server)


class Browser:
    """Chromium with an empty profile, on one page.

    Args:
        folder: for all that it writes.
        url: of the page.

    Raises:
        SkipTest: there is no Chromium.
    """

    def __init__(self, folder: Path, url: str) -> None:
        program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        if program is None:
            raise SkipTest("Chromium is not installed (on Debian: apt install chromium)")
        folder.mkdir(parents=True)
        rules = ", ".join(f"MAP {name} {address}" for name, address in NAMES.items())
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen(
            [
                program,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--disable-breakpad",
                "--disable-component-update",
                "--disable-sync",
                "--no-first-run",
                f"--user-data-dir={folder.absolute() / 'profile'}",
                f"--host-resolver-rules={rules}",
                url,
            ],
            env={"PATH": os.environ["PATH"], "HOME": str(folder.absolute())},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def close(self) -> None:
        """End all of its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def _serve(server: TCPServer) -> None:
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()


def _close(server: TCPServer) -> None:
    server.shutdown()
    server.server_close()

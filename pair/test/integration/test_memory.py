"""What a node keeps of an answer whose client is slow (PX-59)."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import psutil

from pair.test.integration.node import LIMIT, NodeTestCase, wait_for

MB = 1_000_000
LONG = 200 * MB
"""Bytes of the long answer's body, at least."""

MOST = 8 * MB
"""How much the node may grow."""

REST = 60.0 if os.environ.get("PAIR_FAULTS") else 2.0
"""Seconds in which the client takes nothing."""

FRAME = b'data: {"choices":[{"delta":{"content":"%b"}}]}\n\n' % (b"x" * 16_000)
CHUNK = b"%x\r\n%b\r\n" % (len(FRAME), FRAME)
END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


class LongWinded:
    """An engine with the models ``short`` and ``long``, which it answers as fast as it can.

    Attributes:
        sent: bytes of the newest answer.
    """

    def __init__(self) -> None:
        self.sent = 0
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                listed = json.dumps({"object": "list", "data": [{"id": "short"}, {"id": "long"}]}).encode()
                known = self.path == "/v1/models"
                self.send_response(200 if known else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(listed) if known else 0))
                self.end_headers()
                self.wfile.write(listed if known else b"")

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                engine.sent = 0
                while engine.sent < (LONG if asked["model"] == "long" else MB):
                    self.wfile.write(CHUNK)
                    engine.sent += len(CHUNK)
                self.wfile.write(END)

            def log_message(self, format: str, *args: object) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()


class Peak:
    """The most memory that a process has resident at a time, from now on."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.first = self.most = self._process.memory_info().rss
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def growth(self) -> int:
        """Bytes; watches no more."""
        self._over.set()
        self._thread.join()
        return self.most - self.first

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            self.most = max(self.most, self._process.memory_info().rss)


class Client:
    """One that reads when it is told to."""

    def __init__(self, url: str, model: str) -> None:
        place = urlsplit(url)
        assert place.hostname is not None
        assert place.port is not None
        self._socket = socket.create_connection((place.hostname, place.port), LIMIT)
        body = json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": True}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        self._socket.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
        # The head comes in one write with the first bytes of the body.
        self._size = len(self._socket.recv(65536).partition(b"\r\n\r\n")[2])

    def read_all(self) -> int:
        """Read to the last chunk; return the size of the body as on the wire."""
        end = b""
        while not end.endswith(END):
            data = self._socket.recv(262_144)
            assert data, "the connection ended"
            self._size += len(data)
            end = (end + data)[-len(END) :]
        self._socket.close()
        return self._size


class SlowClientTests(NodeTestCase):
    def setUp(self) -> None:
        """A node in front of the engine; it has answered once, so that what it does once is done."""
        self.engine = LongWinded()
        self.addCleanup(self.engine.close)
        self.node = self.start_node(
            "engines.big.kind=openai-compatible", f"engines.big.url={self.engine.url}", embedded=False
        )
        wait_for("the engine", lambda: self.node.engine("big")["routable"])
        self.facade = self.node.facade("lmstudio")
        Client(self.facade, "short").read_all()

    def test_client_that_rests(self) -> None:
        """200 MB for a client that rests and then reads: under 8 MB more are resident, and all of it arrives."""
        peak = Peak(self.node.pid)
        self.addCleanup(peak.growth)
        client = Client(self.facade, "long")
        time.sleep(REST)
        stuck = self.engine.sent
        time.sleep(0.2)
        self.assertEqual(self.engine.sent, stuck, "the engine goes on while nobody reads")
        self.assertLess(stuck, LONG)
        size = client.read_all()
        growth = peak.growth()
        self.assertEqual(size, self.engine.sent + len(END))
        self.assertGreater(size, LONG)
        self.assertLess(growth, MOST)

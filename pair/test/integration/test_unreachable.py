"""A node that was told of others that cannot be reached, or are something else: real sockets, and real names."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from typing import TYPE_CHECKING, Any

from pair.test.integration.node import NodeTestCase, ask, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

NO_HANDSHAKE = b"\x16\x03\x03\x00\x10" + b"\xff" * 64
"""A record of TLS by its head, and garbage behind it."""


def speak_garbage(connection: socket.socket) -> None:
    """Answer whatever comes with garbage."""
    connection.recv(1024)
    connection.sendall(NO_HANDSHAKE)


def reset(connection: socket.socket) -> None:
    """Break the connection off."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class UnreachableTests(NodeTestCase):
    def serve(self, answer: Callable[[socket.socket], None]) -> str:
        """Where something answers every connection like this."""
        listening = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listening.close)
        self.addCleanup(listening.shutdown, socket.SHUT_RDWR)

        def run() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection, contextlib.suppress(OSError):
                        answer(connection)

        threading.Thread(target=run, daemon=True).start()
        return f"127.0.0.1:{listening.getsockname()[1]}"

    def test_at_the_start(self) -> None:
        """F11: nobody there, a name without an address, garbage, a reset: it starts, and says why of each."""
        with socket.create_server(("127.0.0.1", 0)) as closed:
            nobody = f"127.0.0.1:{closed.getsockname()[1]}"
        garbage, broken = self.serve(speak_garbage), self.serve(reset)
        expected = {
            nobody: {"refused"},
            "nowhere.invalid:14318": {"unresolvable"},
            "192.0.2.1:14318": {"unreachable", "timeout", "refused"},
            garbage: {"not_pair", "refused"},
            broken: {"not_pair", "refused"},
        }
        node = self.make_node(f"discovery.static_peers={json.dumps(list(expected))}", embedded=False)
        node.start()

        def found() -> dict[str, Any]:
            manual = [each for entry in node.get("/nodes")["nodes"] for each in entry["manual"]]
            return {f"{each['address']}:{each['port']}": each["result"] for each in manual}

        wait_for("a result of each", lambda: "never" not in found().values() and len(found()) == len(expected), 12.0)
        for place, result in found().items():
            self.assertIn(result, expected[place], place)
        self.assertEqual(ask(node.facade("ollama"), "/api/tags").status, 200)
        self.assertNotIn("Traceback", node.output())
        node.stop()

"""Large bodies: the delay that one of 30 MiB adds to 50 streams, and what a client that does not read costs."""

from __future__ import annotations

import json
import socket
import statistics
import threading
import time
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import TYPE_CHECKING

from benchmarks._field import field, medians
from benchmarks._load import chat, load, stream
from benchmarks._proxies import MODEL, Server
from benchmarks._report import Bound, Report, main

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 2**20
BODY = 30 * MIB
PIECE = 64 * 1024 - 512
"""Octets of text in each event of the large answer."""

ANSWER = 200 * 10**6


@contextmanager
def _uploading(server: Server, pause: float) -> Iterator[None]:
    """Meanwhile a client sends requests of 30 MiB, one after another."""
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "x" * BODY}]}).encode()
    over = threading.Event()

    def send() -> None:
        while not over.wait(pause):
            connection = HTTPConnection("127.0.0.1", server.port)
            connection.request("POST", server.path, body, {"Content-Type": "application/json"})
            connection.getresponse().read()
            connection.close()

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()


def _p99_ms(server: Server, seconds: float) -> float:
    """How late an event comes, of 50 streams of one each 20 ms."""
    taken = load(server, stream(interval_us=20_000), connections=50, ramp=200, settle=300, seconds=seconds)
    assert taken.counts.delay is not None
    return taken.counts.delay.p99 / 1000


def _growth_mb(server: Server, wait: float) -> float:
    """By how much the server grows at most while a client reads nothing of a large answer, and then all of it.

    Raises:
        RuntimeError: Not all of it came.
    """
    events = ANSWER // PIECE
    request = chat(bench_chunks=events, bench_fill=PIECE, stream=True)
    head = f"POST {server.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        before = most = server.process.resident_bytes()
        client.sendall(f"{head}Content-Length: {len(request)}\r\n\r\n{request}".encode())
        until = time.monotonic() + wait
        while time.monotonic() < until:
            time.sleep(0.1)
            most = max(most, server.process.resident_bytes())
        received = 0
        looked_at = 0.0
        while data := client.recv(MIB):
            received += len(data)
            if time.monotonic() > looked_at + 0.05:
                looked_at = time.monotonic()
                most = max(most, server.process.resident_bytes())
    if received < events * PIECE:
        raise RuntimeError(f"{server.name}: {received} of {events * PIECE} octets came")
    return (most - before) / 1e6


def measure(quick: bool) -> Report:
    """Take the figures."""
    seconds = 1.5 if quick else 4.0

    def added(server: Server) -> tuple[float, float]:
        alone = _p99_ms(server, seconds)
        with _uploading(server, 0.3):
            return alone, _p99_ms(server, seconds)

    with field("pair") as proxies:
        delays = proxies.rounds(1 if quick else 5, added)["pair"]
        growth = proxies.rounds(1 if quick else 3, lambda server: _growth_mb(server, 2.0 if quick else 4.0))
        figures = {
            "pair": {
                "p99_ms": statistics.median(alone for alone, _ in delays),
                "p99_beside_body_ms": statistics.median(beside for _, beside in delays),
                **medians(growth, "slow_client_mb")["pair"],
            }
        }
        bounds = (
            Bound("added_p99_ms", statistics.median(beside - alone for alone, beside in delays), must=50, goal=50),
            Bound("slow_client_mb", figures["pair"]["slow_client_mb"], must=8, goal=8),
        )
        return Report("body", figures, bounds, proxies.versions, proxies.missing)


if __name__ == "__main__":
    main(measure)

"""One request after another, as an application sends them: the client of the benchmarks of latency."""

from __future__ import annotations

import statistics
import time
from http.client import HTTPConnection
from typing import TYPE_CHECKING

from benchmarks._load import chat

if TYPE_CHECKING:
    from benchmarks._proxies import Server

PAUSE = 0.02
"""Seconds between two requests. Nobody's caches stay warm in it, as they do not between the requests of a person."""


def sequence(server: Server, number: int) -> float:
    """The median time of a request, in microseconds.

    Python's own client, on one connection: what a client costs is in every
    figure, as it is for an application.

    Raises:
        RuntimeError: A request failed.
    """
    body = chat().encode()
    times = []
    connection = HTTPConnection("127.0.0.1", server.port)
    try:
        for _ in range(number):
            time.sleep(PAUSE)
            begun = time.perf_counter()
            connection.request("POST", server.path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            times.append(time.perf_counter() - begun)
            if answer.status != 200:
                raise RuntimeError(f"{server.name} answered {answer.status}")
    finally:
        connection.close()
    return 1e6 * statistics.median(times)

"""Runs the load generator against a server, and reads the server's CPU around the measurement."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import msgspec
from msgspec import Struct

from benchmarks import _setup
from benchmarks._proxies import MODEL, Server


class Percentiles(Struct):
    """Of a number of durations, in microseconds."""

    count: int
    p50: float
    p90: float
    p99: float
    max: float


class Counts(Struct):
    """What the load generator counted in its measurement; see ``load.c``."""

    requests: int
    chunks: int
    reads: int
    errors: int
    alive: int
    latency: Percentiles | None = None
    first: Percentiles | None = None
    delay: Percentiles | None = None


class Load(Struct):
    """One measurement.

    ``cpus`` are in seconds and ``residents`` in bytes, these when it ended:
    of each part of the server. ``closings`` has the connections that were
    closed and when, in ns.
    """

    counts: Counts
    cpus: list[float]
    residents: list[int]
    closings: dict[int, int]

    @property
    def cpu(self) -> float:
        """Of the whole server."""
        return sum(self.cpus)

    @property
    def resident(self) -> int:
        """Of the whole server."""
        return sum(self.residents)


def chat(**fields: Any) -> str:
    """The body of a chat request; ``fields`` are those that our engine reads."""
    return json.dumps(
        {**fields, "model": MODEL, "messages": [{"role": "user", "content": "hi"}]}, separators=(",", ":")
    )


def stream(interval_us: int, **fields: Any) -> str:
    """The body of a request for a stream that does not end while it is measured."""
    return chat(bench_chunks=10**9, bench_interval_us=interval_us, stream=True, **fields)


def load(server: Server, body: str, **options: float) -> Load:
    """Run ``load.c`` with ``options`` against ``server``.

    Raises:
        RuntimeError: A request failed, so that the figures mean nothing.
    """
    words = [f"{name}={value}" for name, value in {"port": server.port, "path": server.path, **options}.items()]
    command = [str(_setup.program("load")), *words, f"body={body}"]
    parts = server.parts
    closings: dict[int, int] = {}
    before: list[float] = []
    after: list[float] = []
    residents: list[int] = []
    counts = None
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as generator:
        assert generator.stdout is not None
        for line in generator.stdout:
            match line.split():
                case ["begin"]:
                    before = [each.cpu_seconds() for each in parts]
                case ["end"]:
                    after = [each.cpu_seconds() for each in parts]
                    residents = [each.resident_bytes() for each in parts]
                case ["closing", number, at]:
                    closings[int(number)] = int(at)
                case _:
                    counts = msgspec.json.decode(line, type=Counts)
    if counts is None:
        raise RuntimeError(f"{server.name}: the load ended with {generator.returncode}")
    if counts.errors:
        raise RuntimeError(f"{server.name}: {counts.errors} requests failed")
    cpus = [end - begin for begin, end in zip(before, after, strict=True)]
    return Load(counts, cpus, residents, closings)

"""Clients that all ask at the same time, each for one streamed answer, and what each of them got."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from benchmarks._proxies import Server

_LIMIT = 120.0

_MOST = 1 << 20
"""Octets of one answer."""


class Chat(Struct, frozen=True):
    """An answer that came whole: from which node, and how long after it was asked for that was."""

    node: str
    seconds: float


def chats(server: Server, number: int, body: str) -> list[Chat]:
    """Open so many connections, and then ask on all of them at once.

    Raises:
        RuntimeError: One of them did not get a whole answer.
    """
    return asyncio.run(_all(server, number, body))


async def _all(server: Server, number: int, body: str) -> list[Chat]:
    async with asyncio.timeout(_LIMIT):
        connections = [await asyncio.open_connection("127.0.0.1", server.port, limit=_MOST) for _ in range(number)]
        head = (
            f"POST {server.path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
            f"X-Pair-Explain: 1\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        request = f"{head}{body}".encode()
        return await asyncio.gather(*(_chat(reader, writer, request) for reader, writer in connections))


async def _chat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> Chat:
    asked = time.monotonic()
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    if not head.startswith("HTTP/1.1 200 "):
        raise RuntimeError(f"answered with {head.splitlines()[0]}: {await reader.read(400)!r}")
    fields = dict(line.lower().split(": ", 1) for line in head.splitlines()[1:] if line)
    end = await reader.readuntil(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    if b"error" in end:
        raise RuntimeError(f"the answer ended with {end[-400:]!r}")
    writer.close()
    return Chat(fields.get("x-pair-node", ""), time.monotonic() - asked)

"""The client of the control API."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from pair.admin.failures import Failed, Unreachable
from pair.admin.sse import Event, EventParser, TooLongError

BASE = "/api/v1"

Fetch = Callable[[str, str, Mapping[str, str], float, bytes | None], tuple[int, bytes]]
"""``(method, url, fields, timeout, body)`` to status and body. Raises ``OSError`` or ``HTTPException``."""


def fetch(
    method: str, url: str, fields: Mapping[str, str], timeout: float, body: bytes | None = None
) -> tuple[int, bytes]:
    """One request over a connection of its own; no proxy of the environment is ever asked."""
    connection, target = _connected(url, timeout)
    try:
        connection.request(method, target, body, headers=dict(fields))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


Follow = Callable[[str, Mapping[str, str], float], tuple[int, Iterator[bytes]]]
"""``(url, fields, timeout)`` to status and the pieces of the body as they come. Both raise as :data:`Fetch`."""

SILENCE = 15.0
"""Seconds for which a stream may say nothing, at least: in that time there are three heartbeats (UI-65)."""

_PIECE = 65536


def follow(url: str, fields: Mapping[str, str], timeout: float) -> tuple[int, Iterator[bytes]]:
    """One request whose answer goes on; ``timeout`` is for each piece."""
    connection, target = _connected(url, timeout)
    connection.request("GET", target, headers=dict(fields))
    response = connection.getresponse()

    def pieces() -> Iterator[bytes]:
        try:
            while data := response.read1(_PIECE):
                yield data
        finally:
            connection.close()

    return response.status, pieces()


def _connected(url: str, timeout: float) -> tuple[HTTPConnection, str]:
    parts = urlsplit(url)
    make = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    return make(parts.hostname or "", parts.port, timeout=timeout), target


class Api:
    """One service.

    Args:
        url: where it is.
        token: gives the control token; asked only for what needs it.
        fetch: makes a request.
        follow: makes one whose answer goes on.
        timeout: seconds for each request.
        hint: how to go on when nothing answers.
    """

    def __init__(
        self, url: str, token: Callable[[], str], fetch: Fetch, follow: Follow, timeout: float, hint: str
    ) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._fetch = fetch
        self._follow = follow
        self._timeout = timeout
        self._hint = hint

    def get(self, path: str, **query: str | int | None) -> bytes:
        """The answer to a read below ``/api/v1``; a query that is None is left out.

        Raises:
            Failed: It was refused.
            Unreachable: Nobody answers.
        """
        return self._allowed("GET", _target(path, query))

    def events(self, **query: str | None) -> Iterator[Event]:
        """The events of the stream as they come, without end.

        Raises:
            Failed: It was refused.
            Unreachable: Nobody answers, or nobody does any more.
        """
        fields = {"Authorization": f"Bearer {self._token()}"}
        limit = max(self._timeout, SILENCE)
        parser = EventParser()
        try:
            status, pieces = self._follow(self._url + _target("/events", query), fields, limit)
            if status != 200:
                raise Failed.refused(status, b"".join(pieces))
            for data in pieces:
                yield from parser.feed(data)
        except TimeoutError:
            raise Unreachable(f"PAIR at {self._url} has said nothing for {limit:g} s. {self._hint}") from None
        except TooLongError:
            raise Failed("bad_answer", "What answers there is not PAIR: its event does not end.") from None
        except (OSError, HTTPException, ValueError):
            raise Unreachable(f"Nothing answers at {self._url}. {self._hint}") from None
        raise Unreachable(f"PAIR at {self._url} has ended the stream: it stops, or the control token is another now.")

    def post(self, path: str, document: object = None, takes: float = 0) -> bytes:
        """The answer to a command below ``/api/v1``, with ``document`` if it takes one. Raises as :meth:`get`.

        Args:
            path: of the command.
            document: its body.
            takes: seconds that the service may need for it, waited beyond the usual limit.
        """
        return self._allowed("POST", BASE + path, None if document is None else msgspec.json.encode(document), takes)

    def put(self, path: str, document: object) -> bytes:
        """The answer to a change below ``/api/v1`` that ``document`` describes. Raises as :meth:`get`."""
        return self._allowed("PUT", BASE + path, msgspec.json.encode(document))

    def delete(self, path: str) -> bytes:
        """The answer to a removal below ``/api/v1``. Raises as :meth:`get`."""
        return self._allowed("DELETE", BASE + path)

    def public(self, path: str) -> tuple[int, bytes]:
        """Status and body of a path that needs no token, whatever they are.

        Raises:
            Unreachable: Nobody answers.
        """
        return self._ask("GET", path, {})

    def _allowed(self, method: str, path: str, document: bytes | None = None, takes: float = 0) -> bytes:
        fields = {"Authorization": f"Bearer {self._token()}"}
        if document is not None:
            fields["Content-Type"] = "application/json"
        status, body = self._ask(method, path, fields, document, takes)
        if not 200 <= status < 300:
            raise Failed.refused(status, body)
        return body

    def _ask(
        self, method: str, path: str, fields: Mapping[str, str], document: bytes | None = None, takes: float = 0
    ) -> tuple[int, bytes]:
        limit = self._timeout + takes
        try:
            return self._fetch(method, self._url + path, fields, limit, document)
        except TimeoutError:
            raise Unreachable(f"PAIR at {self._url} does not answer within {limit:g} s. {self._hint}") from None
        except (OSError, HTTPException, ValueError):
            raise Unreachable(f"Nothing answers at {self._url}. {self._hint}") from None


def _target(path: str, query: Mapping[str, str | int | None]) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return BASE + path + (f"?{urlencode(given)}" if given else "")


def decoded(body: bytes) -> Any:
    """``body`` of an answer.

    Raises:
        Failed: It is not JSON.
    """
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        raise Failed("bad_answer", "What answers there is not PAIR: its answer is no JSON.") from None


def segment(text: str) -> str:
    """``text`` as one segment of a path."""
    return quote(text, safe="")

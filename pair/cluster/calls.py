"""Calls to other nodes: to members over a pinned dial, and the plain ones of a pairing (AR-7, CL-13, CL-19).

It must not know what a request means, nor where addresses come from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct
from twisted.internet.abstract import isIPAddress
from twisted.internet.defer import Deferred
from twisted.web.http_headers import Headers

from pair.cluster.dialing import PeerUnreachable, first_reached
from pair.cluster.posting import CallError, post
from pair.protocols.dial import dial
from pair.protocols.pairing.messages import Silent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from twisted.internet.interfaces import IProtocol, IProtocolFactory, IReactorTime

    from pair.cluster.dialing import PinnedDial
    from pair.cluster.means import PlainReply

PORT = 14321

TOTAL_SECONDS = 10.0
ANSWER_SECONDS = 5.0
"""From the handshake's end to the first byte of a member's answer; then its next address is tried."""

PLAIN_ANSWER_MAX = 65_536
"""The body of an answer in a pairing: the longest carries two sealed statements, of 12 KiB each."""

NOBODY = b"pair.invalid"
"""Stands for a host where the protocol wants one, and is never resolved."""


class PeerAnswer(Silent, Struct, frozen=True):
    """A member's answer, and the address at which it was got."""

    status: int
    body: bytes
    address: str


class Reply(Silent, Struct, frozen=True):
    """An answer to a pairing request. ``mac`` is its ``X-Pair-Mac``, None unless there is exactly one."""

    status: int
    mac: bytes | None
    body: bytes


class PeerCaller:
    """Calls members.

    Args:
        reactor: For time limits.
        dial: Reaches them.
    """

    def __init__(self, reactor: IReactorTime, dial: PinnedDial) -> None:
        self._reactor = reactor
        self._dial = dial

    def post(
        self,
        node: str,
        path: str,
        body: bytes,
        limit_bytes: int,
        addresses: Sequence[str],
        port: int = PORT,
        seconds: float = TOTAL_SECONDS,
    ) -> Deferred[PeerAnswer]:
        """POST JSON to ``node``, at the first of its addresses that answers.

        Args:
            node: The member's UUID.
            path: Of the route.
            body: The JSON.
            limit_bytes: The longest body of an answer that is taken.
            addresses: As in :meth:`PinnedDial.connect`. One at which the
                connection is lost before the answer begins counts as one at
                which there is none (CL-19): the same request goes to the next.
            port: Of the service.
            seconds: For all of it.

        Returns:
            The answer. Fails with :class:`PeerUnreachable` where nobody began
            one, or all together took too long; with :class:`CallError` where
            one was begun, and is ``broken`` or ``too_large``.
        """
        url = f"https://{node}:{port}{path}".encode("ascii")

        async def attempt(address: str) -> PeerAnswer:
            def connect(factory: IProtocolFactory) -> Awaitable[IProtocol]:
                return self._dial.reach(node, address, port, factory)

            try:
                response, content = await post(
                    self._reactor, connect, url, _headers({}), body, limit_bytes, ANSWER_SECONDS
                )
            except CallError as error:
                if error.reason not in ("lost", "timeout"):
                    raise
                raise PeerUnreachable("timeout" if error.reason == "timeout" else "refused", met=True) from None
            return PeerAnswer(response.code, content, address)

        def too_late(_: object, __: float) -> PeerAnswer:
            raise PeerUnreachable("timeout")

        answer = Deferred.fromCoroutine(first_reached(addresses, attempt))
        return answer.addTimeout(seconds, self._reactor, too_late)


class PlainCaller:
    """Calls whoever is at an address, in the clear; what is said there protects itself (CL-27).

    Args:
        reactor: Makes the connections.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def post(
        self, address: str, port: int, path: str, body: bytes, headers: Mapping[bytes, bytes], seconds: float
    ) -> Deferred[PlainReply]:
        """POST JSON.

        Args:
            address: A literal, an IPv6 one with a zone where it needs one, or a name.
            port: Of the service.
            path: Of the route.
            body: The JSON.
            headers: Fields besides those that HTTP needs.
            seconds: For all of it; the connection may take 3 of them.

        Returns:
            A :class:`Reply`. Fails with :class:`pair.protocols.dial.DialError`
            where there is no connection, else with :class:`CallError`.
        """
        fields = _headers({b"Host": host_field(address, port), **headers})

        def connect(factory: IProtocolFactory) -> Awaitable[IProtocol]:
            return dial(self._reactor, address, port, factory)

        async def call() -> PlainReply:
            url = b"http://" + NOBODY + path.encode("ascii")
            response, content = await post(self._reactor, connect, url, fields, body, PLAIN_ANSWER_MAX)
            macs = response.headers.getRawHeaders(b"X-Pair-Mac", [])
            return Reply(response.code, macs[0] if len(macs) == 1 else None, content)

        def too_late(_: object, __: float) -> PlainReply:
            raise CallError("timeout")

        return Deferred.fromCoroutine(call()).addTimeout(seconds, self._reactor, too_late)


def _headers(fields: Mapping[bytes, bytes]) -> Headers:
    return Headers({b"Content-Type": [b"application/json"], **{name: [value] for name, value in fields.items()}})


def host_field(address: str, port: int) -> bytes:
    """The Host field: the address without its zone, and no name (CL-13)."""
    literal = address.partition("%")[0]
    if ":" in literal:
        return f"[{literal}]:{port}".encode("ascii")
    if isIPAddress(literal):
        return f"{literal}:{port}".encode("ascii")
    return NOBODY + b":%d" % port

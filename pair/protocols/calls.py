"""The words in which a client is told of a response: where a request goes, what comes of it, why nothing does."""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pair.protocols.response import ResponseHead

FailureKind = Literal["connect", "timeout", "tls", "write", "broken", "framing"]
"""What a caller can tell apart (PX-44).

``connect``: no connection; ``timeout``: none, or no finished handshake, in time;
``tls``: the handshake failed; ``write``: the request could not be sent whole;
``broken``: closed or reset after it was sent; ``framing``: what came is not
HTTP that can be relayed.
"""


class Target(Struct, frozen=True, cache_hash=True):
    """Where requests go; calls to equal targets share connections.

    ``key`` names it for :meth:`pair.protocols.pool.ClientPool.drop`,
    ``authority`` is for its Host field, and ``idle_seconds`` is how long an
    idle connection is kept where the answers do not say (PX-52).
    """

    key: str
    host: str
    port: int
    authority: bytes
    tls: bool = False
    idle_seconds: float = 4.0


class UpstreamFailure(Struct, frozen=True):
    """Why a call has no complete response.

    ``at_boundary``: the body bytes delivered may be followed by a chunk of
    ours, for they end between two chunks, or the body was to end at the close
    (PX-63). False for ``framing``, after which nothing may follow.
    """

    kind: FailureKind
    at_boundary: bool = False


class ResponseReceiver(typing.Protocol):
    """Who is told of a response.

    The last it hears is ``response_ended`` or ``response_lost``, once, unless
    it aborts the call. Nothing is told within :meth:`ClientPool.send`.
    """

    def head_received(self, head: ResponseHead) -> None:
        """The final head; interim responses are not told. A 101 is final, and comes only where it was asked for."""

    def body_received(self, raw: bytes, parts: Sequence[bytes]) -> None:
        """What one read held of the body: never empty, as it came, and the same without chunk framing.

        ``parts`` is good only until this call returns.
        """

    def response_ended(self) -> None:
        """The response is complete, and all its bytes were told."""

    def response_lost(self, failure: UpstreamFailure) -> None:
        """Nothing more will come."""

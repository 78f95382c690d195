"""Keeps the whole body of a request for replay (PX-29 to PX-32)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pair.proxy.replies import Refusal, refusal
from pair.proxy.request import ClientRequest

if TYPE_CHECKING:
    from pair.proxy.plane import Budget, Plane


class KeptBody:
    """A body that is kept, and counted in the budget of all, until nobody needs it any more.

    Attributes:
        data: the body.
        held: bytes that are counted for it.
    """

    __slots__ = ("_budget", "data", "held")

    def __init__(self, budget: Budget) -> None:
        self.data = b""
        self._budget = budget
        self.held = 0

    def hold(self, size: int) -> bool:
        """Count ``size`` bytes for it in all, if the budget has them."""
        if size > self.held:
            if not self._budget.take(size - self.held):
                return False
            self.held = size
        return True

    def free(self) -> None:
        """Keep it no longer; a second call does nothing."""
        if self.held:
            self._budget.give(self.held)
            self.held = 0
            self.data = b""


Ended = Callable[[ClientRequest], None]
"""Called with a request once when it has ended. One function serves all requests: each stream holds it."""

Ready = Callable[[ClientRequest, KeptBody, Ended], None]
"""``(request, body, ended)``: the body is whole. When the request has ended it must be freed, and ``ended`` called."""


class Collector:
    """Collects one body within the cap of one and the budget of all.

    Args:
        plane: the shared parts.
        request: whose body it is.
        ready: takes the request over with its body.
        ended: called once when the request has ended, by us or by ``ready``.
    """

    __slots__ = ("_body", "_ended", "_parts", "_plane", "_ready", "_request", "_size")

    def __init__(self, plane: Plane, request: ClientRequest, ready: Ready, ended: Ended) -> None:
        self._plane = plane
        self._request = request
        self._ready = ready
        self._ended = ended
        self._parts: list[bytes] = []
        self._body = KeptBody(plane.bodies)
        self._size = 0

    def begin(self) -> None:
        """Refuse what cannot be kept; else read it."""
        exchange = self._request.exchange
        declared = exchange.head.content_length or 0
        codings = exchange.head.values(b"content-encoding")
        if declared > self._plane.settings.max_body:
            self._refuse(self._too_large())
        elif codings and not {each.strip().lower() for each in codings} <= {b"", b"identity"}:
            self._refuse(refusal("unsupported_encoding"))
        elif not self._body.hold(declared):
            self._refuse(refusal("overloaded", retry_after=2))
        else:
            exchange.lost = self._end
            whole = exchange.whole_body()
            if whole is None:
                exchange.read_body(self)
            else:
                self._hand_over(whole)

    def body_received(self, data: bytes) -> None:
        """Keep some of it; over the cap or the budget the request is refused (PX-29)."""
        self._size += len(data)
        if self._size > self._plane.settings.max_body:
            self._refuse(self._too_large())
        elif self._size > self._body.held and not self._body.hold(self._size):
            self._refuse(refusal("overloaded", retry_after=2))
        else:
            self._parts.append(data)

    def body_ended(self) -> None:
        """It is whole."""
        whole = b"".join(self._parts)
        self._parts.clear()
        self._hand_over(whole)

    def body_stalled(self) -> None:
        """It stopped in the middle (PX-31)."""
        self._refuse(refusal("body_stalled"))

    def _hand_over(self, whole: bytes) -> None:
        self._body.data = whole
        self._plane.meters.body_came(len(whole))
        self._ready(self._request, self._body, self._ended)

    def _too_large(self) -> Refusal:
        return refusal("too_large", limit=self._plane.settings.max_body)

    def _refuse(self, why: Refusal) -> None:
        self._request.refuse(why)
        self._end()

    def _end(self) -> None:
        self._body.free()
        self._ended(self._request)

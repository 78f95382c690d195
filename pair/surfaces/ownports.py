"""Whether this node's ports for others answer at its own address in the network.

Some systems stop letting connections in after a while, though the port is
listened on still, and answers on loopback; to listen anew helps. It must not
know what is served there, nor how one asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pair.addresses import Place
from pair.records.errors import Subject
from pair.supervision.repeating import Repeating

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from twisted.internet.defer import Deferred
    from twisted.internet.interfaces import IReactorTime

    from pair.interfaces import IErrorBook

SECONDS = 60.0
"""Between two looks."""

MISSES = 2
"""So many looks in a row without an answer are none for want of luck."""


class OwnPorts(Repeating):
    """Looks again and again, and has a port listened on anew that does not answer.

    That is done at the second miss in a row, the fourth, the eighth and so on:
    where it does not help, it is not done all the time.

    Args:
        clock: for the looks.
        address: this node's own in the network; None: it has none.
        ports: those that are listened on, by the name of the surface.
        answers: whether one answers there, as this node if it says who it is.
        renew: has one listened on anew.
        errors: told of those that do not answer, as long as it is so.
    """

    def __init__(
        self,
        clock: IReactorTime,
        address: Callable[[], str | None],
        ports: Callable[[], Mapping[str, int]],
        answers: Callable[[str, Place], Deferred[bool]],
        renew: Callable[[str], None],
        errors: IErrorBook,
    ) -> None:
        super().__init__(clock, SECONDS, lambda: self._look(), "The look at own ports")
        self._address = address
        self._ports = ports
        self._answers = answers
        self._renew = renew
        self._errors = errors
        self._misses: dict[str, int] = {}

    async def _look(self) -> None:
        address = self._address()
        if address is None:
            for surface in tuple(self._misses):
                self._forget(surface)
            return
        for surface, port in self._ports().items():
            if await self._answers(surface, Place(address, port)):
                self._forget(surface)
            elif self._ports().get(surface) == port and self._address() == address:
                self._missed(surface, port)

    def _missed(self, surface: str, port: int) -> None:
        misses = self._misses[surface] = self._misses.get(surface, 0) + 1
        if misses < MISSES:
            return
        self._errors.raise_entry(f"ports:unreachable:{surface}", subject=Subject(port=port), port=port)
        if misses.bit_count() == 1:
            self._renew(surface)

    def _forget(self, surface: str) -> None:
        if self._misses.pop(surface, 0) >= MISSES:
            self._errors.clear(f"ports:unreachable:{surface}")

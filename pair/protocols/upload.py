"""A request body on its way to a socket, at the pace of the socket, with each wait timed (PX-51)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.interfaces import IConsumer, IPushProducer, ITCPTransport
from zope.interface import implementer

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IDelayedCall, IReactorTime

PIECE = 64 * 1024
"""Octets handed to the socket at a time. A body that fits goes out in one write with its head, and is not timed."""


class IDuplex(ITCPTransport, IConsumer, IPushProducer):
    """What every stream transport of Twisted is, TLS or not."""


@implementer(IPushProducer)
class Upload:
    """Passes a body from its source to a transport.

    It is the transport's producer while the body is unfinished. When the
    transport is full the source is paused and the wait begins; a wait that
    lasts too long is a stall. The transport asks for more only when it is
    empty, so at most a write of the source and ``PIECE`` octets are waited for
    at once.
    """

    def __init__(
        self, clock: IReactorTime, seconds: float, sent: Callable[[], None], stalled: Callable[[], None]
    ) -> None:
        """Not started.

        Args:
            clock: Times the waits.
            seconds: How long one may last.
            sent: Called once, when the transport has taken the whole body.
            stalled: Called once, when a wait lasts too long.
        """
        self._clock = clock
        self._seconds = seconds
        self._sent = sent
        self._stalled = stalled
        self._source: IPushProducer | None = None
        self._transport: IDuplex | None = None
        self._early: list[bytes] = []
        self._ended = False
        self._wait: IDelayedCall | None = None

    def draw_from(self, source: IPushProducer) -> None:
        """Pause and resume ``source``; it rests until the upload starts."""
        self._source = source
        if self._transport is None or self._wait is not None:
            source.pauseProducing()

    def start(self, transport: IDuplex, head: bytes) -> None:
        """Write ``head`` and what there is of the body, then go on with the source."""
        transport.write(head + b"".join(self._early))
        self._early.clear()
        self._transport = transport
        if self._ended:
            self._source = None
            self._sent()
            return
        transport.registerProducer(self, True)
        if self._source is not None:
            self._source.resumeProducing()

    def write(self, data: bytes) -> None:
        """Add to the body."""
        if self._transport is not None:
            self._transport.write(data)
        else:
            self._early.append(data)

    def end(self) -> None:
        """The body is whole."""
        self._ended = True
        if self._transport is not None and self._wait is None:
            self._finish(self._transport)

    def stop(self) -> None:
        """The rest is not wanted: the connection is closed, or about to be. The source rests from now on."""
        self._forget_wait()
        self._transport = None
        self._ended = True
        source, self._source = self._source, None
        if source is not None:
            source.pauseProducing()

    def pauseProducing(self) -> None:
        """Implement :class:`IPushProducer`: the transport is full."""
        if self._wait is None and not self._ended:
            self._wait = self._clock.callLater(self._seconds, self._stall)
            if self._source is not None:
                self._source.pauseProducing()

    def resumeProducing(self) -> None:
        """Implement :class:`IPushProducer`: the transport is empty."""
        self._forget_wait()
        if self._ended:
            if self._transport is not None:
                self._finish(self._transport)
        elif self._source is not None:
            self._source.resumeProducing()

    def stopProducing(self) -> None:
        """Implement :class:`IPushProducer`: the transport is gone."""
        self.stop()

    def _finish(self, transport: IDuplex) -> None:
        self._source = None  # It mostly refers to us, and has the body.
        transport.unregisterProducer()
        self._sent()

    def _stall(self) -> None:
        self._wait = None
        self._stalled()

    def _forget_wait(self) -> None:
        wait, self._wait = self._wait, None
        if wait is not None:
            wait.cancel()


@implementer(IPushProducer)
class Pieces:
    """A body held in memory as a source: writes it piece by piece until it is paused."""

    def __init__(self, body: bytes, upload: Upload) -> None:
        self._body = body
        self._upload = upload
        self._offset = 0
        self._paused = True

    def resumeProducing(self) -> None:
        """Implement :class:`IPushProducer`."""
        self._paused = False
        while not self._paused and self._offset < len(self._body):
            start, self._offset = self._offset, self._offset + PIECE
            self._upload.write(self._body[start : self._offset])
        if self._offset >= len(self._body):
            self._upload.end()

    def pauseProducing(self) -> None:
        """Implement :class:`IPushProducer`."""
        self._paused = True

    def stopProducing(self) -> None:
        """Implement :class:`IPushProducer`."""
        self._paused = True

"""A thread of its own for calls that block, made one after the other (DS-16)."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Worker:
    """Makes calls in one thread, and tells of them in the reactor's.

    Args:
        in_reactor: calls a function with arguments in the reactor thread, as ``callFromThread`` does.
        name: of the thread.
    """

    def __init__(self, in_reactor: Callable[..., object], name: str) -> None:
        self._in_reactor = in_reactor
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Deferred[Any]] | None] = queue.SimpleQueue()
        # A daemon: a library that hangs must not hold the process.
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def do(self, call: Callable[[], T]) -> Deferred[T]:
        """Make ``call`` after those before it. The Deferred fires with its result, or fails as it did."""
        done: Deferred[T] = Deferred()
        self._calls.put((call, done))
        return done

    def end(self) -> None:
        """End the thread after the calls that were asked for."""
        self._calls.put(None)

    def _serve(self) -> None:
        for call, done in iter(self._calls.get, None):
            try:
                result = call()
            except Exception:  # noqa: BLE001 - whatever it is, the caller hears of it
                self._in_reactor(done.errback, Failure())
            else:
                self._in_reactor(done.callback, result)

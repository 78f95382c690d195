"""Signals: how news travels up.

A part that others watch owns a ``Signal`` of records. It knows nothing of who
listens; who listens is decided in :mod:`pair.parts`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from twisted.logger import Logger

T = TypeVar("T")

Subscriber = Callable[[T], None]

_log = Logger()


class Signal(Generic[T]):
    """A list of subscribers, called in the order in which they subscribed.

    A subscriber that raises is logged with its stack; the others are called
    all the same and the emitter sees nothing of it. A subscriber must not make
    the signal emit again: those behind it would hear the later value first.
    """

    def __init__(self) -> None:
        self._by_subscription: dict[object, Subscriber[T]] = {}
        self._subscribers: tuple[Subscriber[T], ...] = ()

    def subscribe(self, subscriber: Subscriber[T]) -> Callable[[], None]:
        """Call ``subscriber`` with each value emitted from now on.

        Returns:
            A function that ends this subscription, and no other of the same
            ``subscriber``; calling it again does nothing.
        """
        subscription = object()
        self._by_subscription[subscription] = subscriber
        self._subscribers = tuple(self._by_subscription.values())

        def unsubscribe() -> None:
            self._by_subscription.pop(subscription, None)
            self._subscribers = tuple(self._by_subscription.values())

        return unsubscribe

    def emit(self, value: T) -> None:
        """Give ``value`` to those who are subscribed at this moment, whatever they do to the subscriptions."""
        for subscriber in self._subscribers:
            try:
                subscriber(value)
            except Exception:  # noqa: BLE001 - one listener's mistake is no other's
                _log.failure("A subscriber of a signal failed.")

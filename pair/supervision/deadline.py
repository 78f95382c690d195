"""Waiting for something, but not for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from twisted.internet.defer import Deferred

if TYPE_CHECKING:
    from twisted.internet.interfaces import IReactorTime

T = TypeVar("T")


def settled(clock: IReactorTime, work: Deferred[T], seconds: float) -> Deferred[bool]:
    """Tell when ``work`` has ended, well or badly, or has had its time.

    ``work`` keeps its result, is never cancelled by this, and goes on when its
    time is over.

    Returns:
        A Deferred of whether it ended in time. It fails only when it is itself
        cancelled.
    """

    def give_up(_: Deferred[bool]) -> None:
        timer.cancel()

    def ended(result: T) -> T:
        if timer.active():
            timer.cancel()
            told.callback(True)
        return result

    told: Deferred[bool] = Deferred(give_up)
    timer = clock.callLater(seconds, told.callback, False)
    work.addBoth(ended)
    return told

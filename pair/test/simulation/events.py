"""Virtual time: one queue of events (RT-68)."""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Timer:
    """A call that is to come."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self._call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """It is not to come any more; after it came, nothing."""
        self._call = None

    def fire(self) -> bool:
        """Make the call, unless it was cancelled."""
        call, self._call = self._call, None
        if call is None:
            return False
        call()
        return True


class Events:
    """What is to come, in order of time; at one time, in the order in which it was put in.

    Attributes:
        now: seconds since the begin.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._order = count()
        self._queue: list[tuple[float, int, Timer]] = []

    def at(self, time: float, call: Callable[..., None], *given: Any) -> Timer:
        """Call at ``time``, or now if that is past."""
        timer = Timer(lambda: call(*given))
        heapq.heappush(self._queue, (max(time, self.now), next(self._order), timer))
        return timer

    def after(self, seconds: float, call: Callable[..., None], *given: Any) -> Timer:
        """Call in so many seconds."""
        return self.at(self.now + seconds, call, *given)

    def every(self, seconds: float, call: Callable[[], None], first: float = 0.0) -> None:
        """Call at ``first`` and each so many seconds from then on."""

        def turn() -> None:
            call()
            self.after(seconds, turn)

        self.at(first, turn)

    def step(self) -> bool:
        """Let the next one happen; False: there is none."""
        while self._queue:
            self.now, _, timer = heapq.heappop(self._queue)
            if timer.fire():
                return True
        return False


class Progress:
    """Work that takes so many seconds at full speed, and is told when the speed is another.

    Args:
        events: the time.
        seconds: at full speed.
        speed: 1 is full, at 0 nothing moves.
        done: is called when it is finished.
    """

    def __init__(self, events: Events, seconds: float, speed: float, done: Callable[[], None]) -> None:
        self._events = events
        self._left = seconds
        self._done = done
        self._timer: Timer | None = None
        self._speed = 0.0
        self._since = events.now
        self.set_speed(speed)

    @property
    def left(self) -> float:
        """Seconds at full speed that are left."""
        return max(0.0, self._left - (self._events.now - self._since) * self._speed)

    def set_speed(self, speed: float) -> None:
        """Go on at this speed."""
        self._left, self._since, self._speed = self.left, self._events.now, speed
        self.cancel()
        if speed:
            self._timer = self._events.after(self._left / speed, self._done)

    def cancel(self) -> None:
        """It will not be done."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

"""One answer of a double, before it is put into the words of a dialect: its tokens, its counts, its times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred

from pair.test.doubles import words
from pair.test.doubles.serving import Asked, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from twisted.internet.interfaces import IReactorTime

    from pair.test.doubles.shelf import Copy, Memory


@dataclass(frozen=True)
class Told:
    """An answer. Its durations, in seconds, are those of the double's rates: the same for the same question.

    Attributes:
        id: a number for the ids of its dialect.
        reason: ``stop`` or ``length``.
    """

    id: int
    pieces: list[str]
    reason: str
    prompt_tokens: int
    load: float
    prompt: float
    each: float

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self.pieces)

    @property
    def output(self) -> float:
        """Seconds for all tokens."""
        return self.each * len(self.pieces)

    @property
    def seconds(self) -> float:
        """From the beginning to the end, but for the load."""
        return self.prompt + self.output


@dataclass(frozen=True)
class Pace:
    """How fast a double is.

    Attributes:
        rate: tokens a second; 0: all at once.
        prefill: tokens of a prompt a second; 0: all at once.
        load: seconds to load a model.
    """

    rate: float = 0.0
    prefill: float = 0.0
    load: float = 0.0

    def tell(self, question: str, most: int | None, load: float) -> Told:
        """The answer to a question."""
        said, reason = words.pieces(question, most)
        tokens = words.tokens(question)
        prompt = tokens / self.prefill if self.prefill else 0.0
        each = 1 / self.rate if self.rate else 0.0
        return Told(words.number(question, 1000), said, reason, tokens, load, prompt, each)


class Slots:
    """How many requests are answered at once; the others wait in line.

    Args:
        limit: of those that are answered.
        line: of those that wait; one more is refused.
    """

    def __init__(self, limit: int, line: int) -> None:
        self.busy = 0
        self._limit = limit
        self._line = line
        self._waiting: list[Deferred[None]] = []

    def take(self, asked: Asked, begin: Callable[[], None]) -> bool:
        """Call ``begin`` when it is the turn of ``asked``; what was taken is given back when that is over.

        Returns:
            False: the line is full.
        """
        if self.busy < self._limit:
            self.busy += 1
            asked.when_over(self._give_back)
            begin()
            return True
        if len(self._waiting) >= self._line:
            return False
        turn: Deferred[None] = Deferred()
        self._waiting.append(turn)

        def leave() -> None:
            if turn in self._waiting:
                self._waiting.remove(turn)
                turn.cancel()

        def granted(_: None) -> None:
            asked.when_over(self._give_back)
            begin()

        turn.addCallback(granted).addErrback(lambda failure: failure.trap(CancelledError) and None)
        asked.when_over(leave)
        return True

    def _give_back(self) -> None:
        if self._waiting:
            self._waiting.pop(0).callback(None)
        else:
            self.busy -= 1


class Work:
    """Sends requests to models in memory, and holds them there while they are answered.

    Args:
        clock: of the double.
        memory: of the double.
        slots: of the double.
        pace: of the double.
    """

    def __init__(self, clock: IReactorTime, memory: Memory, slots: Slots, pace: Pace) -> None:
        self._clock = clock
        self._memory = memory
        self._slots = slots
        self._pace = pace

    def at(self, asked: Asked, copy: Copy, do: Callable[[float], None]) -> None:
        """Call ``do`` with the seconds that the load took, when ``copy`` is loaded and it is the turn of ``asked``.

        Raises:
            Refused: too many wait already.
        """
        began = self._clock.seconds()
        self._memory.use(copy)
        asked.when_over(lambda: self._memory.leave(copy, self._clock.seconds()))

        def ready() -> None:
            do(max(0.0, copy.ready - began))

        def turn() -> None:
            asked.after(copy.ready - self._clock.seconds(), ready)

        if not self._slots.take(asked, turn):
            raise Refused(503, "server busy, please try again.  maximum pending requests exceeded")

    def whole(self, asked: Asked, copy: Copy, question: str, most: int | None, answer: Callable[[Told], Any]) -> None:
        """Answer with one document, when all of it would have been said."""

        def begin(load: float) -> None:
            told = self._pace.tell(question, most, load)
            asked.after(told.seconds, lambda: asked.json(answer(told)))

        self.at(asked, copy, begin)

    def stream(
        self,
        asked: Asked,
        copy: Copy,
        question: str,
        most: int | None,
        content_type: str,
        frames: Callable[[Told], Iterable[bytes]],
    ) -> None:
        """Answer frame by frame."""

        def begin(load: float) -> None:
            told = self._pace.tell(question, most, load)
            asked.stream(content_type, frames(told), told.each, told.prompt + told.each)

        self.at(asked, copy, begin)

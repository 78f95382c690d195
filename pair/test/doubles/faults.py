"""What can be wrong with a double (EN-111): each for the next requests, for some time, or until it is cleared.

Given as an argument of a program (``--fault``), as ``POST /_double/fault``, or
to :meth:`Faults.add` in-process.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal, get_args

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IReactorTime

Kind = Literal[
    "refuse", "hang", "stall", "slow", "cut", "error", "garbage", "empty", "length", "route", "exit", "deaf", "fork",
    "401", "404", "429", "500", "503",
]  # fmt: skip
"""The faults.

``refuse``: the port is closed. ``hang``: no answer. ``stall``: an answer that
stops in the middle. ``slow``: ``seconds`` more before the answer. ``cut``: the
connection is reset in the middle. ``error``: an error frame in the middle of a
stream, 500 where the answer is whole. ``garbage``: what comes is not HTTP. ``empty``: 200 without a body.
``length``: fewer bytes than Content-Length says. ``route``: 404, as for a path
that there is not. ``exit``: the process ends. Numbers: that status at once; 404
as for a model that there is not. Of programs alone: ``deaf`` ignores TERM, ``fork``
serves from a process that has left the group.
"""

STATUSES = frozenset({"401", "404", "429", "500", "503"})
OF_THE_PROGRAM = frozenset({"deaf", "fork"})


class Fault(Struct, frozen=True):
    """One fault.

    ``times``: how many requests it meets; None: all until it is cleared.
    ``after``: how many frames of an answer come before it. ``seconds``: of
    ``slow``, and of ``refuse``, how long; None there: until it is cleared.
    ``path``: only requests whose path begins so; None: every POST, so that a
    probe sees nothing of it.
    """

    fault: Kind
    times: int | None = None
    after: int = 2
    seconds: float | None = None
    path: str | None = None

    def meets(self, method: str, path: str) -> bool:
        """Whether a request meets it."""
        return method == "POST" if self.path is None else path.startswith(self.path)


class Faults:
    """The faults of one double, in the order in which they came.

    Args:
        clock: for those that end by themselves.

    Attributes:
        changed: called when there are others.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self.changed: Callable[[], None] = lambda: None
        self._clock = clock
        self._faults: list[Fault] = []
        self._met: dict[int, int] = {}
        self._refusing_until = 0.0

    @property
    def refusing(self) -> bool:
        """The port is closed now."""
        return self._clock.seconds() < self._refusing_until

    @property
    def refusing_for(self) -> float:
        """Seconds until the port opens again."""
        return max(0.0, self._refusing_until - self._clock.seconds())

    def add(self, fault: str, **fields: object) -> Fault:
        """There is one more; ``fields`` are those of :class:`Fault`."""
        return self.put(msgspec.convert({"fault": fault, **fields}, Fault))

    def put(self, fault: Fault) -> Fault:
        """There is this one more."""
        if fault.fault == "refuse":
            end = float("inf") if fault.seconds is None else self._clock.seconds() + fault.seconds
            self._refusing_until = end
        else:
            self._faults.append(fault)
        self.changed()
        return fault

    def clear(self) -> None:
        """There is none."""
        self._faults.clear()
        self._met.clear()
        self._refusing_until = 0.0
        self.changed()

    def next(self, method: str, path: str) -> Fault | None:
        """The fault that a request meets; it counts as met."""
        for fault in self._faults:
            if not fault.meets(method, path):
                continue
            if fault.times is not None:
                met = self._met[id(fault)] = self._met.get(id(fault), 0) + 1
                if met >= fault.times:
                    self._faults.remove(fault)
                    del self._met[id(fault)]
            return fault
        return None

    def listed(self) -> list[Fault]:
        """Those that there are."""
        return list(self._faults)


def parse(text: str) -> Fault:
    """A fault as an argument has it: its name, or JSON as in ``POST /_double/fault``.

    Raises:
        ValueError: it is neither.
    """
    if text in get_args(Kind):
        return msgspec.convert({"fault": text}, Fault)
    try:
        return msgspec.json.decode(text, type=Fault)
    except msgspec.DecodeError as error:
        raise ValueError(f"no fault: {json.dumps(text)}") from error

"""One machine's line, told from beforehand: when would a request begin and end, if its length were known?

A machine serves in the order in which requests come, so a later one changes
nothing of those before it: a line needs to remember when its slots are free
and what is in memory, and no more. It serves as a
:class:`~pair.test.simulation.machine.Machine` does, which a test compares.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pair.proxy.attempt import SILENCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pair.test.simulation.scenario import FaultSpec, NodeSpec


class Line:
    """The line of one machine.

    Args:
        spec: what it is.
        faults: all that will be wrong with it.

    Attributes:
        begins: when the last one that joined began to be served.
        busy: when each of its slots that is taken gets free, with the model.
        loaded: the models in memory, the one that began to serve longest ago first.
        loads: how often a model was loaded.
    """

    def __init__(self, spec: NodeSpec, faults: Sequence[FaultSpec] = ()) -> None:
        self.spec = spec
        self.begins = 0.0
        self.busy: list[tuple[float, str]] = []
        self.loaded = list(spec.loaded)
        self.loads = 0
        self._came = 0.0
        self._away = [(fault.kind, spell, fault.model) for fault in faults for spell in fault.spells]
        self._paces = [
            (begin, end, 0.0 if fault.kind == "freeze" else fault.factor)
            for fault in faults
            if fault.kind in ("freeze", "slow")
            for begin, end in fault.spells
        ]

    def copy(self) -> Line:
        """A line that goes on from here by itself."""
        line = Line.__new__(Line)
        line.spec, line.begins, line.loads, line._came = self.spec, self.begins, self.loads, self._came
        line.busy, line.loaded = self.busy[:], self.loaded[:]
        line._away, line._paces = self._away, self._paces
        return line

    def join(self, at: float, model: str, prompt: float, output: float) -> tuple[float, float]:
        """A request comes, after all that came before.

        Returns:
            When its first byte comes, and its last one; never, if it is refused or cut.
        """
        if any(kind == "refuse" and self._came < begin <= at for kind, (begin, _), _ in self._away):
            self.busy, self.loaded = [], []
        self._came = at
        if self._refuses(at, model):
            return math.inf, math.inf
        begins = self._in_memory(max(at, self.begins), model)
        # Of so many as there are slots, the ones that end last: when the first of these ends, there is a free one.
        free = sorted(self.busy)[-self.spec.slots :]
        if len(free) == self.spec.slots:
            begins = max(begins, free[0][0])
        first = self.after(begins, prompt / self.spec.prefill + 1 / self.spec.decode)
        last = self.after(first, (output - 1) / self.spec.decode)
        self.loaded.remove(model)
        self.loaded.append(model)
        self.begins = begins
        self.busy = [each for each in self.busy if each[0] > begins]
        self.busy.append((last, model))
        return (math.inf, math.inf) if self._loses(at, last) else (first, last)

    def after(self, begin: float, seconds: float) -> float:
        """When work of so many seconds at full speed is done, if it is begun then."""
        for start, end, pace in self._paces:
            if end <= begin:
                continue
            if begin + seconds <= start:
                break
            seconds -= max(0.0, start - begin)
            begin = max(begin, start)
            done = (end - begin) * pace
            if done >= seconds:
                return begin + seconds / pace
            seconds -= done
            begin = end
        return begin + seconds

    def _in_memory(self, at: float, model: str) -> float:
        """When the model is there, if it is needed from ``at`` on: it may have to wait for room, and to be loaded."""
        if model in self.loaded:
            return at
        if len(self.loaded) >= self.spec.holds:
            ends = {each: max((end for end, of in self.busy if of == each), default=0.0) for each in self.loaded}
            # The first to be idle goes; of those that are idle by then, the first in the list.
            at = max(at, min(ends.values()))
            self.loaded.remove(next(each for each in self.loaded if ends[each] <= at))
        self.loads += 1
        self.loaded.append(model)
        return self.after(at, self.spec.models[model])

    def _refuses(self, at: float, model: str) -> bool:
        return model not in self.spec.models or any(
            (kind in ("503", "refuse") and begin <= at < end) or (kind == "stale" and missing == model and begin <= at)
            for kind, (begin, end), missing in self._away
        )

    def _loses(self, begin: float, end: float) -> bool:
        """Whether it is lost with the machine, or given up because the machine is silent for too long."""
        return any(
            (kind == "refuse" or (kind == "freeze" and until - since >= SILENCE)) and begin < until and since < end
            for kind, (since, until), _ in self._away
        )

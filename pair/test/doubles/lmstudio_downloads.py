"""The downloads of LM Studio's double. They go on by themselves; what they have come to is seen when anyone asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pair.test.doubles import words
from pair.test.doubles.lmstudio_shapes import instant

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IReactorTime

    from pair.test.doubles.shelf import Weights


class Downloads:
    """Those that there ever were.

    Args:
        clock: of the double.
        rate: bytes a second.
        done: told each model that is complete.
    """

    def __init__(self, clock: IReactorTime, rate: float, done: Callable[[Weights], None]) -> None:
        self._clock = clock
        self._rate = rate
        self._done = done
        self._jobs: dict[str, tuple[Weights, float]] = {}

    def begin(self, weights: Weights) -> dict[str, Any]:
        """Begin one, unless it is under way; what is told of it."""
        job = f"job_{words.number(weights.name, 2**40):010x}"
        self._jobs.setdefault(job, (weights, self._clock.seconds()))
        return self._told(job)

    def told(self, job: str) -> dict[str, Any] | None:
        """What is told of one; None: there is none."""
        return self._told(job) if job in self._jobs else None

    def all(self) -> dict[str, list[dict[str, Any]]]:
        """What is told of all, by their state."""
        jobs: dict[str, list[dict[str, Any]]] = {"downloading": [], "completed": [], "failed": [], "paused": []}
        for job in self._jobs:
            told = self._told(job)
            jobs[told["status"]].append(told)
        return jobs

    def _told(self, job: str) -> dict[str, Any]:
        weights, began = self._jobs[job]
        now, ends = self._clock.seconds(), began + weights.size / self._rate
        told = {"job_id": job, "total_size_bytes": weights.size, "started_at": instant(began)}
        if now >= ends:
            self._done(weights)
            return told | {"status": "completed", "downloaded_bytes": weights.size, "completed_at": instant(ends)}
        return told | {
            "status": "downloading",
            "downloaded_bytes": int((now - began) * self._rate),
            "bytes_per_second": self._rate,
            "estimated_completion": instant(ends),
        }

"""Which node each request of this process was sent to, before the job counts show it (RT-41 to RT-47).

Between a dispatch and the snapshot that counts it a node would look idle. The
book closes that gap: a node's load is exact by job id, whatever the snapshot
has seen of a take, a move or a release.
"""

from __future__ import annotations

import math

from msgspec import Struct

from pair.routing.policies import Load
from pair.routing.pressure import UNKNOWN
from pair.routing.scheduler import EMPTY, Rank, Snapshot

_MEMORY = 60.0
"""Seconds for which a released job is remembered at most (RT-45)."""


class Reservation(Struct, frozen=True):
    """The place of one job: on ``node``, since ``taken_at`` (monotonic seconds).

    ``generation`` is that of the snapshot by which the node was chosen.

    Raises:
        ValueError: empty id, negative generation, or a time that is no number.
    """

    job: str
    node: str
    generation: int
    taken_at: float

    def __post_init__(self) -> None:
        if not self.job or not self.node or self.generation < 0 or math.isnan(self.taken_at):
            raise ValueError(f"no reservation: {self}")


class ReservationBook:
    """The reservations of this process over the snapshot that it plans by.

    One for all facades, used on the reactor thread only.
    """

    def __init__(self) -> None:
        self._snapshot = EMPTY
        self._ranks: dict[str, Rank] = {}
        self._held: dict[str, Reservation] = {}
        self._released: dict[str, float] = {}
        # Kept in step with the three above, so that load() costs the same with any number of jobs.
        self._moved_off: dict[str, int] = {}
        self._unseen: dict[str, int] = {}

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot applied last."""
        return self._snapshot

    def __len__(self) -> int:
        """How many jobs hold a reservation."""
        return len(self._held)

    def held(self, job: str) -> Reservation | None:
        """The reservation of a job."""
        return self._held.get(job)

    def placed(self) -> dict[str, str]:
        """The node of each job that holds one."""
        return {job: each.node for job, each in self._held.items()}

    def take(self, job: str, node: str, generation: int, now: float) -> Reservation:
        """Place ``job`` on ``node``, off the node where it was before."""
        reservation = Reservation(job, node, generation, now)
        if job in self._held or job in self._released:
            self._count(job, -1)
            self._released.pop(job, None)
        self._held[job] = reservation
        self._count(job, 1)
        return reservation

    def release(self, job: str, now: float) -> bool:
        """``job`` is on no node any more; whether it was on one."""
        if job not in self._held:
            return False
        self._count(job, -1)
        del self._held[job]
        self._released[job] = now
        if job in self._snapshot.counted:
            self._count(job, 1)
        return True

    def apply(self, snapshot: Snapshot) -> None:
        """Plan by ``snapshot`` from now on; one that is not newer than the last is ignored whole (RT-46)."""
        if snapshot.generation <= self._snapshot.generation:
            return
        self._snapshot = snapshot
        self._ranks = {each.node: each for each in snapshot.ranks}
        self._released = {job: at for job, at in self._released.items() if job in snapshot.counted}
        self._moved_off.clear()
        self._unseen.clear()
        for job in (*self._held, *self._released):
            self._count(job, 1)

    def forget(self, now: float) -> None:
        """Drop what was released more than 60 s ago (RT-45); for the tick of RT-33."""
        for job in [job for job, at in self._released.items() if now - at > _MEMORY]:
            self._count(job, -1)
            del self._released[job]

    def load(self, node: str) -> Load:
        """The effective load of ``node`` (RT-43); one that the snapshot does not list has only reservations."""
        rank = self._ranks.get(node)
        unseen = self._unseen.get(node, 0)
        if rank is None:
            return Load(0, UNKNOWN, unseen, listed=False)
        return Load(rank.pending - self._moved_off.get(node, 0), rank.pressure, unseen)

    def _count(self, job: str, step: int) -> None:
        """Add (1) or take away (-1) what ``job``, as it stands, changes in the counts of the snapshot."""
        held = self._held.get(job)
        if held is None and job not in self._released:
            return
        counted = self._snapshot.counted.get(job)
        if held is not None:
            if held.node == counted:
                return
            self._unseen[held.node] = self._unseen.get(held.node, 0) + step
        if counted is not None:
            self._moved_off[counted] = self._moved_off.get(counted, 0) + step

"""Who of the members is there, by what comes of calls to them and from them (CL-60, CL-84, CL-85).

It keeps the addresses that worked and the instants of last contact, and tells
people of what only they can mend: a firewall, a certificate, a removal that
nobody explains. It must not know what is said in a call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pair.events import Signal
from pair.metrics import Counter
from pair.records.errors import Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from twisted.internet.interfaces import IReactorTime

    from pair.cluster.dialing import PeerUnreachable
    from pair.cluster.links import Outcome
    from pair.cluster.membership import Member
    from pair.interfaces import IErrorBook

REFUSED_SECONDS = 600.0
"""So long everybody who can be reached must have refused us before people are told (CL-85)."""

HEARD_SECONDS = 120.0
"""Whoever has not asked anything for so long, and is not reached, may just be off."""


class Contacts:
    """What is known of the members' being there.

    Attributes:
        last_seen: When one last answered or asked, in epoch milliseconds, by UUID.
        one_way: The UUIDs of those that reach us, and that we do not reach.
        seen_again: Emits the UUID of one that asks, and was not reached when last it was tried.
        syncs: Counts syncs by outcome.
    """

    def __init__(self, clock: IReactorTime, errors: IErrorBook, now: Callable[[], int]) -> None:
        """Nobody has been seen yet.

        Args:
            clock: Measures how long something holds.
            errors: Told of what is wrong.
            now: Epoch milliseconds.
        """
        self.last_seen: dict[str, int] = {}
        self.one_way: set[str] = set()
        self.seen_again: Signal[str] = Signal()
        self.syncs = Counter()
        self._clock = clock
        self._errors = errors
        self._now = now
        self._worked: dict[str, str] = {}
        self._heard: dict[str, float] = {}
        self._unreached: set[str] = set()
        self._refused_since: float | None = None

    def places(self, node: str, known: Iterable[str]) -> tuple[str, ...]:
        """Where to dial ``node``: where it answered last, then wherever it is ``known`` to be, without repeats."""
        worked = self._worked.get(node)
        return tuple(dict.fromkeys((*(() if worked is None else (worked,)), *known)))

    def heard(self, node: str) -> None:
        """A member has asked something."""
        self.last_seen[node] = self._now()
        self._heard[node] = self._clock.seconds()
        if node in self._unreached:
            self.seen_again.emit(node)

    def answered(self, node: str, address: str) -> None:
        """A member has answered at ``address``."""
        self.last_seen[node] = self._now()
        self._worked[node] = address
        self._unreached.discard(node)
        self._end_one_way(node)
        self._errors.clear(f"cluster:certificate_changed:{node}")

    def missed(self, member: Member, port: int, miss: PeerUnreachable, began: float) -> None:
        """A member was not reached at ``port``, though it was tried from the instant ``began`` on.

        If it asked something meanwhile, it is there, and only one direction works.
        """
        self._worked.pop(member.node, None)
        self._unreached.add(member.node)
        heard = self._heard.get(member.node)
        if miss.reason == "certificate":
            self._errors.raise_entry(
                f"cluster:certificate_changed:{member.node}", subject=Subject(node=member.node), name=_name(member)
            )
        elif heard is None or self._clock.seconds() - heard > HEARD_SECONDS:
            self._end_one_way(member.node)
        elif heard >= began and miss.reason not in ("no_pin", "no_address"):
            self._tell_one_way(member, port)

    def judge(self, outcome: Outcome) -> None:
        """What a sync says of this node's own standing: a refusal without a reason, or none (CL-85)."""
        self.syncs.inc((outcome,))
        if outcome in ("synced", "evidence"):
            self._forget_refusals()
        elif outcome == "refused":
            now = self._clock.seconds()
            if self._refused_since is None:
                self._refused_since = now
            elif now - self._refused_since >= REFUSED_SECONDS:
                self._errors.raise_entry("cluster:refused")

    def keep(self, nodes: Collection[str]) -> None:
        """Forget all others; the errors about them end with the view that has them no more."""
        for known in (self.last_seen, self._heard, self._worked):
            for node in known.keys() - nodes:
                known.pop(node)
        self._unreached.intersection_update(nodes)
        self.one_way.intersection_update(nodes)

    def disband(self) -> None:
        """This node is in no cluster. Where members answered is still known: they are to be told of it (CL-88)."""
        worked = dict(self._worked)
        self.keep(())
        self._worked = worked
        self._forget_refusals()

    def _forget_refusals(self) -> None:
        if self._refused_since is not None:
            self._refused_since = None
            self._errors.clear("cluster:refused")

    def _tell_one_way(self, member: Member, port: int) -> None:
        self.one_way.add(member.node)
        self._errors.raise_entry(
            f"cluster:one_way:{member.node}",
            subject=Subject(node=member.node, port=port),
            name=_name(member),
            side="this node",
            port=port,
            blocked=_name(member),
        )

    def _end_one_way(self, node: str) -> None:
        if node in self.one_way:
            self.one_way.discard(node)
            self._errors.clear(f"cluster:one_way:{node}")


def _name(member: Member) -> str:
    return member.name or member.node

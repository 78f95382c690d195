"""Who of the members is there, by what comes of calls to them and from them (CL-60, CL-84, CL-85).

It keeps the addresses that worked and the instants of last contact, and tells
people of what only they can mend: a firewall, a certificate, a removal that
nobody explains. It must not know what is said in a call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
"""Whoever has asked something within so long is there, whether it can be reached or not."""


class Contacts:
    """What is known of the members' being there.

    Attributes:
        last_seen: When one last answered or asked, in epoch milliseconds, by UUID.
        one_way: The UUIDs of those that reach us, and that we do not reach.
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
        self.syncs = Counter()
        self._clock = clock
        self._errors = errors
        self._now = now
        self._worked: dict[str, str] = {}
        self._heard: dict[str, float] = {}
        self._unreached: dict[str, tuple[Member, int]] = {}
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
            self._judge_direction(*self._unreached[node])

    def answered(self, node: str, address: str) -> None:
        """A member has answered at ``address``."""
        self.last_seen[node] = self._now()
        self._worked[node] = address
        self._unreached.pop(node, None)
        self._end_one_way(node)
        self._errors.clear(f"cluster:certificate_changed:{node}")

    def missed(self, member: Member, port: int, miss: PeerUnreachable) -> None:
        """A member was not reached at ``port``."""
        self._worked.pop(member.node, None)
        if miss.reason == "certificate":
            self._errors.raise_entry(
                f"cluster:certificate_changed:{member.node}", subject=Subject(node=member.node), name=_name(member)
            )
        elif miss.reason in ("refused", "timeout") and not miss.met:
            self._unreached[member.node] = member, port
            self._judge_direction(member, port)

    def judge(self, outcome: Outcome) -> None:
        """What a sync says of this node's own standing: a refusal without a reason, or none (CL-85)."""
        self.syncs.inc((outcome,))
        if outcome in ("synced", "evidence"):
            self.forget_refusals()
        elif outcome == "refused":
            now = self._clock.seconds()
            if self._refused_since is None:
                self._refused_since = now
            elif now - self._refused_since >= REFUSED_SECONDS:
                self._errors.raise_entry("cluster:refused")

    def forget_refusals(self) -> None:
        """This node is counted as a member, or counts on it no more."""
        if self._refused_since is not None:
            self._refused_since = None
            self._errors.clear("cluster:refused")

    def keep(self, nodes: Collection[str]) -> None:
        """Forget all others; the errors about them end with the view that has them no more."""
        for known in (self.last_seen, self._worked, self._heard, self._unreached):
            for node in known.keys() - nodes:
                known.pop(node)
        self.one_way.intersection_update(nodes)

    def _judge_direction(self, member: Member, port: int) -> None:
        heard = self._heard.get(member.node)
        if heard is None or self._clock.seconds() - heard > HEARD_SECONDS:
            self._end_one_way(member.node)
            return
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

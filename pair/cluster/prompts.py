"""What both sides of an invitation have in common: what is shown of it, its life, and its end.

A prompt is one invitation at one node. It must not know the others; whoever
keeps them all is told of each change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from twisted.internet.defer import Deferred

from pair.cluster.life import TTL_SECONDS, Core, machine
from pair.cluster.refusing import Refusal
from pair.privacy import clean_text
from pair.protocols.pairing.actions import LIVE
from pair.records.cluster import ClusterName, Invitation, InvitationPeer

if TYPE_CHECKING:
    from pair.cluster.means import Means
    from pair.protocols.pairing import (
        CodeKind,
        EndState,
        InviterExchange,
        JoinerExchange,
        Peer,
        Reason,
    )
    from pair.records.cluster import Direction


class Keeper(Protocol):
    """Who keeps all prompts."""

    def note_change(self, prompt: Prompt) -> None:
        """Something that is shown of it is new."""

    def note_end(self, prompt: Prompt) -> None:
        """It is over; what that brought is stored. People may never have seen it."""

    def note_forgotten(self, prompt: Prompt) -> None:
        """Its time is over; nothing is asked of it any more."""

    def note_bad_mac(self, prompt: Prompt) -> None:
        """A request that names it has a bad MAC or none (CL-27)."""


class Prompt:
    """One invitation at this node.

    Attributes:
        exchange: What was said.
        shown: Whether people are told of it.
        proven: The other side, once it is known who that is.
        address: The other side's, with its port where that is another than usual.
        ended_at: Epoch milliseconds, None before the end.
        life: Who ends it, and when.
    """

    exchange: InviterExchange | JoinerExchange

    def __init__(
        self, means: Means, keeper: Keeper, direction: Direction, kind: CodeKind, address: str | None
    ) -> None:
        self.direction = direction
        self.kind = kind
        self.address = address
        self.shown = False
        self.proven: Peer | None = None
        self.began = means.clock.seconds()
        self.life = machine(Core(means.clock, self, self.began))
        self._means = means
        self._keeper = keeper
        self._created_at = means.now()
        self.ended_at: int | None = None
        self._cluster: ClusterName | None = None
        self._waiting: list[Deferred[None]] = []
        self._storing: Deferred[None] | None = None

    @property
    def id(self) -> str:
        """The same at both sides."""
        raise NotImplementedError

    @property
    def claimed(self) -> tuple[str | None, str | None]:
        """UUID and name of the other side as it gave them, as far as it did."""
        raise NotImplementedError

    @property
    def live(self) -> bool:
        """Whether it has not ended."""
        return self.exchange.state in LIVE

    @property
    def record(self) -> Invitation:
        """What is shown of it now."""
        node, name = self.claimed
        return Invitation(
            id=self.id,
            direction=self.direction,
            state=self.exchange.state,
            reason=self.exchange.reason,
            peer=InvitationPeer(node, None if name is None else clean_text(name, 63), self.address),
            tag=self.exchange.tag,
            code_kind=self.kind,
            created_at=self._created_at,
            expires_at=self._created_at + int(TTL_SECONDS * 1000),
            ended_at=self.ended_at,
            cluster=self._cluster if self.exchange.state == "paired" else None,
        )

    def when_over(self) -> Deferred[None]:
        """Fires at its end; at once if it has ended. May be cancelled."""
        over: Deferred[None] = Deferred(self._waiting_no_more)
        if self.live:
            self._waiting.append(over)
        else:
            over.callback(None)
        return over

    def when_stored(self) -> Deferred[None]:
        """Fires when nothing of it is being stored."""
        done: Deferred[None] = Deferred()
        if self._storing is None:
            done.callback(None)
        else:
            self._storing.addBoth(lambda _: done.callback(None))
        return done

    def forget(self) -> None:
        """See :class:`~pair.cluster.life.Effects`."""
        self._keeper.note_forgotten(self)

    def fail(self, reason: Reason) -> None:
        """Nothing can come of it any more.

        Raises:
            OverError: It has ended.
        """
        self._do(self.exchange.end("failed", reason))

    def ran_out(self, state: EndState, reason: Reason | None) -> None:
        """See :class:`~pair.cluster.life.Effects`."""
        self._do(self.exchange.end(state, reason))

    def _withdraw(self, state: EndState) -> None:
        """A person does not want it.

        Raises:
            Refusal: ``invitation_over``: something else came first (CL-55).
        """
        if not self.life.withdraw():
            raise Refusal("invitation_over", state=self.exchange.state)
        self._do(self.exchange.end(state))

    def _do(self, actions: Any) -> None:
        """What the exchange asks for."""
        raise NotImplementedError

    def _show(self) -> None:
        self.shown = True
        self.life.show()
        self._keeper.note_change(self)

    def _conclude(self) -> None:
        self.life.end()
        self.ended_at = self._means.now()
        self._keeper.note_end(self)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(None)

    def _waiting_no_more(self, over: Deferred[None]) -> None:
        if over in self._waiting:
            self._waiting.remove(over)

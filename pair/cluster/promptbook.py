"""All prompts of this node, and what the end of one means for the others and for people (CL-46, CL-61, CL-104).

It must not know how an invitation begins, nor what a person wishes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from twisted.internet.defer import Deferred, DeferredList, succeed

from pair.cluster.limits import Doorkeeper
from pair.events import Signal
from pair.logs import Logger
from pair.metrics import Counter

if TYPE_CHECKING:
    from twisted.internet.interfaces import IReactorTime

    from pair.cluster.inviting import Inviting
    from pair.cluster.joining import Joining
    from pair.cluster.prompts import Prompt
    from pair.interfaces import IErrorBook
    from pair.records.cluster import Invitation

KEPT_MAX = 64
"""Ended invitations that are kept at most, the latest ones."""

ATTACK_VOIDED = 3
ATTACK_SECONDS = 3600.0
"""So many invitations spent within so long are reported (CL-61)."""

log = Logger()


Detail = dict[str, str | int | None]


class Audit(Protocol):
    """Writes a row of the audit (CL-104)."""

    async def __call__(
        self, event: str, actor: str | None, subject: str | None, cluster: str | None, detail: Detail
    ) -> object:
        """Write it; the instant is the audit's to know."""


class PromptBook:
    """The prompts of this node; a :class:`~pair.cluster.prompts.Keeper`.

    Attributes:
        inbound, outbound: By id.
        doorkeeper: Who may open one more prompt.
        changed, paired, ended_total, bad_macs: See :class:`~pair.cluster.invitations.Invitations`.
    """

    def __init__(self, clock: IReactorTime, me: str, errors: IErrorBook, audit: Audit) -> None:
        self.inbound: dict[str, Joining] = {}
        self.outbound: dict[str, Inviting] = {}
        self.doorkeeper = Doorkeeper()
        self.changed: Signal[Invitation] = Signal()
        self.paired: Signal[Invitation] = Signal()
        self.ended_total = Counter()
        self.bad_macs = Counter()
        self._clock = clock
        self._me = me
        self._errors = errors
        self._audit = audit
        self._voided: list[float] = []
        self._turns: list[Deferred[None]] = []
        self._writing: set[Deferred[object]] = set()

    @property
    def all(self) -> list[Joining | Inviting]:
        """All prompts, shown or not, ended or not."""
        return [*self.inbound.values(), *self.outbound.values()]

    def turn(self) -> Deferred[None]:
        """Fires when a joiner's proof may be judged: when no code that was typed here is being proven (CL-46)."""
        if not self._proving():
            return succeed(None)
        turn: Deferred[None] = Deferred(self._pass_over)
        self._turns.append(turn)
        return turn

    def close(self) -> Deferred[None]:
        """Forget all of them; fires when nothing of them is being stored any more."""
        prompts = self.all
        self.inbound.clear()
        self.outbound.clear()
        for prompt in prompts:
            prompt.stop()
        stored = DeferredList([each.when_stored() for each in prompts])
        return stored.addCallback(lambda _: DeferredList(list(self._writing))).addCallback(lambda _: None)

    def note_change(self, prompt: Prompt) -> None:
        """Tell people of it."""
        self.changed.emit(prompt.record)

    def note_end(self, prompt: Prompt) -> None:
        """Keep what came of it, tell people, and let those have their turn that waited for it."""
        self.doorkeeper.release(prompt.id)
        paired = prompt.exchange.state == "paired"
        if paired and prompt.direction == "in":
            for other in [each for each in self.outbound.values() if each.live]:
                other.fail("joined_another_cluster")
        if prompt.shown:
            self._record(prompt)
            self.changed.emit(prompt.record)
        if paired:
            self.paired.emit(prompt.record)
        if not self._proving():
            turns, self._turns = self._turns, []
            for turn in turns:
                turn.callback(None)

    def note_forgotten(self, prompt: Prompt) -> None:
        """Take it off the list."""
        self.doorkeeper.release(prompt.id)
        prompts: dict[str, Any] = self.inbound if prompt.direction == "in" else self.outbound
        prompts.pop(prompt.id, None)

    def note_bad_mac(self, prompt: Prompt) -> None:
        """Count it."""
        self.bad_macs.inc()

    def _pass_over(self, turn: Deferred[None]) -> None:
        if turn in self._turns:
            self._turns.remove(turn)

    def _proving(self) -> bool:
        return any(each.exchange.state == "confirming" for each in self.inbound.values())

    def _record(self, prompt: Prompt) -> None:
        """Keep what came of an invitation that people have seen, and make room."""
        role = "joiner" if prompt.direction == "in" else "inviter"
        state, reason = prompt.exchange.state, prompt.exchange.reason
        claimed, proven = prompt.claimed[0], None if prompt.proven is None else prompt.proven.uuid
        self.ended_total.inc((role, state))
        why = "" if reason is None else f", {reason}"
        log.info("An invitation ended: {role}, {state}{why} ({node}).", role=role, state=state, why=why, node=claimed)
        cluster = prompt.record.cluster
        detail: Detail = {
            "role": role,
            "end": state,
            "reason": reason,
            "claimed": claimed,
            "proven": proven,
            "address": prompt.address,
            "codeKind": prompt.kind,
        }
        row = self._audit("invitation_ended", self._me, proven, None if cluster is None else cluster.id, detail)
        writing = Deferred.fromCoroutine(row)
        self._writing.add(writing)
        writing.addErrback(lambda failure: log.failure("The audit could not be written.", failure))
        writing.addCallback(lambda _: self._writing.discard(writing))
        if state == "voided":
            self._watch_for_attacks()
        ended = [each for each in self.all if each.shown and not each.live]
        for former in sorted(ended, key=lambda each: each.ended_at or 0)[:-KEPT_MAX]:
            former.stop()
            self.note_forgotten(former)

    def _watch_for_attacks(self) -> None:
        now = self._clock.seconds()
        self._voided = [*(each for each in self._voided if now < each + ATTACK_SECONDS), now]
        if len(self._voided) >= ATTACK_VOIDED:
            self._errors.raise_entry("cluster:pairing_attacked", count=len(self._voided))

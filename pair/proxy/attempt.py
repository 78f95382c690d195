"""One request at one engine, up to the first byte of its answer (PX-44, PX-47, PX-51)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from pair.protocols.response import ResponseHead
from pair.proxy.headers import request_head
from pair.proxy.outcomes import (
    EMPTY,
    QUIET,
    SILENT,
    STALLED,
    Judgement,
    judge_connection,
    judge_member,
    judge_status,
)
from pair.proxy.plane import Plane, credential_of, target_of
from pair.proxy.replies import Refusal, engine_silent, member_refused, refusal
from pair.routing.dialects import Dialect, Verdict, classify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twisted.internet.interfaces import IDelayedCall

    from pair.protocols.calls import Target, UpstreamFailure
    from pair.protocols.http_client import Call
    from pair.protocols.pool import ClientPool
    from pair.proxy.request import ClientRequest
    from pair.routing.candidates import Candidate

REFUSAL_LIMIT = 64 * 1024
"""Bytes that are read of a refusal, which may become the final answer (PX-47)."""

REFUSAL_SECONDS = 1.0
"""Seconds in which a refusal must have been read."""


FIRST_SIGN = 3.0
NEXT_SIGN = 7.0
"""Seconds in which a member that is well shows that it works: it does so at once, and then each 5 s (PX-54)."""

QUIET_SECONDS = 7.0
"""Without anything from the node itself, which beats each 5 s: until then the one request may be late, and no more."""

SILENCE = 12.0
"""Seconds after which one that showed nothing is given up, whether another node can serve or not (PX-55)."""

_LOOK_SECONDS = 1.0
"""Between two looks from the first overdue sign on."""


class Terms(Struct, frozen=True):
    """How a class of requests is dispatched.

    ``rounds``: how often its owners are gone through. ``patience``: seconds
    until a response head must be there; 0 waits while the engine is alive.
    ``setting``: where a person can change that. ``commits_on_head``: the answer
    is passed on from its head, not from its first body byte (PX-57).
    ``reserves``: it counts as load of its node (RT-41).
    """

    rounds: int
    patience: float = 0
    setting: str | None = None
    commits_on_head: bool = False
    reserves: bool = True


class EngineRefusal(Struct, frozen=True):
    """A whole answer that is not a 2xx, and what it says of the engine."""

    head: ResponseHead
    body: bytes
    verdict: Verdict


class AttemptOwner(Protocol):
    """Who is told how an attempt ends; one of the two, once, unless it abandons the attempt."""

    def attempt_failed(self, attempt: Attempt, judgement: Judgement, answer: EngineRefusal | Refusal) -> None:
        """There is no answer to commit; ``answer`` is what the client gets if nothing better comes."""

    def has_another(self, attempt: Attempt) -> bool:
        """Whether another node could serve at once, so that nobody need wait for this one."""

    def attempt_won(self, attempt: Attempt, head: ResponseHead, raw: bytes, parts: Sequence[bytes]) -> None:
        """The answer begins; the owner takes over ``attempt.call``."""


class Attempt:
    """Sends a request to one engine and judges what comes first."""

    __slots__ = (
        "_body",
        "_dialect",
        "_early",
        "_head",
        "_job",
        "_owner",
        "_patience",
        "_plane",
        "_refusing",
        "_request",
        "_silence",
        "_silent_for",
        "_terms",
        "_timers",
        "call",
        "candidate",
    )

    call: Call
    _body: bytearray  # Of a refusal, while it is read.

    def __init__(
        self, plane: Plane, owner: AttemptOwner, request: ClientRequest, job: str, candidate: Candidate, terms: Terms
    ) -> None:
        self.candidate = candidate
        self._job = job
        self._dialect: Dialect | None = None
        self._silence: IDelayedCall | None = None
        self._silent_for = 0.0  # seconds, when the timer is over
        self._plane = plane
        self._owner = owner
        self._request = request
        self._terms = terms
        self._head: ResponseHead | None = None
        self._refusing = False
        self._early = b""
        self._patience: IDelayedCall | None = None
        self._timers: list[IDelayedCall] = []

    def begin(self, body: bytes | None) -> bool:
        """Send the request; ``body`` is None where it has none.

        Returns:
            Whether there is anywhere to send it to. If not, that was all, and the owner hears nothing.
        """
        plane, engine = self._plane, self.candidate.engine
        if not self.candidate.local:
            return self._begin_afar(body)
        target = target_of(plane, engine)
        if target is None:
            return False
        self._send(plane.pool, target, body, credential_of(plane, engine), ())
        plane.sweep.watch(self)
        return True

    def _begin_afar(self, body: bytes | None) -> bool:
        """Send it to a member, which serves it by that engine and no other (PX-53)."""
        node, members = self.candidate.node, self._plane.members
        target = None if members is None else members.target(node, self._request.facade)
        if members is None or target is None:
            return False
        # It may be gone from the catalogue by the time of its answer.
        self._dialect = self._plane.scheduling.catalogue.dialect(node, self.candidate.engine)
        named = (b"X-Pair-Job: " + self._job.encode("ascii"), b"X-Pair-Engine: " + self.candidate.engine.encode())
        self._send(members.pool, target, body, None, named)
        self._await_sign(FIRST_SIGN)
        self.call.stirred = self._stirred
        return True

    def _send(
        self, pool: ClientPool, target: Target, body: bytes | None, credential: bytes | None, member: Sequence[bytes]
    ) -> None:
        plane, asked = self._plane, self._request.exchange.head
        head = request_head(
            asked.method,
            self._request.target,
            asked.fields,
            authority=target.authority,
            length=None if body is None else len(body),
            hop=1,
            credential=credential,
            member=member,
            notes=asked.notes,
        )
        self.call = pool.send(target, head, body or b"", self, head_only=self._request.head_only)
        if self._terms.patience:
            self._patience = self._wait(self._terms.patience, self._terms.setting)
        if plane.settings.first_byte_limit and not self._terms.commits_on_head:
            self._wait(plane.settings.first_byte_limit, "proxy.first_byte_limit")

    def abandon(self) -> None:
        """Break off; the owner hears nothing more (PX-48, PX-49). It may not even have begun, if that raised."""
        self._rest()
        call: Call | None = getattr(self, "call", None)
        if call is not None:
            call.abort()

    def head_received(self, head: ResponseHead) -> None:
        """A 2xx may be the answer; anything else is read whole first."""
        self._head = head
        if self._patience is not None and self._patience.active():
            self._patience.cancel()
        if not 200 <= head.status < 300:
            self._stop_timers()
            self._refusing = True
            self._body = bytearray()
            self._timers = [self._plane.clock.callLater(REFUSAL_SECONDS, self._refusal_overran)]
        elif self._terms.commits_on_head:
            self._win(b"", ())

    def body_received(self, raw: bytes, parts: Sequence[bytes]) -> None:
        """The first payload byte wins; framing alone does not."""
        assert self._head is not None, "a body has a head before it"
        if self._refusing:
            for part in parts:
                self._body += part
            if len(self._body) > REFUSAL_LIMIT:
                self._refusal_overran()
        elif parts:
            self._win(self._early + raw, parts)
        else:
            self._early += raw

    def response_ended(self) -> None:
        """A refusal is whole; a 2xx has ended before its first byte."""
        head = self._head
        assert head is not None, "a response that ended has a head"
        if self._refusing:
            self._refused(head)
        elif head.chunked or head.content_length == 0 or head.status in (204, 205) or self._request.head_only:
            self._win(self._early, ())
            self.call.receiver.response_ended()
        else:
            # Neither length nor chunks, and not a byte before the close: the engine died (S16).
            self._end(EMPTY, refusal("engine_unreachable"))

    def response_lost(self, failure: UpstreamFailure) -> None:
        """The connection failed; with a good head but no byte of the body the answer counts as empty."""
        judgement = EMPTY if self._head is not None and not self._refusing else judge_connection(failure.kind)
        self._end(judgement, refusal("engine_unreachable"))

    def swept(self, now: float) -> None:
        """Give up on an engine that is not alive any more (PX-56)."""
        if not self._plane.engines.alive(self.candidate.engine):
            self.call.abort()
            self._end(STALLED, engine_silent())

    def _stirred(self) -> None:
        """The member still works at it."""
        assert self._silence is not None, "only a member is waited for so"
        if self._silence.active():
            self._silence.reset(NEXT_SIGN)
            self._silent_for = NEXT_SIGN

    def _await_sign(self, silent_for: float) -> None:
        """Wait until it has been silent for so many seconds."""
        wait, self._silent_for = silent_for - self._silent_for, silent_for
        self._silence = self._plane.clock.callLater(wait, self._no_sign)
        self._timers.append(self._silence)

    def _no_sign(self) -> None:
        """Nothing came from the member, though it says at once and then each 5 s that it works (PX-55)."""
        over = self._silent_for >= SILENCE
        if over or (self._is_quiet() and self._owner.has_another(self)):
            self.call.abort()
            self._end(SILENT if over else QUIET, refusal("node_silent"))
        else:
            self._await_sign(min(self._silent_for + _LOOK_SECONDS, SILENCE))

    def _is_quiet(self) -> bool:
        """Whether nothing at all comes from the member; if its feeds do, the link is slow, or this request alone."""
        members = self._plane.members
        return members is not None and members.silence(self.candidate.node) >= QUIET_SECONDS

    def _wait(self, seconds: float, setting: str | None) -> IDelayedCall:
        timer = self._plane.clock.callLater(seconds, self._overran, setting, seconds)
        self._timers.append(timer)
        return timer

    def _overran(self, setting: str | None, seconds: float) -> None:
        self.call.abort()
        self._end(STALLED, engine_silent(setting, seconds))

    def _refusal_overran(self) -> None:
        head = self._head
        assert head is not None, "a refusal has a head"
        self.call.abort()
        self._end(judge_status(head.status, self._verdict(head)), refusal("engine_unreachable"))

    def _refused(self, head: ResponseHead) -> None:
        code = None if self.candidate.local else head.value(b"x-pair-error")
        if code is not None:
            self._refused_by_member(head, code.decode("latin-1"))
            return
        verdict = self._verdict(head)
        judgement = judge_status(head.status, verdict)
        if head.status < 400:
            self._end(judgement, refusal("engine_redirect"))
        else:
            self._end(judgement, EngineRefusal(head, bytes(self._body), verdict))

    def _refused_by_member(self, head: ResponseHead, code: str) -> None:
        """It is made anew for our client, and a member's doors are none of that one's business (PX-46)."""
        fault = head.value(b"x-pair-fault")
        judgement = judge_member(head.status, code, None if fault is None else fault.decode("latin-1"))
        self._end(judgement, member_refused(code))

    def _verdict(self, head: ResponseHead) -> Verdict:
        dialect = self._dialect or self._plane.engines.dialect(self.candidate.engine)
        return classify(dialect, head.status, bytes(self._body[:8192]))

    def _win(self, raw: bytes, parts: Sequence[bytes]) -> None:
        assert self._head is not None, "an answer has a head"
        self._rest()
        self._owner.attempt_won(self, self._head, raw, parts)

    def _end(self, judgement: Judgement, answer: EngineRefusal | Refusal) -> None:
        self._rest()
        self._owner.attempt_failed(self, judgement, answer)

    def _rest(self) -> None:
        if self._timers:
            self._stop_timers()
        self._plane.sweep.leave(self)

    def _stop_timers(self) -> None:
        for timer in self._timers:
            if timer.active():
                timer.cancel()
        self._timers = []

"""From an admitted request to the engine that answers it: the walk through its owners (PX-42 to PX-49).

One :class:`Dispatch` serves one request. It plans, tries the first candidate,
and fails over until one answer begins; from then on a
:class:`~pair.proxy.relay.Relay` moves the bytes. What the end of an attempt
means is judged in :mod:`pair.proxy.outcomes`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pair.protocols.http_exchange import Framing
from pair.proxy import trail
from pair.proxy.attempt import Attempt, EngineRefusal, Terms
from pair.proxy.headers import response_fields
from pair.proxy.outcomes import GONE, LOOP, Judgement, Rounds, seconds_to_wait
from pair.proxy.relay import Relay
from pair.proxy.replies import Refusal, model_not_found, no_owner, refusal, route_unsupported
from pair.records.jobs import Outcome, Usage
from pair.routing.explain import why

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twisted.internet.interfaces import IDelayedCall

    from pair.interfaces import IJob
    from pair.protocols.http1 import Fields
    from pair.protocols.response import ResponseHead
    from pair.proxy.collecting import Ended, KeptBody
    from pair.proxy.endings import Ending
    from pair.proxy.plane import Plane, StopCode
    from pair.proxy.request import ClientRequest
    from pair.routing.breaker import Sent
    from pair.routing.candidates import Candidate, Request
    from pair.routing.planning import Plan


_UNREACHABLE = refusal("engine_unreachable")
"""The answer as long as no attempt has left a better one."""


class Dispatch:
    """Walks one request through its candidates.

    Args:
        plane: the shared parts.
        request: the client's.
        wanted: the same in routing's words.
        body: kept for another try until the answer begins (PX-29); None where there is none.
        job: is told all that happens.
        terms: of its class.
        streaming: it asks for a stream.
        ended: called with the request once, last, whatever way it ended.
    """

    __slots__ = (
        "_answer",
        "_attempt",
        "_body",
        "_ended",
        "_job",
        "_past",
        "_pausing",
        "_plane",
        "_relay",
        "_request",
        "_rounds",
        "_sent",
        "_streaming",
        "_terms",
        "_wanted",
        "_why",
        "_won",
        "engine",
        "facade",
    )

    def __init__(
        self,
        plane: Plane,
        request: ClientRequest,
        wanted: Request,
        body: KeptBody | None,
        job: IJob,
        terms: Terms,
        streaming: bool,
        ended: Ended,
    ) -> None:
        self.facade = request.facade
        self.engine: str | None = None
        self._plane = plane
        self._request = request
        self._wanted = wanted
        self._body = body
        self._job = job
        self._terms = terms
        self._streaming = streaming
        self._ended = ended
        self._rounds = Rounds(plane.monotonic() + plane.settings.start_deadline, terms.rounds)
        self._past: tuple[tuple[Outcome, int | None], ...] = ()
        self._answer: EngineRefusal | Refusal = _UNREACHABLE
        self._why = ""
        self._attempt: Attempt | None = None
        self._won: Candidate | None = None
        self._sent: Sent | None = None
        self._relay: Relay | None = None
        self._pausing: IDelayedCall | None = None

    def begin(self) -> None:
        """Plan and send; what no engine may serve is answered at once (PX-39)."""
        self._plane.underway[self] = None
        self._request.exchange.lost = self._client_gone
        self._next()

    @property
    def job(self) -> str:
        """See :class:`pair.proxy.plane.Underway`."""
        return self._job.id

    def stop(self, code: StopCode) -> None:
        """Break off what is under way (PX-49, PX-68)."""
        if self._relay is not None:
            self._relay.stop(code)
            return
        self._break_off()
        self._request.refuse(refusal(code))
        self._job.cancelled(code)
        self._end()

    def attempt_failed(self, attempt: Attempt, judgement: Judgement, answer: EngineRefusal | Refusal) -> None:
        """See :class:`pair.proxy.attempt.AttemptOwner`."""
        self._attempt = self.engine = None
        self._answer = answer
        node, engine = attempt.candidate.node, attempt.candidate.engine
        self._job.attempt_ended(judgement.outcome, judgement.status, judgement.error)
        self._plane.meters.attempt_ended(node, engine, judgement.outcome, judgement.status)
        self._tell_end(attempt.candidate, judgement.outcome, judgement.status)
        self._past += ((judgement.outcome, judgement.status),)
        if self._sent is not None:
            wait = seconds_to_wait(answer.head.value(b"retry-after")) if isinstance(answer, EngineRefusal) else None
            self._plane.scheduling.holds.failed(self._sent, judgement, wait)
            self._sent = None
        if isinstance(answer, EngineRefusal):
            self._learn(attempt.candidate, answer)
        if judgement.blames_engine:
            self._note_outcome(attempt.candidate, False)
        self._rounds.failed(attempt.candidate, judgement)
        if judgement.fails_over:
            self._next()
        else:
            self._give_up()

    def has_another(self, attempt: Attempt) -> bool:
        """See :class:`pair.proxy.attempt.AttemptOwner`."""
        place = attempt.candidate
        tried = self._rounds.excluded | {(place.node, place.engine)}
        late = not self._rounds.may_begin(self._plane.monotonic())
        return not late and self._plane.scheduling.another(replace(self._wanted, tried=tried), place.node)

    def attempt_won(self, attempt: Attempt, head: ResponseHead, raw: bytes, parts: Sequence[bytes]) -> None:
        """See :class:`pair.proxy.attempt.AttemptOwner`."""
        self._free_body()
        candidate = attempt.candidate
        self._relay = Relay(
            self._plane,
            self._request,
            attempt.call,
            head,
            candidate.node,
            candidate.engine,
            self._job,
            self._explanation(candidate.node),
            self,
        )
        self._won, self._attempt = candidate, None
        # The client first, then the books.
        self._relay.begin(raw, parts)
        if parts:
            self._job.committed(head.status)
            self._plane.meters.first_byte(self._request)
        self._plane.meters.attempt_ended(candidate.node, candidate.engine, "won", head.status)
        if head.status < 400:
            self._note_answered(candidate)
        if self._sent is not None:
            self._plane.scheduling.holds.committed(self._sent)
            self._sent = None
        # The answer may take long. There is no other try, and what one would need goes.
        del self._rounds, self._wanted

    def relayed(self, good: bool | None) -> None:
        """See :class:`pair.proxy.relay.RelayOwner`."""
        relay, candidate = self._relay, self._won
        assert relay is not None, "it is relayed"
        assert candidate is not None, "an answer is that of an attempt"
        outcome: Outcome = "cancelled" if good is None else "won" if good else "broken"
        self._tell_end(candidate, outcome, self._request.status, relay.received)
        if good is not None:
            self._note_outcome(candidate, good)
        if good:
            self._learn_speed(candidate, relay.ending)
        self._end()

    def _note_answered(self, candidate: Candidate) -> None:
        """What its answer shows of an engine (RT-10, RT-20)."""
        catalogue, route = self._plane.scheduling.catalogue, self._wanted.route
        catalogue.note_route_answers(candidate.node, candidate.engine, route)
        if self._wanted.intent == "unload":
            catalogue.note_unloaded(candidate)
        elif candidate.loaded is False and route.role == "inference":
            catalogue.note_loaded(candidate, self._plane.monotonic())

    def _learn_speed(self, candidate: Candidate, ending: Ending | None) -> None:
        """The engine told at the end of its answer how fast it was (RT-61)."""
        if ending is not None:
            tokens, seconds = ending.usage.output_tokens, ending.output_seconds
            self._plane.scheduling.speeds.learn(candidate.node, candidate.engine, candidate.model, tokens, seconds)

    def _tell_end(self, candidate: Candidate, outcome: Outcome, status: int | None = None, size: int = 0) -> None:
        number = len(self._past) + 1
        trail.attempt_ended(self._request, self._job.id, number, candidate, outcome, status, size)

    def _note_outcome(self, candidate: Candidate, good: bool) -> None:
        """Tell our engines how an inference answer ended (EN-30); a member's are told by its ingress."""
        route = self._request.route
        if candidate.local and route is not None and route.role == "inference":
            self._plane.engines.note_outcome(candidate.engine, good)

    def _next(self) -> None:
        """Try the first candidate of a new plan, or wait for the next round, or give up."""
        tried = self._rounds.excluded
        plan = self._plane.scheduling.plan(replace(self._wanted, tried=tried) if tried else self._wanted)
        if plan.answer is not None and not self._past:
            self._answer_gate(plan)
            return
        now = self._plane.monotonic()
        candidate = self._rounds.next([each.candidate for each in plan.ranked], now)
        if candidate is not None:
            self._try(candidate, plan)
            return
        wait = self._rounds.pause(now, 2 * self._plane.random() - 1)
        if wait is None:
            self._give_up()
        else:
            self._plane.scheduling.release(self._job.id)
            self._pausing = self._plane.clock.callLater(wait, self._pause_ended)

    def _try(self, candidate: Candidate, plan: Plan) -> None:
        """Dispatch to ``candidate``: the engine first, then the books, for it can work while these are kept."""
        attempt = self._attempt = Attempt(self._plane, self, self._request, self._job.id, candidate, self._terms)
        begun = attempt.begin(None if self._body is None else self._body.data)
        if not self._past:
            self._plane.meters.dispatched(self._request)
        self._why = why(plan, 1, self._past)
        self._job.attempt_began(candidate.node, candidate.engine, plan.policy, self._why)
        if self._terms.reserves:
            self._sent = self._plane.scheduling.take(self._job.id, candidate)
        self.engine = candidate.engine if candidate.local else None
        number, model = len(self._past) + 1, self._wanted.model
        trail.attempt_began(self._request, self._job.id, number, candidate, model, self._streaming)
        if not begun:
            self.attempt_failed(attempt, GONE, _UNREACHABLE)

    def _pause_ended(self) -> None:
        self._pausing = None
        self._next()

    def _learn(self, candidate: Candidate, answer: EngineRefusal) -> None:
        """An engine's refusal may say that what we know of it is out of date (RT-10)."""
        node, engine = candidate.node, candidate.engine
        if answer.verdict == "stale_model":
            if self._terms.reserves:
                self._plane.scheduling.note_stale(node, engine, self._wanted)
            if candidate.local:
                self._plane.engines.note_missing(engine, self._wanted.model)
        elif answer.verdict == "route_missing":
            self._plane.scheduling.note_route_missing(node, engine, self._wanted.route)
        elif answer.head.status == LOOP:
            self._plane.errors.raise_entry(f"proxy:loop:{node}", engine=engine)

    def _answer_gate(self, plan: Plan) -> None:
        if self._wanted.intent == "unload" and plan.answer == "model_not_loaded":
            now = datetime.fromtimestamp(self._plane.clock.seconds(), UTC).isoformat().replace("+00:00", "Z")
            self._request.respond_unloaded(now, self._wanted.model, self._streaming)
            self._job.completed(200, 0, Usage())
            self._end()
        else:
            self._refuse(self._gate(plan))

    def _gate(self, plan: Plan) -> Refusal:
        """The reason why no engine may serve, with the step that helps."""
        assert plan.answer is not None, "only a plan with an answer comes to the gate"
        model = self._wanted.model
        self._plane.meters.no_owner(self._request, plan.answer)
        if plan.answer == "route_unsupported":
            return route_unsupported(model, plan.instead)
        if plan.answer == "model_unknown" and self._wanted.route.role == "owner":
            return model_not_found(model)
        stopped = [each.engine for each in plan.rejected if each.excluded_by == "engine_stopped"]
        return no_owner(
            plan.answer,
            model,
            offline=len({each.node for each in plan.rejected}),
            engine=stopped[0] if stopped else "",
            excluded_by={each.excluded_by for each in plan.rejected},
        )

    def _give_up(self) -> None:
        """No further candidate: the last answer is the final one (PX-46)."""
        if isinstance(self._answer, EngineRefusal):
            self._pass_on(self._answer)
        else:
            self._refuse(self._answer)

    def _pass_on(self, answer: EngineRefusal) -> None:
        head = answer.head
        extra: list[tuple[bytes, bytes]] = [*self._request.cors, *self._explanation("")]
        if head.content_length is None:
            extra.append((b"Content-Length", b"%d" % len(answer.body)))
        if head.status in (429, 503) and head.value(b"retry-after") is None:
            extra.append((b"Retry-After", b"1"))
        exchange = self._request.exchange
        self._request.status = head.status
        exchange.begin(
            head.status,
            head.reason,
            response_fields(head.fields, chunked=False, extra=tuple(extra)),
            Framing.PASSED,
            answer.body,
        )
        exchange.finish()
        self._job.failed("engine_status", head.status, len(answer.body))
        self._end()

    def _refuse(self, why: Refusal) -> None:
        self._request.refuse(why)
        self._job.failed(why.code, why.status)
        self._end()

    def _explanation(self, node: str) -> Fields:
        """The fields that say which node served, and why (PX-83)."""
        if not self._request.explained(self._plane.settings.explain):
            return ()
        fields = [(b"X-Pair-Attempts", b"%d" % (len(self._past) + bool(node))), (b"X-Pair-Why", self._why.encode())]
        return [(b"X-Pair-Node", node.encode("ascii")), *fields] if node else fields

    def _client_gone(self) -> None:
        self._break_off()
        self._job.cancelled("client_gone")
        self._end()

    def _break_off(self) -> None:
        attempt, self._attempt = self._attempt, None  # They refer to each other.
        if attempt is not None:
            attempt.abandon()
            self._tell_end(attempt.candidate, "cancelled")
        if self._sent is not None:
            self._plane.scheduling.holds.given_up(self._sent)
        if self._pausing is not None:
            self._pausing.cancel()

    def _end(self) -> None:
        del self._plane.underway[self]
        self._plane.scheduling.finished(self._job.id)
        self._job.close()
        self._free_body()
        self._ended(self._request)

    def _free_body(self) -> None:
        body, self._body = self._body, None
        if body is not None:
            body.free()

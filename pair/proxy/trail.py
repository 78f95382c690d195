"""What the log is told of single requests, at debug: each request, each attempt and each failover (PX-101, PX-102).

These fields and no others: no query, no field's value, nothing of a body. The
path is that of the table, or ``(other)``. A line that is not written costs a
call and a comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pair.logs import Logger
from pair.privacy import clean_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from pair.proxy.request import ClientRequest
    from pair.records.jobs import Outcome
    from pair.routing.candidates import Candidate

log = Logger()


def attempt_began(
    request: ClientRequest, job: str, number: int, candidate: Candidate, model: str, streaming: bool
) -> None:
    """Attempt ``number`` (from 1) is dispatched; any but the first is a failover."""
    if log.debugging:
        log.debug(
            "Request {request} goes to {engine}." if number == 1 else "Request {request} moves on to {engine}.",
            request=request.id,
            job=job,
            facade=request.facade,
            route=_route(request),
            node=candidate.node,
            engine=candidate.engine,
            kind=candidate.kind,
            model=clean_text(model),
            stream=streaming,
            attempt=number,
        )


def attempt_ended(
    request: ClientRequest,
    job: str,
    number: int,
    candidate: Candidate,
    outcome: Outcome,
    status: int | None = None,
    size: int = 0,
) -> None:
    """It ended so, with ``size`` bytes of an answer passed on."""
    if log.debugging:
        log.debug(
            "Request {request} ended at {engine}: {outcome}, status {status}, {response_bytes} bytes.",
            request=request.id,
            job=job,
            node=candidate.node,
            engine=candidate.engine,
            attempt=number,
            outcome=outcome,
            status=status,
            response_bytes=size,
        )


def sent_directly(request: ClientRequest, node: str, engine: str) -> None:
    """A request that no job is made of goes to this node's engine, in its one attempt."""
    if log.debugging:
        log.debug(
            "Request {request} goes to {engine}.",
            request=request.id,
            facade=request.facade,
            route=_route(request),
            node=node,
            engine=engine,
            attempt=1,
        )


def request_ended(request: ClientRequest, now: Callable[[], float]) -> None:
    """A request has its answer, or its client left; ``now`` is the clock of ``began_at``."""
    if log.debugging:
        log.debug(
            "Request {request} ended after {took_ms} ms: {method} {route} on {facade}, status {status}, {outcome}.",
            request=request.id,
            facade=request.facade,
            method=request.method,
            route=_route(request),
            status=request.status,
            outcome=request.code or ("client_gone" if request.status is None else "answered"),
            request_bytes=request.content_length,
            took_ms=round((now() - request.began_at) * 1000),
        )


def _route(request: ClientRequest) -> str:
    return "(other)" if request.route is None else request.route.path

"""What holds after each event, whatever happens (RT-70)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pair.routing.names import key
from pair.test.simulation.machine import ENGINE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pair.routing.candidates import Candidate, Request
    from pair.test.simulation.machine import Machine
    from pair.test.simulation.origin import Origin
    from pair.test.simulation.requests import Attempt


class Violation(AssertionError):  # noqa: N818 - it is what it says
    """Something is so that may never be so."""


def require(holds: bool, *what: object) -> None:
    """It is so, or it is a :exc:`Violation`."""
    if not holds:
        raise Violation(*what)


def check(origins: Iterable[Origin], attempts: Iterable[Attempt]) -> None:
    """After each event.

    Args:
        origins: all nodes with clients.
        attempts: those that were begun and have not been closed.
    """
    places: dict[str, str] = {}
    for attempt in attempts:
        if attempt.ask.job in places:
            raise Violation("a job is active at two nodes", attempt.ask.job)
        places[attempt.ask.job] = attempt.candidate.node
    reserved = 0
    for origin in origins:
        reserved += len(origin.book)
        for job in origin.errands:
            held = origin.book.held(job)
            if (None if held is None else held.node) != places.get(job):
                raise Violation("a reservation is not where its job is", job, held, places.get(job))
    require(reserved == len(places), "reservations are as many as open dispatches", reserved, len(places))
    for origin in origins:
        _check_loads(origin, places)


def _check_loads(origin: Origin, places: Mapping[str, str]) -> None:
    """A load is exact (RT-43): own jobs count where they are, and those of others where the snapshot has them."""
    snapshot = origin.book.snapshot
    jobs = {each.node: each.pending for each in snapshot.ranks}
    for node in snapshot.counted.values():
        jobs[node] -= 1
    for job in origin.errands:
        if job in places:
            jobs[places[job]] += 1
    for node, number in jobs.items():
        # Less than nothing is a ValueError of its own.
        load = origin.book.load(node)
        if load.pending + load.reservations != number:
            raise Violation("a load is not what it should be", origin.id, node, load, number)


def check_choice(origin: Origin, wanted: Request, candidate: Candidate) -> None:
    """Before each dispatch: by what this node knows, that one may serve (RT-15)."""
    facts = origin.facts[candidate.node]
    engine = next(each for each in facts.inventory.engines if each.status.id == candidate.engine)
    name = key("ollama", wanted.model)
    listed = {key("ollama", each.id) for each in engine.models}
    stale = origin.holds.breaker.is_stale(candidate.node, ENGINE, name, engine.revision, origin.events.now)
    require(facts.online, "a job goes to a node that is gone", candidate)
    require(engine.status.routable and name in listed, "a job goes where its model is not", candidate)
    require(not stale, "a job goes where its model was denied", candidate)
    require(
        (candidate.node, candidate.engine) not in wanted.tried, "a job goes twice to a node in one round", candidate
    )


def check_end(origins: Iterable[Origin], machines: Iterable[Machine]) -> None:
    """When all is over: nothing is left anywhere."""
    machines = tuple(machines)
    for machine in machines:
        require(not machine.callers, "a machine has work", machine.spec.id)
    for origin in origins:
        require(not origin.errands and not len(origin.book), "a request is under way", origin.id)
        require(not origin.holds.breaker.any_refused, "a busy answer is remembered", origin.id)
        require(not origin.book.snapshot.counted, "a job is counted", origin.id)
        for machine in machines:
            load = origin.book.load(machine.spec.id)
            require(load.pending == load.reservations == 0, "a load is left", origin.id, machine.spec.id, load)

"""What is swapped: the zope interfaces between the parts.

Each is written from the side of the one who calls. Who provides what is joined
in :mod:`pair.parts`; others' kinds and policies come as plugins in
:mod:`pair.plugins`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zope.interface import Attribute, Interface

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from twisted.internet.defer import Deferred

    from pair.engines.facts import (
        Answer,
        Answers,
        Details,
        EnginePorts,
        EngineTiming,
        Found,
        HostFacts,
        Identity,
        Launch,
        LaunchOptions,
        Listing,
        ProbeRequest,
    )
    from pair.events import Signal
    from pair.privacy import Secret
    from pair.records.engines import EngineAddress, Model, NodeInventory
    from pair.records.errors import ServiceError, Subject
    from pair.records.jobs import Job, Outcome, Usage
    from pair.records.telemetry import Reading
    from pair.routing.candidates import Candidate, Request
    from pair.routing.dialects import Dialect
    from pair.routing.policies import Ranked, View


class IEngineKind(Interface):
    """One kind of engine: data and pure functions only (engines page, Kinds).

    Nothing of it does I/O. A test walks every kind through the same contract.
    """

    name: str = Attribute("Lower-case id, ``[a-z][a-z0-9-]{0,31}``.")
    facade: str = Attribute("Home facade: ``ollama`` or ``lmstudio``.")
    dialect: Dialect = Attribute("Routes, naming, eligibility, stale patterns (RT-8, RT-10).")
    control: str = Attribute("``process`` (we spawn it), ``command`` (its own CLI does) or ``none`` (adopt only).")
    ports: EnginePorts = Attribute("Standard, base and probe ports.")
    timing: EngineTiming = Attribute("Limits for ready, health and grace, in seconds.")
    requests: Mapping[str, ProbeRequest] = Attribute(
        "What is asked of a running engine, by purpose: ``identity…``, ``health``, ``list…``, ``loaded…``."
    )

    def locate(facts: HostFacts) -> Sequence[Found]:
        """The programs of this kind on this host, best first (EN-6)."""

    def configured(facts: HostFacts) -> Sequence[int]:
        """The ports on which engines of this kind listen by their own files on this host (EN-9)."""

    def identify(answers: Answers) -> Identity | None:
        """Who answered the ``identity`` requests; by JSON shape, never by status alone. None: not this kind."""

    def launch(found: Found, port: int, options: LaunchOptions) -> Launch:
        """What starts the engine on 127.0.0.1 at ``port``. ``control`` other than ``process``: ValueError."""

    def models(engine: str, answers: Answers) -> Listing | None:
        """The models in the answers to ``list…`` and ``loaded…``; None where they cannot be told (EN-79)."""

    def describe(model: Model) -> ProbeRequest | None:
        """The question that tells more of a model than its list entry does (EN-78); None: there is none."""

    def details(answer: Answer) -> Details:
        """What the answer to that question tells."""

    def slots(answers: Answers) -> int | None:
        """How many requests it serves at once, in the ``identity`` answers (EN-34); None where it does not say."""


class IRoutingPolicy(Interface):
    """Puts candidates in order (routing page, section 8). Pure."""

    name: str = Attribute("Lower-case, unique.")

    def rank(request: Request, candidates: Sequence[Candidate], view: View) -> Sequence[Ranked]:
        """Best first: a permutation of ``candidates``, each with its score and the terms of it."""


class ILocalEngines(Interface):
    """What the data path asks of this node's engines."""

    changed: Signal[NodeInventory] = Attribute("Emits the inventory when it differs from the last one.")

    def inventory() -> NodeInventory:
        """All engines of this node with their models, at this instant."""

    def dialect(engine: str) -> Dialect:
        """The dialect of one engine. Unknown id: KeyError."""

    def address(engine: str) -> EngineAddress | None:
        """Where it answers now; None while it does not run."""

    def credential(engine: str) -> Secret | None:
        """What is sent to it as a bearer token, on the last hop only (EN-5)."""

    def alive(engine: str) -> bool:
        """Whether it is worth waiting for (EN-32)."""

    def note_missing(engine: str, model: str) -> None:
        """The engine said that it lacks this model: hide it, read its list again within 1 s (EN-80)."""

    def note_outcome(engine: str, good: bool) -> None:
        """How an inference answer of it ended (EN-30)."""

    def note_bytes(engines: Sequence[str]) -> None:
        """Bytes came from these engines since the last call (EN-29)."""

    def refresh(engine: str) -> Deferred[None]:
        """Read its lists again now; fires when done, also when that failed."""


class IJob(Interface):
    """One inference request, as the data path tells of it. No call raises, blocks or does I/O (JB-1).

    What does not fit the state of the job changes nothing, and is logged (JB-40).
    """

    id: str = Attribute("``<run>.<n>``, unique on this node (JB-31).")

    def attempt_began(node: str, engine: str, policy: str, why: str) -> None:
        """An attempt was dispatched, and the one before has ended; ``why`` it goes there is ``policy``'s (RT-66)."""

    def attempt_ended(outcome: Outcome, status: int | None = None, error: str | None = None) -> None:
        """The attempt did not win."""

    def committed(status: int) -> None:
        """The first body byte was handed to the client's transport."""

    def completed(status: int, response_bytes: int, usage: Usage, unterminated: bool = False) -> None:
        """The whole answer was handed on; one with any other status than a 2xx is a failure (JB-43, JB-44)."""

    def failed(code: str, status: int | None = None, response_bytes: int = 0) -> None:
        """It ended in an error; ``code`` is one of JB-37, its text is fixed."""

    def cancelled(code: str, response_bytes: int = 0) -> None:
        """The client left (``client_gone``), an operator (``cancelled``) or the stop (``stopping``) ended it."""

    def close() -> None:
        """The handler has ended: a job without a terminal state fails as ``internal`` (JB-42)."""


class IJobLedger(Interface):
    """Where the data path tells of its jobs (JB-1)."""

    changed: Signal[Job] = Attribute("Emits what became of a job, of several changes in a short while the last.")

    def admit(
        facade: str,
        dialect: str,
        operation: str,
        route: str,
        stream: bool,
        model: str | None,
        request_bytes: int,
    ) -> IJob:
        """A request was admitted: a job in state ``queued``."""


class IErrorBook(Interface):
    """Conditions that hold now (JB-70). No call raises, blocks or does I/O."""

    changed: Signal[ServiceError] = Attribute("Emits each entry as it is raised or changed.")
    removed: Signal[str] = Attribute("Emits the id of each entry that left.")

    def raise_entry(id: str, *, subject: Subject | None = None, **values: Any) -> None:
        """The condition ``id`` holds; ``values`` fill the text template of its declaration."""

    def clear(id: str) -> None:
        """It holds no more. An id that is not there: nothing."""


class ITelemetrySource(Interface):
    """Where figures of this machine come from. It may block: only the sampler's thread calls it (DS-84)."""

    name: str = Attribute("What it is called in the log, lower-case.")
    period: float = Attribute("Seconds from one reading to the next, at least; 0: each tick has one.")

    def read() -> Reading:
        """What it shows now; nothing where there is nothing of its kind.

        Whatever it raises is a failure of this source alone: its last values
        stay, and it is asked again after a while (DS-85).
        """

    def close() -> None:
        """Let go of what it holds. A later ``read`` takes it up again."""

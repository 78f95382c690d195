"""Tests of the life cycle of jobs: every event in every stage, and what a record holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import ILogObserver, LogLevel, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from pair.interfaces import IJob, IJobLedger
from pair.jobs import ledger as ledger_module
from pair.jobs.codes import job_error
from pair.jobs.ledger import BATCH, KEPT_MS, KEPT_TERMINALS, JobLedger, OpenJob
from pair.logs.levels import LEVELS, RANKS
from pair.records.jobs import TERMINAL, Attempt, Job, Usage
from pair.test.jobs.ended import ended

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.logger import LogEvent

    Event = Callable[[OpenJob], None]

NODE = "3f0c9a52-0000-4000-8000-000000000001"
OTHER = "77aa0000-0000-4000-8000-000000000002"
RUN = "a1b2c3d4e5f60718"
NOW = 1_764_460_800_000

EVENTS: dict[str, Event] = {
    "attempt_began": lambda job: job.attempt_began(NODE, "ollama", "pressure", "rank=1/1"),
    "attempt_ended": lambda job: job.attempt_ended("status", 503, "busy"),
    "committed": lambda job: job.committed(200),
    "completed": lambda job: job.completed(200, 10, Usage(1, 2)),
    "failed": lambda job: job.failed("stream_lost", 200, 5),
    "cancelled": lambda job: job.cancelled("client_gone", 5),
}
"""What may happen to a job."""

STAGES: dict[str, tuple[str, ...]] = {
    "waiting": (),
    "waiting again": ("attempt_began", "attempt_ended"),
    "trying": ("attempt_began",),
    "running": ("attempt_began", "committed"),
    "completed": ("attempt_began", "committed", "completed"),
    "failed": ("attempt_began", "committed", "failed"),
    "cancelled": ("attempt_began", "committed", "cancelled"),
}
"""Where a job can stand, and what leads there."""

ENDS = {"completed": "completed", "failed": "failed", "cancelled": "cancelled"}

TABLE: dict[str, dict[str, str]] = {
    "waiting": {"attempt_began": "queued", **ENDS},
    "waiting again": {"attempt_began": "queued", **ENDS},
    "trying": {"attempt_ended": "queued", "committed": "running", **ENDS},
    "running": ENDS,
    "completed": {},
    "failed": {},
    "cancelled": {},
}
"""The state to which each event leads from each stage; what is not in it is refused (JB-40)."""


@implementer(ILogObserver)
class Lines:
    """What the ledger logs."""

    def __init__(self) -> None:
        self.events: list[LogEvent] = []

    def __call__(self, event: LogEvent) -> None:
        if event["log_namespace"] == ledger_module.__name__:
            self.events.append(event)


class LedgerTestCase(SynchronousTestCase):
    """A ledger, all that it emitted, and what it logged while a test ran."""

    def setUp(self) -> None:
        self.time = NOW
        self.ledger = JobLedger(NODE, RUN, lambda: self.time)
        self.seen: list[Job] = []
        self.ledger.stirred.subscribe(lambda _: self.ledger.tell())
        self.ledger.changed.subscribe(self.seen.append)
        lines = Lines()
        self.logged = lines.events
        globalLogPublisher.addObserver(lines)
        self.addCleanup(globalLogPublisher.removeObserver, lines)

    def errors(self) -> list[LogEvent]:
        return [event for event in self.logged if event["log_level"] is LogLevel.error]

    def admit(self, model: str | None = "llama3.1:8b", route: str = "/api/chat") -> OpenJob:
        return self.ledger.admit("ollama", "ollama", "chat", route, True, model, 812)

    def at(self, stage: str) -> OpenJob:
        job = self.admit()
        for event in STAGES[stage]:
            EVENTS[event](job)
        return job


class LifeCycleTests(LedgerTestCase):
    """JB-40 to JB-44."""

    def test_interfaces(self) -> None:
        """The ledger and its jobs are what the data path asks for (JB-1)."""
        verifyObject(IJobLedger, self.ledger)
        verifyObject(IJob, self.admit())

    def test_every_event_in_every_stage(self) -> None:
        """An event leads where the table says, or is refused, logged as an error, and changes nothing (JB-40)."""
        for stage in STAGES:
            for event, happens in EVENTS.items():
                with self.subTest(stage=stage, event=event):
                    job = self.at(stage)
                    before = job.record
                    self.seen.clear()
                    self.logged.clear()
                    happens(job)
                    if event in TABLE[stage]:
                        self.assertEqual((job.record.state, job.record.seq), (TABLE[stage][event], before.seq + 1))
                        self.assertEqual((self.seen, self.errors()), ([job.record], []))
                    else:
                        self.assertIs(job.record, before)
                        self.assertEqual((self.seen, len(self.errors())), ([], 1))

    @given(st.lists(st.sampled_from([*EVENTS, "close"]), max_size=20))
    def test_any_sequence(self, events: list[str]) -> None:
        """Whatever happens: ``seq`` rises by one with each change, one terminal at most, nothing after it (JB-41)."""
        self.seen.clear()
        job = self.admit()
        for event in events:
            EVENTS.get(event, OpenJob.close)(job)
        job.close()
        self.assertEqual([each.seq for each in self.seen], list(range(1, len(self.seen) + 1)))
        self.assertEqual([each.state in TERMINAL for each in self.seen], [False] * (len(self.seen) - 1) + [True])
        self.assertIs(self.seen[-1], job.record)
        self.assertEqual((self.ledger.active(), self.ledger.ended()[-1]), ((), job.record))
        for each in self.seen:
            began = sum(attempt.outcome == "active" for attempt in each.attempts)
            self.assertEqual(began, int(each.placed_on is not None and not each.terminal))

    def test_admitted(self) -> None:
        """A job is there, queued, before its first attempt (JB-31, JB-45)."""
        first, second = self.admit(), self.admit(model=None)
        self.assertEqual((first.id, second.id), (f"{RUN}.1", f"{RUN}.2"))
        self.assertEqual(
            first.record,
            Job(
                id=f"{RUN}.1",
                origin=NODE,
                seq=1,
                state="queued",
                facade="ollama",
                dialect="ollama",
                operation="chat",
                route="/api/chat",
                stream=True,
                model="llama3.1:8b",
                created_at=NOW,
                request_bytes=812,
            ),
        )
        self.assertIsNone(second.record.model)
        self.assertEqual(self.seen, [first.record, second.record])

    def test_an_engine_that_streams(self) -> None:
        """The first byte makes it running, the end completes it, with what the engine counted (JB-33, JB-35)."""
        job = self.admit()
        self.time += 1
        job.attempt_began(OTHER, "ollama", "pressure", "rank=1/2")
        placed = job.record
        self.time += 10
        job.committed(200)
        self.time += 100
        job.completed(200, 2210, Usage(3, 4), unterminated=True)
        self.assertEqual((placed.state, placed.placed_on, placed.engine), ("queued", OTHER, "ollama"))
        self.assertEqual((placed.policy, placed.why, placed.started_at), ("pressure", "rank=1/2", None))
        record = job.record
        self.assertEqual((record.started_at, record.completed_at), (NOW + 11, NOW + 111))
        self.assertEqual((record.status, record.response_bytes, record.error), (200, 2210, None))
        self.assertEqual((record.usage, record.unterminated), (Usage(3, 4), True))
        self.assertEqual((record.placed_on, record.engine), (OTHER, "ollama"))
        self.assertEqual(
            record.attempts, (Attempt(1, OTHER, "ollama", NOW + 1, NOW + 11, NOW + 111, "won", 200, None),)
        )

    def test_an_empty_answer(self) -> None:
        """A complete 2xx without a body goes from queued to completed."""
        job = self.at("trying")
        job.completed(204, 0, Usage())
        self.assertEqual((job.record.state, job.record.started_at), ("completed", None))
        (attempt,) = job.record.attempts
        self.assertEqual((attempt.outcome, attempt.status, attempt.first_byte_at), ("won", 204, None))

    def test_only_a_2xx_completes(self) -> None:
        """An answer of 300 or above that was relayed is a failure of the engine's (JB-43, JB-44)."""
        for status in (300, 304, 404, 500):
            job = self.at("trying")
            job.completed(status, 7, Usage())
            self.assertEqual((job.record.state, job.record.error), ("failed", job_error("engine_status")))
            self.assertEqual((job.record.status, job.record.response_bytes), (status, 7))
            self.assertEqual((job.record.attempts[0].outcome, job.record.attempts[0].status), ("status", status))

    def test_no_owner(self) -> None:
        """A job that nobody can serve has failed at once, without an attempt (JB-45)."""
        job = self.admit()
        job.failed("owners_offline", 502)
        self.assertEqual((job.record.state, job.record.status), ("failed", 502))
        self.assertEqual((job.record.error, job.record.attempts), (job_error("owners_offline"), ()))

    def test_cut_short(self) -> None:
        """What ends a job ends its open attempt, which keeps the status that the engine gave (JB-36)."""
        cases: tuple[tuple[str, Event, tuple[str, int | None, str]], ...] = (
            ("running", lambda job: job.failed("stream_lost", 200), ("broken", 200, "stream_lost")),
            ("running", lambda job: job.failed("engine_error", 200), ("broken", 200, "engine_error")),
            ("running", lambda job: job.cancelled("client_gone"), ("cancelled", 200, "client_gone")),
            ("trying", lambda job: job.cancelled("stopping"), ("cancelled", None, "stopping")),
            ("trying", lambda job: job.failed("internal", 500), ("aborted", None, "internal")),
            ("trying", OpenJob.close, ("aborted", None, "internal")),
        )
        for stage, event, expected in cases:
            with self.subTest(stage=stage, expected=expected):
                job = self.at(stage)
                event(job)
                last = job.record.attempts[-1]
                self.assertEqual((last.outcome, last.status, last.error), expected)
                self.assertEqual(last.ended_at, job.record.completed_at)
                self.assertEqual(job.record.error, job_error(expected[2]))

    def test_cancelled_while_queued(self) -> None:
        """A client that leaves before the first attempt cancels too (JB-44)."""
        job = self.admit()
        job.cancelled("client_gone")
        self.assertEqual((job.record.state, job.record.status), ("cancelled", None))

    def test_handler_without_an_end(self) -> None:
        """A job whose handling ended is closed as failed, and that is an error of ours (JB-42)."""
        job = self.at("running")
        job.close()
        self.assertEqual((job.record.state, job.record.error), ("failed", job_error("internal")))
        self.assertEqual((job.record.status, len(self.errors())), (200, 1))

    def test_closed_after_its_end(self) -> None:
        """Closing a job that has ended is nothing."""
        job = self.at("completed")
        before = job.record
        job.close()
        self.assertIs(job.record, before)
        self.assertEqual(self.errors(), [])


class AttemptTests(LedgerTestCase):
    """JB-33, JB-36."""

    def test_failing_over(self) -> None:
        """Between two attempts a job has no place; each attempt keeps how it ended."""
        job = self.at("waiting again")
        self.assertEqual((job.record.placed_on, job.record.engine, job.record.status), (None, None, None))
        self.time += 3
        job.attempt_began(OTHER, "llamacpp", "pressure", "rank=2/2")
        self.assertEqual((job.record.placed_on, job.record.engine), (OTHER, "llamacpp"))
        first, second = job.record.attempts
        self.assertEqual((first.n, first.outcome, first.status, first.error), (1, "status", 503, "busy"))
        self.assertEqual((first.started_at, first.ended_at, first.first_byte_at), (NOW, NOW, None))
        self.assertEqual((second.n, second.outcome, second.started_at), (2, "active", NOW + 3))

    def test_last_eight(self) -> None:
        """Of many attempts the last eight are kept, and their true number."""
        job = self.admit()
        for _ in range(11):
            EVENTS["attempt_began"](job)
            job.attempt_ended("connect", None, "engine_unreachable")
        self.assertEqual(job.record.attempt_count, 11)
        self.assertEqual([attempt.n for attempt in job.record.attempts], list(range(4, 12)))
        self.assertEqual({attempt.outcome for attempt in job.record.attempts}, {"connect"})

    def test_late_failure(self) -> None:
        """An attempt that was given up and fails later changes nothing."""
        job = self.at("cancelled")
        before = job.record
        job.attempt_ended("broken", None, "engine_unreachable")
        self.assertIs(job.record, before)


class TableTests(LedgerTestCase):
    """JB-48: what the ledger holds."""

    def ids(self) -> list[int]:
        return [int(job.id.partition(".")[2]) for job in self.ledger.ended()]

    def end(self, number: int) -> None:
        for _ in range(number):
            EVENTS["completed"](self.admit())

    def test_found_by_id(self) -> None:
        """A job is found while it is under way and after its end; others are not."""
        job = self.at("running")
        self.assertIs(self.ledger.get(job.id), job.record)
        EVENTS["completed"](job)
        self.assertIs(self.ledger.get(job.id), job.record)
        self.assertIsNone(self.ledger.get(f"{RUN}.99"))

    def test_most_that_ended(self) -> None:
        """The 2,001st ended job sends the oldest away."""
        self.end(KEPT_TERMINALS + 1)
        self.assertEqual(self.ids(), list(range(2, KEPT_TERMINALS + 2)))

    def test_oldest_that_ended(self) -> None:
        """A job stays for 10 min after its end, whether or not others end."""
        self.end(1)
        self.time += KEPT_MS
        self.assertEqual(self.ids(), [1])
        self.time += 1
        self.assertIsNone(self.ledger.get(f"{RUN}.1"))
        self.assertEqual(self.ids(), [])

    def test_retired(self) -> None:
        """Each job that leaves the table is told once: by its age, by number, or when all are let go (JB-48)."""
        retired: list[Job] = []
        self.ledger.retired.subscribe(retired.append)
        self.end(2)
        self.time += KEPT_MS + 1
        self.ledger.retire()
        self.assertEqual([job.id for job in retired], [f"{RUN}.1", f"{RUN}.2"])
        self.end(KEPT_TERMINALS + 1)
        self.at("running")
        self.assertEqual((len(retired), len(self.ledger)), (3, KEPT_TERMINALS + 1))
        self.ledger.clear()
        self.assertEqual((len({job.id for job in retired}), len(self.ledger)), (KEPT_TERMINALS + 3, 1))

    def test_told_before_it_is_retired(self) -> None:
        """A job that leaves the table before it was told of is told of first, as it ended."""
        ledger = JobLedger(NODE, RUN, lambda: self.time)
        told: list[tuple[str, str]] = []
        ledger.changed.subscribe(lambda job: told.append((job.id, job.state)))
        ledger.retired.subscribe(lambda job: told.append((job.id, "retired")))
        job = ledger.admit("ollama", "ollama", "chat", "/api/chat", True, None, 1)
        job.cancelled("client_gone")
        self.assertEqual(told, [])
        ledger.clear()
        self.assertEqual(told, [(job.id, "cancelled"), (job.id, "retired")])
        ledger.tell()
        self.assertEqual(len(told), 2)

    def test_many_untold(self) -> None:
        """So many that have ended do not wait to be told of, whoever should do that."""
        ledger = JobLedger(NODE, RUN, lambda: self.time)
        told: list[Job] = []
        ledger.changed.subscribe(told.append)
        for number in range(BATCH + 1):
            self.assertEqual(len(told), BATCH if number == BATCH else 0)
            ledger.admit("ollama", "ollama", "chat", "/api/chat", True, None, number).cancelled("client_gone")
        self.assertEqual([job.request_bytes for job in told], list(range(BATCH)))
        self.assertEqual((len(ledger), sum(ledger.totals().values())), (BATCH + 1, BATCH + 1))

    def test_recalled(self) -> None:
        """What ended in an earlier process leaves first, and is no news."""
        changed: list[Job] = []
        self.ledger.changed.subscribe(changed.append)
        old = ended(7, self.time - KEPT_MS)
        self.ledger.recall([ended(6, self.time - KEPT_MS - 1), old])
        self.assertEqual((self.ledger.ended(), changed), ((old,), []))
        self.end(1)
        self.time += 1
        self.assertEqual([job.id for job in self.ledger.ended()], [f"{RUN}.1"])

    def test_active_are_never_dropped(self) -> None:
        """However many and however old: a job under way stays."""
        jobs = [self.at("running") for _ in range(KEPT_TERMINALS + 500)]
        self.time += 10 * KEPT_MS
        self.end(KEPT_TERMINALS + 1)
        self.assertEqual([each.id for each in self.ledger.active()], [job.id for job in jobs])

    def test_clock_set_back(self) -> None:
        """With the clock a year back the table still has its bound."""
        self.end(10)
        self.time -= 365 * 24 * 3600 * 1000
        self.end(KEPT_TERMINALS)
        self.assertEqual(self.ids(), list(range(11, KEPT_TERMINALS + 11)))

    def test_counts(self) -> None:
        """Jobs under way are counted by state, ended ones by the engine they were last tried at and how they ended."""
        self.assertEqual(self.ledger.counts(), {"queued": 0, "running": 0})
        for stage in STAGES:
            self.at(stage)
        EVENTS["failed"](self.at("waiting again"))
        EVENTS["failed"](self.admit())
        self.assertEqual(self.ledger.counts(), {"queued": 3, "running": 1})
        self.assertEqual(
            self.ledger.totals(),
            {
                ("ollama", "completed"): 1,
                ("ollama", "failed"): 2,
                ("ollama", "cancelled"): 1,
                ("none", "failed"): 1,
            },
        )


class RecordTests(LedgerTestCase):
    """JB-37 to JB-39: what may stand in a record."""

    def test_long_texts_are_cut(self) -> None:
        """Texts have bounds: a model 512 bytes, a reason 200 characters, others 64."""
        job = self.admit(model="m" * 600, route="/" + "r" * 99)
        job.attempt_began("n" * 99, "e" * 99, "p" * 99, "w" * 999)
        record = job.record
        self.assertEqual(record.model, "m" * 509 + "…")
        self.assertEqual(record.route, "/" + "r" * 62 + "…")
        self.assertEqual((record.placed_on, record.engine), ("n" * 63 + "…", "e" * 63 + "…"))
        self.assertEqual((record.policy, record.why), ("p" * 63 + "…", "w" * 199 + "…"))
        self.assertEqual((record.attempts[0].node, record.attempts[0].engine), (record.placed_on, record.engine))

    def test_what_fits_stays(self) -> None:
        """A text at its bound is whole."""
        job = self.admit(model="m" * 512, route="r" * 64)
        job.attempt_began(NODE, "e" * 64, "p" * 64, "w" * 200)
        record = job.record
        self.assertEqual((record.model, record.route), ("m" * 512, "r" * 64))
        self.assertEqual((record.engine, record.policy, record.why), ("e" * 64, "p" * 64, "w" * 200))

    @given(st.text(max_size=600))
    def test_any_model(self, model: str) -> None:
        """Any model's name becomes at most 512 bytes of UTF-8, and the record can be written and read."""
        record = self.admit(model=model + "é" * 300).record
        assert record.model is not None
        self.assertLessEqual(len(record.model.encode()), 512)
        self.assertEqual(msgspec.json.decode(msgspec.json.encode(record), type=Job), record)

    def test_hidden_characters_are_removed(self) -> None:
        """Controls and characters that turn the direction leave; ordinary letters of all scripts stay."""
        job = self.admit(model="llama\x00\n\x1b[31m\u202e\ud800 ラマ-é", route="/api/\r\nchat")
        job.attempt_began(NODE, "ollama\x7f", "press\u2066ure", "rank=1\n")
        record = job.record
        self.assertEqual((record.model, record.route), ("llama[31m ラマ-é", "/api/chat"))
        self.assertEqual((record.engine, record.policy, record.why), ("ollama", "pressure", "rank=1"))

    def test_words_of_others_are_no_codes(self) -> None:
        """What is none of our codes, the text of an engine for one, is recorded as ``internal`` (JB-38)."""
        job = self.at("trying")
        job.attempt_ended("status", 500, "CANARY: cannot load /home/anna/x.gguf")
        EVENTS["attempt_began"](job)
        job.failed("CANARY", 500)
        other = self.admit()
        other.cancelled("CANARY")
        self.assertEqual([attempt.error for attempt in job.record.attempts], ["internal", "internal"])
        self.assertEqual([job.record.error, other.record.error], [job_error("internal")] * 2)
        self.assertNotIn("CANARY", repr(self.seen) + repr(self.logged))

    def test_fixed_texts(self) -> None:
        """Each code that ends an admitted request has a text of its own, of at most 200 characters (JB-37, PX-84)."""
        answers = (
            "model_unknown model_not_loaded owners_offline engine_stopped owners_excluded no_engine no_local_engine"
            " engine_unreachable engine_redirect node_silent engine_silent stream_lost loop route_unsupported busy"
            " overloaded stopping cancelled internal"
        )
        for code in (*answers.split(), "engine_status", "engine_error", "client_gone"):
            error = job_error(code)
            self.assertEqual(error.code, code)
            self.assertTrue(0 < len(error.message) <= 200)


class LogTests(LedgerTestCase):
    """JB-84."""

    def level(self, level: LogLevel) -> None:
        self.patch(LEVELS.gate(ledger_module.__name__), "least", RANKS[level])

    def test_one_line_for_each_change(self) -> None:
        """Each transition is one debug line with the fields that tell what happened."""
        self.level(LogLevel.debug)
        job = self.at("waiting again")
        EVENTS["attempt_began"](job)
        EVENTS["committed"](job)
        EVENTS["completed"](job)
        self.assertEqual({event["log_level"] for event in self.logged}, {LogLevel.debug})
        self.assertEqual(
            [(event["state"], event["node"], event["engine"], event["outcome"]) for event in self.logged],
            [
                ("queued", None, None, None),
                ("queued", NODE, "ollama", "active"),
                ("queued", NODE, "ollama", "status"),
                ("queued", NODE, "ollama", "active"),
                ("running", NODE, "ollama", "active"),
                ("completed", NODE, "ollama", "won"),
            ],
        )
        common = {(event["job"], event["model"], event["route"], event["stream"]) for event in self.logged}
        self.assertEqual(common, {(job.id, "llama3.1:8b", "/api/chat", True)})

    def test_nothing_at_info(self) -> None:
        """At info a healthy busy node logs nothing of its jobs."""
        self.level(LogLevel.info)
        for _ in range(1000):
            EVENTS["completed"](self.at("running"))
        self.assertEqual(self.logged, [])

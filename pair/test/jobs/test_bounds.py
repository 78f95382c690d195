"""Tests of what is taken of a job of another node, and what is not."""

from __future__ import annotations

from typing import Any

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from pair.feeds.codec import StructCodec
from pair.jobs.bounds import ATTEMPTS, within_bounds
from pair.records.jobs import Attempt, Job, JobError, Usage
from pair.test.jobs.ended import NOW, OTHER, ended

CODEC = StructCodec(Job, "id", "origin", within_bounds)
LONG = "long \u202e\x1b[2J" * 5000


def told(**values: Any) -> bytes:
    """A job as its origin tells it."""
    return msgspec.json.encode({**msgspec.to_builtins(ended(1, origin=OTHER)), **values})


class BoundsTests(SynchronousTestCase):
    def read(self, data: bytes, id: str = ended(1).id) -> Job:
        return CODEC.decode(OTHER, id, data)

    def test_as_it_is(self) -> None:
        """What is as it should be stays so."""
        attempt = Attempt(1, OTHER, "ollama", NOW, NOW, NOW, "won", 200, "busy")
        job = ended(
            1,
            origin=OTHER,
            attempts=(attempt,),
            error=JobError("busy", "All owners were busy."),
            policy="pressure",
            why="rank=1/1",
            usage=Usage(3, 2**53 * 3),
        )
        self.assertEqual(self.read(CODEC.encode(job)), job)

    def test_texts(self) -> None:
        """Texts are cleaned and cut as our own are (JB-39), so that 50,000 jobs are some 100 MB at the most."""
        words = dict.fromkeys(("facade", "dialect", "operation", "route", "engine", "requester", "policy"), LONG)
        attempt = {"n": 1, "node": LONG, "engine": LONG, "startedAt": NOW, "error": LONG}
        error = {"code": LONG, "message": LONG}
        job = self.read(
            told(**words, model="模" * 5000, placedOn=LONG, why=LONG, attempts=[attempt] * 1000, error=error)
        )
        self.assertLess(len(CODEC.encode(job)), 5000)
        self.assertEqual((len(job.facade), len(job.attempts), len(job.why or "")), (64, ATTEMPTS, 200))
        self.assertTrue(job.facade.isprintable() and job.attempts[0].node.isprintable())
        self.assertLessEqual(len((job.model or "").encode()), 512)

    def test_no_end(self) -> None:
        """One that has ended and does not say when is none: no history could hold it."""
        self.assertRaises(ValueError, self.read, told(completedAt=None))

    def test_numbers(self) -> None:
        """A number that no disk takes, or an instant that no list could go on from, is none."""
        for name, value in (
            ("completedAt", 2**53),
            ("completedAt", -1),
            ("createdAt", 10**30),
            ("seq", 2**63),
            ("responseBytes", -1),
            ("status", 10**400),
            ("usage", {"promptTokens": 2**64}),
        ):
            self.assertRaises(ValueError, self.read, told(**{name: value}))

    def test_ids(self) -> None:
        """An id is the key, and cannot be mended."""
        for id in ("x" * 65, "a\u202eb.1"):
            self.assertRaises(ValueError, self.read, told(id=id), id)

"""Tests of what is taken of an error entry of another node, and what is not."""

from __future__ import annotations

from typing import Any

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from pair.errors.bounds import within_bounds
from pair.feeds.codec import StructCodec
from pair.records.errors import ServiceError, Subject

NODE = "77aa0000-0000-4000-8000-000000000002"
CODEC = StructCodec(ServiceError, "id", "node", within_bounds)
LONG = "long \u202e\x1b[2J" * 4000

ENTRY = ServiceError(
    id="engines:crashed:ollama",
    node=NODE,
    severity="error",
    message="It crashed.",
    action="retry",
    cleared="auto",
    first_at=1,
    at=2,
    count=3,
    seq=3,
    subject=Subject(engine="ollama", port=11434),
    ref="e-7f3a",
)


class BoundsTests(SynchronousTestCase):
    def read(self, id: str = ENTRY.id, **values: Any) -> ServiceError:
        told = {**msgspec.to_builtins(ENTRY), "id": id, **values}
        return CODEC.decode(NODE, id, msgspec.json.encode(told))

    def test_as_it_is(self) -> None:
        """What is as it should be stays so."""
        self.assertEqual(self.read(), ENTRY)

    def test_texts(self) -> None:
        """Texts are cleaned and cut."""
        entry = self.read(message=LONG, ref=LONG, subject={"model": LONG, "component": LONG})
        self.assertEqual((len(entry.message), len(entry.ref or ""), len(entry.subject.model or "")), (1000, 256, 256))
        self.assertTrue(entry.message.isprintable())

    def test_refused(self) -> None:
        """An id is the key, and cannot be mended; a number that is none in other programs is none here."""
        self.assertRaises(ValueError, self.read, "engines:crashed:a\u202eb")
        self.assertRaises(ValueError, self.read, at=2**53)
        self.assertRaises(ValueError, self.read, firstAt=-1)
        self.assertRaises(ValueError, self.read, subject={"port": -1})

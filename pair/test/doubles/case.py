"""Tests of a double on a clock of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from pair.test.doubles.contract import SAY
from pair.test.doubles.shelf import SMOLLM
from pair.test.doubles.wire import Asking, Got, Line, ask
from pair.test.engines.samples import sample

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from twisted.internet.interfaces import IStreamClientEndpoint

    from pair.test.doubles.serving import Double

START = 1_760_000_000.0
STEP = 0.05
PATIENCE = 60.0
"""Seconds of the clock that are waited for an answer."""

CHAT = {"model": SMOLLM.name, "messages": SAY}


class DoubleCase(SynchronousTestCase):
    """A double on a clock."""

    double: Double

    def setUp(self) -> None:
        self.clock = Clock()
        self.clock.rightNow = START

    def endpoint(self) -> IStreamClientEndpoint:
        return self.line

    def serve(self, double: Any) -> Any:
        """From now on this is the one that is asked."""
        self.double, self.line = double, Line(double)
        return double

    def settle(self, work: Coroutine[Deferred[Any], Any, None]) -> None:
        running = Deferred.fromCoroutine(work)
        self.pass_time(PATIENCE, running)
        self.successResultOf(running)

    def pass_time(self, seconds: float, until: Deferred[Any] | None = None) -> None:
        """Let time pass in small steps, until something has happened."""
        end = self.clock.seconds() + seconds
        while self.clock.seconds() < end and not (until is not None and until.called):
            self.clock.advance(STEP)

    def begin(self, method: str, path: str, body: object = b"", **fields: str) -> Asking:
        """Ask, and wait for nothing."""
        return self.successResultOf(ask(self.line, method, path, body, **fields))

    def ask(self, method: str, path: str, body: object = b"", **fields: str) -> Got:
        """Ask, and wait for the whole answer."""
        asking = self.begin(method, path, body, **fields)
        self.pass_time(PATIENCE, asking.over)
        return self.successResultOf(asking.over)

    def post(self, path: str, body: object) -> Got:
        return self.ask("POST", path, body)

    def assert_shape(self, got: object, expected: object, place: str = "$") -> None:
        """The same fields of the same types, at every depth; of a list its first, of ``model_info`` none."""
        if isinstance(expected, dict):
            assert isinstance(got, dict), place
            self.assertEqual(sorted(got), sorted(expected), place)
            for name in expected:
                if name != "model_info":
                    self.assert_shape(got[name], expected[name], f"{place}.{name}")
        elif isinstance(expected, list) and expected:
            assert isinstance(got, list), place
            self.assert_shape(got[0], expected[0], f"{place}[0]")
        elif expected is not None and got is not None:
            kinds = (int, float) if isinstance(expected, int | float) else type(expected)
            self.assertIsInstance(got, kinds, place)

    def assert_sample(self, got: Got | object, folder: str, name: str, status: int | None = None) -> None:
        """As the stored answer is: status, type, fields."""
        stored = sample(folder, name)
        body = msgspec.json.decode(stored.body)
        if isinstance(got, Got):
            self.assertEqual((got.status, got.fields["content-type"]), (stored.status, stored.fields["content-type"]))
            got = got.json
        self.assert_shape(got, body, name)

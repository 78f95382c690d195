"""The run state machine (engines page, Run state)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from pair.engines.lifecycle import Core, Lifecycle, machine

if TYPE_CHECKING:
    from pair.records.engines import EngineState

INPUTS = [name for name in vars(Lifecycle) if not name.startswith("_")]


class Notes:
    """Effects, as a list of what was asked for."""

    def __init__(self) -> None:
        self.states: list[EngineState] = []
        self.done: list[str] = []

    def entered(self, state: EngineState) -> None:
        self.states.append(state)

    def spawn(self) -> None:
        self.done.append("spawn")

    def kill(self) -> None:
        self.done.append("kill")

    def end(self) -> None:
        self.done.append("end")

    def recovered(self) -> None:
        self.done.append("recovered")


class LifecycleTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.notes = Notes()
        self.core = Core(self.clock, self.notes, ready_seconds=30.0)
        self.machine = machine(self.core)

    def go(self, *inputs: str) -> EngineState:
        for each in inputs:
            getattr(self.machine, each)()
        return self.core.state

    def test_table(self) -> None:
        """Each row of the table, by the inputs that lead there."""
        rows: list[tuple[str, EngineState]] = [
            ("", "absent"),
            ("found", "stopped"),
            ("found lost", "absent"),
            ("identified", "running"),
            ("foreign", "occupied"),
            ("found foreign silent", "stopped"),
            ("foreign identified", "running"),
            ("identified silent", "stopped"),
            ("identified foreign", "occupied"),
            ("identified stop", "detached"),
            ("identified stop start", "running"),
            ("start", "absent"),
            ("found start", "starting"),
            ("found start ready", "running"),
            ("found start exited", "backoff"),
            ("found start stop", "stopping"),
            ("found start stop exited", "stopping"),
            ("found start stop closed", "stopped"),
            ("found start ready exited", "backoff"),
            ("found start ready stop closed", "stopped"),
            ("found start ready stop lingering", "failed"),
            ("found start ready stop lingering silent", "stopped"),
            ("found start ready stop lingering identified", "running"),
            ("found start ready exited stop", "stopped"),
            ("found start ready exited start", "starting"),
            ("found start ready exited identified", "running"),
            ("taken_back", "running"),
            ("found taken_back exited", "backoff"),
        ]
        for inputs, state in rows:
            self.setUp()
            self.assertEqual(self.go(*inputs.split()), state, inputs)

    def test_adopted_is_never_ended(self) -> None:
        """What others started is not signalled when it is switched off (EN-19)."""
        self.go("identified", "stop")
        self.assertEqual(self.notes.done, [])

    def test_start_of_what_runs(self) -> None:
        """A start of what is ours and runs changes nothing (EN-18)."""
        self.go("found", "start", "ready", "start")
        self.assertEqual((self.core.state, self.notes.done), ("running", ["spawn"]))

    def test_schedule(self) -> None:
        """A child that dies 1.1 s after ready: 1, 2, 4, 8, 16 s, then every 5 min (EN-26, OP-45)."""
        self.go("found", "start")
        waits: list[float] = []
        for _ in range(7):
            self.go("ready")
            self.clock.advance(1.1)
            self.go("exited")
            assert self.core.retry_at is not None
            waits.append(self.core.retry_at - self.clock.seconds())
            shown = self.core.state
            self.clock.advance(waits[-1])
            self.assertEqual(self.core.state, "starting")
        self.assertEqual([round(each, 3) for each in waits], [1, 2, 4, 8, 16, 300, 300])
        self.assertEqual(shown, "failed")

    def test_sixty_seconds_restore_the_budget(self) -> None:
        """Sixty seconds up end the streak."""
        self.go("found", "start", "exited")
        self.clock.advance(1)
        self.go("exited")
        self.clock.advance(2)
        self.go("ready")
        self.clock.advance(60)
        self.assertEqual(self.notes.done[-1], "recovered")
        self.go("exited")
        self.assertEqual(self.core.streak.failures, 1)

    def test_overdue(self) -> None:
        """A child that is not ready in time is killed, and its end counts as a failure (EN-25)."""
        self.go("found", "start")
        self.clock.advance(30)
        self.assertEqual((self.core.state, self.notes.done), ("starting", ["spawn", "kill"]))
        self.assertEqual(self.go("exited"), "backoff")

    def test_wedged(self) -> None:
        """A wedged child is ended, and started again by the schedule; the time it hung was no time up (EN-31)."""
        self.go("found", "start", "exited")
        self.clock.advance(1)
        self.go("ready")
        self.clock.advance(130)
        self.machine.wedged(self.clock.seconds() - 90)
        self.assertEqual((self.core.state, self.notes.done[-1]), ("stopping", "end"))
        self.assertEqual(self.go("closed"), "backoff")
        self.assertEqual(self.core.streak.failures, 2)
        self.clock.advance(2)
        self.assertEqual(self.core.state, "starting")

    def test_stop_of_a_wedged_child(self) -> None:
        """Switched off while a restart is under way, it stays off, and is ended once."""
        self.go("found", "start", "ready")
        self.machine.wedged(0.0)
        self.assertEqual(self.go("stop", "closed"), "stopped")
        self.assertEqual(self.notes.done.count("end"), 1)

    @given(st.lists(st.sampled_from(INPUTS), max_size=40))
    def test_any_order(self, inputs: list[str]) -> None:
        """No input is an error in any state, and a timer is left only where a state owns one."""
        self.setUp()
        for each in inputs:
            if each == "wedged":
                self.machine.wedged(self.clock.seconds())
            else:
                getattr(self.machine, each)()
        timers = len([call for call in self.clock.getDelayedCalls() if call.active()])
        owns = self.core.state in ("starting", "running", "backoff", "failed")
        self.assertLessEqual(timers, 1 if owns else 0)
        self.assertEqual(self.core.retry_at is not None, self.core.state in ("backoff", "failed") and timers == 1)

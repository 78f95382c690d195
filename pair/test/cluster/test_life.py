"""The life of an invitation (CL-31, CL-53, CL-55)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from pair.cluster.life import Core, Life, machine

if TYPE_CHECKING:
    from pair.protocols.pairing import EndState, Reason

INPUTS = [name for name in vars(Life) if not name.startswith("_")]


class Notes:
    """Effects, as a list; each end is told to the machine, as the exchange would."""

    def __init__(self) -> None:
        self.done: list[tuple[float, str]] = []
        self.clock = Clock()
        self.life = machine(Core(self.clock, self, 0.0))

    def ran_out(self, state: EndState, reason: Reason | None) -> None:
        self.done.append((self.clock.seconds(), f"{state} {reason}"))
        self.life.end()

    def forget(self) -> None:
        self.done.append((self.clock.seconds(), "forget"))


class LifeTests(SynchronousTestCase):
    def after(self, *inputs: str, at: float = 0.0) -> list[tuple[float, str]]:
        """What comes by itself after these inputs, the last of which is given at an instant."""
        notes = Notes()
        for name in inputs[:-1]:
            getattr(notes.life, name)()
        notes.clock.advance(at)
        getattr(notes.life, inputs[-1])()
        notes.clock.pump([0.0, *[1.0] * 8000])
        return notes.done

    def test_clocks(self) -> None:
        """Each state has its time, counted from the hello; a proof's from when it left."""
        self.assertEqual(self.after("hide"), [(10.0, "forget")])
        waited = [(300.0, "expired None"), (3900.0, "forget")]
        self.assertEqual(self.after("show"), waited)
        self.assertEqual(self.after("hide", "show", at=9.0), waited)
        unproven = [(360.0, "failed no_answer"), (3960.0, "forget")]
        self.assertEqual(self.after("show", "confirm", at=200.0), unproven)
        self.assertEqual(
            self.after("show", "confirm", "sent", at=200.0), [(230.0, "failed no_answer"), (3830.0, "forget")]
        )
        self.assertEqual(self.after("show", "confirm", "sent", "sent", at=20.0)[0], (50.0, "failed no_answer"))
        self.assertEqual(self.after("show", "confirm", "sent", at=290.0)[0], (320.0, "failed no_answer"))
        self.assertEqual(self.after("show", "confirm", "sent", at=350.0)[0], (360.0, "failed no_answer"))
        self.assertEqual(self.after("show", "store", "stored", at=30.0), unproven)

    def test_storing(self) -> None:
        """What is being stored has all the time; if that took too long, it ends right after."""
        self.assertEqual(self.after("show", "confirm", "store"), [])
        self.assertEqual(self.after("show", "store", "stored", at=500.0)[0], (500.0, "failed no_answer"))

    def test_first_wins(self) -> None:
        """Of a code, a person's end, and the clock, the first is taken, and the others are told that it is late."""
        for first in ("confirm", "withdraw"):
            notes = Notes()
            notes.life.show()
            self.assertTrue(getattr(notes.life, first)())
            self.assertFalse(notes.life.confirm())
            self.assertFalse(notes.life.withdraw())
        notes = Notes()
        notes.life.show()
        notes.clock.advance(300.0)
        self.assertFalse(notes.life.confirm())
        self.assertFalse(notes.life.withdraw())

    def test_unseen(self) -> None:
        """Nothing can be done to what nobody sees; its end changes nothing of when it is dropped."""
        self.assertEqual(self.after("hide", "confirm", "withdraw", "end"), [(10.0, "forget")])

    def test_dropped(self) -> None:
        """Whatever was dropped is never heard of again, and has no timer."""
        for inputs in ("hide", "show", "show confirm", "show confirm sent", "show store", "show end"):
            self.assertEqual(self.after(*inputs.split(), "drop"), [])

    @given(st.lists(st.sampled_from([*INPUTS, "wait"]), max_size=30))
    def test_any_order(self, inputs: list[str]) -> None:
        """In any order: one end at most, one winner at most before a store, and in the end no timer is left."""
        notes, won = Notes(), 0
        for name in inputs:
            if name == "wait":
                notes.clock.advance(7.0)
            else:
                won += getattr(notes.life, name)() is True
        notes.clock.pump([50.0] * 100)
        notes.life.drop()
        self.assertLessEqual(won, 1)
        self.assertLessEqual(len(notes.done), 2)
        self.assertEqual(notes.clock.getDelayedCalls(), [])

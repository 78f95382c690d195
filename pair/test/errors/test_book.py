"""Tests of the error book and its registry."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from pair.errors.book import AGE_MS, LIMIT, ErrorBook, NotDismissable
from pair.errors.conditions import CONDITIONS
from pair.errors.registry import Registry
from pair.interfaces import IErrorBook
from pair.records.errors import Condition

OWN = (
    Condition("engines:crashed:<engine>", "error", "retry", "auto", "{engine} crashed."),
    Condition("ports:moved:<surface>", "warning", "dismiss", "auto", "Moved."),
    Condition("engines:exposed:<engine>", "info", "none", "auto", "Exposed."),
    Condition("routing:policy:<name>", "warning", "dismiss", "dismiss", "Bad policy."),
    Condition("supervision:stall", "warning", "none", "age", "Stalled."),
)


class BookTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.time = 1_000_000
        self.book = ErrorBook("n1", Registry((*CONDITIONS, *OWN)), lambda: self.time)
        self.seen: list[tuple[str, int]] = []
        self.gone: list[str] = []
        self.book.changed.subscribe(lambda entry: self.seen.append((entry.id, entry.count)))
        self.book.removed.subscribe(self.gone.append)

    def ids(self) -> list[str]:
        return [entry.id for entry in self.book.entries()]

    def test_provides_the_interface(self) -> None:
        """The book is an IErrorBook."""
        verifyObject(IErrorBook, self.book)

    def test_a_repeat_counts_up_and_keeps_the_first_time(self) -> None:
        """Raising again updates ``at`` and ``count``; ``first_at`` stays (JB-72)."""
        self.book.raise_entry("engines:crashed:a", engine="a")
        self.time += 5
        self.book.raise_entry("engines:crashed:a", engine="a")
        (entry,) = self.book.entries()
        self.assertEqual((entry.first_at, entry.at, entry.count, entry.seq), (1_000_000, 1_000_005, 2, 2))
        self.assertEqual(entry.message, "a crashed.")

    def test_clear_removes_and_a_later_raise_starts_anew(self) -> None:
        """An entry is a condition that holds now: cleared is gone (JB-70, JB-75)."""
        self.book.raise_entry("engines:crashed:a", engine="a")
        self.book.clear("engines:crashed:a")
        self.book.clear("engines:crashed:a")
        self.assertEqual((self.ids(), self.gone), ([], ["engines:crashed:a"]))
        self.book.raise_entry("engines:crashed:a", engine="a")
        self.assertEqual(self.book.entries()[0].count, 1)

    def test_dismissing_hides_what_still_holds(self) -> None:
        """A dismissed ``auto`` entry stays hidden until it is raised after a clear (JB-74)."""
        self.book.raise_entry("engines:crashed:a", engine="a")
        self.book.dismiss("engines:crashed:a")
        self.book.raise_entry("engines:crashed:a", engine="a")
        self.assertEqual(self.ids(), [])
        self.book.clear("engines:crashed:a")
        self.book.raise_entry("engines:crashed:a", engine="a")
        self.assertEqual(self.ids(), ["engines:crashed:a"])

    def test_dismissing_ends_what_only_a_person_clears(self) -> None:
        """A ``dismiss`` entry ends with its dismissal; a second one is refused."""
        self.book.raise_entry("routing:policy:x")
        self.book.dismiss("routing:policy:x")
        self.assertEqual(self.ids(), [])
        self.assertRaises(NotDismissable, self.book.dismiss, "routing:policy:x")

    def test_events_age(self) -> None:
        """An ``age`` entry leaves 24 h after it was last raised (JB-74)."""
        self.book.raise_entry("supervision:stall")
        self.time += AGE_MS
        self.assertEqual(self.ids(), ["supervision:stall"])
        self.time += 1
        self.assertEqual(self.ids(), [])

    def test_order_is_severity_then_newest_then_id(self) -> None:
        """The view's order is total (JB-79)."""
        self.book.raise_entry("engines:exposed:a")
        self.book.raise_entry("ports:moved:b")
        self.time += 1
        self.book.raise_entry("ports:moved:a")
        self.book.raise_entry("engines:crashed:a", engine="a")
        self.assertEqual(self.ids(), ["engines:crashed:a", "ports:moved:a", "ports:moved:b", "engines:exposed:a"])

    def test_a_full_book_gives_way_to_worse(self) -> None:
        """At the limit the oldest ``info``, then ``warning``, leaves for something worse (JB-77)."""
        self.book.raise_entry("engines:exposed:old")
        for n in range(LIMIT - 1):
            self.time += 1
            self.book.raise_entry(f"ports:moved:{n:03}")
        self.book.raise_entry("engines:crashed:a", engine="a")
        self.assertEqual(self.gone, ["engines:exposed:old"])
        self.book.raise_entry("engines:crashed:b", engine="b")
        self.assertEqual(self.gone, ["engines:exposed:old", "ports:moved:000"])
        self.assertEqual(len(self.book.entries()), LIMIT)

    def test_a_book_full_of_errors_says_so_once(self) -> None:
        """A full book of ``error`` refuses and raises ``errors:overflow`` once (JB-77)."""
        for n in range(LIMIT + 5):
            self.book.raise_entry(f"engines:crashed:{n:03}", engine=n)
        self.assertEqual(len(self.book.entries()), LIMIT)
        self.assertEqual(self.ids().count("errors:overflow"), 1)

    def test_an_undeclared_id_is_shown_as_a_fault_of_ours(self) -> None:
        """Nobody's condition becomes ``internal:unregistered_error``, and nothing of its id is copied (JB-70)."""
        self.book.raise_entry("engines:no_such:thing")
        self.book.raise_entry("engines:crashed")
        self.assertEqual(self.ids(), ["internal:unregistered_error"])

    def test_texts_are_cleaned(self) -> None:
        """Names from outside lose control and bidirectional characters (OP-27)."""
        self.book.raise_entry("engines:crashed:a\x1b", engine="\u202ea\nb")
        (entry,) = self.book.entries()
        self.assertEqual((entry.id, entry.message), ("engines:crashed:a", "ab crashed."))


class RegistryTests(SynchronousTestCase):
    def test_two_declarations_of_one_id_are_refused(self) -> None:
        """Each id belongs to one area."""
        self.assertRaises(ValueError, Registry, (*OWN, OWN[0]))

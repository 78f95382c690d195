"""Tests of labels and rules (RT-23)."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from pair.routing.labels import automatic_labels, demands, node_labels, parse_labels
from pair.settings import Rule


class LabelTests(SynchronousTestCase):
    def test_form(self) -> None:
        """1 to 63 of a-z 0-9 . _ = -, the first a letter or a digit."""
        for label in ("a", "0", "gpu=large", "a.b_c-d=e", "a" * 63):
            self.assertEqual(parse_labels(label), {label})
        for label in ("A", "=a", "-a", "a b", "a" * 64, "ä", "a\n"):
            with self.assertRaises(ValueError, msg=label):
                parse_labels(label)

    def test_header(self) -> None:
        """A list by comma; a malformed one is a ValueError that does not repeat it."""
        self.assertEqual(parse_labels("gpu=large, fast ,,\tquiet"), {"gpu=large", "fast", "quiet"})
        self.assertEqual(parse_labels(""), frozenset())
        for text in ("gpu=LARGE", "a;b", "a, b c"):
            with self.assertRaises(ValueError) as raised:
                parse_labels(text)
            self.assertNotIn(text, str(raised.exception))


class AutomaticTests(SynchronousTestCase):
    def test_of_a_machine(self) -> None:
        """System, architecture, the largest GPU and its memory, the kinds of its engines."""
        self.assertEqual(
            automatic_labels(
                "linux", "x86_64", [("amd", 8 * 2**30), ("nvidia", 24564 * 2**20)], ["ollama", "llamacpp", "ollama"]
            ),
            ("os=linux", "arch=x86_64", "gpu=nvidia", "vram=24g", "engine=llamacpp", "engine=ollama"),
        )

    def test_without_a_gpu(self) -> None:
        """``gpu=none`` and no memory."""
        self.assertEqual(automatic_labels("darwin", "arm64"), ("os=darwin", "arch=arm64", "gpu=none"))

    def test_steps_of_memory(self) -> None:
        """The next lower step of what the card was sold as; under 8 GB none."""
        for mebibytes, wanted in [
            (6144, None),
            (8188, "vram=8g"),
            (12282, "vram=8g"),
            (16376, "vram=16g"),
            (24564, "vram=24g"),
            (32607, "vram=24g"),
            (49140, "vram=48g"),
            (81559, "vram=80g"),
        ]:
            labels = automatic_labels("linux", "x86_64", [("nvidia", mebibytes * 2**20)])
            self.assertEqual(next((each for each in labels if each.startswith("vram")), None), wanted)

    def test_hand_set_wins(self) -> None:
        """Of the same key the hand-set one alone stays, whatever its value."""
        automatic = ("os=linux", "gpu=nvidia", "engine=llamacpp", "engine=ollama")
        self.assertEqual(
            node_labels(("gpu=large", "battery", "engine=mine"), automatic),
            ("battery", "engine=mine", "gpu=large", "os=linux"),
        )


class RuleTests(SynchronousTestCase):
    rules = (
        Rule("*:70b*", ("gpu=large",), ("battery",)),
        Rule("llama?:*", ("fast",)),
        Rule("*[x]*", ("odd",)),
    )

    def demanded(self, *keys: str, header: frozenset[str] = frozenset()) -> tuple[set[str], set[str]]:
        require, forbid = demands(self.rules, keys, header)
        return set(require), set(forbid)

    def test_the_first_that_matches(self) -> None:
        """It alone applies, by the whole key."""
        self.assertEqual(self.demanded("llama3:70b-q4"), ({"gpu=large"}, {"battery"}))
        self.assertEqual(self.demanded("llama3:8b"), ({"fast"}, set()))
        self.assertEqual(self.demanded("llama33:8b"), (set(), set()))

    def test_only_star_and_question_mark(self) -> None:
        """A bracket in a pattern is a bracket."""
        self.assertEqual(self.demanded("a[x]b"), ({"odd"}, set()))
        self.assertEqual(self.demanded("axb"), (set(), set()))

    def test_either_naming(self) -> None:
        """A rule applies when it matches the key under one of the namings."""
        self.assertEqual(self.demanded("llama3:latest", "llama3"), ({"fast"}, set()))

    def test_the_header_adds(self) -> None:
        """To what the rule requires, or to nothing."""
        header = frozenset({"quiet"})
        self.assertEqual(self.demanded("m:70b", header=header), ({"gpu=large", "quiet"}, {"battery"}))
        self.assertEqual(self.demanded("m", header=header), ({"quiet"}, set()))

    def test_without_a_model(self) -> None:
        """Only a rule for all applies."""
        self.assertEqual(self.demanded(), (set(), set()))
        self.assertEqual(demands([Rule("*", ("fast",))], []), (frozenset({"fast"}), frozenset()))

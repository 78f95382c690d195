"""Tests of :mod:`pair.logs.render`: what a line may show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from twisted.logger import LogLevel
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from pair.logs.render import LINE_LIMIT, line
from pair.privacy import Secret

AT = 1_700_000_000.123


def event(format: str, namespace: str = "pair.x", level: str = "info", **fields: Any) -> dict[str, Any]:
    return {
        "log_format": format,
        "log_namespace": namespace,
        "log_level": LogLevel.lookupByName(level),
        "log_time": AT,
        "log_source": object(),
        **fields,
    }


def as_json(*args: Any, **fields: Any) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(line(event(*args, **fields)).as_json())
    return decoded


def failure(error: BaseException) -> Failure:
    try:
        raise error
    except type(error):
        return Failure()


class Record(Struct):
    prompt: str


class JSONTests(SynchronousTestCase):
    def test_fields(self) -> None:
        """A line has time, level, component, event and text, then the named fields, and no others (OP-27)."""
        self.assertEqual(
            list(as_json("Engine {engine} has {n} models.", engine="ollama", n=3).items()),
            [
                ("at", 1_700_000_000_123),
                ("level", "info"),
                ("component", "pair.x"),
                ("event", "Engine {engine} has {n} models."),
                ("text", "Engine ollama has 3 models."),
                ("engine", "ollama"),
                ("n", 3),
            ],
        )

    def test_one_line(self) -> None:
        """Whatever is in it, it is one line that ends in a newline."""
        data = line(event("{a}", a="x\ny\r\u2028z")).as_json()
        self.assertEqual((data.count(b"\n"), data[-1:]), (1, b"\n"))

    def test_own_names(self) -> None:
        """A field cannot take the place of one of ours."""
        shown = as_json("{text} {at}", text="mine", at=5, failure=7)
        self.assertEqual(
            (shown["text"], shown["text_"], shown["at_"], shown["at"]), ("mine 5", "mine", 5, 1_700_000_000_123)
        )

    def test_names_cleaned(self) -> None:
        """Newline, ESC and U+202E in a name are taken out, in the field and in the text (OP-27)."""
        shown = as_json("Node {name} came.", name="a\n\x1b[31m\u202eb")
        self.assertEqual((shown["name"], shown["text"]), ("a[31mb", "Node a[31mb came."))

    def test_long_name(self) -> None:
        """A name is cut at 256 characters, and marked (OP-27)."""
        shown = as_json("{name}", name="x" * 1000)
        self.assertEqual((len(shown["name"]), shown["name"][-1]), (256, "…"))

    def test_megabyte(self) -> None:
        """A message of a megabyte gives a line of at most 8 KiB that is still JSON (OP-27)."""
        for character in ("x", "ä", "\U0001f600", '"', "\\"):
            data = line(event(character * 1_000_000, namespace="stdout")).as_json()
            self.assertLessEqual(len(data), LINE_LIMIT)
            json.loads(data)

    def test_many_fields(self) -> None:
        """A line that is too long by its fields keeps its head, and is marked."""
        data = line(event("Much.", **{f"f{n}": "\U0001f600" * 256 for n in range(40)})).as_json()
        self.assertLessEqual(len(data), LINE_LIMIT)
        self.assertEqual(json.loads(data)["cut"], True)
        self.assertEqual(json.loads(data)["text"], "Much.")

    @given(st.dictionaries(st.text("abcdefg_", min_size=1), st.text() | st.floats() | st.binary() | st.none()))
    def test_any_field(self, fields: dict[str, Any]) -> None:
        """No value breaks a line."""
        for each in (line(event("Any.", **fields)).as_json(), line(event("Any.", **fields)).as_text()):
            self.assertLessEqual(len(each), LINE_LIMIT)
        json.loads(line(event("Any.", **fields)).as_json())


class PrivacyTests(SynchronousTestCase):
    """OP-34: what is never shown, in neither form."""

    def shown(self, *args: Any, **fields: Any) -> str:
        rendered = line(event(*args, **fields))
        return (rendered.as_json() + rendered.as_text()).decode()

    def test_exception(self) -> None:
        """An exception as a field shows its type and a fixed text, never its words."""
        shown = self.shown("It failed: {error}.", error=ValueError("MARK"), cause=Failure(KeyError("MARK")))
        self.assertNotIn("MARK", shown)
        self.assertIn("ValueError: it failed", shown)
        self.assertIn("KeyError", shown)

    def test_objects(self) -> None:
        """Records, bytes and other objects show only their type; secrets show stars."""
        shown = self.shown(
            "{record} {data} {secret} {nested}",
            record=Record("MARK"),
            data=b"MARK",
            secret=Secret("MARK"),
            nested=[Record("MARK"), {"a": "MARK"}],
            table={"a": Record("MARK"), "b": 1},
        )
        self.assertNotIn("MARK", shown)
        self.assertIn("<Record> <bytes> ***", shown)
        self.assertIn('"table":{"a":"<Record>","b":1}', shown)

    def test_reaching_into_a_value(self) -> None:
        """A format cannot reach into a value that is not shown."""
        shown = self.shown("{record.prompt}", record=Record("MARK"))
        self.assertNotIn("MARK", shown)
        self.assertIn("the fields do not fit", shown)

    def test_failure(self) -> None:
        """A failure shows its kind and where it came from, never the exception's words."""
        rendered = line(event("It broke.", level="critical", log_failure=failure(ValueError("MARK"))))
        self.assertNotIn(b"MARK", rendered.as_json() + rendered.as_text())
        told = json.loads(rendered.as_json())["failure"]
        self.assertEqual(told["text"], "ValueError: it failed")
        self.assertRegex(told["frames"][-1], r"test/logs/test_render\.py:\d+ failure\Z")
        self.assertIn(b"test_render.py", rendered.as_text())

    def test_failure_of_a_library(self) -> None:
        """Neither does one that a library logs in the old style, with the traceback as its text."""
        for more in ({"log_text": "Traceback MARK"}, {"log_text": "MARK", "why": "While closing"}):
            rendered = line(
                event("{log_text}", "log_legacy", "critical", log_failure=failure(OSError("MARK")), **more)
            )
            self.assertNotIn(b"MARK", rendered.as_json() + rendered.as_text())
            self.assertIn(str(more.get("why") or "Unhandled error"), rendered.text)

    def test_path_and_scalars(self) -> None:
        """What may be shown is: paths, numbers, truth values, lists of them."""
        shown = as_json("{path}", path=Path("/x"), yes=True, none=None, many=[1, 2.5, "a"], some={3})
        self.assertEqual(
            [shown[name] for name in ("path", "yes", "none", "many", "some")], ["/x", True, None, [1, 2.5, "a"], [3]]
        )


class TextTests(SynchronousTestCase):
    def test_text(self) -> None:
        """The text for a person has time, level, component and text (OP-27)."""
        text = line(event("Ready after {seconds:.1f} s.", level="warn", seconds=1.25)).as_text().decode()
        self.assertRegex(text, r"\A\d{4}-\d\d-\d\d \d\d:\d\d:\d\d warn  pair\.x: Ready after 1\.2 s\.\n\Z")

    def test_library(self) -> None:
        """The text of a library's event is made as the library means it."""
        self.assertEqual(line(event("{thing.real} is {call()}", "twisted.x", thing=3, call=lambda: 4)).text, "3 is 4")

    def test_wrong_format(self) -> None:
        """A format that does not fit its fields is told as it is."""
        for form in ("{missing}", "{0}", "{", "{n:%}"):
            self.assertEqual(line(event(form, n="x")).text, f"{form} (the fields do not fit)")

    def test_bare_event(self) -> None:
        """An event with nothing in it, which a library may send, is a line all the same."""
        rendered = line({})
        self.assertEqual((rendered.level, rendered.component, rendered.text), ("info", "-", ""))

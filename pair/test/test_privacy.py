"""Tests of what may be shown."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import ssl
import unicodedata
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet import defer, error
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.client import ResponseFailed, ResponseNeverReceived

from pair.privacy import Secret, clean_text, normalize_error, path_text
from pair.proxy.listeners import PortDenied, PortTaken

MARK = "CANARY-7f3a"


class SecretTests(SynchronousTestCase):
    """OP-34: a secret has no text of its own."""

    def test_never_shows(self) -> None:
        """No way to make text of it gives its value."""
        secret = Secret(MARK)
        shown = (str(secret), repr(secret), f"{secret}", "%s %r" % (secret, secret), f"{[secret]} {(secret,)}")  # noqa: UP031
        self.assertEqual(shown, ("***", "***", "***", "*** ***", "[***] (***,)"))

    def test_is_not_encoded(self) -> None:
        """An encoder refuses it, and its complaint does not show the value."""
        for encode in (json.dumps, msgspec.json.encode):
            complaint = self.assertRaises(TypeError, encode, {"token": Secret(MARK)})
            self.assertNotIn(MARK, str(complaint))
        complaint = self.assertRaises(TypeError, format, Secret(MARK), ">20")
        self.assertNotIn(MARK, str(complaint))

    def test_revealed(self) -> None:
        """Who sends it asks for it by name."""
        self.assertEqual(Secret(MARK).reveal(), MARK)

    def test_equality(self) -> None:
        """Two are equal, and one key of a table, when their values are; a text is never equal to one."""
        self.assertEqual(Secret("a"), Secret("a"))
        self.assertEqual(len({Secret("a"), Secret("a"), Secret("b")}), 2)
        self.assertNotEqual(Secret("a"), Secret("b"))
        self.assertNotEqual(Secret("a"), "a")


class CleanTextTests(SynchronousTestCase):
    """UI-92, OP-27: names of others may be shown."""

    def test_ordinary_text_stays(self) -> None:
        """Letters, marks, digits, signs, spaces and emoji of all scripts are kept as they are."""
        for text in (
            "",
            "llama3.1:8b-instruct_q4",
            "Zoë’s Straße – №5",
            "e\u0301\u0302",
            "مرحبا بالعالم",
            "שלום",
            "日本語のモデル",
            "हिन्दी",
            "می\u200cخواهم",
            "👩\u200d👩\u200d👧\ufe0f 🇩🇪",
            "a\u00a0b\u3000c",
        ):
            self.assertEqual(clean_text(text), text)

    def test_hidden_characters_leave(self) -> None:
        """Controls, line ends, direction marks and overrides, invisible signs and lone surrogates are removed."""
        hidden = (
            "\x00\t\n\r\x1b\x7f\x85\x9f"
            "\u2028\u2029"
            "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
            "\u00ad\u200b\u2060\ufeff\U000e0041"
            "\ud800\udfff"
        )
        for each in hidden:
            with self.subTest(character=f"U+{ord(each):04X}"):
                self.assertEqual(clean_text(f"a{each}b"), "ab")
        self.assertEqual(clean_text(f"\u202e{hidden}gpj.exe{hidden}"), "gpj.exe")

    def test_cut(self) -> None:
        """A text beyond its limit ends in an ellipsis, which counts."""
        self.assertEqual(clean_text("abcd", 4), "abcd")
        self.assertEqual(clean_text("abcde", 4), "abc…")
        self.assertEqual(clean_text("ab", 1), "…")
        self.assertEqual(len(clean_text("x" * 1000)), 256)

    def test_removed_before_it_is_cut(self) -> None:
        """Hidden characters do not count."""
        self.assertEqual(clean_text("\na\nb\nc\nd\n", 4), "abcd")
        self.assertEqual(clean_text("\na\nb\nc\nd\ne", 4), "abc…")

    @given(st.text(st.characters(codec=None), max_size=40), st.integers(1, 30))
    def test_any_text(self, text: str, limit: int) -> None:
        """The result is within its limit, can be encoded, and is left alone by a second cleaning."""
        cleaned = clean_text(text, limit)
        self.assertLessEqual(len(cleaned), limit)
        cleaned.encode()
        self.assertNotIn("Cc", {unicodedata.category(each) for each in cleaned})
        self.assertEqual(clean_text(cleaned, limit), cleaned)


class PathTextTests(SynchronousTestCase):
    """Paths may have any bytes."""

    def test_not_utf8(self) -> None:
        """What is not UTF-8 is marked, and all else stays."""
        self.assertEqual(path_text(Path(os.fsdecode("/tmp/ä".encode() + b"\xff"))), "/tmp/ä\ufffd")


class NormalizeErrorTests(SynchronousTestCase):
    """OP-34: the type of an error and our words for its kind."""

    def test_kinds(self) -> None:
        """Errors of Twisted, of the standard library and of our parsers get the text of their kind."""
        for expected, *errors in (
            ("it took too long", error.TimeoutError(), error.TCPTimedOutError(), TimeoutError(), defer.TimeoutError()),
            ("the connection was refused", error.ConnectionRefusedError(), ConnectionRefusedError()),
            ("the connection could not be made", error.ConnectError(), error.NoRouteError(), error.ConnectBindError()),
            ("the connection was closed", error.ConnectionDone(), error.ConnectionClosed()),
            ("the connection broke", error.ConnectionLost(), BrokenPipeError()),
            ("the connection was broken off", error.ConnectionAborted(), ConnectionAbortedError()),
            ("the connection was reset", ConnectionResetError()),
            ("the name does not resolve", error.DNSLookupError(), error.UnknownHostError(), socket.gaierror()),
            ("the port could not be bound", error.CannotListenError(None, 80, OSError())),
            ("the TLS connection failed", error.SSLError(), ssl.SSLError()),
            ("the process ended", error.ProcessDone(0)),
            ("the process ended badly", error.ProcessTerminated(1)),
            ("no answer came", ResponseNeverReceived([])),
            ("the answer broke off", ResponseFailed([])),
            ("it was cancelled", defer.CancelledError()),
            ("access was denied", PermissionError()),
            ("the file does not exist", FileNotFoundError()),
            ("the operating system refused", OSError(), IsADirectoryError()),
            ("the database refused", sqlite3.OperationalError()),
            ("the text is nested too deeply", RecursionError()),
            ("the text could not be decoded", msgspec.ValidationError(), json.JSONDecodeError("", "", 0)),
            ("the text is not valid in its encoding", UnicodeDecodeError("utf-8", b"", 0, 1, "")),
            ("another program has the port", PortTaken(1234, "127.0.0.1")),
            ("the system does not let PAIR listen there", PortDenied(80, "127.0.0.1", 13)),
            ("it failed", ValueError(), KeyError("x"), Exception()),
        ):
            for each in errors:
                with self.subTest(error=type(each)):
                    self.assertEqual(normalize_error(each), f"{type(each).__name__}: {expected}")

    def test_nearest_kind(self) -> None:
        """An error that is of two kinds gets the text of the nearer one."""

        class SlowDiskError(TimeoutError, FileNotFoundError):
            pass

        self.assertEqual(normalize_error(SlowDiskError()), "SlowDiskError: it took too long")

    def test_own_words_are_left_out(self) -> None:
        """What an error says itself, and what it holds, is never shown."""
        errors = (
            ValueError(MARK),
            OSError(2, MARK, MARK),
            KeyError(MARK),
            error.ConnectError(None, MARK),
            UnicodeDecodeError("utf-8", MARK.encode(), 0, 1, MARK),
            json.JSONDecodeError(MARK, MARK, 0),
            sqlite3.OperationalError(MARK),
        )
        self.assertNotIn(MARK, " ".join(map(normalize_error, errors)))

    def test_one_bounded_line(self) -> None:
        """However long the name of a type is: at most 200 characters."""
        long = type("E" * 500, (Exception,), {})
        self.assertEqual(normalize_error(long()), "E" * 200)

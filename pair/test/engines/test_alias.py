"""Tests of reading ``OLLAMA_HOST``."""

from __future__ import annotations

import ipaddress
import random

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.engines.alias import LOOPBACK, Alias, chosen, parse

ROWS: tuple[tuple[str, Alias], ...] = (
    # The table of EN-53 …
    ("127.0.0.1:11500", Alias("local", ("127.0.0.1",), 11500)),
    ("localhost:11500", Alias("local", LOOPBACK, 11500)),
    (":11500", Alias("local", LOOPBACK, 11500)),
    ("0.0.0.0:11500", Alias("local", LOOPBACK, 11500)),
    ("[::]:11500", Alias("local", LOOPBACK, 11500)),
    ('"http://localhost:11500/"', Alias("local", LOOPBACK, 11500)),
    ("https://x", Alias("ignored")),
    ("192.168.1.9:11434", Alias("ignored")),
    ("[::1]:11500", Alias("local", ("::1",), 11500)),
    ("::1", Alias("standard")),
    ("localhost", Alias("standard")),
    ("", Alias("standard")),
    ("0.0.0.0", Alias("standard")),
    ("http://localhost", Alias("local", LOOPBACK, 80)),
    ("http://u@localhost", Alias("refused")),
    ("localhost:11500/x", Alias("refused")),
    # … and what its text says besides.
    ("  'localhost:11500'  ", Alias("local", LOOPBACK, 11500)),
    ("''localhost:11500''", Alias("ignored")),
    ("LOCALHOST:11500", Alias("local", LOOPBACK, 11500)),
    ("localhost:0", Alias("standard")),
    ("localhost:65536", Alias("standard")),
    ("localhost:x", Alias("standard")),
    ("localhost:", Alias("standard")),
    ("localhost:²", Alias("standard")),
    ("http://localhost:11434", Alias("standard")),
    ("localhost:11500?a", Alias("refused")),
    ("localhost:11500#a", Alias("refused")),
    ("ftp://localhost:1", Alias("refused")),
    ("[::1:11500", Alias("refused")),
    ("[::1]x", Alias("refused")),
    ("[::1]", Alias("standard")),
    ("http://[::1]", Alias("local", ("::1",), 80)),
    ("127.0.0.2:11500", Alias("local", ("127.0.0.2",), 11500)),
    ("[::ffff:127.0.0.1]:11500", Alias("local", ("127.0.0.1",), 11500)),
    ("[::1%lo]:11500", Alias("ignored")),
    ("ollama.com", Alias("ignored")),
    ("localhost.example:11500", Alias("ignored")),
    ("fe80::1", Alias("ignored")),
)


MARKS = ("http", "https", "://", "localhost", "127.0.0.1", "::1", "0.0.0.0", "[", "]", *":/?#@%.'\" 0159x\x00é")


class ParseTests(SynchronousTestCase):
    def test_table(self) -> None:
        """Each row of EN-53."""
        for value, expected in ROWS:
            self.assertEqual(parse(value), expected, value)

    @given(st.text())
    @example("http://")
    def test_any_text(self, value: str) -> None:
        """No value raises; a local target is a loopback address and a port (EN-53)."""
        self.check(value)

    def test_random_texts(self) -> None:
        """The same for 10,000 texts of the marks that mean something in an address."""
        draw = random.Random(53)
        for _ in range(10_000):
            self.check("".join(draw.choices(MARKS, k=draw.randrange(12))))

    def check(self, value: str) -> None:
        alias = parse(value)
        self.assertEqual(bool(alias.hosts), alias.verdict == "local", value)
        self.assertTrue(all(ipaddress.ip_address(each).is_loopback for each in alias.hosts), value)
        self.assertTrue(1 <= alias.port <= 65535, value)


class ChosenTests(SynchronousTestCase):
    """EN-54: the setting ``facade.ollama.alias``."""

    def test_setting(self) -> None:
        """The environment's, none, or one of its own; only a local target other than the standard port is one."""
        local = Alias("local", ("127.0.0.1",), 11500)
        for setting, environment, expected in [
            ("env", "127.0.0.1:11500", local),
            ("env", "", None),
            ("env", "192.168.1.9:11500", None),
            ("env", "https://127.0.0.1:11500", None),
            ("env", "127.0.0.1:11434", None),
            ("off", "127.0.0.1:11500", None),
            ("127.0.0.1:11500", "[::1]:11600", local),
            ("localhost:11434", "127.0.0.1:11500", None),
        ]:
            found = chosen(setting, {"OLLAMA_HOST": environment})
            self.assertEqual(found, expected, (setting, environment))
        self.assertIsNone(chosen("env", {}))

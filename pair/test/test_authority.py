"""Tests of :mod:`pair.authority`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.authority import Origin, OriginPattern, is_loopback, parse_authority, parse_origin, unwrap


class ParseAuthorityTests(SynchronousTestCase):
    """What counts as ``host[:port]``."""

    def test_forms(self) -> None:
        """Case, a final dot and brackets do not matter; the port may be missing or empty (PX-17)."""
        for text, expected in [
            ("localhost", ("localhost", None)),
            ("LocalHost.:11434", ("localhost", 11434)),
            ("127.0.0.1:0", ("127.0.0.1", 0)),
            ("localhost:", ("localhost", None)),
            ("[::1]", ("::1", None)),
            ("[0:0:0:0:0:0:0:1]:80", ("::1", 80)),
            ("box.example:65535", ("box.example", 65535)),
        ]:
            self.assertEqual(parse_authority(text), expected, text)

    def test_refused(self) -> None:
        """Whatever could be read in two ways is no authority."""
        for text in (
            "",
            ".",
            ":80",
            "localhost:80:80",
            "localhost:65536",
            "localhost:+1",
            "localhost:٣",
            "user@localhost",
            "localhost/",
            "local host",
            "localhost\t",
            "localhost,evil.example",
            "lo%63alhost",
            "::1",
            "[::1",
            "[::1]x",
            "[::1%lo]",
            "[localhost]",
            "[]",
        ):
            self.assertIsNone(parse_authority(text), text)

    @given(st.text(max_size=30))
    def test_any_text(self, text: str) -> None:
        """Any text is parsed or refused, never an exception."""
        parsed = parse_authority(text)
        if parsed is not None:
            host, port = parsed
            self.assertEqual(host, host.lower())
            self.assertTrue(port is None or 0 <= port <= 65535)
            is_loopback(host)


class LoopbackTests(SynchronousTestCase):
    """Which hosts are this machine."""

    def test_loopback(self) -> None:
        """``localhost``, all of 127.0.0.0/8 and ``::1``, mapped too (PX-17, AR-10)."""
        for host in ("localhost", "127.0.0.1", "127.255.1.2", "::1", "::ffff:127.0.0.1", "::FFFF:7f00:1"):
            self.assertTrue(is_loopback(host), host)

    def test_elsewhere(self) -> None:
        """Look-alikes are not (field case X02)."""
        for host in (
            "127.1",
            "127.0.0.1.evil.example",
            "0127.0.0.1",
            "0.0.0.0",
            "::",
            "::ffff:192.168.1.5",
            "x.localhost",
            "localhost.evil.example",
            "2130706433",
            "",
        ):
            self.assertFalse(is_loopback(host), host)


class UnwrapTests(SynchronousTestCase):
    """IPv4-mapped addresses."""

    def test_unwrap(self) -> None:
        """Only an IPv4-mapped literal changes (AR-10)."""
        self.assertEqual(unwrap("::ffff:10.0.0.7"), "10.0.0.7")
        for text in ("10.0.0.7", "::1", "fe80::1%eth0", "::ffff:", "localhost"):
            self.assertEqual(unwrap(text), text)


class OriginTests(SynchronousTestCase):
    """What an ``Origin`` field says."""

    def test_forms(self) -> None:
        """A port that is the scheme's own need not be written."""
        for text, expected in [
            ("http://localhost", Origin("http", "localhost", 80)),
            ("https://Box.Example", Origin("https", "box.example", 443)),
            ("http://[::1]:5173", Origin("http", "::1", 5173)),
            ("moz-extension://0f2a-11", Origin("moz-extension", "0f2a-11", 0)),
        ]:
            self.assertEqual(parse_origin(text), expected, text)

    def test_refused(self) -> None:
        """``null``, lists, paths and user information are no origins."""
        for text in ("null", "", "http://", "://x", "http://a http://b", "http://a/", "http://u@a", "9p://a", "a.b"):
            self.assertIsNone(parse_origin(text), text)


class OriginPatternTests(SynchronousTestCase):
    """The grammar of allowed origins (EN-73)."""

    def matches(self, pattern: str, origin: str) -> bool:
        parsed = parse_origin(origin)
        assert parsed is not None
        return OriginPattern.parse(pattern).matches(parsed)

    def test_matches(self) -> None:
        """Names, names below a name, any port, and extensions with any host."""
        for pattern, origin, expected in [
            ("https://app.example", "https://app.example", True),
            ("https://app.example", "https://app.example:443", True),
            ("https://app.example", "http://app.example", False),
            ("https://app.example", "https://app.example:8443", False),
            ("https://app.example:8443", "https://app.example:8443", True),
            ("https://app.example:*", "https://app.example:1", True),
            ("https://*.app.example", "https://a.b.app.example", True),
            ("https://*.app.example", "https://app.example", False),
            ("https://*.app.example", "https://evilapp.example", False),
            ("https://*.app.example:*", "https://x.app.example:9", True),
            ("chrome-extension://*", "chrome-extension://abcdef", True),
            ("chrome-extension://*", "moz-extension://abcdef", False),
            ("tauri://localhost", "tauri://localhost", True),
        ]:
            self.assertEqual(self.matches(pattern, origin), expected, (pattern, origin))

    def test_refused(self) -> None:
        """A bare ``*``, a bare host, any web host, user information, paths and inner wildcards."""
        for text in (
            "*",
            "app.example",
            "http://*",
            "https://*:*",
            "http://u@app.example",
            "http://app.example/",
            "http://a.*.example",
            "http://*app.example",
            "http://app.example:99999",
            "http://*.",
            "null",
            "",
        ):
            self.assertRaises(ValueError, OriginPattern.parse, text)

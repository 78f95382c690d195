"""Tests of :mod:`pair.proxy.browser`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from twisted.trial.unittest import SynchronousTestCase

from pair.proxy.browser import BrowserPolicy, cors_fields, preflight_fields

HOST = (b"Host", b"localhost:11434")


class FakeHead(Struct, frozen=True):
    """The part of a request head that the policy reads."""

    fields: tuple[tuple[bytes, bytes], ...]
    method: bytes = b"POST"
    target: bytes = b"/api/chat"
    minor: int = 1

    def values(self, name: bytes) -> list[bytes]:
        return [value for each, value in self.fields if each.lower() == name]


class HostTests(SynchronousTestCase):
    """Which Host a loopback request may have (PX-17)."""

    def code(self, *hosts: bytes, target: bytes = b"/", minor: int = 1, allowed: tuple[str, ...] = ()) -> str | None:
        head = FakeHead(tuple((b"Host", each) for each in hosts), b"GET", target, minor)
        refusal = BrowserPolicy(allowed).check(head)
        if refusal is not None:
            self.assertEqual(refusal.status, 421)
        return None if refusal is None else refusal.code

    def test_loopback(self) -> None:
        """Loopback names and literals pass, with any port, in any case, with a final dot (X02)."""
        for host in (b"localhost", b"LOCALHOST.:1", b"127.0.0.1:11434", b"127.9.9.9", b"[::1]:80", b"[::1]"):
            self.assertIsNone(self.code(host), host)

    def test_foreign(self) -> None:
        """Any other name is 421, whatever it resolves to (X02, H02)."""
        for host in (b"evil.example", b"localhost.evil.example", b"192.168.1.5", b"", b"localhost evil", b"\xff"):
            self.assertEqual(self.code(host), "bad_host", host)

    def test_doubled_or_missing(self) -> None:
        """Two Host fields are refused even when equal; none is refused but in HTTP/1.0."""
        self.assertEqual(self.code(b"localhost", b"localhost"), "bad_host")
        self.assertEqual(self.code(), "bad_host")
        self.assertIsNone(self.code(minor=0))

    def test_allowed_hosts(self) -> None:
        """An entry without a port is good for every port, one with a port for that one (H02)."""
        allowed = ("Box.example", "other.example:8443")
        self.assertIsNone(self.code(b"box.example:9", allowed=allowed))
        self.assertIsNone(self.code(b"other.example:8443", allowed=allowed))
        self.assertEqual(self.code(b"other.example", allowed=allowed), "bad_host")
        self.assertRaises(ValueError, BrowserPolicy, ["http://box.example"])

    def test_absolute_target(self) -> None:
        """An absolute-form target names the same authority as Host, and takes its place in HTTP/1.0."""
        self.assertIsNone(self.code(b"localhost:1", target=b"http://LOCALHOST:1/api/tags"))
        self.assertIsNone(self.code(b"localhost", target=b"http://localhost?x"))
        self.assertIsNone(self.code(target=b"http://localhost/", minor=0))
        for target in (
            b"http://evil.example/",
            b"http://localhost:2/",
            b"https://localhost:1/",
            b"http://u@localhost:1/",
            b"api/tags",
            b"",
        ):
            self.assertEqual(self.code(b"localhost:1", target=target), "bad_host", target)
        self.assertEqual(self.code(b"localhost", b"localhost", target=b"http://localhost/"), "bad_host")
        self.assertEqual(self.code(target=b"http://evil.example/", minor=0), "bad_host")


class OriginTests(SynchronousTestCase):
    """Which web pages are let in (PX-18, PX-19)."""

    def code(self, *fields: tuple[bytes, bytes], origins: tuple[str, ...] = ()) -> str | None:
        refusal = BrowserPolicy((), origins).check(FakeHead((HOST, *fields)))
        if refusal is not None:
            self.assertEqual(refusal.status, 403)
            self.assertIn("proxy.origins", refusal.text)
        return None if refusal is None else refusal.code

    def test_loopback_origins(self) -> None:
        """Pages that this machine serves itself pass, by either web scheme."""
        for origin in (b"http://localhost:3000", b"https://127.0.0.1", b"http://[::1]:1", b"http://127.5.5.5:1"):
            self.assertIsNone(self.code((b"Origin", origin)), origin)

    def test_foreign_origins(self) -> None:
        """Any other is 403, before anything is sent (X01)."""
        for origin in (
            b"https://evil.example",
            b"null",
            b"",
            b"http://localhost.evil.example",
            b"chrome-extension://localhost",
            b"http://localhost/",
            b"http://localhost http://evil.example",
        ):
            self.assertEqual(self.code((b"Origin", origin)), "bad_origin", origin)

    def test_doubled(self) -> None:
        """Two Origin fields are refused."""
        self.assertEqual(self.code((b"Origin", b"http://localhost"), (b"Origin", b"http://localhost")), "bad_origin")

    def test_listed(self) -> None:
        """Listed origins pass; ``null`` only by its own word; a bare ``*`` cannot be listed."""
        origins = ("https://*.app.example", "chrome-extension://*", "null")
        self.assertIsNone(self.code((b"Origin", b"https://a.app.example"), origins=origins))
        self.assertIsNone(self.code((b"Origin", b"chrome-extension://abc"), origins=origins))
        self.assertIsNone(self.code((b"Origin", b"null"), origins=origins))
        self.assertEqual(self.code((b"Origin", b"https://evil.example"), origins=origins), "bad_origin")
        self.assertRaises(ValueError, BrowserPolicy, (), ["*"])

    def test_without_origin(self) -> None:
        """No Origin is a program, or a browser that says who made it send (PX-18)."""
        site, mode = b"Sec-Fetch-Site", b"Sec-Fetch-Mode"
        self.assertIsNone(self.code())
        self.assertIsNone(self.code((site, b"same-origin"), (mode, b"cors")))
        self.assertIsNone(self.code((site, b"cross-site"), (mode, b"navigate")))
        self.assertEqual(self.code((site, b"cross-site"), (mode, b"no-cors")), "bad_origin")

    def test_host_comes_first(self) -> None:
        """A foreign Host is told before a foreign Origin (PX-13)."""
        head = FakeHead(((b"Host", b"evil.example"), (b"Origin", b"http://evil.example")))
        refusal = BrowserPolicy().check(head)
        self.assertEqual(refusal and refusal.code, "bad_host")

    @given(st.binary(max_size=40))
    def test_any_bytes(self, value: bytes) -> None:
        """No bytes in Host or Origin raise."""
        BrowserPolicy(("box.example",), ("https://*.app.example",)).check(FakeHead((HOST, (b"Origin", value))))
        BrowserPolicy().check(FakeHead(((b"Host", value),), target=value))


class CorsTests(SynchronousTestCase):
    """What a page that is let in may read (PX-20, PX-21)."""

    def test_fields(self) -> None:
        """The origin is echoed, never ``*``, and caches are told."""
        self.assertEqual(cors_fields(None), ())
        fields = dict(cors_fields(b"http://localhost:3000"))
        self.assertEqual(fields[b"Access-Control-Allow-Origin"], b"http://localhost:3000")
        self.assertEqual(fields[b"Vary"], b"Origin")
        self.assertNotIn(b"Access-Control-Allow-Credentials", fields)

    def preflight(self, *fields: tuple[bytes, bytes]) -> dict[bytes, bytes]:
        asked = ((b"Origin", b"http://localhost:3000"), (b"Access-Control-Request-Method", b"POST"), *fields)
        answer = preflight_fields(FakeHead((HOST, *asked), method=b"OPTIONS"))
        assert answer is not None
        return dict(answer)

    def test_preflight(self) -> None:
        """Methods are fixed, valid header names echoed, the private network granted when asked for."""
        plain = self.preflight()
        self.assertEqual(plain[b"Access-Control-Allow-Methods"], b"GET, HEAD, POST, DELETE")
        self.assertEqual(plain[b"Access-Control-Max-Age"], b"600")
        self.assertNotIn(b"Access-Control-Allow-Headers", plain)
        self.assertNotIn(b"Access-Control-Allow-Private-Network", plain)
        full = self.preflight(
            (b"Access-Control-Request-Headers", b"content-type, x bad,,authorization"),
            (b"Access-Control-Request-Private-Network", b"true"),
        )
        self.assertEqual(full[b"Access-Control-Allow-Headers"], b"content-type, authorization")
        self.assertEqual(full[b"Access-Control-Allow-Private-Network"], b"true")

    def test_no_preflight(self) -> None:
        """An OPTIONS without an origin or without a method asked for is an ordinary request."""
        origin, method = (b"Origin", b"http://localhost"), (b"Access-Control-Request-Method", b"POST")
        for verb, fields in [(b"OPTIONS", (origin,)), (b"OPTIONS", (method,)), (b"POST", (origin, method))]:
            self.assertIsNone(preflight_fields(FakeHead((HOST, *fields), method=verb)))

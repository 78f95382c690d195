"""Tests of pair.control.auth."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from pair.control.auth import ControlGuard
from pair.control.routes import ROUTES
from pair.surfaces.rules import Head

TOKEN = (b"authorization", b"Bearer right")
HOST = (b"host", b"127.0.0.1:14300")


def code(guard: ControlGuard, method: str, path: str, *fields: tuple[bytes, bytes]) -> str | None:
    refusal = guard.check(Head(method, path, fields))
    return None if refusal is None else refusal.code


class GuardTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.guard = ControlGuard(ROUTES, b"right".__eq__, allowed_origins=["https://pair.example"])

    def get(self, *fields: tuple[bytes, bytes], path: str = "/api/v1/service") -> str | None:
        return code(self.guard, "GET", path, TOKEN, *fields)

    def test_hosts_of_this_machine(self) -> None:
        """Loopback by any of its names and with any port, so that forwarded ports work (UI-4, X02)."""
        for host in (b"localhost", b"LOCALHOST:8080", b"127.0.0.1", b"127.0.0.1:1", b"[::1]", b"[::1]:14300"):
            self.assertIsNone(self.get((b"host", host)), host)

    def test_foreign_hosts(self) -> None:
        """Any other name is refused, missing and doubled ones too (UI-4, X02)."""
        for host in (
            b"evil.example",
            b"localhost.evil.example",
            b"192.168.1.2",
            b"",
            b"127.0.0.1:99999",
            b"a@localhost",
        ):
            self.assertEqual(self.get((b"host", host)), "bad_host", host)
        self.assertEqual(self.get(), "bad_host")
        self.assertEqual(self.get(HOST, HOST), "bad_host")

    def test_allowed_host(self) -> None:
        """The host of an allowed origin may be asked for, with any port (UI-4)."""
        self.assertIsNone(self.get((b"host", b"pair.example:8443")))

    def test_own_origin(self) -> None:
        """A page that we served may ask: its origin is the Host (UI-5)."""
        self.assertIsNone(self.get(HOST, (b"origin", b"http://127.0.0.1:14300")))
        self.assertIsNone(self.get((b"host", b"localhost"), (b"origin", b"http://localhost")))
        self.assertIsNone(self.get(HOST, (b"origin", b"https://pair.example")))

    def test_foreign_origins(self) -> None:
        """Any other is refused: another port, another scheme, another name of loopback, null (UI-5)."""
        for origin in (
            b"null",
            b"",
            b"http://evil.example",
            b"http://127.0.0.1:14301",
            b"http://localhost:14300",
            b"https://127.0.0.1:14300",
            b"https://pair.example:444",
            b"http://pair.example",
        ):
            self.assertEqual(self.get(HOST, (b"origin", origin)), "bad_origin", origin)
        own = (b"origin", b"http://127.0.0.1:14300")
        self.assertEqual(self.get(HOST, own, own), "bad_origin")

    def test_other_sites(self) -> None:
        """What a browser says to come from a page of elsewhere is refused on the API, without an Origin too (UI-6)."""
        for site, expected in (
            (b"cross-site", "bad_origin"),
            (b"same-site", "bad_origin"),
            (b"same-origin", None),
            (b"none", None),
        ):
            self.assertEqual(self.get(HOST, (b"sec-fetch-site", site)), expected, site)
        self.assertIsNone(self.get(HOST, (b"sec-fetch-site", b"cross-site"), path="/healthz"))

    def test_forwarded_is_nothing(self) -> None:
        """What a proxy says of the host or the client changes nothing (UI-8)."""
        forwarded = [(b"x-forwarded-host", b"localhost"), (b"forwarded", b"host=localhost;for=127.0.0.1")]
        self.assertEqual(self.get((b"host", b"evil.example"), *forwarded), "bad_host")

    def test_preflight(self) -> None:
        """A preflight is refused, with the token or without (UI-7)."""
        wanted = (b"access-control-request-method", b"POST")
        for path in ("/api/v1/service", "/healthz", "/nowhere"):
            self.assertEqual(code(self.guard, "OPTIONS", path, HOST, wanted), "forbidden", path)

    def test_token(self) -> None:
        """The token opens, its scheme in any case; nothing else does, and neither do two (UI-13)."""
        for fields, expected in (
            ([(b"authorization", b"bearer right")], None),
            ([], "unauthorized"),
            ([(b"authorization", b"Bearer wrong")], "unauthorized"),
            ([(b"authorization", b"Bearer ")], "unauthorized"),
            ([(b"authorization", b"Basic right")], "unauthorized"),
            ([(b"authorization", b"right")], "unauthorized"),
            ([(b"cookie", b"pair_login=right")], "unauthorized"),
            ([TOKEN, TOKEN], "unauthorized"),
        ):
            self.assertEqual(code(self.guard, "GET", "/api/v1/service", HOST, *fields), expected, fields)

    def test_public_paths(self) -> None:
        """Health and readiness need no token, and only as they are written; metrics neither by default (UI-14)."""
        for path in ("/healthz", "/readyz", "/metrics"):
            self.assertIsNone(code(self.guard, "GET", path, HOST))
            self.assertIsNone(code(self.guard, "HEAD", path, HOST))
            self.assertEqual(code(self.guard, "POST", path, HOST), "unauthorized")
            self.assertEqual(code(self.guard, "GET", f"{path}/", HOST), "unauthorized")
            self.assertEqual(code(self.guard, "GET", path, (b"host", b"evil.example")), "bad_host")

    def test_metrics_token(self) -> None:
        """With metrics.auth = "token" either token opens the metrics; theirs opens nothing else (OP-40)."""
        guard = ControlGuard(ROUTES, b"right".__eq__, b"metrics".__eq__)
        theirs = (b"authorization", b"Bearer metrics")
        self.assertEqual(code(guard, "GET", "/metrics", HOST), "unauthorized")
        self.assertIsNone(code(guard, "GET", "/metrics", HOST, theirs))
        self.assertIsNone(code(guard, "GET", "/metrics", HOST, TOKEN))
        self.assertEqual(code(guard, "GET", "/api/v1/service", HOST, theirs), "unauthorized")

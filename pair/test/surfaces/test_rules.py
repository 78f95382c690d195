"""Tests of pair.surfaces.rules."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.surfaces.rules import Head, check_body, path_of


class PathTests(SynchronousTestCase):
    def test_decoded_without_the_query(self) -> None:
        """The rules see the path that the routes see."""
        self.assertEqual(path_of(b"/%61pi/v1/jobs?state=running"), "/api/v1/jobs")

    def test_refused(self) -> None:
        """A target that the routes would see differently, or not at all, is none."""
        for target in (b"//healthz", b"/%2fhealthz", b"/%ff", b"*", b"http://127.0.0.1/healthz", b"", b"?x"):
            self.assertIsNone(path_of(target), target)

    @given(st.binary())
    def test_any_octets(self, target: bytes) -> None:
        """Whatever is asked for: a path that begins with one slash, or None."""
        path = path_of(target)
        self.assertTrue(path is None or (path.startswith("/") and not path.startswith("//")))


class BodyTests(SynchronousTestCase):
    def head(self, length: int | None, *types: bytes, encoding: bytes = b"") -> Head:
        fields = [(b"content-type", each) for each in types]
        return Head("POST", "/", (*fields, *([(b"content-encoding", encoding)] if encoding else [])), length)

    def test_json_in_utf8(self) -> None:
        """A body is JSON; that it is in UTF-8 may be said (UI-12)."""
        for kind in (b"application/json", b"Application/JSON; charset=UTF-8", b'application/json;charset="utf-8"'):
            self.assertIsNone(check_body(self.head(10, kind), 10), kind)

    def test_any_other_type(self) -> None:
        """Anything else is 415: what a page can send without asking, above all (UI-12)."""
        for kind in (b"text/plain", b"application/x-www-form-urlencoded", b"application/json; charset=latin-1", b""):
            refusal = check_body(self.head(10, kind), 10)
            self.assertEqual(refusal and refusal.status, 415, kind)

    def test_type_missing_doubled_or_compressed(self) -> None:
        """Without a type, with two, or compressed: 415 (UI-12)."""
        heads = [
            self.head(1),
            self.head(1, b"application/json", b"application/json"),
            self.head(None, b"application/json", encoding=b"gzip"),
        ]
        for head in heads:
            refusal = check_body(head, 10)
            self.assertEqual(refusal and refusal.status, 415)

    def test_too_long(self) -> None:
        """More than the limit is 413 by the announced length alone (UI-12)."""
        refusal = check_body(self.head(11, b"application/json"), 10)
        self.assertEqual(refusal and (refusal.status, refusal.code), (413, "too_large"))

    def test_no_body(self) -> None:
        """Without a body its type is no matter."""
        self.assertIsNone(check_body(self.head(0, b"text/plain"), 10))

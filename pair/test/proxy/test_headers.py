"""Tests of :mod:`pair.proxy.headers`."""

from __future__ import annotations

from typing import Literal

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.proxy.headers import Field, origin_form, request_head, response_fields

NAMES = st.sampled_from(
    b"Host host Content-Length content-length Transfer-Encoding TRANSFER-ENCODING Connection Trailer Upgrade TE "
    b"Expect X-Pair-Hop x-pair-probe Cookie Accept Authorization Keep-Alive Proxy-Connection".split()
)
VALUES = st.sampled_from([b"chunked", b"5", b"close", b"Content-Length, X-Pair-Hop, Host", b"gzip", b"", b"evil"])


def parse(head: bytes) -> tuple[bytes, list[Field]]:
    lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    fields = [tuple(line.split(b": ", 1)) for line in lines[1:]]
    return lines[0], [(name.lower(), value) for name, value in fields]


def sent(*fields: Field, credential: bytes | None = None) -> list[Field]:
    """The fields that an engine gets beside those that are always there."""
    head = request_head(
        b"POST", b"/api/chat", fields, authority=b"127.0.0.1:8081", length=7, hop=1, credential=credential
    )
    line, parsed = parse(head)
    assert line == b"POST /api/chat HTTP/1.1"
    assert head.endswith(b"\r\n\r\n")
    always = [(b"host", b"127.0.0.1:8081"), (b"content-length", b"7"), (b"x-pair-hop", b"1")]
    assert all(parsed.count(each) == 1 for each in always)
    return [each for each in parsed if each not in always]


class RequestHeadTests(SynchronousTestCase):
    """What an engine is sent."""

    def test_host_and_hop(self) -> None:
        """Host is the engine's own; the hop is ours alone (PX-79, PX-80, H01)."""
        fields = ((b"Host", b"localhost:11434"), (b"host", b"box.example"), (b"X-Pair-Hop", b"9"))
        self.assertEqual(sent(*fields), [])

    def test_removed(self) -> None:
        """Fields of the connection, of proxies, of pages and of PAIR end here (PX-20, PX-78)."""
        for name in (
            b"Connection Keep-Alive Proxy-Connection Proxy-Authorization TE Transfer-Encoding Upgrade Trailer Expect "
            b"X-Forwarded-For X-Forwarded-Host Forwarded X-Real-IP X-Pair-Explain X-Pair-Require Origin Referer "
            b"Cookie Sec-Fetch-Site Sec-Fetch-Mode Access-Control-Request-Method"
        ).split():
            for spelling in (name, name.lower(), name.upper()):
                self.assertEqual(sent((spelling, b"x")), [], spelling)

    def test_named_by_connection(self) -> None:
        """So do the fields that Connection names, in any case, over several fields."""
        fields = ((b"Connection", b"close, X-Trace"), (b"connection", b"x-other"), (b"x-trace", b"1"))
        self.assertEqual(sent(*fields, (b"X-Other", b"2"), (b"X-Kept", b"3")), [(b"x-kept", b"3")])

    def test_kept(self) -> None:
        """The rest passes as it is: order, doubles, Accept-Encoding (PX-82, H10)."""
        fields = [
            (b"accept-encoding", b"gzip, br"),
            (b"content-type", b"application/json"),
            (b"anthropic-beta", b"a"),
            (b"anthropic-beta", b"b"),
            (b"te-x", b"1"),
        ]
        self.assertEqual(sent(*fields), fields)
        self.assertEqual(sent(), [])

    def test_credentials(self) -> None:
        """The client's pass where none is stored, and are replaced where one is (PX-81, X04)."""
        own = ((b"authorization", b"Bearer client"), (b"x-api-key", b"client"))
        self.assertEqual(sent(*own), list(own))
        self.assertEqual(sent(*own, credential=b"stored"), [(b"authorization", b"Bearer stored")])

    @given(
        st.lists(st.tuples(NAMES, VALUES), max_size=12),
        st.sampled_from(["chunked", 0, 5, 30_000_000]),
    )
    @example([(b"Connection", b"Content-Length"), (b"Transfer-Encoding", b"chunked")], 5)
    def test_one_framing_field(self, fields: list[Field], length: int | Literal["chunked"]) -> None:
        """Whatever comes in, one framing field, one Host and one hop leave (PX-33, H07, H08)."""
        head = request_head(b"POST", b"/", fields, authority=b"e:1", length=length, hop=1)
        names = [name for name, _ in parse(head)[1]]
        self.assertEqual(sum(each in (b"content-length", b"transfer-encoding") for each in names), 1)
        self.assertEqual(names.count(b"host"), 1)
        self.assertEqual(names.count(b"x-pair-hop"), 1)

    def test_no_body(self) -> None:
        """Without a body there is nothing to frame."""
        head = request_head(b"GET", b"/", [(b"Content-Length", b"0")], authority=b"e:1", length=None, hop=1)
        self.assertEqual(head, b"GET / HTTP/1.1\r\nHost: e:1\r\nX-Pair-Hop: 1\r\n\r\n")

    @given(st.binary(max_size=12), st.binary(max_size=12), st.binary(max_size=12), st.binary(max_size=12))
    @example(b"/ HTTP/1.1\r\nX: y", b"A", b"b", b"c")
    @example(b"/", b"A", b"b\nX: y", b"c")
    @example(b"/", b"A", b"b", b"c\r\nX: y")
    def test_no_injection(self, target: bytes, name: bytes, value: bytes, credential: bytes) -> None:
        """A value that would end its line sends nothing."""
        try:
            head = request_head(
                b"GET", target, [(name, value)], authority=b"e:1", length=None, hop=1, credential=credential
            )
        except ValueError:
            return
        self.assertEqual(head.find(b"\r\n\r\n"), len(head) - 4)
        self.assertLessEqual(head.count(b"\n"), 6)
        self.assertEqual(head.count(b"\r"), head.count(b"\r\n"))


class OriginFormTests(SynchronousTestCase):
    """What is sent of a target."""

    def test_forms(self) -> None:
        """An absolute-form target loses its scheme and authority, and nothing else."""
        for target, expected in [
            (b"/api/tags?a=b", b"/api/tags?a=b"),
            (b"*", b"*"),
            (b"http://localhost:1/v1/models?x=/y", b"/v1/models?x=/y"),
            (b"http://localhost", b"/"),
            (b"http://localhost?x=/y", b"/?x=/y"),
        ]:
            self.assertEqual(origin_form(target), expected)


class ResponseFieldsTests(SynchronousTestCase):
    """What a client gets."""

    def test_removed(self) -> None:
        """The connection's fields, PAIR's and the engine's CORS end here (PX-20, PX-78)."""
        for name in (
            b"Connection Keep-Alive Proxy-Authenticate TE Transfer-Encoding Upgrade X-Pair-Fault X-Pair-Error "
            b"Access-Control-Allow-Origin Access-Control-Allow-Credentials access-control-expose-headers"
        ).split():
            self.assertEqual(response_fields([(name, b"x")], chunked=False), [], name)

    def test_kept(self) -> None:
        """The rest passes in its order and spelling, a Trailer too (PX-58, PX-82, H10)."""
        fields = [
            (b"content-encoding", b"gzip"),
            (b"Content-Length", b"5"),
            (b"Trailer", b"X-Sum"),
            (b"Set-Cookie", b"a"),
        ]
        self.assertEqual(response_fields(fields, chunked=False), fields)

    def test_framing(self) -> None:
        """A chunked body says so once and has no length; Connection cannot take the length away."""
        fields = [(b"Content-Length", b"5"), (b"Transfer-Encoding", b"chunked")]
        self.assertEqual(response_fields(fields, chunked=True), [(b"Transfer-Encoding", b"chunked")])
        named = [(b"Connection", b"content-length, x-a"), (b"Content-Length", b"5"), (b"X-A", b"1")]
        self.assertEqual(response_fields(named, chunked=False), [(b"Content-Length", b"5")])

    def test_no_content(self) -> None:
        """A 204 says nothing of a body, whatever the engine says (RFC 9110, section 8.6)."""
        fields = [(b"Content-Length", b"5"), (b"X-A", b"1")]
        self.assertEqual(response_fields(fields, chunked=False, status=204), [(b"X-A", b"1")])
        self.assertEqual(response_fields(fields, chunked=False, status=304), fields)

    def test_vary(self) -> None:
        """A Vary that is about more than the engine's own CORS stays."""
        for value, kept in [(b"Origin", False), (b"origin, Access-Control-Request-Method", False)]:
            self.assertEqual(bool(response_fields([(b"Vary", value)], chunked=False)), kept)
        for value in (b"Accept-Encoding", b"Origin, Accept-Encoding"):
            self.assertEqual(response_fields([(b"Vary", value)], chunked=False), [(b"Vary", value)])

    def test_extra(self) -> None:
        """Ours come last."""
        ours = ((b"Access-Control-Allow-Origin", b"http://localhost:1"), (b"Vary", b"Origin"))
        fields = [(b"Access-Control-Allow-Origin", b"*"), (b"Server", b"x")]
        self.assertEqual(response_fields(fields, chunked=False, extra=ours), [(b"Server", b"x"), *ours])

    def test_streams(self) -> None:
        """Streams are neither buffered nor cached on their way, but by the engine's own wish (PX-66)."""
        for content_type in (b"text/event-stream; charset=utf-8", b"Application/X-NDJSON"):
            fields = [(b"Content-Type", content_type)]
            added = [(b"X-Accel-Buffering", b"no"), (b"Cache-Control", b"no-cache")]
            self.assertEqual(response_fields(fields, chunked=False), fields + added)
        own = [(b"cache-control", b"private"), (b"Content-Type", b"text/event-stream"), (b"x-accel-buffering", b"yes")]
        self.assertEqual(response_fields(own, chunked=False), own)
        plain = [(b"Content-Type", b"application/json")]
        self.assertEqual(response_fields(plain, chunked=False), plain)

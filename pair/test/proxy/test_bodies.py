"""Tests of :mod:`pair.proxy.bodies`."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.proxy.bodies import Routed, is_name, read
from pair.proxy.replies import Refusal
from pair.routing.dialects import Route, match

JSON = b"application/json"


def route(path: str, facade: str = "ollama") -> Route:
    found = match(facade, "POST", path)
    assert found is not None
    return found


CHAT = route("/api/chat")
OPENAI = route("/v1/chat/completions")
SHOW = route("/api/show")


class ReadTests(SynchronousTestCase):
    """What is found in a body."""

    def model(self, body: bytes, where: Route = OPENAI) -> str | None:
        routed = read(where, JSON, body)
        assert isinstance(routed, Routed), routed
        return routed.model

    def code(self, body: bytes, content_type: bytes | None = JSON) -> str | None:
        routed = read(OPENAI, content_type, body)
        return routed.code if isinstance(routed, Refusal) else None

    def test_model(self) -> None:
        """Top level only, escapes in keys decoded, the last duplicate wins, no case folding (PX-34)."""
        self.assertEqual(self.model(b'{"model":"a","messages":[{"model":"b"}]}'), "a")
        self.assertEqual(self.model(b'{"model":"a","model":"b"}'), "b")
        self.assertEqual(self.model(b'{"mod\\u0065l":"a"}'), "a")
        self.assertEqual(self.model(b'{"Model":"x","model":"a","MODEL":"y"}'), "a")
        self.assertEqual(self.model(b' {"model" : "\\u00e9" } '), "é")

    def test_half_a_surrogate_pair(self) -> None:
        """JSON by its grammar, and taken by engines: it hides no field (PX-34)."""
        for text in (rb"hi \ud83d", rb"\uDE00", rb"\ud83d\ud83d\ude00", rb"\\ud83d \ud83d"):
            self.assertEqual(self.model(b'{"messages":["%s"],"model":"a"}' % text), "a")
        self.assertEqual(self.model(rb'{"model":"\ud83d\ude00","x":"\ud83d"}'), "\U0001f600")
        self.assertEqual(self.code(rb'{"model":"a","x":"\ud83d"'), "bad_request")

    def test_model_less(self) -> None:
        """An absent or empty model is none; the engine judges the body (PX-35)."""
        self.assertIsNone(self.model(b"{}"))
        self.assertIsNone(self.model(b'{"model":""}'))

    def test_bad_model(self) -> None:
        """No string, too long, or with control characters: 400 (PX-35)."""
        for model in (b"1", b"null", b"[]", b'{"a":1}', b'"a\\u0000"', b'"\\n"', b'"\xff"', b'"%s"' % (b"x" * 513)):
            self.assertEqual(self.code(b'{"model":%s}' % model), "bad_model", model[:20])
        self.assertIsNone(self.code(b'{"model":"%s"}' % (b"x" * 512)))

    def test_name_instead_of_model(self) -> None:
        """``/api/show`` reads ``model``, else ``name`` (PX-27); no other route does."""
        self.assertEqual(self.model(b'{"name":"a"}', SHOW), "a")
        self.assertEqual(self.model(b'{"name":"a","model":"b"}', SHOW), "b")
        self.assertIsNone(self.model(b'{"name":"a"}', OPENAI))

    def test_undecodable(self) -> None:
        """What is no JSON object under a JSON content type is 400, and no exception (PX-34)."""
        deep = b'{"a":%s%s}' % (b"[" * 100_000, b"]" * 100_000)
        for body in (b"", b"[]", b'"x"', b'{"a":NaN}', b"\xef\xbb\xbf{}", b"{} x", b'{"model":', deep):
            self.assertEqual(self.code(body), "bad_request", body[:20])
        self.assertEqual(self.code(b"x", b"Application/Vnd.Api+JSON ; charset=utf-8"), "bad_request")

    def test_other_content_types(self) -> None:
        """JSON under another name, or none, is read as JSON; anything else names no model (PX-35)."""
        for content_type in (b"application/x-www-form-urlencoded", b"text/plain", b"", None):
            self.assertEqual(read(CHAT, content_type, b'{"model":"a","stream":false}'), Routed("a", False, "load"))
            self.assertEqual(read(CHAT, content_type, b"--boundary\r\n"), Routed(None, True))
            self.assertEqual(self.code(b'{"model":1}', content_type), "bad_model")

    def test_wrong_types_count_as_absent(self) -> None:
        """A wrong type for any field but the model is as if it were not there (PX-34)."""
        body = b'{"model":"a","stream":"no","keep_alive":{},"messages":[{"role":"user"}]}'
        self.assertEqual(read(CHAT, JSON, body), Routed("a", True))

    @given(st.binary(max_size=60))
    def test_any_bytes(self, body: bytes) -> None:
        """No body raises, with or without a frame of JSON around it."""
        for each in (body, b'{"model":"a","prompt":%s}' % body, b'{"model":"%s"}' % body):
            self.assertIsInstance(read(CHAT, JSON, each), (Routed, Refusal))

    @given(st.dictionaries(st.text(max_size=8), st.recursive(st.none() | st.text(), st.lists)), st.text(max_size=40))
    def test_finds_the_model(self, other: dict[str, object], model: str) -> None:
        """Whatever else a body holds, the model found in it is the one that a whole decoding finds."""
        routed = read(OPENAI, JSON, msgspec.json.encode({**other, "model": model}))
        if is_name(model):
            assert isinstance(routed, Routed)
            self.assertEqual(routed.model, model or None)
        else:
            assert isinstance(routed, Refusal)
            self.assertEqual(routed.code, "bad_model")


class StreamTests(SynchronousTestCase):
    """Whether the answer streams (PX-37)."""

    def test_default(self) -> None:
        """Absent means yes on Ollama's own two, no elsewhere (S07)."""
        for path, expected in [
            ("/api/chat", True),
            ("/api/generate", True),
            ("/api/embed", False),
            ("/v1/chat/completions", False),
            ("/v1/messages", False),
        ]:
            routed = read(route(path), JSON, b'{"model":"a","messages":[1],"prompt":"x"}')
            self.assertEqual(routed, Routed("a", expected))

    def test_said(self) -> None:
        """What the client says holds."""
        self.assertEqual(read(CHAT, JSON, b'{"model":"a","messages":[1],"stream":false}'), Routed("a", False))
        self.assertEqual(read(OPENAI, JSON, b'{"model":"a","stream":true}'), Routed("a", True))


class IntentTests(SynchronousTestCase):
    """Requests that only load or unload (PX-36)."""

    def intent(self, path: str, rest: bytes) -> str:
        routed = read(route(path), JSON, b'{"model":"a"%s}' % rest)
        assert isinstance(routed, Routed)
        return routed.intent

    def test_load(self) -> None:
        """Nothing to answer on chat or generate."""
        for path in ("/api/chat", "/api/generate"):
            for rest in (b"", b',"prompt":""', b',"messages":[ ]', b',"messages":null', b',"keep_alive":"5m"'):
                self.assertEqual(self.intent(path, rest), "load", rest)
        self.assertEqual(self.intent("/api/embed", b""), "run")
        self.assertEqual(self.intent("/v1/chat/completions", b""), "run")

    def test_unload(self) -> None:
        """The same with a ``keep_alive`` of zero."""
        for zero in (b"0", b'"0"', b'"0s"', b"0.0"):
            for path in ("/api/chat", "/api/generate", "/api/embed"):
                self.assertEqual(self.intent(path, b',"keep_alive":%s' % zero), "unload")
        self.assertEqual(self.intent("/api/chat", b',"keep_alive":false'), "load")
        self.assertEqual(self.intent("/v1/chat/completions", b',"keep_alive":0'), "run")

    def test_run(self) -> None:
        """Anything to answer is a run, with a ``keep_alive`` of zero too."""
        for rest in (b',"prompt":"x"', b',"messages":[{}]', b',"input":["x"]', b',"prompt":"%s"' % (b" " * 90)):
            self.assertEqual(self.intent("/api/generate", rest + b',"keep_alive":0'), "run", rest)

    def test_model_less(self) -> None:
        """Without a model nothing can be loaded."""
        self.assertEqual(read(CHAT, JSON, b"{}"), Routed(None, True))

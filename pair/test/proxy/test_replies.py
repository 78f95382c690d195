"""Tests of :mod:`pair.proxy.replies`."""

from __future__ import annotations

import re

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.proxy.replies import (
    Refusal,
    engine_silent,
    family_of,
    frame,
    model_not_found,
    no_owner,
    refusal,
    reply,
    route_unsupported,
)

CODES = {
    400: "bad_request bad_model",
    408: "body_stalled request_timeout",
    409: "proxy_facade",
    415: "unsupported_encoding",
    421: "bad_host",
    403: "loopback_only bad_origin",
    404: "route_unknown",
    413: "too_large",
    501: "route_unsupported",
    503: "busy overloaded stopping no_local_engine cancelled",
    500: "internal",
    502: "model_unknown model_not_loaded owners_offline engine_stopped owners_excluded no_engine engine_unreachable "
    "engine_redirect stream_lost",
    504: "node_silent engine_silent",
    508: "loop",
}


def any_of(code: str) -> Refusal:
    """The refusal ``code`` with some value for whatever its text asks for."""
    return refusal(code, limit=1, model="m", having="", count=1, engine="e", reason="r", instead="")


def body_of(why: Refusal, family: str) -> object:
    return msgspec.json.decode(reply(why, family, "run.1").body)  # type: ignore[arg-type]


class RefusalTests(SynchronousTestCase):
    """Codes and their texts (PX-85)."""

    def test_statuses(self) -> None:
        """Each code has the status of the table."""
        for status, codes in CODES.items():
            for code in codes.split():
                self.assertEqual(any_of(code).status, status, code)

    def test_texts_hold_nothing_of_this_machine(self) -> None:
        """No text has an address, a file path or a traceback (X10)."""
        for codes in CODES.values():
            for code in codes.split():
                text = any_of(code).text
                self.assertNotRegex(text, r"\d+\.\d+\.\d+|://|(^|\s)/\w|Traceback|\n", code)

    def test_names_are_cleaned(self) -> None:
        """A name from a client is quoted without control characters, and cut."""
        text = no_owner("model_unknown", "a\x1b[31m\u202e\n" + "x" * 5000).text
        self.assertNotRegex(text, "[\x00-\x1f\u202e]")
        self.assertLess(len(text), 400)

    def test_braces_in_names(self) -> None:
        """A name is a value of the text, never a template."""
        self.assertIn("'{0.__class__}'", no_owner("model_unknown", "{0.__class__}").text)


class GateTests(SynchronousTestCase):
    """What is said where no candidate is left (PX-39, PX-24, M08)."""

    def test_each_ends_in_the_step_that_helps(self) -> None:
        """The next command, or the number of machines, is in the text."""
        for why, step in [
            (no_owner("model_unknown", "qwen3:8b"), "'qwen3:8b'; what there is: pair-admin model list"),
            (no_owner("model_not_loaded", "m"), "load it in its engine"),
            (no_owner("engine_stopped", "m", engine="ollama"), "ollama; why: pair-admin engine list"),
            (no_owner("owners_offline", "m", offline=2), "2"),
            (no_owner("owners_excluded", "m", excluded_by={"drained"}), "they are drained"),
            (no_owner("owners_excluded", "m", excluded_by={"label_rule"}), "(routing.rule in pair.toml)"),
            (no_owner("no_engine", ""), "pair-admin engine list"),
        ]:
            self.assertEqual(why.status, 502)
            self.assertTrue(why.text.endswith(step), why.text)

    def test_route_unsupported(self) -> None:
        """501, and the route that does the same work where there is one."""
        why = route_unsupported("smollm2:135m", "/v1/chat/completions")
        self.assertEqual((why.status, why.code), (501, "route_unsupported"))
        self.assertTrue(why.text.endswith("use /v1/chat/completions"))
        self.assertNotIn("use", route_unsupported("m", None).text.split("serve")[1])

    def test_silence_names_its_setting(self) -> None:
        """A limit of ours is named with its value (PX-51)."""
        self.assertIn("proxy.first_byte_limit allows 10 s", engine_silent("proxy.first_byte_limit", 10.0).text)
        self.assertEqual(engine_silent().status, 504)


class FamilyTests(SynchronousTestCase):
    """Whose dialect a path speaks (PX-84)."""

    def test_paths(self) -> None:
        """Listed paths have their own; unlisted ones that of the facade."""
        for facade, path, family in [
            ("ollama", "/api/chat", "ollama"),
            ("ollama", "/v1/chat/completions", "openai"),
            ("ollama", "/v1/models/a/b", "openai"),
            ("ollama", "/v1/messages/count_tokens", "anthropic"),
            ("ollama", "/v1/messages/batches", "anthropic"),
            ("ollama", "/v1/files", "ollama"),
            ("ollama", "/", "ollama"),
            ("lmstudio", "/v1/messages/", "anthropic"),
            ("lmstudio", "/v1/files", "openai"),
            ("lmstudio", "/api/chat", "openai"),
            ("lmstudio", "/api/v1/chat", "lmstudio1"),
        ]:
            self.assertEqual(family_of(facade, path), family, (facade, path))


class ReplyTests(SynchronousTestCase):
    """The shapes of whole answers (PX-84)."""

    def test_shapes(self) -> None:
        """Each dialect has the members its clients read."""
        why = refusal("model_unknown", model="x", argument="x")
        self.assertEqual(body_of(why, "ollama"), {"error": why.text})
        openai = {"error": {"message": why.text, "type": "server_error", "code": "model_unknown", "param": None}}
        for family in ("openai", "lmstudio0", "lmstudio1"):
            self.assertEqual(body_of(why, family), openai)
        self.assertEqual(
            body_of(why, "anthropic"), {"type": "error", "error": {"type": "api_error", "message": why.text}}
        )

    def test_types(self) -> None:
        """OpenAI's and Anthropic's words for each status."""
        for code, openai, anthropic in [
            ("bad_request", "invalid_request_error", "invalid_request_error"),
            ("bad_host", "invalid_request_error", "invalid_request_error"),
            ("bad_origin", "permission_error", "permission_error"),
            ("route_unknown", "not_found_error", "not_found_error"),
            ("too_large", "invalid_request_error", "request_too_large"),
            ("route_unsupported", "invalid_request_error", "invalid_request_error"),
            ("busy", "server_error", "overloaded_error"),
            ("loop", "server_error", "api_error"),
        ]:
            why = any_of(code)
            self.assertIn(f'"type":"{openai}"', reply(why, "openai", "r").body.decode())
            self.assertIn(f'"type":"{anthropic}"', reply(why, "anthropic", "r").body.decode())

    def test_fields(self) -> None:
        """Code and request id are fields in every dialect, and nobody guesses at the type of the body."""
        for family in ("ollama", "openai", "anthropic"):
            answer = reply(refusal("overloaded", retry_after=2), family, "a1.7", ((b"Vary", b"Origin"),))
            self.assertEqual(answer.status, 503)
            self.assertEqual(
                dict(answer.fields),
                {
                    b"Content-Type": b"application/json",
                    b"X-Pair-Error": b"overloaded",
                    b"X-Pair-Request": b"a1.7",
                    b"X-Content-Type-Options": b"nosniff",
                    b"Vary": b"Origin",
                    b"Retry-After": b"2",
                },
            )

    def test_final(self) -> None:
        """Where a further try comes to the same, clients that would make one by the status are told to make none."""
        for code, final in (("model_unknown", True), ("route_unsupported", True), ("loop", True), ("busy", False)):
            fields = dict(reply(any_of(code), "openai", "r").fields)
            self.assertEqual(fields.get(b"X-Should-Retry"), b"false" if final else None, code)

    def test_model_not_found(self) -> None:
        """Owner routes say it as the engines do; the field has our own code (PX-27)."""
        why = model_not_found("x")
        self.assertEqual(body_of(why, "ollama"), {"error": "model 'x' not found"})
        self.assertIn('"code":"model_not_found"', reply(why, "openai", "r").body.decode())
        self.assertEqual(dict(reply(why, "openai", "r").fields)[b"X-Pair-Error"], b"model_unknown")

    @given(st.text(max_size=600))
    def test_any_model_name(self, name: str) -> None:
        """Whatever the name, the answer is JSON."""
        msgspec.json.decode(reply(no_owner("model_unknown", name), "openai", "r").body)


class FrameTests(SynchronousTestCase):
    """Errors inside a stream (PX-63, PX-84)."""

    why = refusal("stream_lost")

    def test_ndjson(self) -> None:
        """One object and a newline."""
        data = frame(self.why, "ollama", b"application/x-ndjson; charset=utf-8")
        self.assertEqual(data, b'{"error":"%s"}\n' % self.why.text.encode())

    def test_sse(self) -> None:
        """OpenAI's frame has no event name, the other two have ``error``; each ends in a blank line."""
        openai = frame(self.why, "openai", b"text/event-stream")
        self.assertTrue(openai.startswith(b'data: {"error":{"message":'))
        anthropic = frame(self.why, "anthropic", b"text/event-stream")
        self.assertTrue(anthropic.startswith(b'event: error\ndata: {"type":"error","error":{"type":"api_error",'))
        lmstudio = frame(self.why, "lmstudio1", b"Text/Event-Stream;charset=utf-8")
        self.assertTrue(lmstudio.startswith(b'event: error\ndata: {"type":"error","error":{"message":'))
        for data in (openai, anthropic, lmstudio):
            self.assertTrue(data.endswith(b"}\n\n"))
            self.assertEqual(len(re.findall(b"\n\n", data)), 1)

    def test_no_frames(self) -> None:
        """A plain body has no place for an error, and no end marker is ever made."""
        for content_type in (b"application/json", b"", None):
            self.assertEqual(frame(self.why, "openai", content_type), b"")

"""Tests of :mod:`pair.proxy.endings`."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.proxy.endings import LIMIT, Ending, Tail, inspect
from pair.records.jobs import Usage

SSE = b"text/event-stream; charset=utf-8"
NDJSON = b"application/x-ndjson"
JSON = b"application/json"


def tail_of(*parts: bytes) -> Tail:
    tail = Tail()
    tail.feed(parts)
    return tail


def ollama(*lines: dict[str, object], family: str = "ollama", operation: str = "chat") -> Ending:
    """The ending of an NDJSON stream of these documents."""
    return inspect(family, operation, NDJSON, tail_of(*(json.dumps(line).encode() + b"\n" for line in lines)))


def events(family: str, operation: str, *frames: tuple[str, object] | str) -> Ending:
    """The ending of an SSE stream of these frames: data alone, or event and data."""
    wire = b""
    for frame in frames:
        if isinstance(frame, str):
            wire += f"data: {frame}\n\n".encode()
        else:
            wire += f"event: {frame[0]}\ndata: {json.dumps(frame[1])}\n\n".encode()
    return inspect(family, operation, SSE, tail_of(wire))


class TailTests(SynchronousTestCase):
    @given(st.lists(st.lists(st.binary(max_size=3 * LIMIT), max_size=4), max_size=12))
    def test_keeps_the_end(self, reads: list[list[bytes]]) -> None:
        """However a body comes, its last 8 KiB are kept, and whether that is all of it."""
        tail = Tail()
        for parts in reads:
            tail.feed(parts)
        body = b"".join(b"".join(parts) for parts in reads)
        self.assertEqual((tail.data, tail.cut), (body[-LIMIT:], len(body) > LIMIT))

    def test_bounded(self) -> None:
        """What is kept does not grow with the body."""
        tail = Tail()
        for _ in range(1000):
            tail.feed([b"x" * 700] * 3)
            self.assertLessEqual(sum(map(len, tail._parts)), 4 * LIMIT)

    def test_between_frames(self) -> None:
        """A frame may follow a blank line in SSE, a newline in NDJSON, and nothing in other bodies (PX-63)."""
        tail = tail_of(b"data: x\n", b"\n")
        self.assertEqual([tail.between_frames(each) for each in (SSE, NDJSON, JSON, None)], [True, True, False, False])
        self.assertFalse(tail_of(b"data: x\n").between_frames(SSE))
        self.assertFalse(tail_of(b'{"a":').between_frames(NDJSON))


class OllamaTests(SynchronousTestCase):
    done = {
        "done": True,
        "prompt_eval_count": 26,
        "prompt_eval_duration": 130_000_000,
        "eval_count": 298,
        "eval_duration": 4_000_000_000,
    }

    def test_done(self) -> None:
        """``"done":true`` is the last frame; counts and durations stand in it (PX-62, PX-65)."""
        ending = ollama({"message": {"content": "hi"}, "done": False}, {"message": {"content": ""}, **self.done})
        self.assertEqual((ending.finished, ending.unterminated, ending.error), (True, False, False))
        self.assertEqual(ending.usage, Usage(26, 298))
        assert ending.prompt_seconds is not None
        self.assertAlmostEqual(ending.prompt_seconds, 0.13)
        self.assertEqual(ending.output_seconds, 4.0)

    def test_not_done(self) -> None:
        """A chat that ends without it is unterminated."""
        ending = ollama({"message": {"content": "hi"}, "done": False})
        self.assertEqual((ending.finished, ending.unterminated), (False, True))
        self.assertEqual(ending.usage, Usage())

    def test_quoted(self) -> None:
        """A marker inside the text of a model is none."""
        ending = ollama({"message": {"content": '"done":true}\n{"done":true}\n'}, "done": False})
        self.assertFalse(ending.finished)

    def test_generate(self) -> None:
        """The last frame of generate has no bound: that it is not seen means nothing."""
        self.assertFalse(ollama({"response": "a", "done": False}, operation="generate").unterminated)
        last = {"response": "", "context": list(range(5000)), **self.done}
        ending = ollama({"response": "a", "done": False}, last, operation="generate")
        self.assertEqual(ending, Ending())

    def test_error(self) -> None:
        """An error line under 200 is told (PX-65)."""
        self.assertTrue(ollama({"message": {"content": "a"}, "done": False}, {"error": "model runner stopped"}).error)

    def test_whole(self) -> None:
        """An answer that is no stream is read if it was kept whole."""
        body = json.dumps({"message": {"content": "hi"}, **self.done}).encode()
        self.assertEqual(inspect("ollama", "chat", JSON, tail_of(body)).usage, Usage(26, 298))
        self.assertEqual(inspect("ollama", "chat", JSON, tail_of(b" " * LIMIT, body)), Ending())

    def test_embed(self) -> None:
        """An embedding has prompt tokens only, and is never unterminated."""
        body = b'{"embeddings":[[0.1]],"prompt_eval_count":8}'
        ending = inspect("ollama", "embed", JSON, tail_of(body))
        self.assertEqual((ending.usage, ending.unterminated), (Usage(8, None), False))


class OpenAITests(SynchronousTestCase):
    def test_done(self) -> None:
        """``data: [DONE]`` is the last frame; usage stands in the frame before (PX-62, PX-65)."""
        usage = '{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}}'
        ending = events("openai", "chat", '{"choices":[{"delta":{"content":"a"}}]}', usage, "[DONE]")
        self.assertEqual(ending, Ending(finished=True, usage=Usage(9, 12)))

    def test_timings(self) -> None:
        """llama.cpp's timings tell the durations, and the tokens too where there is no usage."""
        timings = '{"choices":[{"finish_reason":"stop"}],"timings":{"cache_n":20,"prompt_n":1,"prompt_ms":30.5,'
        timings += '"predicted_n":7,"predicted_ms":210.0}}'
        ending = events("openai", "chat", timings, "[DONE]")
        self.assertEqual(ending.usage, Usage(21, 7))
        assert ending.prompt_seconds is not None
        assert ending.output_seconds is not None
        self.assertAlmostEqual(ending.prompt_seconds, 0.0305)
        self.assertAlmostEqual(ending.output_seconds, 0.21)
        usage = '{"usage":{"prompt_tokens":22,"completion_tokens":8}}'
        self.assertEqual(events("openai", "chat", timings, usage, "[DONE]").usage, Usage(22, 8))

    def test_quoted(self) -> None:
        """A marker inside the text of a model, or of another dialect, is none."""
        quoted = json.dumps({"choices": [{"delta": {"content": "\n\ndata: [DONE]\n\n"}}]})
        ending = events("openai", "chat", quoted, ("message_stop", {}))
        self.assertEqual((ending.finished, ending.unterminated), (False, True))

    def test_unfinished_marker(self) -> None:
        """A last frame that is cut is none."""
        self.assertFalse(inspect("openai", "chat", SSE, tail_of(b"data: a\n\ndata: [DONE]\n")).finished)

    def test_error(self) -> None:
        """An error frame is told; a null error is none."""
        self.assertTrue(events("openai", "chat", '{"error":{"message":"x"}}').error)
        self.assertTrue(events("openai", "chat", ("error", {"message": "x"})).error)
        self.assertFalse(events("openai", "chat", '{"error":null}', "[DONE]").error)
        self.assertTrue(inspect("openai", "chat", JSON, tail_of(b'{"error":{"message":"x"}}')).error)

    def test_empty_stream(self) -> None:
        """A stream without a frame is unterminated; of one whose last frame was not kept whole nothing is known."""
        self.assertTrue(inspect("openai", "chat", SSE, Tail()).unterminated)
        long = tail_of(b"data: " + b"x" * LIMIT + b"\n\n")
        self.assertEqual(inspect("openai", "chat", SSE, long), Ending())

    def test_responses(self) -> None:
        """The end of a response tells its usage; it has no bound, so a missing one means nothing."""
        usage = {"input_tokens": 5, "output_tokens": 6}
        completed = ("response.completed", {"type": "response.completed", "response": {"error": None, "usage": usage}})
        delta = ("response.output_text.delta", {"delta": "a"})
        self.assertEqual(events("openai", "responses", delta, completed), Ending(finished=True, usage=Usage(5, 6)))
        self.assertEqual(events("openai", "responses", delta), Ending())
        failed = events("openai", "responses", delta, ("response.failed", {"response": {"usage": None}}))
        self.assertEqual((failed.finished, failed.error), (True, True))
        whole = json.dumps({"object": "response", "error": None, "usage": usage}).encode()
        self.assertEqual(inspect("openai", "responses", JSON, tail_of(whole)), Ending(usage=Usage(5, 6)))

    def test_embeddings(self) -> None:
        """Embeddings have prompt tokens only."""
        body = b'{"data":[],"usage":{"prompt_tokens":8,"total_tokens":8}}'
        self.assertEqual(inspect("openai", "embed", JSON, tail_of(body)), Ending(usage=Usage(8, None)))

    def test_other_bodies(self) -> None:
        """Of other content nothing is known, nor of content that is encoded."""
        for content_type in (None, b"audio/mpeg", b"text/plain"):
            self.assertEqual(inspect("openai", "audio", content_type, tail_of(b"data: [DONE]\n\n")), Ending())


class AnthropicTests(SynchronousTestCase):
    start = ("message_start", {"message": {"usage": {"input_tokens": 25, "output_tokens": 1}}})
    delta = ("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 15}})
    stop = ("message_stop", {"type": "message_stop"})

    def test_stop(self) -> None:
        """``event: message_stop`` is the last frame; usage stands at the start and in the delta before (PX-65)."""
        ending = events("anthropic", "messages", self.start, self.delta, self.stop)
        self.assertEqual(ending, Ending(finished=True, usage=Usage(25, 15)))

    def test_start_out_of_sight(self) -> None:
        """What stood at the start of a long answer is not known."""
        many = [("content_block_delta", {"delta": {"text": "a"}})] * 500
        ending = events("anthropic", "messages", self.start, *many, self.delta, self.stop)
        self.assertEqual(ending, Ending(finished=True, usage=Usage(None, 15)))

    def test_not_stopped(self) -> None:
        """Without it the answer is unterminated."""
        self.assertTrue(events("anthropic", "messages", self.start, self.delta).unterminated)

    def test_error(self) -> None:
        """``event: error`` is told."""
        error = ("error", {"type": "error", "error": {"type": "api_error", "message": "x"}})
        self.assertTrue(events("anthropic", "messages", self.start, error).error)

    def test_whole(self) -> None:
        """A message that is no stream has both counts."""
        body = b'{"type":"message","usage":{"input_tokens":25,"output_tokens":15}}'
        self.assertEqual(inspect("anthropic", "messages", JSON, tail_of(body)), Ending(usage=Usage(25, 15)))

    def test_cached(self) -> None:
        """Prompt tokens that came from a cache are prompt tokens."""
        body = b'{"usage":{"input_tokens":1,"cache_read_input_tokens":24,"output_tokens":15}}'
        self.assertEqual(inspect("anthropic", "messages", JSON, tail_of(body)), Ending(usage=Usage(25, 15)))


class LMStudioTests(SynchronousTestCase):
    def test_chat_end(self) -> None:
        """``event: chat.end`` is the last frame of /api/v1/chat, with the counts in it."""
        stats = {"input_tokens": 4, "total_output_tokens": 11, "tokens_per_second": 50.0}
        ending = events("lmstudio1", "chat", ("message.delta", {}), ("chat.end", {"result": {"stats": stats}}))
        self.assertEqual(ending, Ending(finished=True, usage=Usage(4, 11)))

    def test_v0(self) -> None:
        """/api/v0 ends as OpenAI does; its stats have the duration."""
        last = '{"usage":{"prompt_tokens":4,"completion_tokens":11},"stats":{"generation_time":0.5}}'
        ending = events("lmstudio0", "chat", last, "[DONE]")
        self.assertEqual(ending, Ending(finished=True, usage=Usage(4, 11), output_seconds=0.5))


class AnyBodyTests(SynchronousTestCase):
    def test_cut_everywhere(self) -> None:
        """Parts cut at every offset, also inside a character, give the same ending (S13)."""
        cases = (
            ("ollama", NDJSON, '{"message":{"content":"é語"}}\n{"done":true,"eval_count":3}\n'),
            ("openai", SSE, 'data: {"x":"é語"}\n\ndata: {"usage":{"completion_tokens":3}}\n\ndata: [DONE]\n\n'),
        )
        for family, content_type, text in cases:
            body = text.encode()
            for offset in range(len(body)):
                for filler in (b"", "語".encode() * LIMIT + b"\n\n"):
                    tail = tail_of(filler + body[:offset], body[offset:])
                    self.assertEqual(
                        inspect(family, "chat", content_type, tail), Ending(finished=True, usage=Usage(None, 3))
                    )

    def test_numbers_not_believed(self) -> None:
        """What is no plain number counts as not told."""
        for value in ("-1", "true", '"7"', "null", "[]", "1e300", "9" * 400):
            body = b'{"usage":{"prompt_tokens":%b,"completion_tokens":3}}' % value.encode()
            self.assertEqual(inspect("openai", "chat", JSON, tail_of(body)).usage, Usage(None, 3))

    @given(
        st.sampled_from(["ollama", "openai", "anthropic", "lmstudio0", "lmstudio1"]),
        st.sampled_from(["chat", "generate", "responses", "messages"]),
        st.sampled_from([SSE, NDJSON, JSON]),
        st.one_of(
            st.binary(max_size=80),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.text(max_size=5),
                lambda inner: (
                    st.lists(inner, max_size=3)
                    | st.dictionaries(
                        st.sampled_from(
                            ["usage", "message", "response", "result", "stats", "timings", "error", "done"]
                        ),
                        inner,
                        max_size=3,
                    )
                ),
            ).map(lambda document: b"data: " + json.dumps(document).encode() + b"\n\n"),
        ),
    )
    def test_anything(self, family: str, operation: str, content_type: bytes, body: bytes) -> None:
        """No bytes make it fail."""
        inspect(family, operation, content_type, tail_of(body))
        inspect(family, operation, content_type, tail_of(body.removeprefix(b"data: ")))

    def test_bad_json(self) -> None:
        """Neither depth nor bad UTF-8 makes it fail."""
        for body in (b"[" * LIMIT, b'{"a":' * 1000, b'{"usage":"\xff"}', b'{"\xff":1}'):
            self.assertEqual(inspect("openai", "chat", JSON, tail_of(body)), Ending())

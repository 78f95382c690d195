"""Tests of :mod:`pair.proxy.relay`: how the bytes of an answer pass (PX-57 to PX-66)."""

from __future__ import annotations

import json

from pair.records.jobs import Usage
from pair.test.proxy.bench import CHAT, DONE, LINE, Bench, BenchCase
from pair.test.proxy.network import LAST_CHUNK, chunk, head, response, stream

SSE = b"text/event-stream"
NDJSON = b"application/x-ndjson"
MIB = 1 << 20


class StreamCase(BenchCase):
    def streaming(
        self, *pieces: bytes, path: str = "/api/chat", content_type: bytes = NDJSON, **settings: float
    ) -> Bench:
        """A bench in the middle of a chunked answer; ``pieces`` came so far, in a read each."""
        bench = self.ask(path=path, **settings)
        bench.a.answers(stream(content_type) + pieces[0], *pieces[1:])
        return bench


class FramingTests(StreamCase):
    """PX-58: the engine's framing is followed."""

    def test_reads_become_writes(self) -> None:
        """S11: each read is one write, with the chunks, extensions and trailers as they came."""
        pieces = [chunk(LINE), b"3;ext=1\r\nabc\r\n1\r\n", b"\n\r\n", chunk(DONE), b"0\r\nX-Trailer: 1\r\n\r\n"]
        bench = self.streaming(*pieces)
        self.assertEqual(bench.client.answer.body, b"".join(pieces))
        self.assertEqual(bench.client.socket.writes[1:], pieces[1:])
        self.assertNotIn("x-trailer", bench.client.answer.fields)
        self.assertEqual(bench.ending, ("completed", None))

    def test_split_line(self) -> None:
        """S13: a line split at every offset, inside a character too, arrives the same; its counts are read once."""
        line = '{"message":{"content":"žluť"},"done":true,"prompt_eval_count":3,"eval_count":5}\n'.encode()
        body = chunk(LINE) + chunk(line) + LAST_CHUNK
        for at in range(1, len(body)):
            bench = self.streaming(body[:at], body[at:])
            self.assertEqual(bench.client.answer.body, body)
            self.assertEqual((bench.job.state, bench.job.usage), ("completed", Usage(3, 5)))

    def test_streams_where_the_request_does_not_say(self) -> None:
        """S07: Ollama's own routes stream by default and the others do not; the bytes pass as they come in both."""
        for path, streams in (("/api/chat", True), ("/v1/chat/completions", False)):
            bench = self.streaming(chunk(b"{}\n"), path=path)
            self.assertEqual(bench.client.answer.body, chunk(b"{}\n"))
            self.assertEqual(bench.job.stream, streams)

    def test_old_client(self) -> None:
        """A client of HTTP/1.0 gets the payload without chunks, ended by the close."""
        bench = self.bench()
        bench.client.asks("POST", "/api/chat", CHAT, minor=0, Connection="keep-alive")
        bench.a.answers(stream(), chunk(LINE), chunk(DONE) + LAST_CHUNK)
        answer = bench.client.answer
        self.assertEqual((answer.body, answer.fields["connection"]), (LINE + DONE, "close"))
        self.assertNotIn("transfer-encoding", answer.fields)
        bench.advance()
        self.assertTrue(bench.client.socket.closed and not bench.client.socket.aborted)

    def test_old_client_and_a_length(self) -> None:
        """With a length there is nothing to undo, and the connection stays."""
        bench = self.bench()
        bench.client.asks("POST", "/api/chat", CHAT, minor=0, Connection="keep-alive")
        bench.a.answers(response(200, DONE))
        self.assertEqual((bench.client.answer.body, bench.client.answer.fields["connection"]), (DONE, "keep-alive"))

    def test_old_engine(self) -> None:
        """What an engine ends by its close reaches the client in chunks, with an end."""
        bench = self.ask()
        bench.a.answers(b"HTTP/1.0 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n" + LINE, DONE)
        bench.a.closes()
        self.assertEqual(bench.client.answer.body, chunk(LINE) + chunk(DONE) + LAST_CHUNK)
        self.assertEqual(bench.ending, ("completed", None))

    def test_old_engine_that_breaks(self) -> None:
        """A reset is no end: one frame, then the close without a last chunk."""
        bench = self.ask()
        bench.a.answers(b"HTTP/1.0 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n" + LINE)
        bench.a.breaks()
        self.assertTrue(bench.client.answer.body.startswith(chunk(LINE)))
        self.assertIn(b'{"error":"', bench.client.answer.body)
        self.assertFalse(bench.client.answer.body.endswith(LAST_CHUNK))
        self.assertEqual(bench.ending, ("failed", "stream_lost"))

    def test_fields_of_a_stream(self) -> None:
        """PX-66: nobody between is to hold it back or keep it, unless the engine says otherwise."""
        bench = self.streaming(chunk(LINE))
        fields = bench.client.answer.fields
        self.assertEqual((fields["x-accel-buffering"], fields["cache-control"]), ("no", "no-cache"))

    def test_compressed_answer(self) -> None:
        """H10: a coded body passes untouched, and nothing is read into its bytes."""
        bench = self.ask()
        bench.a.answers(response(200, b"\x1f\x8b\n\n", (b"Content-Encoding", b"gzip"), (b"Content-Type", SSE)))
        self.assertEqual(
            (bench.client.answer.body, bench.client.answer.fields["content-encoding"]), (b"\x1f\x8b\n\n", "gzip")
        )
        self.assertEqual((bench.ending, bench.job.usage), (("completed", None), Usage()))

    def test_no_body_is_framed(self) -> None:
        """An answer without a body is not handed on as chunked, or the client would wait for it (RFC 9112, 6.1)."""
        bench = self.ask()
        bench.a.answers(b"HTTP/1.1 204 X\r\nTransfer-Encoding: chunked\r\n\r\n")
        self.assertNotIn("transfer-encoding", bench.client.answer.fields)
        self.assertEqual((bench.client.answer.status, bench.client.answer.body), (204, b""))

    def test_second_message(self) -> None:
        """A read that holds more than the answer is no use: only an abort follows."""
        bench = self.streaming(chunk(LINE), chunk(DONE) + LAST_CHUNK + b"HTTP/1.1 200 OK\r\n\r\n")
        self.assertEqual(bench.client.answer.body, chunk(LINE))
        self.assertTrue(bench.client.socket.aborted and bench.a.socket.aborted)
        self.assertEqual(bench.ending, ("failed", "stream_lost"))


class PressureTests(StreamCase):
    """PX-59, PX-60: a client that does not read."""

    def test_client_pauses_the_engine(self) -> None:
        """S19: what is held is bounded; when the client reads on, all arrives."""
        bench = self.streaming(chunk(LINE))
        bench.client.stops_reading()
        piece = chunk(b"x" * 16_384)
        for _ in range(64):
            bench.a.answers(piece)
        self.assertTrue(bench.a.socket.paused)
        self.assertLess(bench.client.socket.unsent, 128 * 1024)
        for _ in range(3):
            bench.client.reads_on()
            bench.advance()
        self.assertEqual(bench.client.answer.body, chunk(LINE) + 64 * piece)
        self.assertFalse(bench.a.socket.paused)

    def test_stalled_client(self) -> None:
        """After 300 s in which it took nothing it is cut, and the engine with it."""
        bench = self.streaming(chunk(LINE), client_stall=300.0)
        bench.client.stops_reading()
        bench.a.answers(chunk(LINE))
        bench.advance(290)
        self.assertFalse(bench.client.socket.aborted)
        bench.advance(20)
        self.assertTrue(bench.client.socket.aborted and bench.a.socket.aborted)
        self.assertEqual((bench.ending, bench.in_use()), (("cancelled", "client_gone"), {}))

    def test_slow_client(self) -> None:
        """One that takes a little now and then is not stalled."""
        bench = self.streaming(chunk(LINE), client_stall=300.0)
        for _ in range(4):
            bench.client.stops_reading()
            bench.a.answers(chunk(LINE))
            bench.advance(200)
            bench.client.reads_on()
            bench.advance(6)
        self.assertEqual(bench.job.state, "running")

    def test_sweep_tells_who_moved(self) -> None:
        """PX-56: engines from which bytes came since the last sweep are told, once each."""
        bench = self.streaming(chunk(LINE))
        bench.advance(5)
        self.assertEqual(bench.engines.moved, ["a"])
        bench.advance(10)
        self.assertEqual(bench.engines.moved, ["a"])


class ClientGoneTests(StreamCase):
    """PX-61, PX-62."""

    def test_in_the_stream(self) -> None:
        """S04: the engine sees the close within a turn; the job is cancelled; the engine is not to blame."""
        for gone in ("leaves", "half_closes"):
            bench = self.streaming(*[chunk(LINE)] * 3)
            getattr(bench.client, gone)()
            self.assertTrue(bench.a.socket.aborted)
            self.assertEqual((bench.ending, bench.in_use()), (("cancelled", "client_gone"), {}))
            self.assertEqual(bench.engines.outcomes, [])

    def test_after_the_last_frame(self) -> None:
        """A client that has read the last frame need not wait for the end: completed, with its counts."""
        for path, content_type, last in [
            ("/api/chat", NDJSON, DONE),
            ("/v1/chat/completions", SSE, b"data: [DONE]\n\n"),
            ("/v1/messages", SSE, b'event: message_stop\ndata: {"type":"message_stop"}\n\n'),
        ]:
            bench = self.streaming(chunk(last), path=path, content_type=content_type)
            bench.client.leaves()
            self.assertEqual((bench.ending, bench.in_use()), (("completed", None), {}))

    def test_after_an_error(self) -> None:
        """A client that leaves after the engine's error has heard why: failed, with a last frame behind it or not."""
        for last in (b"", b"data: [DONE]\n\n"):
            said = chunk(b'data: {"error":{"message":"x"}}\n\n' + last)
            bench = self.streaming(said, path="/v1/chat/completions", content_type=SSE)
            bench.client.leaves()
            self.assertEqual((bench.ending, bench.engines.outcomes), (("failed", "engine_error"), [("a", False)]))

    def test_marker_in_the_text(self) -> None:
        """A last frame that the model only quotes is none."""
        quoted = b'{"message":{"content":"' + json.dumps(DONE.decode())[1:-1].encode() + b'"},"done":false}\n'
        bench = self.streaming(chunk(quoted))
        bench.client.leaves()
        self.assertEqual(bench.ending, ("cancelled", "client_gone"))


class UsageTests(StreamCase):
    """PX-65: what the end of an answer tells."""

    def test_counts(self) -> None:
        """Each dialect's own counts come to the job, with the bytes that passed."""
        anthropic = (
            b'event: message_delta\ndata: {"usage":{"input_tokens":3,"output_tokens":5}}\n\n'
            b"event: message_stop\ndata: {}\n\n"
        )
        openai = b'data: {"usage":{"prompt_tokens":3,"completion_tokens":5}}\n\ndata: [DONE]\n\n'
        for path, content_type, end in [
            ("/api/chat", NDJSON, DONE),
            ("/v1/chat/completions", SSE, openai),
            ("/v1/messages", SSE, anthropic),
        ]:
            bench = self.streaming(chunk(end), LAST_CHUNK, path=path, content_type=content_type)
            self.assertEqual((bench.ending, bench.job.usage), (("completed", None), Usage(3, 5)))
            self.assertEqual((bench.job.unterminated, bench.job.status), (False, 200))
            self.assertEqual(bench.job.response_bytes, len(chunk(end) + LAST_CHUNK))
            self.assertEqual(bench.engines.outcomes, [("a", True)])

    def test_error_under_200(self) -> None:
        """An error line in a stream is passed on, and the job has failed."""
        for path, content_type, error in [
            ("/api/chat", NDJSON, b'{"error":"out of memory"}\n'),
            ("/v1/chat/completions", SSE, b'data: {"error":{"message":"out of memory"}}\n\n'),
            ("/v1/messages", SSE, b'event: error\ndata: {"type":"error","error":{}}\n\n'),
        ]:
            bench = self.streaming(chunk(error) + LAST_CHUNK, path=path, content_type=content_type)
            self.assertEqual(bench.client.answer.body, chunk(error) + LAST_CHUNK)
            self.assertEqual(bench.ending, ("failed", "engine_error"))
            self.assertEqual(bench.engines.outcomes, [("a", False)])

    def test_missing_last_frame(self) -> None:
        """A clean end without the dialect's last frame is noted, and no more."""
        bench = self.streaming(chunk(LINE) + LAST_CHUNK)
        self.assertEqual((bench.ending, bench.job.unterminated), (("completed", None), True))

    def test_whole_answer(self) -> None:
        """An answer that is no stream has its counts too."""
        bench = self.ask(body={**CHAT, "stream": False})
        bench.a.answers(response(200, DONE))
        self.assertEqual((bench.job.usage, bench.job.unterminated), (Usage(3, 5), False))

    def test_head_of_a_failing_body(self) -> None:
        """The answer's own status and reason are the client's."""
        bench = self.ask()
        bench.a.answers(head(201, (b"Content-Length", b"2")) + b"{}")
        self.assertTrue(bench.client.received.startswith(b"HTTP/1.1 201 Word\r\n"))
        self.assertEqual(bench.ending, ("completed", None))

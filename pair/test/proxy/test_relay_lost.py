"""Tests of :mod:`pair.proxy.relay`: answers that do not come to their end (PX-63, PX-64, PX-68)."""

from __future__ import annotations

from typing import Any, NamedTuple

from pair.test.proxy.bench import CHAT, DONE, LINE, Bench, BenchCase
from pair.test.proxy.network import LAST_CHUNK, chunk, head, response, stream
from pair.test.routing.facts import engine

SSE = b"text/event-stream"
NDJSON = b"application/x-ndjson"
LOST = b"the engine broke off in the middle of its answer"


class Spoken(NamedTuple):
    """One dialect: where it is spoken, a frame of it, and how it tells of a lost stream."""

    facade: str
    path: str
    content_type: bytes
    frame: bytes
    lost: bytes


DIALECTS = (
    Spoken("ollama", "/api/chat", NDJSON, LINE, b'{"error":"%b"}\n' % LOST),
    Spoken(
        "ollama",
        "/v1/chat/completions",
        SSE,
        b'data: {"choices":[]}\n\n',
        b'data: {"error":{"message":"%b","type":"server_error","code":"stream_lost","param":null}}\n\n' % LOST,
    ),
    Spoken(
        "ollama",
        "/v1/messages",
        SSE,
        b'event: ping\ndata: {"type":"ping"}\n\n',
        b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"%b"}}\n\n' % LOST,
    ),
    Spoken(
        "lmstudio",
        "/api/v1/chat",
        SSE,
        b"event: message.delta\ndata: {}\n\n",
        b'event: error\ndata: {"type":"error","error":{"message":"%b","type":"server_error","code":"stream_lost",'
        b'"param":null}}\n\n' % LOST,
    ),
)


class LostCase(BenchCase):
    def begun(self, spoken: Spoken, *pieces: bytes, minor: int = 1, **settings: Any) -> Bench:
        """The client has the first pieces of a chunked answer, and the engine lives."""
        kind = "ollama" if spoken.facade == "ollama" else "lmstudio"
        engines = [engine(kind, "m", name=name) for name in ("a", "b")]
        bench = self.bench(*engines, facade=spoken.facade, **settings)
        bench.client.asks("POST", spoken.path, CHAT, minor=minor)
        bench.a.answers(stream(spoken.content_type) + pieces[0], *pieces[1:])
        return bench

    def assert_cut(self, bench: Bench, body: bytes) -> None:
        """The client has ``body`` and no end of it; the job has failed, nobody else was asked, nothing is held."""
        bench.advance()
        self.assertEqual(bench.client.answer.body, body)
        self.assertTrue(bench.client.socket.closed)
        for end in (LAST_CHUNK, b"[DONE]", b"message_stop", b'"done":true'):
            self.assertNotIn(end, bench.client.answer.body)
        self.assertEqual((bench.ending, bench.contacted()), (("failed", "stream_lost"), ["a"]))
        self.assertEqual((bench.in_use(), bench.engines.outcomes), ({}, [("a", False)]))


class SourceLostTests(LostCase):
    """PX-63, S14: the engine dies in the middle; there is no second try, and never a clean end."""

    def test_between_frames(self) -> None:
        """Where a frame may follow, one says it in the caller's dialect; then the connection closes without an end."""
        for spoken in DIALECTS:
            for die in ("closes", "breaks"):
                bench = self.begun(spoken, *[chunk(spoken.frame)] * 5)
                getattr(bench.a, die)()
                self.assert_cut(bench, 5 * chunk(spoken.frame) + chunk(spoken.lost))
                self.assertFalse(bench.client.socket.aborted)

    def test_in_a_frame(self) -> None:
        """In the middle of a frame there is nothing to say: a plain abort."""
        for spoken in DIALECTS:
            bench = self.begun(spoken, chunk(spoken.frame), chunk(spoken.frame[:5]))
            bench.a.breaks()
            self.assert_cut(bench, chunk(spoken.frame) + chunk(spoken.frame[:5]))
            self.assertTrue(bench.client.socket.aborted)

    def test_in_a_chunk(self) -> None:
        """Nor is there in the middle of a chunk, though a frame be whole."""
        for spoken in DIALECTS:
            for torn in (b"fff\r\n" + spoken.frame, chunk(spoken.frame) + b"5", chunk(spoken.frame)[:-1]):
                bench = self.begun(spoken, torn)
                bench.a.breaks()
                self.assert_cut(bench, torn)
                self.assertTrue(bench.client.socket.aborted)

    def test_in_a_body_of_known_length(self) -> None:
        """A body with a length cannot take a frame."""
        for spoken in DIALECTS[:3]:
            bench = self.ask(path=spoken.path)
            bench.a.answers(
                head(200, (b"Content-Type", spoken.content_type), (b"Content-Length", b"999")) + spoken.frame
            )
            bench.a.breaks()
            self.assert_cut(bench, spoken.frame)
            self.assertTrue(bench.client.socket.aborted)

    def test_in_a_body_without_frames(self) -> None:
        """JSON has no frames; all that is left is the abort."""
        bench = self.ask()
        bench.a.answers(head(200, (b"Transfer-Encoding", b"chunked")) + chunk(b"{}\n"))
        bench.a.breaks()
        self.assert_cut(bench, chunk(b"{}\n"))

    def test_in_a_compressed_stream(self) -> None:
        """Nothing of ours is put between coded bytes."""
        bench = self.ask()
        fields = (b"Content-Type", NDJSON), (b"Content-Encoding", b"gzip"), (b"Transfer-Encoding", b"chunked")
        bench.a.answers(head(200, *fields) + chunk(b"\x1f\x8b\n"))
        bench.a.breaks()
        self.assert_cut(bench, chunk(b"\x1f\x8b\n"))
        self.assertTrue(bench.client.socket.aborted)

    def test_old_client(self) -> None:
        """A client of HTTP/1.0 gets the frame without a chunk around it."""
        spoken = DIALECTS[0]
        bench = self.begun(spoken, chunk(LINE), minor=0)
        bench.a.breaks()
        self.assert_cut(bench, LINE + spoken.lost)

    def test_what_was_lost_before_the_frame(self) -> None:
        """A client that reads late gets all that came, and the frame."""
        spoken = DIALECTS[0]
        bench = self.begun(spoken, chunk(LINE))
        bench.client.stops_reading()
        bench.a.answers(chunk(LINE))
        bench.a.breaks()
        bench.advance()
        self.assertFalse(bench.client.socket.closed)
        bench.client.reads_on()
        self.assert_cut(bench, 2 * chunk(LINE) + chunk(spoken.lost))


class IdleTests(LostCase):
    """PX-64."""

    def test_engine_that_is_dead(self) -> None:
        """30 s without a byte, and the engine is not alive: lost, with a frame."""
        spoken = DIALECTS[0]
        bench = self.begun(spoken, chunk(LINE))
        bench.engines.dead.add("a")
        bench.advance(29)
        self.assertEqual(bench.job.state, "running")
        bench.advance(12)
        self.assertTrue(bench.a.socket.aborted)
        self.assert_cut(bench, chunk(LINE) + chunk(spoken.lost))

    def test_engine_that_is_alive(self) -> None:
        """One that is alive may think for as long as it likes."""
        bench = self.begun(DIALECTS[0], chunk(LINE))
        bench.advance(3600)
        self.assertEqual(bench.job.state, "running")

    def test_absolute_limit(self) -> None:
        """S22: ``stream_idle_max`` ends any silence; nothing is replayed."""
        spoken = DIALECTS[0]
        bench = self.begun(spoken, chunk(LINE), stream_idle_max=60.0)
        bench.advance(58)
        bench.a.answers(chunk(LINE))
        bench.advance(59)
        self.assertEqual(bench.job.state, "running")
        bench.advance(12)
        self.assert_cut(bench, 2 * chunk(LINE) + chunk(spoken.lost))

    def test_silence_of_our_making(self) -> None:
        """While the client does not read, the engine is not to blame for its silence."""
        bench = self.begun(DIALECTS[0], chunk(LINE), stream_idle_max=60.0)
        bench.client.stops_reading()
        bench.a.answers(chunk(LINE))
        bench.advance(120)
        self.assertEqual(bench.job.state, "running")
        bench.client.reads_on()


class StopTests(LostCase):
    """PX-68: what a stop does to an open stream."""

    def test_between_frames(self) -> None:
        """The client is told, and the job is cancelled as ``stopping``."""
        spoken = DIALECTS[1]
        bench = self.begun(spoken, chunk(spoken.frame))
        bench.admission.stop()
        bench.advance()
        said = bench.client.answer.body.removeprefix(chunk(spoken.frame))
        self.assertIn(b'"code":"stopping"', said)
        self.assertFalse(said.endswith(LAST_CHUNK))
        self.assertTrue(bench.a.socket.aborted and bench.client.socket.closed)
        self.assertEqual((bench.ending, bench.in_use()), (("cancelled", "stopping"), {}))
        self.assertEqual(bench.engines.outcomes, [])

    def test_in_a_frame(self) -> None:
        """Elsewhere it is cut."""
        bench = self.begun(DIALECTS[1], chunk(b"data:"))
        bench.admission.stop()
        self.assertEqual(bench.client.answer.body, chunk(b"data:"))
        self.assertTrue(bench.client.socket.aborted)
        self.assertEqual(bench.ending, ("cancelled", "stopping"))

    def test_between_rounds(self) -> None:
        """A request that waits for its next round is told too, and does not begin it."""
        bench = self.ask(engine("ollama", "m", name="a"))
        bench.a.answers(response(503))
        bench.admission.stop()
        self.assert_refused(bench, 503, "stopping")
        bench.advance(5)
        self.assertEqual((bench.ending, bench.job.attempt_count), (("cancelled", "stopping"), 1))

    def test_after_the_end(self) -> None:
        """What has ended is not touched."""
        bench = self.begun(DIALECTS[0], chunk(DONE) + LAST_CHUNK)
        bench.admission.stop()
        self.assertEqual(bench.client.answer.body, chunk(DONE) + LAST_CHUNK)
        self.assertEqual(bench.ending, ("completed", None))

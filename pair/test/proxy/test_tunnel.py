"""Tests of :mod:`pair.proxy.tunnel`: websockets to this node's LM Studio (PX-75)."""

from __future__ import annotations

from typing import Any

from pair.privacy import Secret
from pair.test.proxy.bench import Bench, BenchCase
from pair.test.proxy.network import head, response
from pair.test.routing.facts import engine

LMSTUDIO = engine("lmstudio", "m", name="s")
LLAMACPP = engine("llamacpp", loaded=("tiny",), name="e")
PATHS = ("/llm", "/embedding", "/system", "/files", "/repository", "/diagnostics", "/plugins")
SWITCHING = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pP=\r\n"
    b"X-Pair-Hop: 1\r\n\r\n"
)
MIB = 1024 * 1024


class TunnelCase(BenchCase):
    def asking(self, path: str = "/llm", method: str = "GET", minor: int = 1, **fields: str) -> Bench:
        """A bench whose client has asked for a websocket."""
        bench = self.bench(LMSTUDIO, LLAMACPP, facade="lmstudio")
        websocket = {
            "Connection": "keep-alive, Upgrade",
            "Upgrade": "WebSocket",
            "Sec_WebSocket_Key": "dGhl",
            "Sec_WebSocket_Version": "13",
            "Sec_WebSocket_Protocol": "llm",
        }
        bench.client.asks(method, path, minor=minor, **{**websocket, **fields})
        return bench

    def joined(self) -> Bench:
        """A bench with an open tunnel."""
        bench = self.asking()
        bench.a.answers(SWITCHING)
        return bench


class OpeningTests(TunnelCase):
    """Who may have one, and what both ends are told."""

    def test_each_path(self) -> None:
        """Each of LM Studio's own goes to it with what makes it a websocket, on a connection of its own."""
        for path in PATHS:
            bench = self.asking(f"{path}?x=1")
            self.assertEqual(bench.contacted(), ["s"])
            self.assertTrue(bench.a.asked.startswith(f"GET {path}?x=1 HTTP/1.1\r\n".encode()))
            for line in (
                b"Host: 127.0.0.1:11435",
                b"Connection: Upgrade",
                b"Upgrade: websocket",
                b"Sec-WebSocket-Key: dGhl",
                b"Sec-WebSocket-Version: 13",
                b"Sec-WebSocket-Protocol: llm",
            ):
                self.assertEqual(bench.a.asked.count(b"\r\n" + line + b"\r\n"), 1, line)
            self.assertEqual((bench.in_use(), bench.jobs.active()), ({"underway": 1}, ()))

    def test_agreed(self) -> None:
        """The client gets the 101 with the engine's fields, less those that are between us and the engine."""
        bench = self.joined()
        answer = bench.client.answer
        self.assertEqual((answer.status, answer.body), (101, b""))
        self.assertEqual(
            answer.fields, {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-accept": "s3pP="}
        )

    def test_no_such_engine(self) -> None:
        """Another engine at home on the facade is not asked, nor one that is stopped."""
        for engines in ([LLAMACPP], [LMSTUDIO]):
            bench = self.bench(*engines, facade="lmstudio")
            bench.engines.stop("s") if engines == [LMSTUDIO] else None
            bench.client.asks("GET", "/llm", Connection="Upgrade", Upgrade="websocket")
            self.assert_refused(bench, 502, "no_engine")
            self.assertEqual(bench.contacted(), [])

    def test_what_is_no_websocket_is_passed_on(self) -> None:
        """PX-8, PX-25: another protocol, method or version, and a request without upgrade go their ordinary way."""
        fields: tuple[dict[str, Any], ...] = ({"Upgrade": "h2c"}, {"Connection": "keep-alive"}, {"Upgrade": ""})
        benches = [self.asking(**each) for each in fields]
        benches += [self.asking(method="POST"), self.asking(minor=0), self.asking(Content_Length="3")]
        for bench in benches:
            self.assertEqual(bench.contacted(), ["e"])
            for line in (b"Upgrade:", b"Connection:"):
                self.assertNotIn(b"\r\n" + line, bench.b.asked)
        bench = benches[0]
        bench.b.answers(SWITCHING)
        self.assert_refused(bench, 502, "engine_unreachable")

    def test_other_paths_have_none(self) -> None:
        """A websocket on any other path, or on the Ollama facade, is an ordinary request."""
        bench = self.asking("/llm2")
        self.assertNotIn(b"\r\nUpgrade:", bench.machines["e"].asked)
        bench = self.bench(LMSTUDIO, engine("ollama", "m", name="a"))
        bench.client.asks("GET", "/llm", Connection="Upgrade", Upgrade="websocket")
        self.assertNotIn(b"\r\nUpgrade:", bench.machines["a"].asked)

    def test_hostile_page(self) -> None:
        """PX-17, PX-19: a page of another origin, or of a name that was made to lead here, has no websocket."""
        pages: tuple[tuple[str, int, dict[str, Any]], ...] = (
            ("bad_origin", 403, {"Origin": "https://evil.example"}),
            ("bad_origin", 403, {"Origin": "null"}),
            ("bad_host", 421, {"Host": "evil.example:1234", "Origin": "http://evil.example:1234"}),
        )
        for code, status, fields in pages:
            bench = self.asking(**fields)
            self.assert_refused(bench, status, code)
            self.assertEqual(bench.contacted(), [])

    def test_page_of_this_machine(self) -> None:
        """An allowed page has one; its origin stays here (PX-20)."""
        bench = self.asking(Origin="http://localhost:3000", Cookie="c")
        bench.a.answers(SWITCHING)
        self.assertEqual(bench.client.answer.fields["access-control-allow-origin"], "http://localhost:3000")
        for hidden in (b"Origin", b"Cookie"):
            self.assertNotIn(hidden, bench.a.asked)

    def test_credential(self) -> None:
        """EN-5: the stored one goes to the engine, and nowhere else."""
        bench = self.bench(LMSTUDIO, facade="lmstudio")
        bench.engines.credentials["s"] = Secret("stored")
        bench.client.asks("GET", "/llm", Connection="Upgrade", Upgrade="websocket", Authorization="Bearer mine")
        self.assertIn(b"\r\nAuthorization: Bearer stored\r\n", bench.a.asked)
        self.assertNotIn(b"mine", bench.a.asked)

    def test_another_status(self) -> None:
        """It is an ordinary answer, and the connection of the client goes on."""
        bench = self.asking()
        bench.a.answers(response(426, b"no"))
        self.assertEqual((bench.client.answer.status, bench.client.answer.body), (426, b"no"))
        bench.client.asks("GET", "/lmstudio-greeting")
        self.assertIn(b'{"lmstudio":true}', bench.client.received)
        bench = self.asking()
        bench.a.answers(head(302, (b"Location", b"http://127.0.0.1:11435/x"), (b"Content-Length", b"0")))
        self.assert_refused(bench, 502, "engine_redirect")

    def test_engine_that_cannot_be_reached(self) -> None:
        """It refuses, or breaks off before it has agreed: one try."""
        bench = self.bench(LMSTUDIO, facade="lmstudio")
        bench.a.refuses = True
        bench.client.asks("GET", "/llm", Connection="Upgrade", Upgrade="websocket")
        bench.advance()
        self.assert_refused(bench, 502, "engine_unreachable")
        bench = self.asking()
        bench.a.breaks()
        self.assert_refused(bench, 502, "engine_unreachable")
        self.assertEqual(len(bench.a.connections), 1)


class JoinedTests(TunnelCase):
    """What passes, and how it ends."""

    def test_echo(self) -> None:
        """Bytes pass both ways as they come, one write a read; also what came in the read with the 101."""
        bench = self.asking()
        bench.a.answers(SWITCHING + b"\x81\x02hi")
        bench.client.sends(b"\x81\x82....", b"GET / HTTP/1.1\r\n\r\n")
        bench.a.answers(b"HTTP/1.1 200 OK\r\n\r\n")
        self.assertEqual(bench.client.answer.body, b"\x81\x02hiHTTP/1.1 200 OK\r\n\r\n")
        self.assertTrue(bench.a.asked.endswith(b"\r\n\r\n\x81\x82....GET / HTTP/1.1\r\n\r\n"))
        self.assertEqual((len(bench.client.socket.writes), len(bench.a.socket.writes)), (3, 3))

    def test_bytes_before_the_agreement(self) -> None:
        """What a client sends before the 101 waits, and is the first that the engine gets."""
        bench = self.asking()
        bench.client.sends(b"early")
        self.assertNotIn(b"early", bench.a.asked)
        bench.a.answers(SWITCHING)
        self.assertTrue(bench.a.asked.endswith(b"\r\n\r\nearly"))

    def test_rests_for_as_long_as_it_likes(self) -> None:
        """No limit of any kind, and no job."""
        bench = self.joined()
        bench.advance(3600)
        bench.client.sends(b"late")
        bench.a.answers(b"later")
        self.assertTrue(bench.a.asked.endswith(b"late"))
        self.assertEqual((bench.client.answer.body, bench.jobs.active(), bench.jobs.ended()), (b"later", (), ()))

    def test_a_mebibyte_both_ways(self) -> None:
        """PX-59: whoever does not read pauses the other end, little is held, and nothing is lost."""
        bench = self.joined()
        client, other = bench.client.socket, bench.a.socket
        pieces = [bytes([i % 251]) * 16384 for i in range(MIB // 16384)]
        for from_, to in ((client, other), (other, client)):
            to.taking = False
            before = len(to.got)
            for each in pieces:
                from_.receive(each)
            self.assertTrue(from_.paused)
            self.assertLess(to.unsent, 128 * 1024)
            while to.unsent:
                to.take()
                to.taking = False
                bench.advance()
            to.take()
            self.assertEqual(to.got[before:], b"".join(pieces))
            self.assertFalse(from_.paused)

    def test_engine_closes(self) -> None:
        """The client gets what is on its way, then the end; whether the engine closed or died."""
        for end in (lambda bench: bench.a.closes(), lambda bench: bench.a.breaks()):
            bench = self.joined()
            bench.client.stops_reading()
            bench.a.answers(b"last")
            end(bench)
            self.assertEqual(bench.in_use(), {})
            bench.client.reads_on()
            bench.advance()
            self.assertTrue(bench.client.received.endswith(b"\r\n\r\nlast"))
            self.assertTrue(bench.client.socket.closed and not bench.client.socket.aborted)

    def test_client_closes(self) -> None:
        """The engine gets what is on its way, then the end; whether the client closed or half-closed."""
        for end in (lambda bench: bench.client.leaves(), lambda bench: bench.client.half_closes()):
            bench = self.joined()
            bench.a.socket.taking = False
            bench.client.sends(b"last")
            end(bench)
            bench.a.socket.take()
            bench.advance()
            self.assertTrue(bench.a.asked.endswith(b"\r\n\r\nlast"))
            self.assertTrue(bench.a.socket.closed and not bench.a.socket.aborted)
            self.assertEqual(bench.in_use(), {})

    def test_client_closes_and_the_engine_does_not_read(self) -> None:
        """It is not waited for without end."""
        bench = self.joined()
        bench.a.socket.taking = False
        bench.client.sends(b"last")
        bench.client.leaves()
        bench.advance(4)
        self.assertFalse(bench.a.socket.closed)
        bench.advance(2)
        self.assertTrue(bench.a.socket.aborted)
        self.assertEqual(bench.in_use(), {})

    def test_client_leaves_before_the_agreement(self) -> None:
        """PX-61: the engine sees the close."""
        bench = self.asking()
        bench.client.leaves()
        self.assertTrue(bench.a.socket.aborted)
        self.assertEqual(bench.in_use(), {})

    def test_stop(self) -> None:
        """PX-68: both ends are closed, also while the client's last bytes are under way."""
        bench = self.joined()
        bench.admission.stop()
        bench.advance()
        self.assertTrue(bench.client.socket.closed and bench.a.socket.closed)
        self.assertEqual(bench.in_use(), {})
        bench = self.joined()
        bench.a.socket.taking = False
        bench.client.sends(b"last")
        bench.client.leaves()
        bench.admission.stop()
        bench.advance(6)
        self.assertEqual(bench.in_use(), {})

    def test_counted_once(self) -> None:
        """OP-40: a request of this machine's own, ended when the tunnel is."""
        bench = self.joined()
        self.assertEqual(bench.plane.meters.requests.values, {})
        bench.a.closes()
        self.assertEqual(bench.plane.meters.requests.values, {("lmstudio", "openai", "local", "1xx"): 1})

"""Tests of :mod:`pair.proxy.direct`: the classes *pass* and *mutate* (PX-25, PX-26)."""

from __future__ import annotations

from pair.privacy import Secret
from pair.test.proxy.bench import CHAT, Bench, BenchCase
from pair.test.proxy.network import LAST_CHUNK, chunk, head, response, stream
from pair.test.routing.facts import engine

OLLAMA = engine("ollama", "m", name="a")
LLAMACPP = engine("llamacpp", loaded=("tiny",), name="e")
BLOB = "/api/blobs/sha256:ab"
SEND = f"POST {BLOB} HTTP/1.1\r\nHost: localhost\r\n".encode()
STATUS = b'{"status":"pulling"}\n'


class DirectCase(BenchCase):
    def sending(self, head: bytes, *pieces: bytes, takes: bool = True) -> Bench:
        """A bench whose client has begun to send a blob."""
        bench = self.bench(OLLAMA)
        bench.a.takes = takes
        bench.client.sends(SEND + head + b"\r\n\r\n", *pieces)
        return bench


class PlaceTests(DirectCase):
    """Which engine gets what, and what is said where there is none."""

    MUTATIONS = (
        ("POST", "/api/pull"),
        ("POST", "/api/push"),
        ("POST", "/api/create"),
        ("POST", "/api/copy"),
        ("DELETE", "/api/delete"),
        ("POST", BLOB),
        ("HEAD", BLOB),
    )

    def test_mutations_go_to_the_engine_of_the_facade(self) -> None:
        """M14: to this node's first engine of the facade's own kind, however it is loaded, and to no other."""
        for method, path in self.MUTATIONS:
            bench = self.bench(LLAMACPP, OLLAMA, engine("ollama", "m", name="b"))
            bench.client.asks(method, path, b"{}" if method != "HEAD" else b"")
            self.assertEqual(bench.contacted(), ["a"])
            self.assertTrue(bench.machines["a"].asked.startswith(f"{method} {path} HTTP/1.1\r\n".encode()))
            self.assertEqual((bench.in_use(), bench.plane.in_flight("a")), ({"underway": 1}, 1))

    def test_mutations_without_such_an_engine(self) -> None:
        """M14: a clear error, also where the only one is stopped."""
        for method, path in self.MUTATIONS:
            bench = self.bench(LLAMACPP, OLLAMA)
            bench.engines.stop("a")
            bench.client.asks(method, path)
            self.assert_refused(bench, 503, "no_local_engine")
            self.assertEqual(bench.contacted(), [])

    def test_mutations_of_the_other_facade(self) -> None:
        """LM Studio's own go to LM Studio, not to another engine that is at home there."""
        for engines, contacted in (([LLAMACPP], []), ([LLAMACPP, engine("lmstudio", name="s")], ["s"])):
            bench = self.bench(*engines, facade="lmstudio")
            bench.client.asks("POST", "/api/v1/models/load", {"model": "x"})
            self.assertEqual(bench.contacted(), contacted)

    def test_the_rest_goes_to_the_engine_at_home(self) -> None:
        """PX-25: by the engine's home facade, whatever the path, query and method."""
        bench = self.bench(LLAMACPP, OLLAMA, facade="lmstudio")
        bench.client.asks("PATCH", "/props?x=%20y", b"body")
        self.assertEqual(bench.contacted(), ["e"])
        self.assertTrue(bench.machines["e"].asked.startswith(b"PATCH /props?x=%20y HTTP/1.1\r\n"))
        bench = self.bench(LLAMACPP)
        bench.client.asks("GET", "/props")
        self.assert_refused(bench, 404, "route_unknown")

    def test_slashes_of_the_rest_are_the_engines(self) -> None:
        """Only a listed path loses a slash, and only one: what is matched is what is sent (RT-6)."""
        for path in ("/docs/?x=1", "/api/chat//", "/a//b"):
            bench = self.bench(OLLAMA)
            bench.client.asks("POST", path, b"{}")
            self.assertTrue(bench.a.asked.startswith(f"POST {path} HTTP/1.1\r\n".encode()), path)
            self.assertEqual(bench.in_use(), {"underway": 1})

    def test_fields(self) -> None:
        """H01, EN-5: the engine's own authority, and its stored credential in place of the client's."""
        bench = self.bench(OLLAMA)
        bench.engines.credentials["a"] = Secret("stored")
        bench.client.asks("GET", "/other", Authorization="Bearer mine", Cookie="c")
        self.assertIn(b"\r\nAuthorization: Bearer stored\r\n", bench.a.asked)
        self.assertIn(b"\r\nHost: 127.0.0.1:11435\r\n", bench.a.asked)
        for hidden in (b"mine", b"Cookie"):
            self.assertNotIn(hidden, bench.a.asked)
        bench.a.answers(response(200, b"{}"))
        self.assertNotIn(b"stored", bench.client.received)

    def test_no_job(self) -> None:
        """JB-45: neither is a job, nor counts as inference."""
        bench = self.bench(OLLAMA)
        bench.client.asks("POST", "/api/pull", {"model": "x"})
        bench.a.answers(response(200, b"{}"))
        self.assertEqual((bench.jobs.ended(), bench.engines.outcomes, bench.in_use()), ((), [], {}))


class UploadTests(DirectCase):
    """The body on its way: not kept, at the engine's pace."""

    def test_with_a_length(self) -> None:
        """Each piece passes as it comes, and no cap holds."""
        bench = self.bench(OLLAMA, max_body=4)
        bench.client.sends(SEND + b"Content-Length: 9\r\n\r\n", b"12345")
        self.assertTrue(bench.a.asked.endswith(b"\r\n\r\n12345"))
        self.assertEqual(bench.plane.bodies.used, 0)
        bench.client.sends(b"6789")
        self.assertTrue(bench.a.asked.endswith(b"\r\n\r\n123456789"))
        self.assertEqual(bench.a.asked.count(b"Content-Length: 9"), 1)
        bench.a.answers(response(201))
        self.assertEqual((bench.client.answer.status, bench.in_use()), (201, {}))

    def test_chunked(self) -> None:
        """H08: a chunked one stays so, with one end."""
        bench = self.sending(b"Transfer-Encoding: chunked", chunk(b"12345"), chunk(b"6"), LAST_CHUNK)
        sent_head, _, sent = bench.a.asked.partition(b"\r\n\r\n")
        self.assertEqual(sent, chunk(b"12345") + chunk(b"6") + LAST_CHUNK)
        self.assertIn(b"Transfer-Encoding: chunked", sent_head)
        self.assertNotIn(b"Content-Length", sent_head)

    def test_engine_pauses_the_client(self) -> None:
        """PX-59: an engine that does not take the body pauses the client; nothing of it is lost."""
        bench = self.sending(b"Content-Length: 1000000", takes=False)
        pieces = [b"%d" % (i % 10) * 10_000 for i in range(100)]
        for each in pieces:
            bench.client.sends(each)
        self.assertTrue(bench.client.socket.paused)
        self.assertLess(bench.a.socket.unsent, 128 * 1024)
        while bench.a.socket.unsent:
            bench.a.socket.take()
            bench.a.socket.taking = False
            bench.advance()
        self.assertTrue(bench.a.asked.endswith(b"\r\n\r\n" + b"".join(pieces)))

    def test_client_rests_until_there_is_a_connection(self) -> None:
        """While the connection is made no more is taken than one read."""
        bench = self.bench(OLLAMA)
        bench.a.hangs = True
        bench.client.sends(SEND + b"Content-Length: 99\r\n\r\n12345")
        self.assertTrue(bench.client.socket.paused)
        bench.advance(3.5)
        self.assert_refused(bench, 502, "engine_unreachable")

    def test_stalled_client(self) -> None:
        """PX-31 holds here too: 120 s without a byte."""
        bench = self.sending(b"Content-Length: 9", b"12345")
        bench.advance(122)
        self.assert_refused(bench, 408, "body_stalled")
        self.assertTrue(bench.a.socket.aborted)

    def test_answer_before_the_end_of_the_body(self) -> None:
        """An engine that has heard enough is answered for at once; neither connection is used again."""
        bench = self.sending(b"Content-Length: 9", b"12345")
        bench.a.answers(response(413, b"no"))
        self.assertEqual((bench.client.answer.status, bench.client.answer.body), (413, b"no"))
        bench.client.sends(b"6789")
        bench.advance()
        self.assertTrue(bench.a.socket.closed and bench.client.socket.closed)
        self.assertEqual(bench.in_use(), {})

    def test_expect(self) -> None:
        """H11: a client that waits for a 100 has it from us."""
        bench = self.sending(b"Content-Length: 5\r\nExpect: 100-continue")
        self.assertEqual(bench.client.received, b"HTTP/1.1 100 Continue\r\n\r\n")
        bench.client.sends(b"12345")
        self.assertTrue(bench.a.asked.endswith(b"12345"))


class AnswerTests(DirectCase):
    """The answer: from its head on, raw, and once."""

    def pulling(self) -> Bench:
        """A bench whose client pulls a model."""
        bench = self.bench(OLLAMA)
        bench.client.asks("POST", "/api/pull", {"model": "x"})
        return bench

    def test_begins_with_the_head(self) -> None:
        """PX-57: before the first byte of the body; every line passes as it comes, for as long as it takes."""
        bench = self.pulling()
        bench.a.answers(stream())
        self.assertEqual((bench.client.answer.status, bench.client.answer.body), (200, b""))
        for _ in range(3):
            bench.advance(3600)
            bench.a.answers(chunk(STATUS))
        bench.a.answers(LAST_CHUNK)
        self.assertEqual(bench.client.answer.body, 3 * chunk(STATUS) + LAST_CHUNK)

    def test_head_and_body_in_one_read(self) -> None:
        """The body that came with the head is not lost."""
        bench = self.pulling()
        bench.a.answers(stream() + chunk(STATUS), LAST_CHUNK)
        self.assertEqual(bench.client.answer.body, chunk(STATUS) + LAST_CHUNK)

    def test_any_status_is_passed_on(self) -> None:
        """One try: what the engine says is the answer."""
        for status in (200, 404, 500, 503):
            bench = self.pulling()
            bench.a.answers(response(status, b"{}"))
            self.assertEqual((bench.client.answer.status, len(bench.a.connections)), (status, 1))

    def test_redirects(self) -> None:
        """H13: one within the engine is the client's to follow; one that names an address is not passed on."""
        for location, status in [(b"/other", 307), (b"http://127.0.0.1:11435/other", 502), (b"//host/", 502)]:
            bench = self.bench(OLLAMA)
            bench.client.asks("GET", "/other/")
            bench.a.answers(response(307, b"", (b"Location", location)))
            self.assertEqual((bench.client.answer.status, bench.in_use()), (status, {}))
        self.assertNotIn(b"//host", bench.client.received)
        bench = self.bench(OLLAMA)
        bench.client.asks("GET", "/other", If_None_Match="x")
        bench.a.answers(head(304))
        self.assertEqual(bench.client.answer.status, 304)

    def test_head_request(self) -> None:
        """HEAD of a blob: the head alone, with the engine's fields."""
        bench = self.bench(OLLAMA)
        bench.client.asks("HEAD", BLOB)
        bench.a.answers(head(200, (b"Content-Length", b"77")))
        self.assertEqual((bench.client.answer.fields["content-length"], bench.client.answer.body), ("77", b""))
        self.assertEqual(bench.in_use(), {})

    def test_never_repeated(self) -> None:
        """PX-26: on a new connection each time, so that nothing is ever sent twice; a failure is told."""
        bench = self.pulling()
        bench.a.answers(response(200, b"{}"))
        bench.client.asks("POST", "/api/pull", {"model": "x"})
        self.assertEqual(len(bench.a.connections), 2)
        bench.a.breaks()
        bench.advance(60)
        self.assertEqual(len(bench.a.connections), 2)
        self.assertIn(b"engine_unreachable", bench.client.received)
        self.assertEqual(bench.in_use(), {})

    def test_engine_that_breaks_off(self) -> None:
        """After the head the client's answer is cut, with a frame where one fits."""
        bench = self.pulling()
        bench.a.answers(stream(), chunk(STATUS))
        bench.a.breaks()
        self.assertIn(b"the engine broke off", bench.client.answer.body)
        self.assertFalse(bench.client.answer.body.endswith(LAST_CHUNK))

    def test_client_that_leaves(self) -> None:
        """PX-61: before and after the head the engine sees the close."""
        for pieces in ((), (stream(), chunk(STATUS))):
            bench = self.pulling()
            bench.a.answers(*pieces)
            bench.client.leaves()
            self.assertTrue(bench.a.socket.aborted)
            self.assertEqual(bench.in_use(), {})

    def test_stop(self) -> None:
        """PX-68: before the head it is refused, after it the stream is broken off."""
        bench = self.pulling()
        bench.admission.stop()
        self.assert_refused(bench, 503, "stopping")
        bench = self.pulling()
        bench.a.answers(stream(), chunk(STATUS))
        bench.admission.stop()
        self.assertIn(b"this node is stopping", bench.client.answer.body)
        self.assertEqual(bench.in_use(), {})

    def test_pipelined_behind_it(self) -> None:
        """The next request of the connection waits for the end of this one (X05)."""
        bench = self.pulling()
        bench.client.asks("POST", "/api/chat", CHAT)
        self.assertNotIn(b"/api/chat", bench.a.asked)
        bench.a.answers(response(200, b"{}"))
        self.assertIn(b"/api/chat", bench.a.asked)


class HeldEndTests(DirectCase):
    """PX-26, EN-78: what may have changed the engine's models ends when they were read again."""

    def answered(self, *pieces: bytes) -> Bench:
        """A bench whose client has deleted a model, and whose engine has not told yet what is left."""
        bench = self.bench(OLLAMA)
        bench.engines.reads_at_once = False
        bench.client.asks("DELETE", "/api/delete", {"model": "m"})
        bench.a.answers(*pieces)
        return bench

    def test_end_waits(self) -> None:
        """The lines of progress pass at once; the end, in whatever framing, when the list was read."""
        for pieces, at_once in [
            ((stream(), chunk(STATUS), chunk(STATUS) + LAST_CHUNK), chunk(STATUS)),
            ((stream(), chunk(STATUS), LAST_CHUNK), chunk(STATUS)),
            ((head(200, (b"Content-Length", b"2")), b"{", b"}"), b"{"),
        ]:
            bench = self.answered(*pieces)
            self.assertEqual((bench.client.answer.body, bench.engines.refreshed), (at_once, ["a"]))
            bench.engines.reading["a"].callback(None)
            self.assertEqual(bench.client.answer.body, b"".join(pieces).partition(b"\r\n\r\n")[2])
            self.assertEqual(bench.in_use(), {})

    def test_empty_answer_waits(self) -> None:
        """An answer without a body ends with its head, so all of it waits."""
        bench = self.answered(response(200))
        self.assertEqual(bench.client.received, b"")
        bench.engines.reading["a"].callback(None)
        self.assertEqual((bench.client.answer.status, bench.in_use()), (200, {}))

    def test_not_for_long(self) -> None:
        """1 s at most; the reading goes on."""
        bench = self.answered(response(200))
        bench.advance(1.1)
        self.assertEqual((bench.client.answer.status, bench.in_use()), (200, {}))
        bench.engines.reading["a"].callback(None)
        self.assertEqual(bench.client.received.count(b"HTTP/1.1"), 1)

    def test_client_that_leaves(self) -> None:
        """A client may leave in the wait, and the service may stop."""
        for pieces in ((response(200),), (stream(), chunk(STATUS) + LAST_CHUNK)):
            for end in (lambda bench: bench.client.leaves(), lambda bench: bench.admission.stop()):
                bench = self.answered(*pieces)
                end(bench)
                self.assertEqual(bench.in_use(), {})
                bench.engines.reading["a"].callback(None)

    def test_reading_that_fails(self) -> None:
        """Then the end is passed on as well."""
        bench = self.answered(response(200))
        bench.engines.reading["a"].errback(RuntimeError())
        self.assertEqual(bench.client.answer.status, 200)

    def test_engine_that_breaks_off(self) -> None:
        """What does not end is not waited for."""
        bench = self.answered(stream(), chunk(STATUS))
        bench.a.breaks()
        self.assertIn(b"the engine broke off", bench.client.answer.body)
        self.assertEqual((bench.engines.refreshed, bench.in_use()), ([], {}))

    def test_four_wait(self) -> None:
        """Each whose caller may ask for what it made at once."""
        for method, path in (("POST", "/api/pull"), ("POST", "/api/create"), ("POST", "/api/copy")):
            bench = self.bench(OLLAMA)
            bench.engines.reads_at_once = False
            bench.client.asks(method, path, {"model": "x"})
            bench.a.answers(response(200))
            self.assertEqual((bench.client.received, bench.engines.refreshed), (b"", ["a"]), path)
            bench.engines.reading["a"].callback(None)
            self.assertEqual(bench.client.answer.status, 200)

    def test_the_other_facade_does_not_wait(self) -> None:
        """After load, unload and download the list is read when the answer has ended, and not in what follows."""
        for path in ("load", "unload", "download"):
            bench = self.bench(engine("lmstudio", name="s"), facade="lmstudio")
            bench.engines.reads_at_once = False
            bench.client.asks("POST", f"/api/v1/models/{path}", {"model": "x"})
            bench.a.answers(head(200, (b"Content-Length", b"2")), b"{")
            self.assertEqual(bench.engines.refreshed, [])
            bench.a.answers(b"}")
            self.assertEqual((bench.client.answer.body, bench.engines.refreshed), (b"{}", ["s"]), path)
            self.assertEqual(bench.in_use(), {})

    def test_refusals_and_other_paths(self) -> None:
        """What was refused or broke off has changed nothing, nor has a push or a layer; of others we know nothing."""
        self.assertEqual(self.answered(response(404, b"{}")).engines.refreshed, [])
        for path in ("/other", "/api/push", BLOB):
            bench = self.bench(OLLAMA)
            bench.client.asks("POST", path, b"x")
            bench.a.answers(response(200, b"{}"))
            self.assertEqual((bench.client.answer.status, bench.engines.refreshed), (200, []), path)
        for end in (lambda bench: bench.a.breaks(), lambda bench: bench.client.leaves()):
            bench = self.bench(engine("lmstudio", name="s"), facade="lmstudio")
            bench.client.asks("POST", "/api/v1/models/load", {"model": "x"})
            bench.a.answers(stream())
            end(bench)
            self.assertEqual((bench.engines.refreshed, bench.in_use()), ([], {}))

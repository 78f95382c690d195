"""Tests of :mod:`pair.proxy.ingress`: what members send (PX-86 to PX-89)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from pair.cluster.pins import PeerLeaf
from pair.protocols.http_server import HTTPServerFactory, HTTPServerProtocol, Limits
from pair.proxy.headers import request_head
from pair.proxy.ingress import LIMITS, Ingress, NotMember, Peers
from pair.proxy.replies import refusal, reply
from pair.records.engines import Drain
from pair.routing.dialects import ROUTES
from pair.test.proxy.bench import CHAT, DONE, LINE, Bench, BenchCase
from pair.test.proxy.network import INTERIM, LAST_CHUNK, Client, Socket, chunk, response, stream
from pair.test.routing.facts import engine

MEMBER = PeerLeaf.of(b"leaf")
REFUSAL = NotMember(403, ((b"Content-Type", b"application/json"),), b'{"evidence":["e30="]}')


class IngressTests(BenchCase):
    """Members are served by an engine here, and by nothing else."""

    def member(self, bench: Bench, leaf: PeerLeaf = MEMBER) -> Client:
        """A connection over mutual TLS."""
        peers = Peers(lambda factory: factory, lambda leaf, address: None if leaf == MEMBER else REFUSAL)
        self.ingress = Ingress(bench.plane, bench.facade, peers, lambda: "run.9")

        def refuse(status: int, code: str) -> Any:
            answer = reply(refusal(code), "ollama", "run.0")
            return answer.fields, answer.body

        protocol = HTTPServerFactory(bench.clock, self.ingress.received, refuse, LIMITS).buildProtocol(None)
        assert isinstance(protocol, HTTPServerProtocol)
        socket = Socket(bench.clock, "10.0.0.7")
        socket.peerLeaf = leaf  # type: ignore[attr-defined]
        socket.protocol = protocol
        protocol.makeConnection(socket)
        self.addCleanup(socket.lose, ConnectionError())
        return Client(socket)

    def asks(self, bench: Bench, path: str = "/api/chat", method: str = "POST", **fields: str) -> Client:
        """A member that has asked with a hop marker, unless ``fields`` say otherwise."""
        client = self.member(bench)
        client.asks(method, path, CHAT if method == "POST" else b"", 1, **{"X_Pair_Hop": "1", **fields})
        bench.advance()
        return client

    def test_served(self) -> None:
        """PX-88: by the facade's first engine, marked as the second hop, without a job of this node."""
        bench = self.bench()
        client = self.asks(bench, Host="whatever.example", Origin="https://evil.example")
        self.assertEqual(bench.contacted(), ["a"])
        self.assertIn(b"\r\nX-Pair-Hop: 2\r\n", bench.a.asked)
        bench.a.answers(response(200, DONE))
        bench.advance()
        self.assertEqual((client.answer.status, client.answer.body, bench.jobs.active()), (200, DONE, ()))

    def test_named_engine(self) -> None:
        """PX-88: the engine that the sender chose, or none."""
        bench = self.bench()
        self.asks(bench, X_Pair_Engine="b")
        self.assertEqual(bench.contacted(), ["b"])
        bench = self.bench()
        for fields in ({"X_Pair_Engine": "x"}, {"X_Pair_Engine": "\xff"}):
            client = self.asks(bench, **fields)
            self.assertEqual((client.answer.status, client.answer.fields["x-pair-error"]), (503, "no_local_engine"))
        self.assertEqual(bench.contacted(), [])

    def test_longest_head(self) -> None:
        """PX-9, PX-53: the longest head that a client may send is served here too, with what the hop adds to it."""
        bench = self.bench()
        body = b'{"model":"m"}'
        names = [b"f%02d" % number for number in range(Limits().fields)]
        room = Limits().head_bytes - len(b"POST /api/chat HTTP/1.0\r\n\r\n") - sum(len(name) + 3 for name in names)
        hop = request_head(
            b"POST",
            b"/api/chat",
            [(name, b"x" * room if name is names[0] else b"") for name in names],
            authority=f"{uuid4()}:11434".encode(),
            length=len(body),
            hop=1,
            member=(f"X-Pair-Job: {uuid4()}.123456789".encode(), b"X-Pair-Engine: a"),
        )
        client = self.member(bench)
        client.sends(hop + body)
        bench.advance()
        bench.a.answers(response(200, DONE))
        bench.advance()
        self.assertEqual((client.answer.status, client.answer.body), (200, DONE))

    def test_drained(self) -> None:
        """RT-22, PX-88: a drained node takes no new work, says so, and ends what it works on."""
        bench = self.bench()
        before = self.asks(bench)
        bench.engines.drain(Drain())
        client = self.asks(bench)
        fields = client.answer.fields
        self.assertEqual((client.answer.status, fields["x-pair-fault"]), (503, "drained"))
        bench.a.answers(response(200, DONE))
        bench.advance()
        self.assertEqual((before.answer.status, bench.contacted()), (200, ["a"]))

    def test_no_engine(self) -> None:
        """PX-88: an engine of the other facade's kind is none."""
        bench = self.bench(engine("llamacpp", loaded=("tiny",), name="e"))
        client = self.asks(bench)
        self.assertEqual((client.answer.status, client.answer.fields["x-pair-error"]), (503, "no_local_engine"))

    def test_never_routed_again(self) -> None:
        """PX-88: one hop, no less and no more."""
        for hop in ("", "0", "2", "1, 1"):
            bench = self.bench()
            client = self.asks(bench, X_Pair_Hop=hop)
            self.assertEqual((client.answer.status, bench.contacted()), (508, []), hop)
        client = self.asks(bench, X_Pair_Hop="1\r\nX-Pair-Hop: 1")
        self.assertEqual((client.answer.status, bench.contacted()), (508, []))

    def test_next_request_too_early(self) -> None:
        """PX-11: a member that sends more before it has its answer is cut off, and its request with it."""
        bench = self.bench()
        client = self.asks(bench)
        client.sends(b"P")
        self.assertTrue(client.socket.aborted)
        self.assertTrue(bench.a.socket.aborted)
        self.assertEqual(bench.in_use(), {})
        client = self.asks(bench)
        bench.a.answers(response(200, DONE))
        client.asks("POST", "/api/chat", CHAT, X_Pair_Hop="1")
        bench.advance()
        self.assertFalse(client.socket.aborted)

    def test_other_paths(self) -> None:
        """PX-87: nothing but inference, owner routes and the version, as they are spelled in the tables."""
        for method, path in [
            ("POST", "/api/pull"),
            ("DELETE", "/api/delete"),
            ("POST", "/api/chat/"),
            ("POST", "/api/%63hat"),
            ("POST", "http://localhost/api/chat"),
            ("GET", "/api/tags"),
            ("GET", "/"),
            ("GET", "/other"),
            ("GET", "/v1/models/../../api/tags"),
            ("GET", "/v1/models/%2e%2e/x"),
        ]:
            bench = self.bench()
            client = self.asks(bench, path, method)
            self.assertEqual((client.answer.status, client.answer.fields["x-pair-error"]), (403, "peer_path"), path)
            self.assertEqual(bench.contacted(), [], path)
        bench = self.bench()
        self.asks(bench, "/api/version", "GET")
        self.assertEqual(bench.contacted(), ["a"])

    def test_what_changes_an_engine(self) -> None:
        """X08: nothing that changes what an engine has, nor a tunnel to it, is open to members, on either facade."""
        changing = set()
        for facade in ("ollama", "lmstudio"):
            for route in ROUTES[facade]:
                if route.role not in ("mutate", "tunnel"):
                    continue
                bench = self.bench(engine(facade, "m", name="a"), facade=facade)
                client = self.asks(bench, route.path.replace("{id}", "m"), route.method)
                error = client.answer.fields["x-pair-error"]
                self.assertEqual((client.answer.status, error, bench.contacted()), (403, "peer_path", []), route.key)
                changing.add(route.path)
        self.assertLessEqual({f"/api/{each}" for each in ("pull", "push", "create", "copy", "delete")}, changing)
        self.assertTrue(any(each.startswith("/api/blobs/") for each in changing))

    def test_not_a_member(self) -> None:
        """PX-86, CL-17: the refusal that was handed in, evidence included, and the end of the connection."""
        bench = self.bench()
        client = self.member(bench, PeerLeaf.of(b"other"))
        client.asks("POST", "/api/chat", CHAT, X_Pair_Hop="1")
        bench.advance()
        answer = client.answer
        self.assertEqual((answer.status, answer.body, answer.fields["connection"]), (403, REFUSAL.body, "close"))
        self.assertEqual(bench.contacted(), [])

    def test_stopping_and_full(self) -> None:
        """PX-13: a node that stops takes nothing, nor one that has all it can take."""
        bench = self.bench(max_active=0)
        client = self.asks(bench)
        self.assertEqual((client.answer.status, client.answer.fields["x-pair-error"]), (503, "overloaded"))
        bench = self.bench()
        client = self.member(bench)
        self.ingress.stopping = True
        client.asks("POST", "/api/chat", CHAT, X_Pair_Hop="1")
        self.assertEqual(client.answer.fields["x-pair-error"], "stopping")

    def test_awake(self) -> None:
        """PX-54: it is said at once that the request is worked at, and every 5 s, until the answer's first byte."""
        bench = self.bench()
        client = self.asks(bench)
        self.assertEqual(client.received, INTERIM)
        bench.advance(10.5)
        self.assertEqual(client.received, INTERIM * 3)
        bench.a.answers(stream())
        bench.advance(5)
        self.assertEqual(client.received, INTERIM * 4)
        bench.a.answers(chunk(LINE))
        bench.advance(5)
        self.assertEqual((client.answer.status, client.answer.body), (200, chunk(LINE)))
        bench.a.answers(chunk(DONE), LAST_CHUNK)
        self.assertEqual(client.answer.body, chunk(LINE) + chunk(DONE) + LAST_CHUNK)
        self.assertEqual(bench.engines.outcomes, [("a", True)])

    def test_refusal_of_the_engine(self) -> None:
        """Its own refusal passes as it is, at once: the sender judges it."""
        bench = self.bench()
        client = self.asks(bench)
        bench.a.answers(response(503, b"busy", (b"Retry-After", b"7")))
        bench.advance()
        answer = client.answer
        self.assertEqual((answer.status, answer.body, answer.fields["retry-after"]), (503, b"busy", "7"))
        self.assertNotIn("x-pair-error", answer.fields)

    def test_engine_stalled(self) -> None:
        """PX-56: an engine that is not alive any more is told as such, and not as a node that fell silent."""
        bench = self.bench()
        client = self.asks(bench)
        bench.engines.dead.add("a")
        bench.advance(5.5)
        fields = client.answer.fields
        self.assertEqual((client.answer.status, fields["x-pair-fault"]), (504, "engine_stalled"))
        self.assertTrue(bench.a.socket.aborted)

    def test_engine_dies(self) -> None:
        """Before the first byte it is refused, so that the sender may ask another; a cut body is cut."""
        for pieces in ((), (stream(),)):
            bench = self.bench()
            client = self.asks(bench)
            bench.a.answers(*pieces)
            bench.a.breaks()
            bench.advance()
            self.assertEqual(client.answer.fields["x-pair-error"], "engine_unreachable")
            self.assertEqual(bench.engines.outcomes, [("a", False)])

    def test_sender_leaves(self) -> None:
        """PX-61: the engine sees it within the turn, and nothing stays."""
        bench = self.bench()
        client = self.asks(bench)
        client.leaves()
        self.assertTrue(bench.a.socket.aborted)
        self.assertEqual(bench.in_use(), {})

    def test_reused_connection(self) -> None:
        """PX-50: one that the engine closes as it is used again is replaced, and the sender sees nothing of it."""
        bench = self.bench()
        self.asks(bench)
        bench.a.answers(response(200, DONE))
        bench.advance()
        client = self.asks(bench)
        self.assertEqual(len(bench.a.connections), 1)
        bench.a.closes()
        bench.advance()
        self.assertEqual(len(bench.a.connections), 2)
        self.assertTrue(bench.a.asked.endswith(b'"content":"hi"}]}'))
        bench.a.answers(response(200, DONE))
        bench.advance()
        self.assertEqual((client.answer.status, client.answer.body), (200, DONE))

    def test_body(self) -> None:
        """PX-29, PX-33, PX-89: the body is within the limits, and the engine gets it whole, with its length."""
        bench = self.bench(max_body=10)
        client = self.asks(bench)
        self.assertEqual((client.answer.status, client.answer.fields["x-pair-error"]), (413, "too_large"))
        self.assertEqual(bench.contacted(), [])
        bench = self.bench()
        client = self.member(bench)
        head = b"POST /api/chat HTTP/1.1\r\nHost: x\r\nX-Pair-Hop: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
        client.sends(head, chunk(b'{"model":'))
        bench.advance(5.5)
        self.assertEqual((client.received, bench.contacted()), (INTERIM * 2, []))
        client.sends(chunk(b'"m"}'), LAST_CHUNK)
        bench.advance()
        self.assertTrue(bench.a.asked.endswith(b'\r\n\r\n{"model":"m"}'))
        self.assertIn(b"\r\nContent-Length: 13\r\n", bench.a.asked)
        self.assertNotIn(b"chunked", bench.a.asked)
        client.leaves()
        self.assertEqual(bench.in_use(), {})

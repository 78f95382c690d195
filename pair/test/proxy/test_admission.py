"""Tests of :mod:`pair.proxy.admission`: what is refused, in which order, and who serves the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pair.routing.dialects import ROUTES
from pair.test.proxy.bench import CHAT, DONE, NODE, NONCE, Bench, BenchCase
from pair.test.proxy.network import LAST_CHUNK, chunk, response, stream
from pair.test.routing.facts import engine

if TYPE_CHECKING:
    from collections.abc import Mapping

EVIL = "https://evil.example"
PAGE = "http://localhost:3000"


class OrderTests(BenchCase):
    """PX-13: each check alone, and of several the first that fails."""

    FAULTS: tuple[tuple[str, int, dict[str, Any]], ...] = (
        ("loopback_only", 403, {"peer": "192.168.1.7"}),
        ("loop", 508, {"X_Pair_Hop": "1"}),
        ("proxy_facade", 409, {"X_Pair_Probe": "1"}),
        ("bad_host", 421, {"Host": "evil.example"}),
        ("bad_origin", 403, {"Origin": EVIL}),
        ("stopping", 503, {"stopping": True}),
        ("overloaded", 503, {"max_active": 0}),
        ("too_large", 413, {"max_body": 5}),
        ("unsupported_encoding", 415, {"Content_Encoding": "identity", "content_encoding": "gzip"}),
        ("bad_model", 400, {"model": 5}),
        ("model_unknown", 502, {"model": "x"}),
    )
    """In the order of the specification: code, status, and what provokes it."""

    def provoke(self, **faults: Any) -> Bench:
        """A request with all these faults."""
        settings = {name: faults.pop(name) for name in ("max_active", "max_body") if name in faults}
        bench = self.bench(**settings)
        bench.admission.stopping = faults.pop("stopping", False)
        if "peer" in faults:
            bench.client = bench.connect(faults.pop("peer"))
        bench.client.asks("POST", "/api/chat", {**CHAT, "model": faults.pop("model", "m")}, **faults)
        return bench

    def test_each_alone(self) -> None:
        """Each fault alone has its own answer, and no engine is contacted."""
        for code, status, fault in self.FAULTS:
            bench = self.provoke(**fault)
            self.assert_refused(bench, status, code)
            self.assertEqual(bench.contacted(), [], code)

    def test_the_first_answers(self) -> None:
        """Of any two faults the one that stands first in the order is told."""
        for i, (code, status, first) in enumerate(self.FAULTS):
            for _, _, second in self.FAULTS[i + 1 :]:
                self.assert_refused(self.provoke(**{**second, **first}), status, code)

    def test_no_byte_of_a_refused_body_is_read(self) -> None:
        """H11: what is refused by its head is answered without a 100, and then the connection closes."""
        faults: tuple[dict[str, Any], ...] = ({"Host": "evil.example"}, {"Content_Encoding": "br"}, {"Origin": EVIL})
        for fault in faults:
            bench = self.bench()
            bench.client.asks("POST", "/api/chat", b"", Content_Length="99", Expect="100-continue", **fault)
            self.assertIn(bench.client.answer.status, (421, 415, 403))
            self.assertEqual(bench.client.answer.fields["connection"], "close")


class PersonalityTests(BenchCase):
    """Who may ask at all."""

    def test_loopback(self) -> None:
        """PX-14: all of 127.0.0.0/8 and ::1, IPv4-mapped ones too."""
        for peer in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"):
            bench = self.bench()
            bench.client = bench.connect(peer)
            bench.client.asks("GET", "/api/version")
            self.assertEqual(bench.client.answer.status, 200, peer)

    def test_others_are_refused_whatever_they_say(self) -> None:
        """X13, PX-14: fields that name another address are not believed, and the text says what to do."""
        for peer in ("192.168.1.7", "::ffff:10.0.0.1", "fe80::1", "2001:db8::1"):
            bench = self.bench()
            bench.client = bench.connect(peer)
            bench.client.asks(
                "GET", "/", X_Forwarded_For="127.0.0.1", Forwarded="for=127.0.0.1", X_Real_IP="127.0.0.1"
            )
            self.assert_refused(bench, 403, "loopback_only")
            self.assertIn("make it a node", bench.client.received.decode())

    def test_hop_marker(self) -> None:
        """X11, PX-15: a request that a router sent is refused here, whatever the marker says."""
        for value in ("1", "2", ""):
            bench = self.bench()
            bench.client.asks("GET", "/api/tags", X_Pair_Hop=value)
            self.assert_refused(bench, 508, "loop")

    def test_probe(self) -> None:
        """PX-16: on any path a probe is told who this is."""
        for path in ("/", "/api/chat", "/nowhere"):
            bench = self.bench()
            bench.client.asks("GET", path, X_Pair_Probe="1")
            self.assert_refused(bench, 409, "proxy_facade")
            self.assertEqual(bench.client.answer.fields["x-pair-facade"], NONCE)

    def test_ids_differ(self) -> None:
        """X10: each answer of ours has an id of its own."""
        bench = self.bench()
        for _ in range(2):
            bench.client.asks("GET", "/", X_Pair_Hop="1")
        self.assertIn(b"X-Pair-Request: run.1\r\n", bench.client.received)
        self.assertIn(b"X-Pair-Request: run.2\r\n", bench.client.received)


class BrowserTests(BenchCase):
    """PX-17 to PX-21, as they meet a whole facade."""

    def test_every_path_refuses_a_foreign_host(self) -> None:
        """X02, H02: rebinding reaches no path of either table, nor any other one."""
        for facade, routes in ROUTES.items():
            bench = self.bench(facade=facade)
            for path in {each.path.replace("{id}", "m") for each in routes} | {"/other"}:
                for method in ("GET", "POST", "HEAD", "DELETE", "OPTIONS"):
                    client = bench.connect()
                    client.asks(method, path, Host="evil.example:11434")
                    self.assertEqual(client.answer.fields["x-pair-error"], "bad_host")
            self.assertEqual(bench.contacted(), [])

    def test_every_path_refuses_a_foreign_origin(self) -> None:
        """X01: a page of another site reaches no path, and may not read the refusal."""
        for facade, routes in ROUTES.items():
            bench = self.bench(facade=facade)
            for path in {each.path.replace("{id}", "m") for each in routes} | {"/other"}:
                for method in ("GET", "POST", "OPTIONS"):
                    client = bench.connect()
                    client.asks(method, path, Origin=EVIL, Access_Control_Request_Method="POST")
                    self.assertEqual(client.answer.fields["x-pair-error"], "bad_origin")
                    self.assertNotIn("access-control-allow-origin", client.answer.fields)
            self.assertEqual(bench.contacted(), [])

    def test_simple_post(self) -> None:
        """X01: what a page can send without a preflight reaches no engine either."""
        bench = self.bench()
        bench.client.asks("POST", "/api/chat", b'{"model":"m"}', Origin=EVIL, Content_Type="text/plain")
        self.assert_refused(bench, 403, "bad_origin")
        bench = self.bench()
        bench.client.asks("POST", "/api/chat", CHAT, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors")
        self.assert_refused(bench, 403, "bad_origin")

    def test_allowed_host(self) -> None:
        """H02: with a name that is allowed the engine still sees its own."""
        bench = self.bench(allowed_hosts=("box.example",))
        bench.client.asks("POST", "/api/chat", CHAT, Host="box.example")
        self.assertIn(b"\r\nHost: 127.0.0.1:11435\r\n", bench.a.asked)

    def test_preflight(self) -> None:
        """PX-21: of an allowed page it is answered here, and counted."""
        bench = self.bench()
        bench.client.asks(
            "OPTIONS",
            "/api/chat",
            Origin=PAGE,
            Access_Control_Request_Method="POST",
            Access_Control_Request_Headers="content-type",
        )
        answer = bench.client.answer
        self.assertEqual((answer.status, answer.fields["access-control-allow-origin"]), (204, PAGE))
        self.assertEqual(answer.fields["access-control-allow-headers"], "content-type")
        self.assertEqual((bench.contacted(), sum(bench.plane.meters.requests.values.values())), ([], 1))

    def test_answers_may_be_read_by_the_page(self) -> None:
        """PX-20: its origin, exactly, on answers of engines and of ours; the engine's own CORS is gone."""
        cors = {"access-control-allow-origin": PAGE, "vary": "Origin"}
        bench = self.bench()
        bench.client.asks("POST", "/api/chat", CHAT, Origin=PAGE)
        self.assertNotIn(b"Origin", bench.a.asked)
        own = (
            (b"Access-Control-Allow-Origin", b"*"),
            (b"Access-Control-Allow-Credentials", b"true"),
            (b"Vary", b"Origin"),
        )
        bench.a.answers(response(200, DONE, *own))
        answers = [bench.client.answer]
        for path, body in (("/api/chat", {"model": "x"}), ("/api/chat", b"{"), ("/nowhere", b""), ("/api/tags", b"")):
            bench = self.bench(engine("llamacpp", name="e"))
            bench.client.asks("POST" if body else "GET", path, body, Origin=PAGE, Content_Type="application/json")
            answers.append(bench.client.answer)
        for answer in answers:
            self.assertEqual({name: answer.fields[name] for name in cors}, cors)
            self.assertIn("X-Pair-Error", answer.fields["access-control-expose-headers"])
            self.assertNotIn("access-control-allow-credentials", answer.fields)


class LimitTests(BenchCase):
    """PX-22 and PX-68."""

    def test_max_active(self) -> None:
        """F17: at the limit inference is refused with Retry-After; lists, banners and owner routes pass."""
        bench = self.bench(max_active=2)
        open_ones = [bench.connect() for _ in range(2)]
        for each in open_ones:
            each.asks("POST", "/api/chat", CHAT)
        bench.client.asks("POST", "/api/chat", CHAT)
        self.assertEqual((bench.client.answer.status, bench.client.answer.fields["retry-after"]), (503, "1"))
        self.assertEqual(bench.client.answer.fields["x-pair-error"], "overloaded")
        for path in ("/api/tags", "/api/version", "/"):
            client = bench.connect()
            client.asks("GET", path)
            self.assertEqual(client.answer.status, 200)
        owner = bench.connect()
        owner.asks("GET", "/v1/models/m")
        bench.a.answers(response(200, b"{}"))
        self.assertEqual(owner.answer.status, 200)
        open_ones[0].leaves()
        again = bench.connect()
        again.asks("POST", "/api/chat", CHAT)
        self.assertEqual((again.received, bench.plane.active.used), (b"", 2))

    def test_stopping(self) -> None:
        """A new request on an open connection is refused, whatever it asks for."""
        bench = self.bench()
        bench.admission.stopping = True
        for path in ("/api/tags", "/", "/other"):
            client = bench.connect()
            client.asks("GET", path)
            self.assertEqual((client.answer.status, client.answer.fields["x-pair-error"]), (503, "stopping"))

    def test_cancelled_by_a_person(self) -> None:
        """PX-49: one that waits gets 503, a stream its frame; others go on, and an id that is none changes nothing."""
        bench = self.ask()
        streaming, other = bench.connect(), bench.connect()
        streaming.asks("POST", "/api/chat", CHAT)
        bench.a.answers(stream(), chunk(DONE[:-1] + b"\n"))
        other.asks("POST", "/api/chat", CHAT)
        waiting, running, left = (each.job for each in tuple(bench.plane.underway))
        self.assertFalse(bench.plane.cancel("none"))
        for id in (waiting, running):
            assert id is not None
            self.assertTrue(bench.plane.cancel(id))
            self.assertFalse(bench.plane.cancel(id))
        self.assertEqual((bench.client.answer.status, bench.client.answer.fields["x-pair-error"]), (503, "cancelled"))
        self.assertIn(b"cancelled by an operator", streaming.received)
        self.assertEqual([each.job for each in bench.plane.underway], [left])

    def test_stop_breaks_off_what_is_served(self) -> None:
        """PX-68: one that waits gets 503, a stream its frame; both are cancelled, both engines see the close."""
        bench = self.ask()
        streaming = bench.connect()
        streaming.asks("POST", "/api/chat", CHAT)
        bench.a.answers(stream(), chunk(DONE[:-1] + b"\n"))
        waiting = bench.a.connections[0]
        bench.admission.stop()
        self.assert_refused(bench, 503, "stopping")
        self.assertTrue(waiting.aborted and bench.a.socket.aborted)
        self.assertTrue(streaming.received.endswith(chunk(b'{"error":"this node is stopping"}\n')))
        self.assertEqual({each.state for each in bench.jobs.ended()}, {"cancelled"})

    def test_stop_of_one_facade(self) -> None:
        """What came in on the other facade goes on: the counts are of the process, a stop is not (PX-2, PX-4)."""
        bench = self.ask()
        bench.admission_of("lmstudio").stop()
        self.assertEqual((bench.client.received, len(bench.plane.underway)), (b"", 1))
        bench.admission.stop()
        self.assert_refused(bench, 503, "stopping")


class RoleTests(BenchCase):
    """RT-7: the role of a route, and nothing else of it, decides what is held for a request."""

    HELD: Mapping[str, Mapping[str, int]] = {
        "inference": {"active": 1, "underway": 1, "reservations": 1, "jobs": 1},
        "owner": {"underway": 1},
        "listing": {},
        "identity": {},
        "mutate": {"underway": 1},
        "tunnel": {"underway": 1},
    }

    def test_each_route(self) -> None:
        """Every route of both facades, at an engine that has it: gate, job, reservation and attempt by the role."""
        for facade, home in (("ollama", "ollama"), ("lmstudio", "lmstudio")):
            for route in ROUTES[facade]:
                bench = self.bench(engine(home, "m", name="a"), facade=facade)
                if route.key not in bench.engines.dialect("a").routes[facade] and route.role in ("inference", "owner"):
                    continue
                body = {"model": "m"} if route.method == "POST" else b""
                bench.client.asks(route.method, route.path.replace("{id}", "m"), body)
                held = {name: number for name, number in bench.in_use().items() if name != "bodies"}
                self.assertEqual(held, self.HELD[route.role], route.key)


class FaultTests(BenchCase):
    """PX-3: an exception costs one request."""

    def test_policy_and_ledger_may_fail(self) -> None:
        """The client gets 500, nothing is held, and the next request is served."""
        bench = self.bench()
        admit, bench.jobs.admit = bench.jobs.admit, None  # type: ignore[assignment, method-assign]
        bench.client.asks("POST", "/api/chat", CHAT)
        self.assertEqual(bench.client.answer.fields["x-pair-error"], "internal")
        self.assertEqual((bench.in_use(), len(self.flushLoggedErrors(TypeError))), ({}, 1))
        bench.jobs.admit = admit  # type: ignore[method-assign]
        client = bench.connect()
        client.asks("POST", "/api/chat", CHAT)
        bench.a.answers(stream(), chunk(DONE) + LAST_CHUNK)
        self.assertEqual(bench.ending, ("completed", None))

    def test_node_is_named_only_when_asked(self) -> None:
        """Nothing of ours is added to an answer that was not asked to explain itself (U08)."""
        bench = self.ask()
        bench.a.answers(response(200, DONE))
        self.assertNotIn(NODE.encode(), bench.client.received)

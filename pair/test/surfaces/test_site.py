"""Tests of pair.surfaces.site and pair.surfaces.answers: a small Klein app behind a guard of the test's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from klein import Klein
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from pair.surfaces.answers import json_reply, render_failures, send
from pair.surfaces.refusals import Refusal, Refused
from pair.surfaces.rules import SECURITY_FIELDS, Head
from pair.surfaces.site import (
    CONNECTIONS_MAX,
    CONNECTIONS_OF_ONE,
    DISCARDED,
    GRACE,
    IDLE_SECONDS,
    REQUEST_SECONDS,
    SurfaceSite,
)
from pair.test.surfaces.wire import Conversation, Transport, request

if TYPE_CHECKING:
    from twisted.web.iweb import IRequest

LIMIT = 100


class Doorman:
    """Lets all pass but those who ask for ``/closed``."""

    def __init__(self) -> None:
        self.seen: list[Head] = []

    def check(self, head: Head) -> Refusal | None:
        self.seen.append(head)
        return Refusal(403, "forbidden", "Closed.", fields=((b"X-Why", b"so"),)) if head.path == "/closed" else None

    def body_limit(self, head: Head) -> int:
        return LIMIT


def small_app(bodies: list[bytes], waiting: list[Deferred[bytes]]) -> Klein:
    app = Klein()

    @app.route("/echo", methods=["GET", "POST"])
    def echo(request: IRequest) -> bytes:
        bodies.append(request.content.read())
        return send(request, json_reply({"bytes": len(bodies[-1])}))

    @app.route("/slow")
    def slow(request: IRequest) -> Deferred[bytes]:
        waiting.append(Deferred())
        return waiting[-1]

    @app.route("/refused")
    def refused(request: IRequest) -> bytes:
        raise Refused(409, "conflict", "It is so already.", path="a.b")

    @app.route("/broken")
    def broken(request: IRequest) -> bytes:
        raise ValueError("a secret")

    render_failures(app)
    return app


class SiteTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.bodies: list[bytes] = []
        self.waiting: list[Deferred[bytes]] = []
        self.clock = Clock()
        self.guard = Doorman()
        self.site = SurfaceSite(small_app(self.bodies, self.waiting).resource(), self.guard, self.clock)

    def ask(self, data: bytes) -> Conversation:
        conversation = Conversation(self.site)
        conversation.send(data)
        return conversation


class RefusalTests(SiteTestCase):
    def test_form(self) -> None:
        """A refusal is JSON with code, message, details and the id of a log record; its fields come along (UI-23)."""
        answer = self.ask(request("GET", "/closed")).answer
        error = answer.json["error"]
        self.assertEqual((answer.status, answer.field("content-type")), (403, "application/json"))
        self.assertEqual((error["code"], error["message"], error["details"]), ("forbidden", "Closed.", {}))
        self.assertRegex(error["id"], "^e-[0-9a-f]{8}$")
        self.assertEqual(answer.field("x-why"), "so")

    def test_before_the_body(self) -> None:
        """A request is refused as soon as its head is complete, and nothing of its body is kept (AR-19)."""
        conversation = self.ask(request("POST", "/closed", b"x" * 50)[:-50])
        self.assertEqual(conversation.answer.status, 403)
        self.assertEqual(conversation.answer.field("connection"), "close")
        self.assertTrue(conversation.transport.connected)
        conversation.send(b"x" * 50)
        self.assertEqual((len(conversation.answers), self.bodies), (1, []))
        self.assertFalse(conversation.transport.connected)

    def test_endless_body(self) -> None:
        """A refused body that goes on and on is cut off."""
        conversation = self.ask(
            request("POST", "/closed", content_length=str(DISCARDED * 2), content_type="text/plain")
        )
        for _ in range(DISCARDED // 65536 + 1):
            conversation.send(b"x" * 65536)
        self.assertFalse(conversation.transport.connected)

    def test_no_continue(self) -> None:
        """A client that waits for a 100 gets the refusal alone."""
        conversation = self.ask(request("POST", "/closed", b"xx", expect="100-continue")[:-2])
        self.assertTrue(conversation.transport.value().startswith(b"HTTP/1.1 403 "))
        self.assertNotIn(b"100 Continue", conversation.transport.value())

    def test_continue(self) -> None:
        """One that is let pass gets it."""
        conversation = self.ask(request("POST", "/echo", b"xx", expect="100-continue")[:-2])
        self.assertEqual(conversation.transport.value(), b"HTTP/1.1 100 Continue\r\n\r\n")

    def test_head(self) -> None:
        """A HEAD is refused without a body."""
        conversation = self.ask(request("HEAD", "/closed"))
        self.assertTrue(conversation.transport.value().endswith(b"\r\n\r\n"))

    def test_nothing_behind_it(self) -> None:
        """A request behind a refused one is not looked at."""
        conversation = self.ask(request("GET", "/closed") + request("GET", "/echo"))
        self.assertEqual(([each.status for each in conversation.answers], self.bodies), ([403], []))

    def test_target(self) -> None:
        """A target that is no plain path is 400 before anybody judges it."""
        for target in ("//echo", "/%2Fecho", "/%ff", "*", "http://127.0.0.1/echo"):
            conversation = self.ask(request("GET", target))
            self.assertEqual((conversation.answer.status, conversation.answer.code), (400, "bad_request"), target)
        self.assertEqual(self.guard.seen, [])

    def test_malformed(self) -> None:
        """What is no HTTP at all gets the same form, once, and the connection is closed (UI-10, UI-23)."""
        chunked = request("POST", "/echo", content_type="application/json", transfer_encoding="chunked")
        for data in (
            b"nonsense\r\n\r\n",
            b"GET /" + b"x" * 20000 + b" HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nbad field\r\n\r\n",
            chunked + b"zz\r\n",
        ):
            conversation = self.ask(data)
            self.assertEqual((conversation.answer.status, conversation.answer.code), (400, "bad_request"), data[:20])
            self.assertFalse(conversation.transport.connected)

    def test_malformed_after_a_refusal(self) -> None:
        """A refused request is answered once, however it goes on."""
        head = request("POST", "/closed", content_type="application/json", transfer_encoding="chunked")
        conversation = self.ask(head + b"zz\r\n")
        self.assertEqual(conversation.answer.status, 403)
        self.assertFalse(conversation.transport.connected)


class BodyTests(SiteTestCase):
    def test_kept_in_memory(self) -> None:
        """A body comes to the route as it was sent."""
        conversation = self.ask(request("POST", "/echo", b"x" * LIMIT))
        self.assertEqual((conversation.answer.status, self.bodies), (200, [b"x" * LIMIT]))

    def test_too_long(self) -> None:
        """One octet more is 413, by its announced length (UI-12)."""
        conversation = self.ask(request("POST", "/echo", b"x" * (LIMIT + 1))[: -LIMIT - 1])
        self.assertEqual((conversation.answer.status, conversation.answer.code), (413, "too_large"))

    def test_chunks_too_long(self) -> None:
        """In chunks it is 413 as soon as it has come (AR-19)."""
        head = request("POST", "/echo", content_type="application/json", transfer_encoding="chunked")
        conversation = self.ask(head + b"64\r\n" + b"x" * 100 + b"\r\n")
        self.assertEqual(conversation.answers, [])
        conversation.send(b"1\r\nx\r\n")
        self.assertEqual(conversation.answer.status, 413)
        conversation.send(b"0\r\n\r\n")
        self.assertEqual((len(conversation.answers), self.bodies), (1, []))
        self.assertFalse(conversation.transport.connected)

    def test_chunks(self) -> None:
        """In chunks within the limit it is as good as any."""
        head = request("POST", "/echo", content_type="application/json", transfer_encoding="chunked")
        conversation = self.ask(head + b"2\r\n{}\r\n0\r\n\r\n")
        self.assertEqual((conversation.answer.status, self.bodies), (200, [b"{}"]))

    def test_wrong_type(self) -> None:
        """A body of another type is 415 before it is read (UI-12)."""
        conversation = self.ask(request("POST", "/echo", b"{}", content_type="text/plain")[:-2])
        self.assertEqual((conversation.answer.status, conversation.answer.code), (415, "unsupported_media_type"))

    @given(st.lists(st.integers(1, 30), max_size=12))
    def test_cut_anywhere(self, cuts: list[int]) -> None:
        """Where the network cuts a request makes no difference."""
        data = request("POST", "/echo", b'{"a":1}') + request("GET", "/closed")
        conversation = Conversation(self.site)
        for cut in cuts:
            conversation.send(data[:cut])
            data = data[cut:]
        conversation.send(data)
        self.assertEqual([each.status for each in conversation.answers], [200, 403])


class AnswerTests(SiteTestCase):
    def test_fields_of_every_answer(self) -> None:
        """Good or bad, every answer has the security fields, and none allows another origin (UI-7, UI-10)."""
        for data in (
            request("GET", "/echo"),
            request("GET", "/closed"),
            request("GET", "/refused"),
            request("GET", "/nowhere"),
            request("PUT", "/echo"),
            b"nonsense\r\n\r\n",
        ):
            fields = self.ask(data).answer.fields
            for name, value in SECURITY_FIELDS:
                self.assertIn((name.decode().lower(), value.decode()), fields)
            self.assertFalse([name for name, _ in fields if name.startswith("access-control-")])

    def test_connection_is_kept(self) -> None:
        """Answered requests may follow each other on one connection."""
        conversation = self.ask(request("GET", "/echo") + request("GET", "/echo"))
        self.assertEqual([each.status for each in conversation.answers], [200, 200])

    def test_refused_by_a_route(self) -> None:
        """A route's refusal has the same form, with its details (UI-23)."""
        answer = self.ask(request("GET", "/refused")).answer
        self.assertEqual((answer.status, answer.code), (409, "conflict"))
        self.assertEqual(answer.json["error"]["details"], {"path": "a.b"})

    def test_unknown_route(self) -> None:
        """An unknown path is 404 in the same form (UI-9)."""
        answer = self.ask(request("GET", "/nowhere")).answer
        self.assertEqual((answer.status, answer.code), (404, "no_such_route"))

    def test_wrong_method(self) -> None:
        """A method that a path does not have is 405 and says which it has (UI-24)."""
        answer = self.ask(request("PUT", "/echo")).answer
        self.assertEqual((answer.status, answer.code), (405, "method_not_allowed"))
        self.assertEqual(answer.field("allow"), "GET, HEAD, POST")

    def test_own_fault(self) -> None:
        """A fault of ours is 500 without its words; the log has it under the id (UI-23)."""
        answer = self.ask(request("GET", "/broken")).answer
        self.assertEqual((answer.status, answer.code), (500, "internal"))
        self.assertNotIn(b"secret", answer.body)
        (logged,) = self.flushLoggedErrors(ValueError)
        self.assertEqual(str(logged.value), "a secret")

    def test_client_gone(self) -> None:
        """A client that leaves ends the route's work, and no fault is logged."""
        conversation = self.ask(request("GET", "/slow"))
        conversation.transport.loseConnection()
        (waiting,) = self.waiting
        self.assertTrue(waiting.called)
        self.assertEqual(self.flushLoggedErrors(), [])


class CloseTests(SiteTestCase):
    def test_nobody_there(self) -> None:
        """Without connections a site is closed at once."""
        self.successResultOf(self.site.close())

    def test_all_are_closed(self) -> None:
        """Connections are closed, and only then the site is."""
        conversations = [Conversation(self.site), self.ask(request("GET", "/slow"))]
        self.successResultOf(self.site.close())
        self.assertFalse(any(each.transport.connected for each in conversations))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_the_deaf_are_aborted(self) -> None:
        """A client that does not take its answer is cut off after the grace (AR-11)."""
        conversation = Conversation(self.site)
        conversation.transport.loseConnection = lambda: None  # type: ignore[method-assign]
        closed = self.site.close()
        self.assertNoResult(closed)
        del conversation.transport.loseConnection
        self.clock.advance(GRACE)
        self.successResultOf(closed)

    def test_no_timers_of_its_own(self) -> None:
        """A site that serves nobody does nothing: there is no clock for an access log."""
        self.site.doStart()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.site.doStop()

    def test_silent_connection(self) -> None:
        """The time limit of a connection is of the given reactor."""
        conversation = Conversation(self.site)
        self.clock.advance(61)
        self.assertFalse(conversation.transport.connected)


class LimitTests(SiteTestCase):
    """What one client may take from the others."""

    def test_dripping(self) -> None:
        """A request that is not whole in its time is given up, however often a byte of it comes."""
        conversation = self.ask(b"GET /slow HTTP/1.1\r\n")
        for _ in range(int(REQUEST_SECONDS)):
            self.assertTrue(conversation.transport.connected)
            conversation.send(b"X-A: 1\r\n")
            self.clock.advance(1)
        self.assertFalse(conversation.transport.connected)

    def test_waiting(self) -> None:
        """A client that waits for its answer is left alone; after that it has its time again."""
        conversation = self.ask(request("GET", "/slow"))
        self.clock.advance(10 * REQUEST_SECONDS)
        self.assertTrue(conversation.transport.connected)
        self.waiting.pop().callback(b"done")
        self.clock.advance(IDLE_SECONDS - 1)
        self.assertTrue(conversation.transport.connected)
        self.clock.advance(1)
        self.assertFalse(conversation.transport.connected)

    def test_too_many(self) -> None:
        """So many connections and no more; one that ends makes room."""
        transports = [Transport(peerAddress=IPv4Address("TCP", f"10.0.0.{n % 8}", n)) for n in range(CONNECTIONS_MAX)]
        open_ones = [Conversation(self.site, each) for each in transports]
        self.assertIsNone(self.site.buildProtocol(None))
        open_ones.pop().transport.loseConnection()
        self.assertIsNotNone(self.site.buildProtocol(None))

    def test_too_many_of_one(self) -> None:
        """One source has its share, and leaves the rest to others."""
        address = IPv4Address("TCP", "10.0.0.7", 1)
        for _ in range(CONNECTIONS_OF_ONE):
            Conversation(self.site, Transport(peerAddress=address))
        self.assertIsNone(self.site.buildProtocol(address))
        self.assertIsNotNone(self.site.buildProtocol(IPv4Address("TCP", "10.0.0.8", 1)))

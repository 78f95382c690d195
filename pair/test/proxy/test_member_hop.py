"""Tests of requests that go to other members (PX-44, PX-53, PX-55, PX-64; RT-50)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectError, DNSLookupError, NoRouteError

from pair.protocols.http_client import DialTimeoutError, HandshakeError
from pair.test.proxy.bench import CHAT, DONE, LINE, NODE, Bench, BenchCase
from pair.test.proxy.network import INTERIM, Engine, chunk, response, stream
from pair.test.routing.facts import engine, node

if TYPE_CHECKING:
    from twisted.internet.interfaces import IProtocol, IProtocolFactory
    from twisted.internet.task import Clock

PEER = "1b0b"
"""It comes before this node where both are equal (RT-40)."""

LATER = "c0c0"
"""It comes behind this node."""


class Unreachable(Engine):
    """A member of which no connection is to be had, for this reason."""

    def __init__(self, clock: Clock, why: Exception) -> None:
        super().__init__(clock)
        self.dials = 0
        self._why = why

    def connect(self, factory: IProtocolFactory) -> Deferred[IProtocol]:
        self.dials += 1
        return fail(self._why)


class MemberHopTests(BenchCase):
    """A request for a model that another member has."""

    def ask_afar(self, *engines: Any, **fields: Any) -> tuple[Bench, Engine]:
        """A chat, and the member that it went to; the engines are of this node."""
        own = engines or (engine("ollama", "other", name="a"),)
        bench = self.bench(*own, peers=(node(PEER, engine("ollama", "m", name="far")),))
        bench.advance(0.1)
        bench.client.asks("POST", "/api/chat", CHAT, **fields)
        bench.advance()
        return bench, bench.members.machines[PEER]

    def ask_both(self) -> tuple[Bench, Engine]:
        """The same, where this node has the model too; the member is asked first."""
        return self.ask_afar(engine("ollama", "m", name="a"))

    def test_sent(self) -> None:
        """PX-53, PX-79, PX-81: path and body, marked as one hop, for one engine, and without the client's keys."""
        bench, member = self.ask_afar(Authorization="Bearer secret", X_Api_Key="secret", X_Custom="stays")
        head, _, body = member.asked.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        self.assertEqual(lines[:2], ["POST /api/chat HTTP/1.1", f"Host: {PEER}:11434"])
        for line in ("X-Pair-Hop: 1", f"X-Pair-Job: {bench.job.id}", "X-Pair-Engine: far", "X-Custom: stays"):
            self.assertIn(line, lines)
        self.assertNotIn(b"secret", member.asked)
        self.assertIn(b'"content":"hi"', body)
        member.answers(INTERIM, response(200, DONE))
        bench.advance()
        self.assertEqual((bench.client.answer.status, bench.client.answer.body), (200, DONE))
        self.assertEqual((bench.ending[0], bench.job.placed_on), ("completed", PEER))
        self.assertEqual((bench.engines.outcomes, bench.contacted()), ([], []))
        self.assertEqual(bench.in_use(), {})

    def test_interims_stay_here(self) -> None:
        """PX-54: the client sees nothing of them; what the member says of itself is not passed on (PX-78)."""
        bench, member = self.ask_afar()
        member.answers(INTERIM, INTERIM)
        self.assertEqual(bench.client.received, b"")
        member.answers(response(200, DONE, (b"X-Pair-Node", b"x")))
        bench.advance()
        self.assertNotIn("x-pair-node", bench.client.answer.fields)

    def test_silent(self) -> None:
        """PX-55: after 3 s without a word the next owner is asked, and the member is held until it shows itself."""
        bench, member = self.ask_both()
        bench.advance(2.9)
        self.assertEqual(bench.contacted(), [])
        bench.advance(0.2)
        self.assertTrue(member.socket.aborted)
        bench.a.answers(response(200, DONE))
        bench.advance()
        self.assertEqual((bench.client.answer.status, bench.outcomes), (200, ["silent", "won"]))
        self.assertEqual(bench.scheduling.penalties()[PEER, "far", ""].kind, "quiet")
        bench.advance(1)
        bench.scheduling.evidence(PEER)
        self.assertEqual(bench.scheduling.penalties(), {})
        again = bench.connect()
        again.asks("POST", "/api/chat", CHAT)
        bench.advance()
        self.assertEqual(len(member.connections), 2)
        again.leaves()

    def test_not_the_node(self) -> None:
        """PX-55: as long as anything comes from the node itself, the request is not given up before its 12 s."""
        bench, _ = self.ask_both()
        bench.members.silences[PEER] = 6.9
        bench.advance(9)
        self.assertEqual(bench.contacted(), [])
        bench.members.silences[PEER] = 7.0
        bench.advance(1)
        self.assertEqual((bench.contacted(), bench.outcomes[0]), (["a"], "silent"))

    def test_silent_later(self) -> None:
        """PX-55: one that worked is waited for until 2 s after its next word was due."""
        bench, member = self.ask_both()
        member.answers(INTERIM)
        bench.advance(5)
        member.answers(INTERIM)
        bench.advance(6.9)
        self.assertEqual(bench.contacted(), [])
        bench.advance(0.2)
        self.assertEqual((bench.contacted(), bench.outcomes[0]), (["a"], "silent"))

    def test_nobody_else_is_free(self) -> None:
        """PX-55: as long as the only other owner is held, the silent one has its 12 s; then the first has its turn."""
        bench = self.bench(
            engine("ollama", "other", name="a"),
            peers=(node(PEER, engine("ollama", "m", name="far")), node(LATER, engine("ollama", "m", name="far"))),
        )
        bench.advance(0.1)
        first, second = (bench.members.machines[each] for each in (PEER, LATER))
        bench.client.asks("POST", "/api/chat", CHAT)
        bench.advance(3.1)
        self.assertEqual((len(first.connections), len(second.connections)), (1, 1))
        again = bench.connect()
        again.asks("POST", "/api/chat", CHAT)
        bench.advance(11.5)
        self.assertEqual((len(first.connections), len(second.connections)), (1, 2))
        second.answers(response(200, DONE))
        bench.advance()
        self.assertEqual(again.answer.status, 200)
        bench.advance(1)
        first.answers(response(200, DONE))
        bench.advance()
        self.assertEqual(bench.client.answer.status, 200)

    def test_its_other_engine(self) -> None:
        """PX-55: another engine of the silent member is no way out of it."""
        bench = self.bench(
            engine("ollama", "other", name="a"),
            peers=(node(PEER, engine("ollama", "m", name="far"), engine("llamacpp", "m", name="beside")),),
        )
        bench.advance(0.1)
        bench.client.asks("POST", "/v1/chat/completions", CHAT)
        bench.advance(11.5)
        self.assertEqual(len(bench.members.machines[PEER].connections), 1)
        bench.client.leaves()

    def test_too_late_for_another(self) -> None:
        """PX-45, PX-55: once no attempt may begin any more, a member that falls silent has its 12 s."""
        bench, member = self.ask_both()
        for _ in range(7):
            member.answers(INTERIM)
            bench.advance(5)
        bench.advance(6.5)
        member.answers(response(200, DONE))
        bench.advance()
        self.assertEqual((bench.client.answer.status, bench.outcomes), (200, ["won"]))

    def test_awake(self) -> None:
        """PX-55: a member that says that it works is waited for, however long it takes."""
        bench, member = self.ask_both()
        for _ in range(120):
            member.answers(INTERIM)
            bench.advance(5)
        member.answers(response(200, DONE))
        bench.advance()
        self.assertEqual((bench.client.answer.status, bench.outcomes), (200, ["won"]))

    def test_only_owner_silent(self) -> None:
        """PX-46: 504, and never an answer of our own making."""
        bench, _ = self.ask_afar()
        bench.advance(13)
        self.assertEqual(
            (bench.client.answer.status, bench.client.answer.fields["x-pair-error"]), (504, "node_silent")
        )

    def test_refused_by_itself(self) -> None:
        """PX-44: a member's own refusal moves on, is no fault of its engine, and is made anew for the client."""
        for status, code, shown in (
            (503, "no_local_engine", (503, "no_local_engine")),
            (403, "peer_path", (502, "engine_unreachable")),
            (403, "not_member", (502, "engine_unreachable")),
            (503, "stopping", (503, "stopping")),
            (500, "what is this", (502, "engine_unreachable")),
            (300, "busy", (503, "busy")),
            (999, "loop", (508, "loop")),
            (503, "peer_path", (502, "engine_unreachable")),
        ):
            refusal = response(status, b"{}", (b"X-Pair-Error", code.encode()))
            bench, member = self.ask_both()
            member.answers(refusal)
            bench.advance()
            bench.a.answers(response(200, DONE))
            bench.advance()
            self.assertEqual((bench.client.answer.status, bench.outcomes), (200, ["status", "won"]), code)
            self.assertEqual(bench.scheduling.penalties(), {})
            bench, member = self.ask_afar()
            member.answers(refusal)
            bench.advance()
            answer = bench.client.answer
            self.assertEqual((answer.status, answer.fields["x-pair-error"]), shown, code)

    def test_its_engine_stalled(self) -> None:
        """PX-56: the next owner is asked, and that engine is held as one that fell silent."""
        bench, member = self.ask_both()
        member.answers(response(504, b"", (b"X-Pair-Error", b"engine_silent"), (b"X-Pair-Fault", b"engine_stalled")))
        bench.advance()
        self.assertEqual(bench.outcomes[0], "stalled")
        self.assertIn((PEER, "far", ""), bench.scheduling.penalties())

    def test_refused_by_its_engine(self) -> None:
        """What its engine says is judged as that of our own, and passes as it is."""
        bench, member = self.ask_afar()
        member.answers(response(400, b'{"error":"bad option"}'))
        bench.advance()
        self.assertEqual((bench.client.answer.status, bench.client.answer.body), (400, b'{"error":"bad option"}'))

    def test_nobody_knows_where(self) -> None:
        """One whose place is not known is passed over without a dial."""
        own = engine("ollama", "m", name="a")
        bench = self.bench(own, peers=(node(PEER, engine("ollama", "m", name="far")),))
        bench.members.away.add(PEER)
        bench.advance(0.1)
        bench.client.asks("POST", "/api/chat", CHAT)
        bench.advance()
        self.assertEqual(bench.contacted(), ["a"])
        bench.a.answers(response(200, DONE))

    def test_dies_in_a_stream(self) -> None:
        """PX-64: one that is proven dead, and silent for 30 s, ends the stream with an error."""
        bench, member = self.ask_afar()
        member.answers(stream(), chunk(LINE))
        bench.advance(60)
        self.assertFalse(bench.client.socket.closed)
        member.answers(chunk(LINE))
        bench.members.dead.add(PEER)
        bench.advance(40)
        self.assertTrue(
            bench.client.received.endswith(chunk(b'{"error":"the engine broke off in the middle of its answer"}\n'))
        )
        self.assertEqual(bench.ending, ("failed", "stream_lost"))
        self.assertIn(PEER, bench.members.alive)

    def test_client_leaves(self) -> None:
        """PX-61: the hop is broken off in the same turn."""
        bench, member = self.ask_afar()
        bench.client.leaves()
        self.assertTrue(member.socket.aborted)
        self.assertEqual(bench.ending, ("cancelled", "client_gone"))

    def test_spread(self) -> None:
        """RT-47: many at once go to both, each to the one with less to do."""
        bench = self.bench(engine("ollama", "m", name="a"), peers=(node(PEER, engine("ollama", "m", name="far")),))
        bench.advance(0.1)
        clients = [bench.connect() for _ in range(10)]
        for each in clients:
            each.asks("POST", "/api/chat", CHAT)
        bench.advance()
        self.assertEqual([bench.scheduling.book.load(each).reservations for each in (NODE, PEER)], [5, 5])
        self.assertEqual((len(bench.a.connections), len(bench.members.machines[PEER].connections)), (5, 5))
        for each in clients:
            each.leaves()
        member = bench.members.machines[PEER]
        self.assertTrue(all(each.aborted for each in (*bench.a.connections, *member.connections)))


class AwayTests(BenchCase):
    """Members that are gone, come back, or cannot be reached."""

    def test_gone(self) -> None:
        """F07: who is removed, offline or not trusted, or has no engine, gets nothing from the next decision on."""
        there = node(PEER, engine("ollama", "m", name="far"))
        stopped = node(PEER, engine("ollama", "m", name="far", routable=False))
        for gone in (None, replace(there, online=False), replace(there, trusted=False), stopped):
            bench = self.bench(engine("ollama", "m", name="a"), peers=(there,))
            bench.advance(0.1)
            if gone is None:
                bench.scheduling.drop_peer(PEER)
            else:
                bench.scheduling.set_peer(gone)
            clients = [bench.connect() for _ in range(5)]
            for each in clients:
                each.asks("POST", "/api/chat", CHAT)
            bench.advance()
            self.assertEqual((bench.members.machines[PEER].connections, len(bench.a.connections)), ([], 5))
            for each in clients:
                each.leaves()

    def test_gone_under_way(self) -> None:
        """F07: so it is for a request that was planned before."""
        bench = self.bench(engine("ollama", "m", name="a"), peers=(node(LATER, engine("ollama", "m", name="far")),))
        bench.advance(0.1)
        bench.client.asks("POST", "/api/chat", CHAT)
        bench.advance()
        bench.scheduling.drop_peer(LATER)
        bench.a.answers(response(500, b"{}"))
        bench.advance(20)
        self.assertEqual((bench.members.machines[LATER].connections, bench.client.answer.status), ([], 500))

    def test_back(self) -> None:
        """F08: whoever was down for a minute is asked as soon as it is known to be back, in spite of any hold."""
        there = node(PEER, engine("ollama", "m", name="far"))
        bench = self.bench(engine("ollama", "other", name="a"), peers=(there,))
        member = bench.members.machines[PEER]
        member.refuses = True
        bench.advance(0.1)
        bench.client.asks("POST", "/api/chat", CHAT)
        bench.advance(10)
        self.assertEqual(bench.client.answer.status, 502)
        bench.scheduling.set_peer(replace(there, online=False))
        bench.advance(60)
        member.refuses = False
        bench.scheduling.set_peer(there)
        again = bench.connect()
        again.asks("POST", "/api/chat", CHAT)
        bench.advance()
        member.answers(response(200, DONE))
        self.assertEqual((again.answer.status, bench.outcomes), (200, ["won"]))

    def test_not_to_be_reached(self) -> None:
        """F11: no way there, no address for a name, garbage for a handshake: the others serve, each time."""
        faults: tuple[Exception, ...] = (
            NoRouteError(),
            ConnectError(),
            DNSLookupError(),
            DialTimeoutError(),
            HandshakeError(),
            OSError(101, "Network is unreachable"),
            UnicodeError("label too long"),
        )
        peers = tuple(node(each, engine("ollama", "m", name="far")) for each in (PEER, LATER))
        for fault in faults:
            bench = self.bench(engine("ollama", "m", name="a"), peers=peers)
            bench.members.machines[PEER] = lost = Unreachable(bench.clock, fault)
            bench.advance(0.1)
            clients = [bench.connect() for _ in range(4)]
            for each in clients:
                each.asks("POST", "/api/chat", CHAT)
            bench.advance()
            self.assertGreater(lost.dials, 0, fault)
            for socket in (*bench.a.connections, *bench.members.machines[LATER].connections):
                socket.receive(response(200, DONE))
            self.assertEqual([each.answer.status for each in clients], [200] * 4, fault)

    def test_reset_at_once(self) -> None:
        """F11: so it is with one that accepts and resets."""
        bench = self.bench(engine("ollama", "m", name="a"), peers=(node(PEER, engine("ollama", "m", name="far")),))
        bench.advance(0.1)
        bench.client.asks("POST", "/api/chat", CHAT)
        bench.members.machines[PEER].breaks()
        bench.advance()
        bench.a.answers(response(200, DONE))
        self.assertEqual((bench.client.answer.status, bench.outcomes[-1]), (200, "won"))

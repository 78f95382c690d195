"""Tests of :mod:`pair.proxy.steering`: what people choose of routing, in force and kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pair.choices import Choices, SettingLocked, drained, routing_policy, selection
from pair.proxy.steering import NoSuchPolicy, Steering
from pair.records.engines import Drain
from pair.routing.candidates import Request
from pair.routing.dialects import match
from pair.routing.policies.pressure import PressurePolicy
from pair.settings import load
from pair.test.fakes import Backwards, MemoryStore
from pair.test.proxy.bench import CHAT, DONE, NODE, BenchCase
from pair.test.proxy.network import response
from pair.test.routing.facts import engine, node

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

PEER = "b0b0"


class SteeringCase(BenchCase):
    """A node with one engine, and a member that has the model too."""

    def setUp(self) -> None:
        super().setUp()
        self.store = MemoryStore()
        self.addCleanup(self.store.close)
        self.members = {NODE, PEER}
        self.node = self.bench(engine("ollama", "m", name="a"), peers=(node(PEER, engine("ollama", "m", name="c")),))
        self.drains: list[Drain | None] = []
        self.begin()

    def begin(self, *options: str) -> None:
        """The node starts, with these options."""
        store: Any = self.store
        self.choices = Choices(store, load(options), self.node.clock)
        self.choices.load()
        policies = (PressurePolicy(), Backwards())
        arguments = (self.drains.append, lambda: self.members, self.node.errors)
        self.steering = Steering(self.choices, self.node.scheduling, policies, *arguments)
        self.seen: list[None] = []
        self.steering.changed.subscribe(self.seen.append)
        self.steering.startService()

    def restart(self, *options: str) -> None:
        """It starts again, with nothing in force."""
        for facade in ("ollama", "lmstudio"):
            self.node.scheduling.select(facade, None)
        self.node.scheduling.use(PressurePolicy())
        self.begin(*options)

    def done(self, deferred: Deferred[None]) -> None:
        """A change is made, and told."""
        self.successResultOf(deferred)
        self.assertEqual(len(self.seen), 1)
        self.seen.clear()

    def first(self, facade: str = "ollama") -> tuple[str, str | None]:
        """Where a request would go, and what became of the selection."""
        route = match(facade, "POST", "/v1/chat/completions")
        assert route is not None
        made = self.node.scheduling.explain(Request(facade, route, "m"))
        return made.candidates[0].node, made.head


class SelectionTests(SteeringCase):
    """RT-24 (3), RT-27."""

    def test_selected(self) -> None:
        """The node stands in front on that facade, and no other; also after a restart, until it is taken back."""
        other = PEER if self.first()[0] == NODE else NODE
        self.done(self.steering.select("ollama", other))
        self.assertEqual(self.first(), (other, "selection"))
        self.assertEqual(self.node.scheduling.selected("lmstudio"), None)
        self.restart()
        self.assertEqual(self.first(), (other, "selection"))
        self.done(self.steering.unselect("ollama"))
        self.assertEqual(self.first()[1], None)
        self.restart()
        self.assertEqual(self.first()[1], None)

    def test_why(self) -> None:
        """RT-66: the job says that a person chose."""
        self.done(self.steering.select("ollama", NODE))
        self.node.client.asks("POST", "/api/chat", CHAT)
        self.node.a.answers(response(200, DONE))
        self.assertTrue(str(self.node.job.why).endswith("; rank=1/2; head=selection"))

    def test_failover(self) -> None:
        """RT-24: it is tried first though it is held; where it fails another serves, whom nobody chose."""
        self.done(self.steering.select("ollama", NODE))
        for _ in range(4):
            self.node.client.asks("POST", "/api/chat", CHAT)
            self.node.a.answers(response(500))
            self.node.members.machines[PEER].answers(response(200, DONE))
            job = self.node.job
            self.assertEqual([each.node for each in job.attempts], [NODE, PEER])
            self.assertTrue(str(job.why).endswith("rank=1/1; after=status500"))
        self.assertIn("routing:node_failing:", " ".join(self.node.entries))

    def test_ineligible(self) -> None:
        """It is passed over while it cannot serve, and kept: offline is not gone."""
        self.done(self.steering.select("ollama", PEER))
        away = replace(node(PEER, engine("ollama", "m", name="c")), online=False)
        self.node.scheduling.set_peer(away)
        self.assertEqual(self.first(), (NODE, "selection_ineligible"))
        self.steering.members_changed()
        self.node.scheduling.set_peer(replace(away, online=True))
        self.assertEqual(self.first(), (PEER, "selection"))

    def test_removed(self) -> None:
        """It is cleared when the node is no member any more, also if that came while this node was down."""
        self.done(self.steering.select("ollama", PEER))
        self.done(self.steering.select("lmstudio", NODE))
        self.members = {NODE}
        self.steering.members_changed()
        self.assertEqual(len(self.seen), 1)
        found = [self.choices.get(selection(each)) for each in ("ollama", "lmstudio")]
        self.assertEqual((found, self.first()[1]), ([None, NODE], None))
        self.seen.clear()
        self.members = {NODE, PEER}
        self.done(self.steering.select("ollama", PEER))
        self.members = {NODE}
        self.restart()
        self.assertEqual((self.choices.get(selection("ollama")), self.first()[1]), (None, None))

    def test_left_meanwhile(self) -> None:
        """One that left before its selection was written is not selected."""
        self.members = {NODE}
        self.successResultOf(self.steering.select("ollama", PEER))
        self.assertEqual((self.choices.get(selection("ollama")), self.first()[1]), (None, None))

    def test_not_written(self) -> None:
        """What the disk does not take is not in force; a member that is gone is not selected all the same."""
        self.done(self.steering.select("ollama", PEER))
        self.store.broken = True
        self.failureResultOf(self.steering.select("ollama", NODE), OSError)
        self.assertEqual(self.first(), (PEER, "selection"))
        self.members = {NODE}
        self.steering.members_changed()
        self.assertEqual(self.first()[1], None)


class PolicyTests(SteeringCase):
    """RT-60."""

    def test_chosen(self) -> None:
        """It is that of the next plan, and of the next start."""
        self.assertEqual(self.steering.policies, ("pressure", "backwards"))
        self.done(self.steering.choose_policy("backwards"))
        self.assertEqual((self.node.scheduling.policy, self.first()[0]), ("backwards", max(NODE, PEER)))
        self.restart()
        self.assertEqual(self.node.scheduling.policy, "backwards")

    def test_unknown(self) -> None:
        """There is none of that name."""
        self.assertRaises(NoSuchPolicy, self.steering.choose_policy, "lottery")

    def test_locked(self) -> None:
        """A setting fixes it, and a choice that was made before has no effect (OP-7)."""
        self.done(self.steering.choose_policy("backwards"))
        self.restart("routing.policy=pressure")
        self.assertRaises(SettingLocked, self.steering.choose_policy, "backwards")
        self.assertEqual(self.node.scheduling.policy, "pressure")

    def test_gone(self) -> None:
        """One whose plugin is gone is told of; the default stands in for it, and the choice is kept."""
        self.successResultOf(self.choices.put(routing_policy(), "lottery"))
        self.restart()
        self.assertEqual((self.node.scheduling.policy, self.node.entries), ("pressure", ["routing:policy:lottery"]))
        self.assertEqual(self.choices.get(routing_policy()), "lottery")


class DrainTests(SteeringCase):
    """RT-22."""

    def test_drained(self) -> None:
        """It is in force when it is written, and at the next start, until it is taken back."""
        self.done(self.steering.drain(Drain("paint")))
        self.restart()
        self.done(self.steering.drain(None))
        self.restart()
        self.assertEqual(self.drains, [None, Drain("paint"), Drain("paint"), None, None])
        self.store.broken = True
        self.failureResultOf(self.steering.drain(Drain()), OSError)
        self.assertEqual((self.drains[-1], self.choices.get(drained())), (None, None))

    def test_own_clients(self) -> None:
        """Whoever asks a drained node is served by others; where nobody else can, that is said."""
        self.node.engines.drain(Drain())
        self.node.client.asks("POST", "/api/chat", CHAT)
        self.node.members.machines[PEER].answers(response(200, DONE))
        self.assertEqual((self.node.client.answer.status, self.node.contacted()), (200, []))
        self.node.scheduling.drop_peer(PEER)
        client = self.node.connect()
        client.asks("POST", "/api/chat", CHAT)
        answer = client.answer
        self.assertEqual((answer.status, answer.fields["x-pair-error"]), (502, "owners_excluded"))
        self.node.engines.drain(None)
        self.assertEqual(self.first(), (NODE, None))

"""The inviter's side of an invitation: polls, proofs, ends (CL-43, CL-46 to CL-55, CL-59)."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from pair.cluster import joining
from pair.cluster.changes import Objection
from pair.cluster.refusing import Refusal
from pair.test.cluster.neighbours import Caught, Network, Node, wrong

if TYPE_CHECKING:
    from collections.abc import Callable


class InviterTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.network = Network(Clock())
        self.desk = Node(self.network, "desk", "10.0.0.1")
        self.rack = Node(self.network, "rack", "10.0.0.2")

    @property
    def both(self) -> tuple[Any, Any]:
        """Where the inviter's and the joiner's newest invitation stand."""
        return self.desk.states[-1], self.rack.states[-1] if self.rack.states else None

    @property
    def clusters(self) -> tuple[str | None, str | None]:
        return self.desk.cluster, self.rack.cluster

    def pair(self, seconds: float = 400.0) -> Caught:
        """Invite, type the right code, and let time pass."""
        code = self.desk.invite(self.rack).code
        answer = self.rack.accept(code)
        self.network.run(seconds)
        return answer

    def tried(self) -> list[tuple[str, float]]:
        """Where hellos went, and when."""
        return [(each.address, round(each.sent, 1)) for each in self.network.bodies(b'"step":"hello"')]


class ProofTests(InviterTests):
    def test_paired(self) -> None:
        """All well: stored here, then there, then here again; both are told, and both are in one cluster (CL-49)."""
        answer = self.pair(1.0)
        self.assertEqual(self.both, (("paired", None), ("paired", None)))
        self.assertEqual(answer.value.state, "paired")
        self.assertEqual((self.desk.trust.stored, self.rack.trust.stored), (["admit", "keep"], ["join"]))
        self.assertIsNotNone(self.desk.cluster)
        self.assertEqual(*self.clusters)
        for node in (self.desk, self.rack):
            (told,) = node.paired
            self.assertEqual((told, told.cluster and told.cluster.id), (node.service.all()[0], node.cluster))
            self.assertEqual([each.state for each in node.news], ["waiting", "confirming", "paired"])

    def test_sixty_milliseconds(self) -> None:
        """Both proofs leave 60 ms after what caused them; nothing takes much longer (CL-35, B-pair)."""
        code = self.desk.invite(self.rack).code
        self.network.run(5.0)
        before = self.network.clock.seconds()
        self.rack.accept(code)
        self.network.run(1.0)
        (prove,) = self.network.bodies(b'"step":"prove"')
        self.assertGreaterEqual(prove.sent - before, 0.12)
        self.assertLess(prove.sent - before, 0.13)
        self.assertLess(self.rack.news[-1].ended_at - self.rack.news[-2].created_at, 5500)  # type: ignore[operator]

    def test_polls_not_held_open(self) -> None:
        """A joiner that answers each poll at once is asked once in a second, and can be paired with."""
        self.patch(joining, "POLL_SECONDS", 0.0)
        code = self.desk.invite(self.rack).code
        self.network.run(20.5)
        self.assertEqual(len(self.network.bodies(b'"step":"wait"')), 21)
        self.rack.accept(code)
        self.network.run(2.0)
        self.assertEqual(self.both, (("paired", None), ("paired", None)))

    def test_wrong_code(self) -> None:
        """Voided on both sides, also no second proof; the next invitation works at once (CL-47, CL-48, P04, P07)."""
        code = self.desk.invite(self.rack).code
        answer = self.rack.accept(wrong(code))
        before = self.network.clock.seconds()
        self.network.run(1.0)
        self.assertEqual(self.both, (("voided", "wrong_code"), ("voided", "wrong_code")))
        self.assertEqual((answer.value.state, answer.value.reason), ("voided", "wrong_code"))
        (end,) = self.network.bodies(b'"step":"end"')
        self.assertGreaterEqual(end.sent - before, 0.12)
        again = self.rack.accept(code, answer.value.id)
        self.assertEqual(again.refused, (409, "invitation_over"))
        self.assertEqual(self.desk.trust.stored, [])
        self.network.run(10.0)
        self.pair(1.0)
        self.assertEqual(self.both, (("paired", None), ("paired", None)))

    def test_objections(self) -> None:
        """Whoever may not be a member is not, nor one that comes when the cluster is another (CL-48)."""

        def full(node: Node) -> None:
            node.trust.objects = "cluster_full"

        def elsewhere(node: Node) -> None:
            node.trust.enter("7f1d0c4e-93aa-8b21-b0c5-2d4e6f8a9b0c", "other", node.party.uuid)

        rows: list[tuple[Callable[[Node], None], str]] = [
            (full, "cluster_full"),
            (elsewhere, "joined_another_cluster"),
        ]
        for change, reason in rows:
            self.setUp()
            self.desk.trust.enter("b7d0f6f0-0a3c-8f41-9d27-5f0c2f6f1a10", "home", self.desk.party.uuid)
            code = self.desk.invite(self.rack).code
            change(self.desk)
            self.rack.accept(code)
            self.network.run(1.0)
            self.assertEqual(self.both, (("failed", reason), ("failed", reason)))
            self.assertEqual(self.desk.trust.stored, [])

    def test_founded_meanwhile(self) -> None:
        """Two invited before there was a cluster: both come into the one that the first pairing founded (CL-48)."""
        third = Node(self.network, "third", "10.0.0.3")
        first, second = self.desk.invite(self.rack).code, self.desk.invite(third).code
        self.rack.accept(first)
        self.network.run(1.0)
        third.accept(second)
        self.network.run(1.0)
        self.assertIsNotNone(self.desk.cluster)
        self.assertEqual({self.desk.cluster}, {self.rack.cluster, third.cluster})

    def test_not_stored(self) -> None:
        """If the admission cannot be stored, nothing is proven, and both fail (CL-49)."""
        rows: list[tuple[Exception, str, str]] = [
            (OSError(), "store", "peer_failed"),
            (Objection("cluster_full"), "cluster_full", "cluster_full"),
        ]
        for error, here, there in rows:
            self.setUp()
            self.desk.trust.failing = error
            self.pair(1.0)
            self.assertEqual(self.both, (("failed", here), ("failed", there)))
            self.assertEqual(self.network.bodies(b'"step":"prove"'), [])
            self.assertEqual(self.clusters, (None, None))
            self.flushLoggedErrors(OSError)

    def test_joiner_failed(self) -> None:
        """The joiner says that it could not store: the cluster founded for it is deleted again (CL-52)."""
        self.rack.trust.failing = OSError()
        self.pair(1.0)
        self.assertEqual(self.both, (("failed", "peer_failed"), ("failed", "store")))
        self.assertEqual(self.desk.trust.stored, ["admit", "retract"])
        self.assertEqual(self.clusters, (None, None))
        self.flushLoggedErrors(OSError)

    def test_answer_not_stored(self) -> None:
        """What the joiner returned is not stored: it is paired all the same, the next sync brings it (CL-51)."""
        code = self.desk.invite(self.rack).code
        self.rack.accept(code)
        self.network.run(0.14)
        self.desk.trust.failing = OSError()
        self.network.run(1.0)
        self.assertEqual(self.both, (("paired", None), ("paired", None)))
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)

    def test_told_when_stored(self) -> None:
        """The end is told once the joiner's statements are stored (CL-98, CL-103)."""
        code = self.desk.invite(self.rack).code
        self.rack.accept(code)
        self.network.run(0.14)
        slow: Deferred[None] = Deferred()
        self.desk.trust.slow = slow
        self.network.run(1.0)
        self.assertEqual((len(self.rack.paired), self.desk.paired), (1, []))
        slow.callback(None)
        self.assertEqual(len(self.desk.paired), 1)

    def test_slow_store(self) -> None:
        """While the admission is stored, nobody ends the invitation (CL-55)."""
        slow: Deferred[None] = Deferred()
        self.desk.trust.slow = slow
        self.pair(10.0)
        (record,) = self.desk.service.all()
        self.assertEqual(record.state, "confirming")
        error = self.assertRaises(Refusal, self.desk.service.cancel, record.id)
        self.assertEqual((error.status, error.details), (409, {"state": "confirming"}))
        slow.callback(None)
        self.network.run(1.0)
        self.assertEqual(self.both, (("paired", None), ("paired", None)))

    def test_no_answer(self) -> None:
        """No answer to the proof at all: the cluster stays, and the joiner may be in it already (CL-52)."""
        self.network.fate = lambda message: "lose reply" if b'"step":"prove"' in message.body else "pass"
        self.pair()
        self.assertEqual(self.both, (("failed", "no_answer"), ("paired", None)))
        self.assertEqual(*self.clusters)
        self.assertEqual(self.desk.trust.stored, ["admit"])
        proofs = {(each.body, each.mac) for each in self.network.bodies(b'"step":"prove"')}
        self.assertEqual(len(proofs), 1)


class PollTests(InviterTests):
    def test_polls(self) -> None:
        """Polls follow one another without a gap until the code expires, on both sides (CL-53)."""
        self.desk.invite(self.rack)
        self.network.run(298.0)
        self.assertEqual(self.both, (("waiting", None), ("waiting", None)))
        polls = [each.sent for each in self.network.bodies(b'"step":"wait"')]
        self.assertEqual(len(polls), 15)
        self.network.run(3.0)
        self.assertEqual(self.both, (("expired", None), ("expired", None)))
        self.network.run(10.0)
        self.assertEqual(len(self.network.bodies(b'"step":"end"')), 1)

    def test_walk_anew(self) -> None:
        """Three failures in a row, and the joiner is looked for at all addresses that are known by now (CL-59)."""
        code = self.desk.invite(self.rack).code
        self.network.down.add("10.0.0.2")
        self.network.places["10.0.0.20"] = self.rack
        self.desk.known[self.rack.party.uuid] = ["10.0.0.19", "10.0.0.20"]
        self.network.run(25.0)
        self.assertEqual([each for each, _ in self.tried()], ["10.0.0.2", "10.0.0.2", "10.0.0.19", "10.0.0.20"])
        self.assertEqual(self.desk.service.all()[0].peer.address, "10.0.0.20")
        self.rack.accept(code)
        self.network.run(1.0)
        self.assertEqual(self.both, (("paired", None), ("paired", None)))

    def test_back_off(self) -> None:
        """While it is not found, the pauses grow to five seconds, until it expires (CL-59)."""
        self.desk.invite(self.rack)
        self.network.down.add("10.0.0.2")
        self.network.run(400.0)
        walks = [at for _, at in self.tried()[1:] if at < 300]
        pauses = [round(later - at) for at, later in pairwise(walks)]
        self.assertEqual(pauses[:4], [2, 4, 5, 5])
        self.assertEqual(set(pauses[2:]), {5})
        self.assertEqual(self.both, (("expired", None), ("expired", None)))

    def test_impostor_reply(self) -> None:
        """Looked for anew, only the joiner of before is found, by its reply of before."""
        code = self.desk.invite(self.rack).code
        self.network.down.add("10.0.0.2")
        Node(self.network, "third", "10.0.0.3")
        self.desk.known[self.rack.party.uuid] = ["10.0.0.3"]
        self.network.run(40.0)
        self.network.down.clear()
        self.network.run(10.0)
        self.rack.accept(code)
        self.network.run(1.0)
        self.assertEqual(self.both, (("paired", None), ("paired", None)))

    def test_joiner_restarts(self) -> None:
        """It says three times that it knows of nothing; a new invitation works at once (CL-54)."""
        self.desk.invite(self.rack)
        self.rack.service.stopService()
        self.rack.start()
        self.network.run(3.0)
        self.assertEqual(self.desk.states, [("failed", "peer_restarted")])
        self.pair(1.0)
        self.assertEqual(self.both, (("paired", None), ("paired", None)))

    def test_joiner_restarts_slowly(self) -> None:
        """The same where it was not there for a while: no search takes the place of the new invitation (CL-44)."""
        self.desk.invite(self.rack)
        self.rack.service.stopService()
        self.network.down.add("10.0.0.2")
        self.network.run(20.0)
        self.rack.start()
        self.network.down.clear()
        self.network.run(6.0)
        self.assertEqual(self.desk.states, [("failed", "peer_restarted")])
        self.pair(1.0)
        self.assertEqual(self.both, (("paired", None), ("paired", None)))

    def test_joiner_restarts_later(self) -> None:
        """After our proof was sent, that is no answer to it: it may have joined before (CL-52)."""
        code = self.desk.invite(self.rack).code
        self.network.fate = lambda message: "hang up" if b'"step":"prove"' in message.body else "pass"
        self.rack.accept(code)
        self.network.run(0.3)
        self.assertEqual(self.rack.states, [("paired", None)])
        self.rack.service.stopService()
        self.rack.start()
        self.network.fate = lambda _: "pass"
        self.network.run(5.0)
        self.assertEqual(self.desk.states, [("failed", "no_answer")])
        self.assertEqual(*self.clusters)

    def test_inviter_restarts(self) -> None:
        """The joiner hears nothing more: expired, or no answer once its code was typed; new ones work (CL-54, P04)."""
        for typed, end in ((False, ("expired", None)), (True, ("failed", "no_answer"))):
            self.setUp()
            code = self.desk.invite(self.rack).code
            self.desk.service.stopService()
            self.network.run(0.1)
            self.desk.start()
            if typed:
                self.rack.accept(code)
            self.network.run(361.0)
            self.assertEqual(self.rack.states, [end])
            self.pair(1.0)
            self.assertEqual(self.both, (("paired", None), ("paired", None)))

    def test_cancel(self) -> None:
        """It is told to the joiner; what comes later is 409 with the state (CL-55)."""
        made = self.desk.invite(self.rack)
        id = made.value[0].id
        self.assertEqual(self.desk.service.cancel(id).state, "cancelled")
        self.network.run(0.1)
        self.assertEqual(self.both, (("cancelled", None), ("cancelled", None)))
        self.assertEqual(self.assertRaises(Refusal, self.desk.service.cancel, id).details, {"state": "cancelled"})
        self.assertEqual(self.rack.accept(made.code, id).refused, (409, "invitation_over"))

    def test_end_is_repeated(self) -> None:
        """An end that is not answered is told again, until it is, or the invitation has expired anyway."""
        made = self.desk.invite(self.rack)
        self.network.down.add("10.0.0.2")
        self.desk.service.cancel(made.value[0].id)
        self.network.run(100.0)
        self.network.down.clear()
        self.network.run(6.0)
        self.assertEqual(self.rack.states, [("cancelled", None)])
        self.setUp()
        made = self.desk.invite(self.rack)
        self.network.down.add("10.0.0.2")
        self.desk.service.cancel(made.value[0].id)
        self.network.run(400.0)
        self.assertLess(self.network.sent[-1].sent, 310.0)

    def test_decline(self) -> None:
        """The inviter hears of it at once (CL-55)."""
        made = self.desk.invite(self.rack)
        self.rack.service.decline(made.value[0].id)
        self.network.run(0.1)
        self.assertEqual(self.both, (("declined", None), ("declined", None)))
        self.network.run(50.0)
        self.assertEqual(len(self.network.sent), 2)

    def test_stopped(self) -> None:
        """A stop ends calls and timers."""
        self.desk.invite(self.rack)
        self.desk.service.stopService()
        self.rack.service.stopService()
        self.assertEqual(self.network.clock.getDelayedCalls(), [])

    def test_stopped_while_storing(self) -> None:
        """What is being stored is waited for, and nothing is sent after that."""
        slow: Deferred[None] = Deferred()
        self.desk.trust.slow = slow
        self.rack.accept(self.desk.invite(self.rack).code)
        self.network.run(1.0)
        sent = len(self.network.sent)
        stopped = Caught(self.desk.service.stopService())
        self.assertFalse(stopped.done)
        slow.callback(None)
        self.assertTrue(stopped.done)
        self.network.run(100.0)
        self.assertEqual(len(self.network.sent), sent)
        self.assertEqual(self.rack.states, [("failed", "no_answer")])

"""The joiner's side of an invitation, asked by hand (CL-28 to CL-31, CL-35, CL-45 to CL-55)."""

from __future__ import annotations

from typing import Any

import msgspec
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from pair.cluster.changes import Objection
from pair.cluster.refusing import Refusal
from pair.protocols.pairing import Send
from pair.test.cluster.asker import HERE, Asker
from pair.test.cluster.neighbours import Caught, FakeTrust, Network, Node
from pair.test.protocols.couple import CLUSTER, CODE, DESK, WRONG


class JoinerTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.network = Network(self.clock)
        self.rack = Node(self.network, "rack", "10.0.0.2")
        self.asker = Asker(self.rack)

    @property
    def trust(self) -> FakeTrust:
        return self.rack.trust

    def poll(self) -> Caught:
        """All up to a poll that is open."""
        self.assertEqual(self.asker.hello().status, 200)
        return self.asker.ask()

    def prove(self) -> Caught:
        """All up to the inviter's proof, just sent."""
        poll = self.poll()
        self.answer = self.rack.accept(CODE)
        self.clock.advance(0.06)
        self.asker.take(poll)
        return self.asker.ask()

    def refused(self, asked: Caught) -> tuple[int, str]:
        """Status and code of an answer, which has no MAC."""
        self.assertIsNone(asked.value.mac)
        return asked.value.status, msgspec.json.decode(asked.value.body)["error"]["code"]

    def said(self, asked: Caught) -> dict[str, Any]:
        """What an answer with 200 says."""
        self.assertEqual(asked.value.status, 200)
        said: dict[str, Any] = msgspec.json.decode(asked.value.body)
        return said

    def states(self) -> list[tuple[str, str | None]]:
        return self.rack.states


class PollTests(JoinerTests):
    def test_unseen(self) -> None:
        """It is shown with the first valid poll, and not with the hello or with a forged one (CL-31)."""
        self.asker.hello()
        self.assertEqual(self.states(), [])
        body = self.asker.side.last(Send).body
        self.assertEqual(self.refused(self.asker.say(body, b"forged")), (401, "bad_mac"))
        self.assertEqual(self.states(), [])
        self.asker.ask()
        self.assertEqual(self.states(), [("waiting", None)])
        (record,) = self.rack.service.all()
        self.assertEqual((record.id, record.direction, record.tag), (self.asker.id, "in", self.asker.exchange.tag))
        self.assertEqual((record.peer.node, record.peer.name), (DESK.uuid, "desk"))
        self.assertEqual(record.peer.address, HERE)
        self.assertEqual(self.rack.news, [record])

    def test_dropped(self) -> None:
        """Without a poll it is dropped after ten seconds, and nobody ever hears of it (CL-31)."""
        self.asker.hello()
        self.clock.advance(9.9)
        self.assertEqual(self.asker.hello().status, 200)
        self.clock.advance(0.1)
        self.assertEqual(self.refused(self.asker.ask()), (404, "no_such_invitation"))
        self.assertEqual((self.rack.news, self.rack.rows), ([], []))

    def test_long_poll(self) -> None:
        """A poll is answered after 20 seconds, and the next one opens (cluster page, section 5)."""
        first = self.poll()
        self.clock.advance(19.9)
        self.assertFalse(first.done)
        self.clock.advance(0.1)
        self.assertEqual(self.said(first)["state"], "waiting")
        self.asker.take(first)
        second = self.asker.ask()
        self.clock.advance(19.9)
        self.assertFalse(second.done)

    def test_taken_over(self) -> None:
        """The same poll again takes the place of the one that is open, with 20 seconds of its own (CL-28)."""
        first = self.poll()
        self.clock.advance(15.0)
        second = self.asker.ask()
        self.assertEqual(self.refused(first), (409, "out_of_order"))
        self.clock.advance(19.9)
        self.assertFalse(second.done)
        self.clock.advance(0.1)
        self.assertEqual(self.said(second)["state"], "waiting")

    def test_cached(self) -> None:
        """A request that was answered is answered again, in the same bytes (CL-28)."""
        first = self.poll()
        self.clock.advance(20.0)
        self.assertEqual(self.asker.ask().value, first.value)

    def test_out_of_order(self) -> None:
        """Any other number is 409, and the open poll is not touched (CL-28)."""
        first = self.poll()
        self.clock.advance(20.0)
        old = self.asker.side.last(Send)
        self.asker.take(first)
        second = self.asker.ask()
        self.assertEqual(self.refused(self.asker.say(old.body, old.mac)), (409, "out_of_order"))
        self.assertFalse(second.done)

    def test_hello_again(self) -> None:
        """An equal hello gets the equal reply, another one 409; the open poll is not touched (CL-29)."""
        reply = self.asker.hello()
        poll = self.asker.ask()
        self.assertEqual(self.asker.say(self.asker.exchange.hello, None).value, reply)
        other = self.asker.exchange.hello.replace(b'"desk"', b'"mine"')
        self.assertEqual(self.refused(self.asker.say(other, None)), (409, "invite_conflict"))
        self.assertFalse(poll.done)
        self.assertEqual(self.states(), [("waiting", None)])

    def test_bystander(self) -> None:
        """Forged requests of every step are 401, change nothing, and are counted (CL-27, CL-45)."""
        poll = self.poll()
        for step in ("wait", "prove", "end"):
            fields = {"pake": "", "confirm": "", "sealed": "", "state": "cancelled"}
            body = msgspec.json.encode({"step": step, "invite": self.asker.id, "n": 2, **fields})
            for mac in (None, b"", b"forged"):
                self.assertEqual(self.refused(self.asker.say(body, mac)), (401, "bad_mac"))
        self.assertFalse(poll.done)
        self.assertEqual(self.states(), [("waiting", None)])
        self.assertEqual(self.rack.service.bad_macs.values, {(): 9})

    def test_unknown(self) -> None:
        """A request for nothing known is 404; what is no message is 400."""
        body = msgspec.json.encode({"step": "wait", "invite": "0" * 32, "n": 1, "pake": ""})
        self.assertEqual(self.refused(self.asker.say(body, b"x")), (404, "no_such_invitation"))
        for body in (b"", b"{}", b"[]", b'{"step":"hello"}'):
            self.assertEqual(self.refused(self.asker.say(body, None)), (400, "bad_request"))

    def test_hung_up(self) -> None:
        """A client that is gone is not answered; what came up meanwhile is for its next request."""
        poll = self.poll()
        poll.deferred.cancel()
        self.assertIsInstance(poll.error, CancelledError)
        self.rack.accept(CODE)
        self.clock.advance(1.0)
        again = self.asker.ask()
        self.assertEqual(self.said(again)["state"], "proof")

    def test_another_pake(self) -> None:
        """A poll of the inviter's with another PAKE message ends it (CL-30)."""
        poll = self.poll()
        self.clock.advance(20.0)
        self.asker.take(poll)
        send = self.asker.side.last(Send)
        body = msgspec.json.encode(msgspec.json.decode(send.body) | {"pake": "QUFB"})
        mac = self.asker.exchange._channel.request_mac(2, body)
        self.assertEqual(self.said(self.asker.say(body, mac))["state"], "failed")
        self.assertEqual(self.states(), [("failed", "protocol_error")])


class ProofTests(JoinerTests):
    def test_paired(self) -> None:
        """The right code: the proof, the inviter's proof, the store, and only then the answer (CL-50)."""
        slow: Deferred[None] = Deferred()
        self.trust.slow = slow
        proven = self.prove()
        self.clock.advance(5.0)
        self.assertFalse(proven.done)
        self.assertEqual((self.states(), self.rack.cluster), ([("confirming", None)], None))
        slow.callback(None)
        self.assertEqual(self.said(proven)["state"], "paired")
        (record,) = self.rack.service.all()
        self.assertEqual(self.answer.value, record)
        self.assertEqual((record.state, record.cluster and record.cluster.id), ("paired", CLUSTER))
        self.assertEqual(self.rack.paired, [record])
        self.assertEqual([each.state for each in self.rack.news], ["waiting", "confirming", "paired"])

    def test_sixty_milliseconds(self) -> None:
        """The proof, and the answer to one, leave 60 ms after what caused them; also when asked again (CL-35)."""
        poll = self.poll()
        self.clock.advance(3.0)
        self.rack.accept(CODE)
        self.clock.advance(0.05)
        again = self.asker.ask()
        self.assertEqual(self.refused(poll), (409, "out_of_order"))
        self.clock.advance(0.009)
        self.assertFalse(again.done)
        self.clock.advance(0.002)
        self.asker.take(again)
        proof = self.asker.ask()
        self.clock.advance(0.03)
        again = self.asker.ask()
        self.clock.advance(0.029)
        self.assertFalse(again.done)
        self.clock.advance(0.002)
        self.assertEqual(self.said(again)["state"], "paired")
        self.assertEqual(self.refused(proof), (409, "out_of_order"))
        self.assertEqual(self.asker.ask().value, again.value)

    def test_next_poll(self) -> None:
        """Without an open poll the proof waits for the next one; the clock of 30 seconds begins anew as it leaves."""
        first = self.poll()
        self.clock.advance(20.0)
        self.asker.take(first)
        self.rack.accept(CODE)
        self.clock.advance(25.0)
        second = self.asker.ask()
        self.assertEqual(self.said(second)["state"], "proof")
        self.clock.advance(29.0)
        self.assertEqual(self.states(), [("confirming", None)])
        self.clock.advance(1.0)
        self.assertEqual(self.states(), [("failed", "no_answer")])

    def test_no_answer(self) -> None:
        """Thirty seconds after its proof it gives up, and the inviter is told when it comes (CL-53)."""
        poll = self.poll()
        self.rack.accept(CODE)
        self.clock.advance(0.06)
        self.clock.advance(29.9)
        self.assertEqual(self.states(), [("confirming", None)])
        self.clock.advance(0.1)
        self.assertEqual(self.states(), [("failed", "no_answer")])
        self.asker.take(poll)
        self.assertEqual(self.said(self.asker.ask())["reason"], "no_answer")
        self.assertEqual(self.trust.stored, [])

    def test_present_state(self) -> None:
        """A person is kept waiting for 30 seconds at most (CL-46)."""
        self.trust.slow = Deferred()
        self.prove()
        self.clock.advance(29.9)
        self.assertFalse(self.answer.done)
        self.clock.advance(0.1)
        self.assertEqual(self.answer.value.state, "confirming")

    def test_not_stored(self) -> None:
        """If joining fails, it fails, with the reason where there is one; the inviter is told (CL-50)."""
        for error, reason in ((Objection("already_clustered"), "already_clustered"), (OSError(), "store")):
            self.setUp()
            self.trust.failing = error
            proven = self.prove()
            self.clock.advance(0.06)
            self.assertEqual((self.said(proven)["state"], self.said(proven)["reason"]), ("failed", reason))
            self.assertEqual(self.states(), [("failed", reason)])
            self.assertIsNone(self.rack.cluster)
            self.assertEqual(len(self.flushLoggedErrors(OSError)), reason == "store")

    def test_objection(self) -> None:
        """In a cluster by then: it fails before anything is stored (CL-50)."""
        poll = self.poll()
        self.rack.accept(CODE)
        self.clock.advance(0.06)
        self.trust.enter(CLUSTER, "other", self.rack.party.uuid)
        self.asker.take(poll)
        proven = self.asker.ask()
        self.clock.advance(0.06)
        self.assertEqual(self.said(proven)["reason"], "already_clustered")
        self.assertEqual(self.trust.stored, [])

    def test_storing_is_not_ended(self) -> None:
        """No clock and no person ends it while it is stored, and the proof sent again waits for that too."""
        slow: Deferred[None] = Deferred()
        self.trust.slow = slow
        self.prove()
        self.clock.advance(400.0)
        again = self.asker.ask()
        self.clock.advance(25.0)
        self.assertFalse(again.done)
        slow.callback(None)
        self.assertEqual(self.said(again)["state"], "paired")

    def test_wrong_code(self) -> None:
        """The inviter says that the code was wrong: voided, and the person is told (CL-48)."""
        poll = self.poll()
        answer = self.rack.accept(WRONG)
        self.clock.advance(0.06)
        self.asker.take(poll)
        self.assertEqual(self.said(self.asker.ask())["state"], "voided")
        self.assertEqual((answer.value.state, answer.value.reason), ("voided", "wrong_code"))


class EndTests(JoinerTests):
    def test_decline(self) -> None:
        """It answers the open poll; what comes later is 409 with the state (CL-55)."""
        poll = self.poll()
        self.assertEqual(self.rack.service.decline(self.asker.id).state, "declined")
        self.assertEqual(self.said(poll)["state"], "declined")
        late = self.rack.accept(CODE, self.asker.id)
        self.assertEqual((late.refused, late.error.details), ((409, "invitation_over"), {"state": "declined"}))
        self.assertEqual(self.rack.accept(CODE).refused, (404, "no_such_invitation"))

    def test_decline_late(self) -> None:
        """Once a code was typed there is nothing to decline (CL-55)."""
        self.poll()
        self.rack.accept(CODE)
        error = self.assertRaises(Refusal, self.rack.service.decline, self.asker.id)
        self.assertEqual((error.code, error.details), ("invitation_over", {"state": "confirming"}))
        error = self.assertRaises(Refusal, self.rack.service.cancel, self.asker.id)
        self.assertEqual(error.code, "no_such_invitation")
        self.assertEqual(self.states(), [("confirming", None)])

    def test_expired(self) -> None:
        """Three hundred seconds after the hello the open poll is answered so (CL-53)."""
        poll = self.poll()
        for _ in range(14):
            self.clock.advance(20.0)
            self.asker.take(poll)
            poll = self.asker.ask()
        self.clock.advance(19.0)
        self.assertEqual(self.states(), [("waiting", None)])
        self.clock.advance(1.0)
        self.assertEqual(self.states(), [("expired", None)])

    def test_expires_the_open_poll(self) -> None:
        """The poll that is open at that time says it."""
        self.poll()
        self.clock.advance(290.0)
        self.asker.take(self.asker.ask())
        poll = self.asker.ask()
        self.clock.advance(10.0)
        self.assertEqual(self.said(poll)["state"], "expired")

    def test_never_proven(self) -> None:
        """A code typed for an inviter that never comes back: an end after 30 seconds (CL-53)."""
        self.poll().deferred.cancel()
        self.rack.accept(CODE)
        self.clock.advance(29.0)
        self.assertEqual(self.states(), [("confirming", None)])
        self.clock.advance(1.0)
        self.assertEqual(self.states(), [("failed", "no_answer")])

    def test_stopped(self) -> None:
        """A stop lets go of the open poll, forgets all, and leaves no timer (CL-54)."""
        poll = self.poll()
        stopped = Caught(self.rack.service.stopService())
        self.assertTrue(stopped.done)
        self.assertEqual(self.refused(poll), (404, "no_such_invitation"))
        self.assertEqual(self.refused(self.asker.ask()), (404, "no_such_invitation"))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stop_waits_for_store(self) -> None:
        """What is being stored is waited for."""
        slow: Deferred[None] = Deferred()
        self.trust.slow = slow
        self.prove()
        stopped = Caught(self.rack.service.stopService())
        self.assertFalse(stopped.done)
        slow.callback(None)
        self.assertTrue(stopped.done)
        self.assertEqual(self.rack.cluster, CLUSTER)

"""Tests of :mod:`pair.protocols.pairing`: pairings between two nodes, one of which may lie."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from pair.cluster.leaf import LeafError, check_leaf, make_leaf
from pair.privacy import Secret
from pair.protocols.pairing import (
    Admit,
    Answer,
    Ended,
    ForeignReplyError,
    Hold,
    InviterExchange,
    Join,
    JoinerExchange,
    Keep,
    OverError,
    Party,
    Refuse,
    Retract,
    Send,
    Show,
    parse_code,
    read_request,
)
from pair.protocols.pairing.messages import End, HelloReply, Prove, Reply, Wait, encode, read
from pair.test.protocols.couple import CLUSTER, CODE, DESK, EPOCH, OFFERED, RACK, RETURNED, WRONG, Couple, Draws

if TYPE_CHECKING:
    from pair.protocols.pairing import EndState, Offer, Peer, Reason


class PairingTests(SynchronousTestCase):
    def test_paired(self) -> None:
        """With the right code each side learns who the other is, stores, and only then says so (CL-38 to CL-51)."""
        couple = Couple()
        couple.poll()
        self.assertEqual(couple.there.done, [Show(), Hold()])
        couple.type()
        couple.reply()
        admit = couple.here.last(Admit)
        self.assertEqual((admit.peer.uuid, admit.peer.name, admit.peer.leaf), (RACK.uuid, "rack", RACK.leaf))
        self.assertEqual(admit.epoch, EPOCH)
        self.assertIs(couple.here.done[-1], admit)
        couple.store_here()
        self.assertIsInstance(read_request(couple.here.last(Send).body), Prove)
        couple.ask()
        join = couple.there.last(Join)
        self.assertEqual(couple.there.done[-2:], [Hold(), join])
        self.assertEqual((join.peer.uuid, join.peer.name, join.peer.leaf), (DESK.uuid, "desk", DESK.leaf))
        self.assertEqual(
            (join.offer.cluster, join.offer.name, join.offer.statements), (CLUSTER, "desk's cluster", OFFERED)
        )
        self.assertEqual(couple.states, ("confirming", "confirming"))
        couple.store_there()
        couple.reply()
        self.assertEqual(couple.here.last(Keep).statements, RETURNED)
        self.assertEqual(couple.ends, ([Ended("paired")], [Ended("paired")]))
        self.assertEqual(couple.states, ("paired", "paired"))

    def test_codes(self) -> None:
        """Both kinds work, leading zeros and all (CL-32)."""
        for kind, code in (("pin", "000000"), ("pin", "999999"), ("long", "00a1b2c3d4e5f6071829")):
            couple = Couple(kind, code)  # type: ignore[arg-type]
            couple.poll()
            couple.type(parse_code(couple.joiner.hello.code_kind, f" {code.upper()} ").reveal())
            couple.reply()
            self.assertEqual(couple.inviter.state, "confirming")

    def test_kind_is_part_of_the_code(self) -> None:
        """The same digits as another kind of code are another code (CL-32)."""
        password = "1" * 20
        couple = Couple("long", password)
        couple.poll()
        couple.joiner.hello = replace(couple.joiner.hello, code_kind="pin")
        couple.type(password)
        couple.reply()
        self.assertEqual(couple.inviter.reason, "wrong_code")

    def test_shown_before_the_proof(self) -> None:
        """Both sides show the same tag and the other's name, which is not proven yet (CL-45)."""
        couple = Couple()
        self.assertIsNone(couple.inviter.peer)
        couple.greet()
        self.assertEqual(couple.inviter.peer, (RACK.uuid, "rack"))
        self.assertEqual((str(couple.joiner.hello.node), couple.joiner.hello.name), (DESK.uuid, "desk"))
        self.assertEqual(couple.inviter.tag, couple.joiner.tag)
        self.assertRegex(couple.joiner.tag, r"^[A-Z2-7]{4}$")
        self.assertNotEqual(couple.joiner.tag, Couple(seed="other").joiner.tag)

    def test_long_wait(self) -> None:
        """Polls follow one another with one PAKE message; the code may come between two of them (CL-30)."""
        couple = Couple()
        couple.greet()
        for _ in range(3):
            couple.ask()
            couple.there.do(couple.joiner.poll_ended())
            couple.reply()
        self.assertEqual(len(couple.there.all(Show)), 1)
        waits = [read_request(each.body) for each in couple.here.all(Send)]
        self.assertEqual([each.n for each in waits if isinstance(each, Wait)], [1, 2, 3, 4])
        self.assertEqual(len({each.pake for each in waits if isinstance(each, Wait)}), 1)
        before = len(couple.there.done)
        couple.type()
        self.assertEqual(couple.there.done[before:], [])
        couple.ask()
        self.assertEqual(read(Reply, couple.there.last(Answer).body).state, "proof")
        couple.reply()
        self.assertEqual(couple.inviter.state, "confirming")

    def test_poll_ends_late(self) -> None:
        """A poll that was answered does not end again, and the open proof is no poll."""
        couple = Couple()
        self.assertEqual(couple.joiner.poll_ended(), ())
        couple.poll()
        couple.type()
        self.assertEqual(couple.joiner.poll_ended(), ())
        couple.reply()
        couple.store_here()
        couple.ask()
        self.assertEqual(couple.joiner.poll_ended(), ())
        couple.store_there()
        couple.reply()
        self.assertEqual(couple.states, ("paired", "paired"))

    def test_nothing_shown(self) -> None:
        """No action, exchange or error has code, key, proof or certificate in its text (CL-105)."""
        couple = Couple()
        couple.pair()
        shown = repr([couple.here.done, couple.there.done, couple.inviter, couple.joiner, couple.joiner.hello, DESK])
        shown += repr([vars(couple.inviter)["_keys"], vars(couple.joiner)["_word"], couple.here.last(Admit).peer])
        for secret in (
            CODE,
            DESK.leaf.hex(),
            repr(DESK.leaf),
            OFFERED[1].decode(),
            couple.inviter.invite,
            "b'",
            "\\x",
        ):
            self.assertNotIn(secret, shown)
        error = self.assertRaises(OverError, couple.joiner.prove, Secret(CODE), EPOCH)
        self.assertEqual(str(error), "paired")


class WrongCodeTests(SynchronousTestCase):
    def test_voided_on_both_sides(self) -> None:
        """A wrong code ends it at once here and there, and nothing was stored (CL-48)."""
        couple = Couple()
        couple.prove(WRONG)
        self.assertIsInstance(read_request(couple.here.last(Send).body), End)
        couple.ask()
        self.assertEqual(couple.ends, ([Ended("voided", "wrong_code")], [Ended("voided", "wrong_code")]))
        self.assertEqual(couple.stored, 0)
        couple.reply()
        self.assertEqual(couple.inviter.state, "voided")

    def test_never_usable_again(self) -> None:
        """After a wrong code the right one is of no use, in whatever order it comes (CL-47)."""
        couple = Couple()
        couple.prove(WRONG)
        self.assertEqual(self.assertRaises(OverError, couple.type).state, "confirming")
        couple.ask()
        couple.reply()
        self.assertEqual(self.assertRaises(OverError, couple.type).state, "voided")
        for answer in couple.there.all(Answer):
            self.assertRaises(ForeignReplyError, couple.inviter.received, answer.body, answer.mac)
        self.assertRaises(OverError, couple.store_here)
        self.assertRaises(OverError, couple.store_there)
        self.assertRaises(OverError, couple.inviter.end, "cancelled")
        self.assertRaises(OverError, couple.joiner.end, "declined")
        self.assertEqual(couple.states, ("voided", "voided"))
        self.assertEqual(couple.stored, 0)

    def test_second_proof(self) -> None:
        """A second proof with every right to be judged is not: another joiner with the right code (CL-47)."""
        couple = Couple()
        couple.prove(WRONG)
        second = Couple(seed="couple")
        second.poll()
        second.type()
        good = second.there.last(Answer)
        mac = couple.joiner._channel.reply_mac(couple.inviter._n, good.body)
        self.assertEqual(couple.inviter.received(good.body, mac), ())
        self.assertEqual(couple.inviter.state, "voided")

    def test_new_invitation(self) -> None:
        """A new invitation works at once."""
        Couple().prove(WRONG)
        couple = Couple(seed="again")
        couple.pair()
        self.assertEqual(couple.states, ("paired", "paired"))


class HelloTests(SynchronousTestCase):
    def test_at_two_addresses(self) -> None:
        """The same hello at another address of the joiner gets the same reply, and changes nothing (CL-29)."""
        couple = Couple()
        self.assertEqual(couple.joiner.received(couple.inviter.hello, None), (Answer(couple.joiner.reply, None),))
        couple.greet()
        self.assertEqual(couple.inviter.greeted(couple.joiner.reply), ())
        couple.ask()
        self.assertEqual(couple.joiner.received(couple.inviter.hello, None), (Answer(couple.joiner.reply, None),))

    def test_two_repliers(self) -> None:
        """Who replied first is the joiner; another reply is nobody's (CL-57)."""
        couple = Couple()
        other = JoinerExchange(RACK, couple.inviter.hello, check_leaf, lambda *_: None, Draws("other"))
        couple.greet()
        self.assertRaises(ForeignReplyError, couple.inviter.greeted, other.reply)
        couple.ask()
        self.assertEqual(couple.there.done, [Show(), Hold()])

    def test_not_a_reply(self) -> None:
        """What does not fit the hello is a reply of somebody else, and the walk goes on (CL-57)."""
        couple = Couple()
        reply = read(HelloReply, couple.joiner.reply)
        for strange in (
            b"",
            b"<html>",
            couple.inviter.hello,
            encode(replace(reply, invite="0" * 32)),
            encode(replace(reply, version=2)),
        ):
            self.assertRaises(ForeignReplyError, couple.inviter.greeted, strange)
        couple.pair()
        self.assertEqual(couple.states, ("paired", "paired"))

    def test_other_node(self) -> None:
        """A node other than the one invited moves the walk on (CL-57)."""
        for node, taken in ((RACK.uuid, True), (DESK.uuid, False), (None, True)):
            inviter = InviterExchange(DESK, "pin", Secret(CODE), check_leaf, lambda _: None, Draws("i"), node)
            joiner = JoinerExchange(RACK, inviter.hello, check_leaf, lambda *_: None, Draws("j"))
            if taken:
                self.assertIsInstance(inviter.greeted(joiner.reply)[0], Send)
            else:
                self.assertRaises(ForeignReplyError, inviter.greeted, joiner.reply)

    def test_own_identity(self) -> None:
        """A joiner that has our own UUID is a clone: no code is shown for it (CL-94)."""
        couple = Couple(joiner=Party(DESK.uuid, "twin", DESK.key, DESK.leaf))
        couple.greet()
        self.assertEqual(couple.here.done, [Ended("failed", "identity_clash")])

    def test_ended_before_the_reply(self) -> None:
        """A reply that comes after the end begins nothing."""
        couple = Couple()
        couple.here.do(couple.inviter.end("failed", "unreachable"))
        couple.greet()
        self.assertEqual(couple.here.done, [Ended("failed", "unreachable")])


class NumberTests(SynchronousTestCase):
    def test_retry(self) -> None:
        """A repeated request gets the answer of before, byte for byte (CL-28)."""
        couple = Couple()
        couple.poll()
        couple.type()
        couple.reply()
        couple.store_here()
        couple.ask()
        couple.store_there()
        prove, answer = couple.here.last(Send), couple.there.last(Answer)
        for _ in range(3):
            self.assertEqual(couple.joiner.received(prove.body, prove.mac), (answer,))
        self.assertEqual(len(couple.there.all(Join)), 1)
        couple.reply()
        self.assertEqual(couple.inviter.state, "paired")

    def test_poll_taken_over(self) -> None:
        """A repeated poll takes the place of the open one, and is answered in its stead (CL-28)."""
        couple = Couple()
        couple.poll()
        for _ in range(2):
            before = len(couple.there.done)
            couple.ask()
            self.assertEqual(couple.there.done[before:], [Hold()])
        couple.type()
        couple.reply()
        self.assertEqual(couple.inviter.state, "confirming")

    def test_proof_taken_over(self) -> None:
        """So does a repeated ``prove`` while the first is being stored; it is judged once."""
        couple = Couple()
        couple.prove()
        couple.store_here()
        couple.ask()
        couple.ask()
        self.assertEqual(couple.there.done[-1], Hold())
        self.assertEqual(len(couple.there.all(Join)), 1)
        couple.store_there()
        couple.reply()
        self.assertEqual(couple.states, ("paired", "paired"))

    def test_lost_answers(self) -> None:
        """Each answer may be lost once; the request is sent again, and all goes on (CL-51)."""
        couple = Couple()
        couple.greet()
        for step in (
            lambda: couple.there.do(couple.joiner.poll_ended()),
            couple.type,
            lambda: None,
        ):
            couple.ask()
            if couple.there.all(Join):
                couple.store_there()
            step()
            couple.ask()
            couple.reply()
            if couple.here.all(Admit) and not couple.there.all(Join):
                couple.store_here()
        self.assertEqual(couple.states, ("paired", "paired"))

    def test_out_of_order(self) -> None:
        """Another number, or this one with other bytes, is 409 and changes nothing (CL-28)."""
        couple = Couple()
        couple.poll()
        wait = read_request(couple.here.last(Send).body)
        assert isinstance(wait, Wait)
        gate = couple.joiner._channel
        for strange in (replace(wait, n=3), replace(wait, n=2**53 - 1), replace(wait, pake=b"A" + bytes(32))):
            body = encode(strange)
            self.assertEqual(
                couple.joiner.received(body, gate.request_mac(strange.n, body)), (Refuse(409, "out_of_order"),)
            )
        couple.there.do(couple.joiner.poll_ended())
        couple.reply()
        couple.ask()
        first = couple.here.all(Send)[0]
        self.assertEqual(couple.joiner.received(first.body, first.mac), (Refuse(409, "out_of_order"),))
        couple.type()
        couple.reply()
        self.assertEqual(couple.inviter.state, "confirming")

    def test_other_requests_while_storing(self) -> None:
        """Nothing comes between a good proof and its being stored."""
        couple = Couple()
        couple.prove()
        couple.store_here()
        couple.ask()
        body = encode(End(couple.inviter.invite, 3, "cancelled"))
        mac = couple.inviter._channel.request_mac(3, body)
        self.assertEqual(couple.joiner.received(body, mac), (Refuse(409, "out_of_order"),))
        couple.store_there()
        couple.reply()
        self.assertEqual(couple.states, ("paired", "paired"))

    def test_other_pake(self) -> None:
        """A further poll with another PAKE message ends it (CL-30)."""
        couple = Couple()
        couple.poll()
        body = encode(Wait(couple.inviter.invite, 2, b"A" + DESK.leaf[:32]))
        couple.there.do(couple.joiner.received(body, couple.inviter._channel.request_mac(2, body)))
        self.assertEqual(couple.there.last(Ended), Ended("failed", "protocol_error"))
        self.assertRaises(OverError, couple.type)


class EndTests(SynchronousTestCase):
    def test_inviter_ends(self) -> None:
        """Cancelled or expired while the joiner waits: it is told, and says so when polled or not (CL-55)."""
        ends: tuple[tuple[EndState, Reason | None], ...] = (
            ("cancelled", None),
            ("expired", None),
            ("failed", "joined_another_cluster"),
        )
        for state, reason in ends:
            couple = Couple()
            couple.poll()
            couple.here.do(couple.inviter.end(state, reason))
            couple.ask()
            couple.reply()
            self.assertEqual(couple.ends, ([Ended(state, reason)], [Ended(state, reason)]))
            self.assertRaises(OverError, couple.type)

    def test_joiner_ends(self) -> None:
        """Declined, expired or in a cluster already: the open poll is answered with it, or else the next (CL-55)."""
        ends: tuple[tuple[EndState, Reason | None], ...] = (
            ("declined", None),
            ("expired", None),
            ("failed", "already_clustered"),
        )
        for state, reason in ends:
            for polled in (True, False):
                couple = Couple()
                couple.greet()
                if polled:
                    couple.ask()
                couple.there.do(couple.joiner.end(state, reason))
                if not polled:
                    couple.ask()
                couple.reply()
                self.assertEqual(couple.ends, ([Ended(state, reason)], [Ended(state, reason)]))
                self.assertNotIsInstance(couple.here.done[-1], Send)

    def test_cancel_and_proof_cross(self) -> None:
        """A cancel that crosses with the proof wins on both sides: the proof is not judged (CL-55)."""
        couple = Couple()
        couple.poll()
        couple.type()
        couple.here.do(couple.inviter.end("cancelled"))
        self.assertRaises(ForeignReplyError, couple.reply)
        couple.ask()
        self.assertEqual(couple.states, ("cancelled", "cancelled"))
        self.assertEqual(couple.stored, 0)

    def test_cancel_and_decline_cross(self) -> None:
        """Each side keeps its own end; the other's does not come through any more (CL-55)."""
        couple = Couple()
        couple.poll()
        couple.there.do(couple.joiner.end("declined"))
        couple.here.do(couple.inviter.end("cancelled"))
        couple.ask()
        couple.reply()
        self.assertEqual(couple.ends, ([Ended("cancelled")], [Ended("declined")]))

    def test_reasons(self) -> None:
        """A reason that is about one side alone is ``peer_failed`` on the other."""
        for told, known in (("store", "peer_failed"), ("no_answer", "peer_failed"), ("cluster_full", "cluster_full")):
            couple = Couple()
            couple.prove()
            couple.here.do(couple.inviter.end("failed", told))  # type: ignore[arg-type]
            couple.ask()
            self.assertEqual(couple.there.last(Ended), Ended("failed", known))  # type: ignore[arg-type]

    def test_unheard_of_reason(self) -> None:
        """So is one that is not known here, and one that lacks."""
        for body in (b'{"state":"failed","reason":"bored"}', b'{"state":"failed"}'):
            couple = Couple()
            couple.poll()
            couple.here.do(couple.inviter.received(body, couple.joiner._channel.reply_mac(1, body)))
            self.assertEqual(couple.inviter.reason, "peer_failed")

    def test_store_fails_here(self) -> None:
        """The inviter that cannot store does not prove itself (CL-49)."""
        couple = Couple()
        couple.prove()
        couple.here.do(couple.inviter.end("failed", "store"))
        self.assertRaises(OverError, couple.store_here)
        self.assertEqual([type(read_request(each.body)) for each in couple.here.all(Send)], [Wait, End])

    def test_store_fails_there(self) -> None:
        """The joiner that cannot store says so; the inviter takes back what it founded for it (CL-50, CL-52)."""
        couple = Couple()
        couple.prove()
        couple.store_here()
        couple.ask()
        couple.there.do(couple.joiner.end("failed", "store"))
        self.assertRaises(OverError, couple.store_there)
        couple.reply()
        self.assertEqual(couple.here.done[-2:], [Retract(), Ended("failed", "peer_failed")])

    def test_joiner_gave_up(self) -> None:
        """A proof that comes after the joiner's 30 seconds is answered ``failed`` (CL-53)."""
        couple = Couple()
        couple.prove()
        couple.there.do(couple.joiner.end("failed", "no_answer"))
        couple.store_here()
        couple.ask()
        couple.reply()
        self.assertEqual(couple.stored, 1)
        self.assertEqual(couple.here.done[-2:], [Retract(), Ended("failed", "peer_failed")])

    def test_no_answer_to_the_proof(self) -> None:
        """The inviter that hears nothing keeps what it stored, and tells the joiner nothing more (CL-52)."""
        couple = Couple()
        couple.prove()
        couple.store_here()
        couple.ask()
        couple.store_there()
        before = len(couple.here.done)
        couple.here.do(couple.inviter.end("failed", "no_answer"))
        self.assertEqual(couple.here.done[before:], [Ended("failed", "no_answer")])
        self.assertRaises(ForeignReplyError, couple.reply)
        self.assertEqual(couple.states, ("failed", "paired"))
        self.assertEqual(couple.here.all(Retract), [])

    def test_riddle_after_the_proof(self) -> None:
        """An answer to the proof that cannot be understood is no word that the joiner did not join (CL-52)."""
        for body in (b"{}", b'{"state":"waiting"}', b'{"state":"paired"}', b'{"state":"declined"}'):
            couple = Couple()
            couple.prove()
            couple.store_here()
            couple.here.do(couple.inviter.received(body, couple.joiner._channel.reply_mac(2, body)))
            self.assertEqual(couple.here.last(Ended), Ended("failed", "protocol_error"))
            self.assertEqual(couple.here.all(Retract), [])

    def test_riddle_before_the_proof(self) -> None:
        """One to a poll ends it, and the joiner is told."""
        for body in (b"{}", b'{"state":"paired"}', b"\xff"):
            couple = Couple()
            couple.poll()
            couple.here.do(couple.inviter.received(body, couple.joiner._channel.reply_mac(1, body)))
            couple.ask()
            self.assertEqual(couple.states, ("failed", "failed"))

    def test_requests_after_the_end(self) -> None:
        """Who asks on is told the end, whatever it asks."""
        couple = Couple()
        couple.poll()
        couple.there.do(couple.joiner.end("declined"))
        gate, invite = couple.inviter._channel, couple.inviter.invite
        for request in (Wait(invite, 2, b""), Prove(invite, 3, b"", b""), End(invite, 4, "voided")):
            body = encode(request)
            (answer,) = couple.joiner.received(body, gate.request_mac(request.n, body))
            assert isinstance(answer, Answer)
            self.assertEqual(answer.body, b'{"state":"declined"}')


class JudgementTests(SynchronousTestCase):
    """What is judged after a code that was right (CL-48, CL-50)."""

    def test_inviter_objects(self) -> None:
        """The cluster's own objections come last: nothing is stored, and the joiner is told (CL-48)."""
        reasons: tuple[Reason, ...] = ("identity_clash", "cluster_full", "joined_another_cluster")
        for reason in reasons:
            asked: list[str] = []
            couple = Couple(admits=partial(_object, asked, reason))
            couple.prove()
            self.assertEqual(asked, [RACK.uuid])
            couple.ask()
            self.assertEqual(couple.ends, ([Ended("failed", reason)], [Ended("failed", reason)]))
            self.assertEqual(couple.stored, 0)

    def test_joiner_objects(self) -> None:
        """So do the joiner's, which sees the statements: what it does not believe it does not join (CL-50)."""
        asked: list[str] = []
        couple = Couple(joins=partial(_object, asked, "protocol_error"))
        couple.prove()
        couple.store_here()
        couple.ask()
        couple.reply()
        self.assertEqual(asked, [DESK.uuid, *OFFERED])
        self.assertEqual(couple.there.all(Join), [])
        self.assertEqual(couple.here.done[-2:], [Retract(), Ended("failed", "protocol_error")])

    def test_not_asked_before(self) -> None:
        """A wrong code raises no question: neither leaf nor cluster is looked at (CL-48)."""

        def never(*_: object) -> None:
            self.fail("asked")

        couple = Couple(admits=never, joins=never, checks=never)  # type: ignore[arg-type]
        couple.prove(WRONG)
        self.assertEqual(couple.inviter.reason, "wrong_code")

    def test_joiner_is_not_who_it_said(self) -> None:
        """Another leaf than the hello's, one that is no leaf, of another node, or a foreign key: failed (CL-48)."""
        liars = (
            Party(RACK.uuid, "rack", DESK.key, RACK.leaf),
            Party(_near(DESK.uuid), "rack", RACK.key, RACK.leaf),
            Party(RACK.uuid, "rack", RACK.key, RACK.leaf + b"\0"),
            Party(RACK.uuid, "rack", RACK.key, b""),
        )
        for liar in liars:
            self._fails(Couple(joiner=liar))
        couple = Couple()
        couple.joiner._me = _other_key(RACK)
        self._fails(couple)

    def test_inviter_is_not_who_it_said(self) -> None:
        """The same at the joiner: nothing is stored, and the inviter is told (CL-50)."""
        liars = (
            Party(DESK.uuid, "desk", RACK.key, DESK.leaf),
            Party(_near(RACK.uuid), "desk", DESK.key, DESK.leaf),
            Party(DESK.uuid, "desk", DESK.key, DESK.leaf[:-1]),
        )
        for liar in liars:
            self._fails_there(Couple(inviter=liar))
        couple = Couple()
        couple.inviter._me = _other_key(DESK)
        self._fails_there(couple)

    def test_confirmation_of_the_inviter(self) -> None:
        """A wrong one fails at the joiner, be all that is sealed right (CL-50)."""
        for length in (0, 32, 33):
            couple = Couple()
            couple.prove()
            couple.store_here()
            prove = read_request(couple.here.last(Send).body)
            assert isinstance(prove, Prove)
            body = encode(replace(prove, confirm=bytes(length)))
            couple.there.do(couple.joiner.received(body, couple.inviter._channel.request_mac(prove.n, body)))
            self.assertEqual(couple.there.all(Ended), [Ended("failed", "protocol_error")])
            self.assertEqual(couple.there.all(Join), [])

    def test_leaf_check_refuses(self) -> None:
        """A leaf that the check refuses is none, whatever else is right (CL-6)."""

        def refuse(_: bytes) -> str:
            raise LeafError("no")

        self._fails(Couple(checks=refuse))

    def test_order(self) -> None:
        """Leaf before UUID before signature before the cluster's objection (CL-48)."""
        asked: list[str] = []

        def check(der: bytes) -> str:
            asked.append("leaf")
            return check_leaf(der)

        Couple(checks=check, admits=partial(_object, asked, "cluster_full")).prove()
        self.assertEqual(asked, ["leaf", RACK.uuid])
        asked.clear()
        forged = Party(RACK.uuid, "rack", DESK.key, RACK.leaf)
        Couple(joiner=forged, checks=check, admits=partial(_object, asked, "cluster_full")).prove()
        self.assertEqual(asked, ["leaf"])

    def test_proof_too_early(self) -> None:
        """An inviter that proves itself before a code was typed proves nothing."""
        couple = Couple()
        couple.poll()
        body = encode(Prove(couple.inviter.invite, 2, bytes(32), bytes(64)))
        couple.there.do(couple.joiner.received(body, couple.inviter._channel.request_mac(2, body)))
        self.assertEqual(couple.there.last(Ended), Ended("failed", "protocol_error"))

    def test_first_request_is_no_poll(self) -> None:
        """Nor does one that never polled; a code cannot be typed for it either (CL-31)."""
        couple = Couple()
        couple.greet()
        self.assertRaises(OverError, couple.type)
        body = encode(Prove(couple.inviter.invite, 1, bytes(32), bytes(64)))
        couple.there.do(couple.joiner.received(body, couple.inviter._channel.request_mac(1, body)))
        self.assertEqual(couple.there.all(Show), [])
        self.assertEqual(couple.joiner.state, "failed")

    def _fails(self, couple: Couple) -> None:
        couple.prove()
        couple.ask()
        self.assertEqual(couple.ends, ([Ended("failed", "protocol_error")], [Ended("failed", "protocol_error")]))
        self.assertEqual(couple.stored, 0)

    def _fails_there(self, couple: Couple) -> None:
        couple.prove()
        couple.store_here()
        couple.ask()
        couple.reply()
        self.assertEqual(couple.there.all(Ended), [Ended("failed", "protocol_error")])
        self.assertEqual(couple.here.done[-2:], [Retract(), Ended("failed", "protocol_error")])
        self.assertEqual(couple.there.all(Join), [])


def _near(uuid: str) -> str:
    """One that differs in its last digit."""
    return uuid[:-1] + ("1" if uuid.endswith("0") else "0")


def _other_key(node: Party) -> Party:
    """A node with the UUID and name of another."""
    key = Ed25519PrivateKey.generate()
    return Party(node.uuid, node.name, key, make_leaf(node.uuid, key, EPOCH / 1000))


def _object(asked: list[Any], reason: Reason, peer: Peer, offer: Offer | None = None) -> Reason:
    """An objection that keeps what it was asked of."""
    asked += [peer.uuid, *(offer.statements if offer else ())]
    return reason


class KeyTests(SynchronousTestCase):
    def test_no_key_twice(self) -> None:
        """All keys of a pairing differ, and those of two pairings."""
        found = []
        for seed in ("one", "two"):
            couple = Couple(seed=seed)
            couple.pair()
            keys, channel = couple.inviter._keys, couple.inviter._channel
            found += [keys.confirm_joiner, keys.confirm_inviter, keys.seal_joiner, keys.seal_inviter, keys.seal_ack]
            found += [channel._inviter, channel._joiner, channel.z]
        self.assertTrue(all(one != other for one, other in pairwise(sorted(found))))

    def test_draws(self) -> None:
        """Each side draws its nonce, its key, and one scalar for one run of the PAKE; nothing else is random."""
        couple = Couple()
        couple.pair()
        self.assertEqual(couple.draws[0].sizes, [16, 32, 32, 64])
        self.assertEqual(couple.draws[1].sizes, [32, 32, 64])

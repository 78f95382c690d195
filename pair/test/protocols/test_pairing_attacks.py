"""What an attacker gets from :mod:`pair.protocols.pairing` (CL-61): a listener, a bystander, a man in the middle.

Each attacker here has all that his place on the network gives him, and the
code of both sides to work with. Where he fails, a control shows that the same
attack succeeds with the one thing that he lacks.
"""

from __future__ import annotations

import hmac
import os
import random
import subprocess
import sys
from typing import TYPE_CHECKING

from msgspec.structs import replace
from spake2 import SPAKE2_A, SPAKE2_B
from spake2.ed25519_basic import ElementOfUnknownGroup, L, NotOnCurve, Q, bytes_to_unknown_group_element
from spake2.ed25519_group import Ed25519Group
from spake2.parameters.ed25519 import ParamsEd25519
from spake2.params import _Params
from twisted.trial.unittest import SynchronousTestCase

from pair.cluster.leaf import check_leaf
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
    MalformedError,
    OverError,
    Party,
    Refuse,
    Send,
    read_request,
)
from pair.protocols.pairing.codes import password
from pair.protocols.pairing.keys import Channel, authenticate, derive_keys
from pair.protocols.pairing.messages import End, Hello, HelloReply, Prove, Reply, Wait, encode, read
from pair.test.protocols.couple import CODE, EPOCH, MALLORY, RACK, WRONG, Couple, Draws

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUP = Ed25519Group
SAMPLE = (CODE, WRONG, "000000", "999999", *(f"{each:06d}" for each in random.Random(61).sample(range(10**6), 16)))
"""Codes that stand for all 10⁶; the right one is the first."""

SMALL_SHARES = tuple(
    each.to_bytes(32, "little")
    for each in (
        0,
        1,
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
        2**255 - 20,
        2**255 - 19,
        2**255 - 18,
    )
)
"""All X25519 public keys that give an all-zero secret, whatever the other key (RFC 7748, section 6.1)."""


def scalar(code: str) -> int:
    """What the PAKE makes of a PIN."""
    w: int = GROUP.password_to_scalar(password("pin", Secret(code)))
    return w


def sent(couple: Couple) -> tuple[Wait, Reply]:
    """The PAKE messages of a recording: the inviter's with its poll, the joiner's with its proof."""
    wait = read_request(couple.here.all(Send)[0].body)
    assert isinstance(wait, Wait)
    return wait, read(Reply, couple.there.all(Answer)[0].body)


def confirms(channel: Channel, k: bytes, wait: Wait, proof: Reply) -> bool:
    """Whether a guessed K is the one that the joiner's confirmation was made with."""
    keys = derive_keys(channel, k, wait.pake, proof.pake)
    return hmac.compare_digest(authenticate(keys.confirm_joiner, keys.t1), proof.confirm)


class ListenerTests(SynchronousTestCase):
    """He has a recording of the whole, and all the time in the world.

    What in it depends on the code? The two PAKE messages, and what is made with
    K. The first fit each code equally, which the first three tests show; so
    nothing can be ruled out by them. The second is made with K and Z, and to
    know either for a candidate takes a secret scalar of one of the sides.
    """

    def test_hellos_are_without_the_code(self) -> None:
        """With the same randomness, all that is said before the PAKE is the same for each code."""
        couples = [Couple(code=code) for code in SAMPLE]
        self.assertEqual(len({(each.inviter.hello, each.joiner.reply) for each in couples}), 1)
        for each in couples:
            each.greet()
        self.assertEqual(len({each.joiner.tag for each in couples}), 1)

    def test_no_code_is_ruled_out(self) -> None:
        """Without the blinding of any candidate each PAKE message is a key that somebody may have drawn.

        If for one candidate it were off the curve or in another subgroup, that
        candidate would be out: each recording would halve the rest.
        """
        couple = Couple()
        couple.pair()
        wait, proof = sent(couple)
        for pake, blinding in ((wait.pake, ParamsEd25519.M), (proof.pake, ParamsEd25519.N)):
            element = GROUP.bytes_to_element(pake[1:])
            for code in SAMPLE:
                unblinded = element.add(blinding.scalarmult(-scalar(code)))
                GROUP.bytes_to_element(unblinded.to_bytes())

    def test_each_code_says_the_same(self) -> None:
        """For each code there is one scalar with which it gives the very PAKE message recorded.

        To name it takes the logarithm of M, which nobody knows; here it is an M
        of ours. That the scalar exists does not depend on who knows it. Scalars
        are drawn uniformly, so the message says nothing at all about the code.
        """
        m, x = 271828, 314159
        params = _Params(GROUP)
        params.M = params.N = GROUP.Base.scalarmult(m)
        for side in (SPAKE2_A, SPAKE2_B):
            said = set()
            for code in SAMPLE:
                drawn = (x - scalar(code) * m) % L
                run = side(password("pin", Secret(code)), params=params, entropy_f=lambda n, d=drawn: d.to_bytes(n))
                said.add(run.start())
            self.assertEqual(len(said), 1)

    def test_nothing_to_test_a_code_with(self) -> None:
        """No K that can be made of the recording and a code gives the confirmation recorded, not for the right one.

        Control: with the inviter's scalar and Z the same reckoning finds the
        code, and only it. With one of the two it does not.
        """
        couple = Couple()
        couple.pair()
        wait, proof = sent(couple)
        channel = couple.inviter._channel
        x = couple.inviter._pake._run.xy_scalar
        for z, known in ((channel.z, "Z"), (bytes(32), "nothing")):
            listened = Channel(channel.t0, z)
            for code in SAMPLE:
                guesses = [_key(code, channel, wait, proof, element) for element in _public(code, wait, proof)]
                self.assertFalse(any(confirms(listened, k, wait, proof) for k in guesses), (known, code))
            found = [
                code for code in SAMPLE if confirms(listened, _insider(code, x, channel, wait, proof), wait, proof)
            ]
            self.assertEqual(found, [CODE] if known == "Z" else [])

    def test_wrong_code_recorded(self) -> None:
        """A recording of a wrong code has the joiner's confirmation too, and is of no more use."""
        couple = Couple()
        couple.prove(WRONG)
        wait, proof = sent(couple)
        for code in SAMPLE:
            guesses = [_key(code, couple.inviter._channel, wait, proof, each) for each in _public(code, wait, proof)]
            self.assertFalse(any(confirms(couple.inviter._channel, k, wait, proof) for k in guesses))

    def test_sealed(self) -> None:
        """Certificates, cluster and statements are nowhere to be read (CL-41)."""
        couple = Couple()
        couple.pair()
        recorded = couple.inviter.hello + couple.joiner.reply
        recorded += b"".join(each.body for each in couple.here.all(Send))
        recorded += b"".join(each.body for each in couple.there.all(Answer))
        for text in (b"found", b"admit", b"cluster", b'"leaf":"MII', b"statements"):
            self.assertNotIn(text, recorded)


def _public(code: str, wait: Wait, proof: Reply) -> Iterator[ElementOfUnknownGroup]:
    """The elements that may be made of a recording and a candidate: X, Y, their sum and difference, N and M."""
    w = scalar(code)
    a, b = (GROUP.bytes_to_element(each[1:]) for each in (wait.pake, proof.pake))
    x, y = a.add(ParamsEd25519.M.scalarmult(-w)), b.add(ParamsEd25519.N.scalarmult(-w))
    yield from (x, y, x.add(y), x.add(y.scalarmult(-1)), a, b, a.add(b))
    yield from (x.scalarmult(w), y.scalarmult(w), ParamsEd25519.M.scalarmult(w), ParamsEd25519.N.scalarmult(w))


def _key(code: str, channel: Channel, wait: Wait, proof: Reply, element: ElementOfUnknownGroup) -> bytes:
    """K, if ``element`` were the shared one."""
    t0 = channel.t0
    run = SPAKE2_A(password("pin", Secret(code)), idA=b"pair-inviter:" + t0, idB=b"pair-joiner:" + t0)
    run.outbound_message, run.inbound_message = wait.pake[1:], proof.pake[1:]
    key: bytes = run._finalize(element.to_bytes())
    return key


def _insider(code: str, x: int, channel: Channel, wait: Wait, proof: Reply) -> bytes:
    """K for a candidate, for one who has the inviter's scalar."""
    y = GROUP.bytes_to_element(proof.pake[1:]).add(ParamsEd25519.N.scalarmult(-scalar(code)))
    return _key(code, channel, wait, proof, y.scalarmult(x))


class BystanderTests(SynchronousTestCase):
    """She sees and sends, but the two talk past her (CL-27, CL-29)."""

    def test_forged_requests(self) -> None:
        """Polls, proofs and ends of hers are 401, at every stage, and the pairing does not notice."""
        couple = Couple()
        couple.greet()
        self._forge(couple)
        couple.ask()
        self._forge(couple)
        couple.type()
        self._forge(couple)
        couple.reply()
        couple.store_here()
        self._forge(couple)
        couple.ask()
        self._forge(couple)
        couple.store_there()
        self._forge(couple)
        couple.reply()
        self.assertEqual(couple.states, ("paired", "paired"))
        self.assertEqual(couple.stored, 2)

    def test_forged_replies(self) -> None:
        """Replies of hers are none, at every stage (CL-27)."""
        couple = Couple()
        couple.greet()
        couple.ask()
        couple.type()
        self._pretend(couple)
        couple.reply()
        self._pretend(couple)
        couple.store_here()
        couple.ask()
        self._pretend(couple)
        couple.store_there()
        couple.reply()
        self._pretend(couple)
        self.assertEqual(couple.states, ("paired", "paired"))

    def test_second_hello(self) -> None:
        """A hello of hers under the same invitation is 409, and the first one stays (CL-29)."""
        couple = Couple()
        couple.poll()
        hello = read_request(couple.inviter.hello)
        assert isinstance(hello, Hello)
        hers = InviterExchange(MALLORY, "pin", Secret("000000"), check_leaf, lambda _: None, Draws("m"))
        share = read_request(hers.hello).share  # type: ignore[union-attr]
        for changed in (
            replace(hello, share=share),
            replace(hello, name="desk2"),
            replace(hello, code_kind="long"),
            replace(hello, versions=(1, 2)),
        ):
            self.assertEqual(couple.joiner.received(encode(changed), None), (Refuse(409, "invite_conflict"),))
        self.assertEqual(couple.joiner.received(couple.inviter.hello + b" ", None), (Refuse(409, "invite_conflict"),))
        couple.type()
        couple.reply()
        self.assertEqual(couple.inviter.state, "confirming")

    def test_other_invitation(self) -> None:
        """What was said in another invitation of the same two is of no use in this one."""
        old, new = Couple(seed="old"), Couple(seed="new")
        old.pair()
        new.poll()
        for request in old.here.all(Send):
            self.assertEqual(new.joiner.received(request.body, request.mac), (Refuse(401, "bad_mac"),))
        for answer in old.there.all(Answer):
            self.assertRaises(ForeignReplyError, new.inviter.received, answer.body, answer.mac)
        self.assertRaises(ForeignReplyError, new.inviter.greeted, old.joiner.reply)

    def test_turned_round(self) -> None:
        """A reply does not pass as a request, nor a request as a reply: each way has its key (CL-26)."""
        couple = Couple()
        couple.poll()
        request = couple.here.last(Send)
        self.assertRaises(ForeignReplyError, couple.inviter.received, request.body, request.mac)
        wait = encode(Wait(couple.inviter.invite, 2, b""))
        mac = couple.joiner._channel.reply_mac(2, wait)
        self.assertEqual(couple.joiner.received(wait, mac), (Refuse(401, "bad_mac"),))

    def test_one_byte(self) -> None:
        """A byte changed on the way spoils the one message: nothing happens until it comes whole (CL-27)."""
        couple = Couple()
        couple.greet()
        self._spoil(couple.here.last(Send), couple)
        couple.ask()
        couple.type()
        self._spoil(couple.there.last(Answer), couple)
        couple.reply()
        couple.store_here()
        self._spoil(couple.here.last(Send), couple)
        couple.ask()
        couple.store_there()
        self._spoil(couple.there.last(Answer), couple)
        couple.reply()
        self.assertEqual(couple.states, ("paired", "paired"))
        self.assertEqual(couple.stored, 2)

    def test_one_byte_of_a_hello(self) -> None:
        """One changed in a hello gives both sides other keys: the first poll is 401, and nobody is asked (CL-25)."""
        for which in ("hello", "reply"):
            whole = Couple().inviter.hello if which == "hello" else Couple().joiner.reply
            for at in range(len(whole)):
                self._mislead(which, whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])

    def _mislead(self, which: str, changed: bytes) -> None:
        couple = Couple()
        try:
            if which == "hello":
                couple.joiner = JoinerExchange(RACK, changed, check_leaf, lambda *_: None, Draws("couple joiner"))
                couple.greet()
            else:
                couple.here.do(couple.inviter.greeted(changed))
        except (MalformedError, ForeignReplyError):
            return
        if couple.inviter._channel.t0 == couple.joiner._channel.t0:
            return  # another spelling of the same: a capital in a UUID, the idle bits at the end of base64
        couple.ask()
        self.assertEqual(couple.there.done, [Refuse(401, "bad_mac")])

    def _spoil(self, message: Send | Answer, couple: Couple) -> None:
        states, stored = couple.states, couple.stored
        mac = message.mac or b""
        for at in range(0, len(message.body), 7):
            body = message.body[:at] + bytes([message.body[at] ^ 1 << at % 8]) + message.body[at + 1 :]
            self._refused(couple, message, body, mac)
        for at in range(len(mac)):
            self._refused(couple, message, message.body, mac[:at] + bytes([mac[at] ^ 4]) + mac[at + 1 :])
        self._refused(couple, message, message.body, mac[:-1])
        self._refused(couple, message, message.body + b" ", mac)
        self.assertEqual((couple.states, couple.stored), (states, stored))

    def _refused(self, couple: Couple, message: Send | Answer, body: bytes, mac: bytes) -> None:
        if isinstance(message, Answer):
            self.assertRaises(ForeignReplyError, couple.inviter.received, body, mac)
            return
        try:
            (refusal,) = couple.joiner.received(body, mac)
        except MalformedError:
            return
        self.assertEqual(refusal, Refuse(401, "bad_mac"))

    def _forge(self, couple: Couple) -> None:
        states, done = couple.states, len(couple.there.done)
        invite, own = couple.inviter.invite, couple.joiner._n
        seen = couple.here.last(Send)
        for n in (own, own + 1):
            n = max(n, 1)
            for request in (
                Wait(invite, n, b"A" + bytes(32)),
                Prove(invite, n, bytes(32), bytes(100)),
                End(invite, n, "cancelled"),
            ):
                body = encode(request)
                for mac in (None, b"", b"A" * 44, seen.mac, b"\xff" * 44):
                    self.assertEqual(couple.joiner.received(body, mac), (Refuse(401, "bad_mac"),))
        self.assertEqual((couple.states, len(couple.there.done)), (states, done))

    def _pretend(self, couple: Couple) -> None:
        states = couple.states
        seen = couple.there.last(Answer)
        for body in (
            b'{"state":"declined"}',
            b'{"state":"failed","reason":"store"}',
            encode(Reply(state="proof", pake=b"B" + bytes(32), confirm=bytes(32), sealed=bytes(100))),
            encode(Reply(state="paired", sealed=bytes(100))),
        ):
            for mac in (None, b"", b"A" * 44, seen.mac):
                self.assertRaises(ForeignReplyError, couple.inviter.received, body, mac)
        self.assertEqual(couple.states, states)


class MiddleTests(SynchronousTestCase):
    """Mallory answers the inviter in the joiner's place and the joiner in the inviter's, with keys of his own.

    ``front`` is the inviter and he, ``back`` is he and the joiner. He takes
    their names, and comes with a leaf of his own, since he has the key of none
    of theirs.
    """

    def setUp(self) -> None:
        self.front = Couple(joiner=replace(MALLORY, name="rack"), seed="front")
        self.back = Couple(inviter=replace(MALLORY, name="desk"), seed="back")

    def _guess(self, front: str, back: str) -> None:
        """He plays the joiner with one guess and the inviter with another; both people do their part."""
        self.front.prove(front)
        self.back.inviter._password = password("pin", Secret(back))
        self.back.poll()
        self.back.type()

    def test_one_guess_at_each_side(self) -> None:
        """With a wrong code on each side he fails on both, and both notice (CL-47, CL-61)."""
        self._guess("000001", "000002")
        self.assertEqual(self.front.here.all(Ended), [Ended("voided", "wrong_code")])
        self.back.reply()
        self.assertEqual(self.back.inviter.reason, "wrong_code")
        self.back.ask()
        self.assertEqual(self.back.there.all(Ended), [Ended("voided", "wrong_code")])
        self.assertEqual(self.front.stored + self.back.stored, 0)

    def test_no_second_at_the_inviter(self) -> None:
        """Another proof, be it the right one, finds nobody who would judge it."""
        self.front.prove("000001")
        again = JoinerExchange(
            replace(MALLORY, name="rack"), self.front.inviter.hello, check_leaf, lambda *_: None, Draws("front joiner")
        )
        again.received(self.front.here.all(Send)[0].body, self.front.here.all(Send)[0].mac)
        (good,) = again.prove(Secret(CODE), EPOCH)
        assert isinstance(good, Answer)
        for n in range(1, 5):
            mac = self.front.joiner._channel.reply_mac(n, good.body)
            try:
                self.assertEqual(self.front.inviter.received(good.body, mac), ())
            except ForeignReplyError:
                continue
        self.assertEqual(self.front.inviter.state, "voided")
        self.assertEqual(self.front.stored, 0)

    def test_no_second_at_the_joiner(self) -> None:
        """He gets one proof for one PAKE message; another message ends it, and another code is not taken."""
        self._guess("000001", "000002")
        first = self.back.there.last(Answer)
        channel, invite = self.back.inviter._channel, self.back.inviter.invite
        same = encode(replace(sent(self.back)[0], n=2))
        (again,) = self.back.joiner.received(same, channel.request_mac(2, same))
        assert isinstance(again, Answer)
        self.assertEqual(again.body, first.body)
        self.assertRaises(OverError, self.back.type)
        other = encode(Wait(invite, 3, b"A" + GROUP.Base.to_bytes()))
        self.back.there.do(self.back.joiner.received(other, channel.request_mac(3, other)))
        self.assertEqual(self.back.there.last(Ended), Ended("failed", "protocol_error"))
        self.assertEqual(self.back.draws[1].sizes.count(64), 1)

    def test_wrong_guess_tells_one_code(self) -> None:
        """The joiner's proof says of one code whether it is right: the one that he had put into his message.

        He has Z, his scalar x, and Y for each candidate. For the code that he
        had guessed x·Y is the shared element; for others it lacks a multiple of
        M by the joiner's scalar. So the right code, tried afterwards, looks wrong.
        """
        self._guess("000001", "000002")
        wait, proof = sent(self.back)
        self.assertEqual(self._found(self.back, wait, proof), [])

    def test_right_guess_tells_it(self) -> None:
        """Control: had his guess been right, the same reckoning would say so."""
        self._guess("000001", CODE)
        self.assertEqual(self._found(self.back, *sent(self.back)), [CODE])

    def _found(self, couple: Couple, wait: Wait, proof: Reply) -> list[str]:
        mallory = couple.inviter
        channel, x = mallory._channel, mallory._pake._run.xy_scalar
        tried = ("000002", *SAMPLE)
        return [code for code in tried if confirms(channel, _insider(code, x, channel, wait, proof), wait, proof)]

    def test_right_guess(self) -> None:
        """Control: the one guess, where it is right, is all that it takes; so a PIN gives him 2 in 10⁶ (CL-61)."""
        self._guess(CODE, CODE)
        self.assertEqual(self.front.here.last(Admit).peer.uuid, MALLORY.uuid)
        self.back.reply()
        self.back.store_here()
        self.back.ask()
        self.assertEqual(self.back.there.last(Join).peer.uuid, MALLORY.uuid)

    def test_another_name(self) -> None:
        """Who knows the code and no more can join as himself, and not as a node whose key he lacks (CL-48)."""
        thief = Party(RACK.uuid, "rack", MALLORY.key, RACK.leaf)
        couple = Couple(joiner=thief)
        couple.prove()
        self.assertEqual(couple.here.all(Ended), [Ended("failed", "protocol_error")])
        self.assertEqual(couple.stored, 0)

    def test_relayed_proof(self) -> None:
        """PAKE and proof passed on between two channels fail, though both people have the right code (CL-33)."""
        self.front.greet()
        self.back.greet()
        pake = self.front.inviter._pake.message
        wait = encode(Wait(self.back.inviter.invite, 1, pake))
        self.back.there.do(self.back.joiner.received(wait, self.back.inviter._channel.request_mac(1, wait)))
        self.back.type()
        proof = self.back.there.last(Answer).body
        self.front.here.do(self.front.inviter.received(proof, self.front.joiner._channel.reply_mac(1, proof)))
        self.assertEqual(self.front.here.all(Ended), [Ended("voided", "wrong_code")])

    def test_relayed_after_a_changed_hello(self) -> None:
        """So they do if he changes but one field of the hellos and keeps both shares: T0 is in all (CL-25)."""
        couple = Couple()
        hello = read_request(couple.inviter.hello)
        changed = encode(replace(hello, leaf=MALLORY.digest))
        couple.joiner = JoinerExchange(RACK, changed, check_leaf, lambda *_: None, Draws("couple joiner"))
        couple.greet()
        couple.ask()
        self.assertEqual(couple.there.done, [Refuse(401, "bad_mac")])

    def test_tags_differ(self) -> None:
        """The tags of both screens differ, unless he tries nonces until they do not: they prove nothing (CL-45)."""
        self.front.greet()
        self.back.greet()
        self.assertNotEqual(self.front.inviter.tag, self.back.joiner.tag)

    def test_typed_into_the_wrong_prompt(self) -> None:
        """The inviter's code typed into a stranger's prompt ends that one alone; he learns no more than a guess."""
        couple = Couple(seed="real")
        couple.poll()
        self._guess("000001", "000002")
        self.back.reply()
        self.back.ask()
        self.assertEqual(self.back.states, ("voided", "voided"))
        couple.type()
        couple.reply()
        self.assertEqual(couple.inviter.state, "confirming")


def _torsion() -> list[bytes]:
    """The eight elements of small order."""
    found: set[bytes] = set()
    y = 2
    while len(found) < 8:
        y += 1
        try:
            element = bytes_to_unknown_group_element(y.to_bytes(32, "little"))
        except NotOnCurve:
            continue
        found.add(element.scalarmult(L).to_bytes())
    return sorted(found)


def _off_curve() -> bytes:
    for y in range(2, 100):
        try:
            bytes_to_unknown_group_element(y.to_bytes(32, "little"))
        except NotOnCurve:
            return y.to_bytes(32, "little")
    raise AssertionError("half of all are")


def _hostile(own: bytes) -> Iterator[tuple[str, bytes]]:
    """What may be said instead of a PAKE message, by name.

    Args:
        own: The message of the side that is to be harmed, whose side byte says which it is.
    """
    side = b"B" if own[:1] == b"A" else b"A"
    good = GROUP.Base.scalarmult(7).to_bytes()
    for length in (0, 1, 32, 34):
        yield f"{length} bytes", (side + good + bytes(2))[:length]
    for wrong in (own[:1], b"S", b"\0", side.lower()):
        yield f"side {wrong!r}", wrong + good
    for order, element in enumerate(_torsion()):
        yield f"small order {order}", side + element
        mixed = ElementOfUnknownGroup(GROUP.Base.XYTZ).add(bytes_to_unknown_group_element(element))
        if mixed.to_bytes() != GROUP.Base.to_bytes():
            yield f"mixed order {order}", side + mixed.to_bytes()
    yield "zero with a sign", side + (1 | 1 << 255).to_bytes(32, "little")
    yield "zero, not reduced", side + (Q + 1).to_bytes(32, "little")
    yield "zero, neither", side + (Q + 1 | 1 << 255).to_bytes(32, "little")
    yield "not reduced", side + (Q + 3).to_bytes(32, "little")
    yield "off the curve", side + _off_curve()
    yield "all ones", side + b"\xff" * 32
    yield "reflected", side + own[1:]


class HostilePakeTests(SynchronousTestCase):
    """Messages that are none: each voids the invitation and raises nothing (CL-34)."""

    def test_at_the_inviter(self) -> None:
        """Instead of the joiner's, with its proof."""
        own = Couple()
        own.greet()
        for name, pake in _hostile(own.inviter._pake.message):
            self._void_here(name, Reply(state="proof", pake=pake, confirm=bytes(32), sealed=bytes(64)))

    def test_proof_that_lacks_a_part(self) -> None:
        """A confirmation of another length is as good as none (CL-48)."""
        good = b"B" + GROUP.Base.to_bytes()
        for length in (0, 31, 33):
            self._void_here(str(length), Reply(state="proof", pake=good, confirm=bytes(length), sealed=bytes(64)))
        self._void_here("nothing", Reply(state="proof"))

    def test_sealed_parts(self) -> None:
        """What is sealed badly fails after the code was found right, at any length."""
        for length in (0, 1, 15, 16, 17, 5000):
            couple = Couple()
            couple.poll()
            couple.type()
            proof = read(Reply, couple.there.last(Answer).body)
            body = encode(replace(proof, sealed=bytes(length)))
            couple.here.do(couple.inviter.received(body, couple.joiner._channel.reply_mac(1, body)))
            self.assertEqual(couple.here.last(Ended), Ended("failed", "protocol_error"))

    def test_at_the_joiner(self) -> None:
        """Instead of the inviter's, with its first poll; no proof is made for it."""
        own = Couple()
        own.poll()
        own.type()
        for name, pake in _hostile(sent(own)[1].pake):
            couple = Couple()
            couple.greet()
            body = encode(Wait(couple.inviter.invite, 1, pake))
            couple.there.do(couple.joiner.received(body, couple.inviter._channel.request_mac(1, body)))
            if couple.joiner.state == "waiting":
                self.assertEqual(couple.there.last(Hold), Hold(), name)
                couple.type()
            self.assertEqual(couple.there.all(Ended), [Ended("voided", "protocol_error")], name)
            self.assertEqual(read(Reply, couple.there.last(Answer).body).state, "voided", name)
            couple.reply()
            self.assertEqual(couple.states, ("voided", "voided"), name)

    def test_share_of_the_inviter(self) -> None:
        """A share that gives an all-zero secret is no hello (CL-26)."""
        hello = read_request(Couple().inviter.hello)
        for share in SMALL_SHARES:
            body = encode(replace(hello, share=share))
            self.assertRaises(MalformedError, JoinerExchange, RACK, body, check_leaf, lambda *_: None, Draws("x"))

    def test_share_of_the_joiner(self) -> None:
        """In the reply it fails the invitation, before a code is shown (CL-26)."""
        for share in SMALL_SHARES:
            couple = Couple()
            body = encode(replace(read(HelloReply, couple.joiner.reply), share=share))
            self.assertEqual(couple.inviter.greeted(body), (Ended("failed", "protocol_error"),))
            self.assertIsNone(couple.inviter.tag)

    def _void_here(self, name: str, reply: Reply) -> None:
        couple = Couple()
        couple.poll()
        body = encode(reply)
        couple.here.do(couple.inviter.received(body, couple.joiner._channel.reply_mac(1, body)))
        self.assertEqual(couple.here.all(Ended), [Ended("voided", "protocol_error")], name)
        couple.ask()
        self.assertEqual(couple.states, ("voided", "voided"), name)


class OptimizedTests(SynchronousTestCase):
    def test_without_asserts(self) -> None:
        """All that is refused above is refused by ``python -O`` too, which drops the package's asserts (CL-34)."""
        if not __debug__:
            return
        tests = f"{__name__}.{HostilePakeTests.__name__}"
        command = [sys.executable, "-O", "-m", "twisted.trial", "--temp-directory", self.mktemp(), tests]
        path = os.pathsep.join(each for each in sys.path if each)
        ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
        self.assertEqual(ended.returncode, 0, ended.stdout)
        self.assertIn("PASSED", ended.stdout)

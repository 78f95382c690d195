"""Tests of :mod:`pair.cluster.syncing`."""

from __future__ import annotations

import contextlib
import random
from base64 import b64encode
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from pair.cluster.merging import MESSAGE_BYTES_MAX, MESSAGE_STATEMENTS_MAX, merge, set_root
from pair.cluster.pins import PeerLeaf
from pair.cluster.statements import encode, read
from pair.cluster.syncing import (
    BODY_MAX,
    MESSAGES_MAX,
    NotIntroduced,
    OtherCluster,
    SyncReply,
    SyncRequest,
    Talk,
    answer,
    carried,
    introduction,
    portion,
    read_evidence,
    read_reply,
    read_request,
    split_ids,
)
from pair.protocols.pairing import MalformedError
from pair.test.cluster.household import INSTANCE, Trustee
from pair.test.cluster.world import CAST, A, B, C, D, World, play, player

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pair.cluster.statements import Statement
    from pair.test.cluster.world import Player

SCRIPT = st.binary(min_size=40, max_size=200)


def opening(world: World, statements: Iterable[Statement]) -> SyncRequest:
    return SyncRequest(1, UUID(world.cluster), INSTANCE, set_root(each.id for each in statements).hex())


def ids(statements: Iterable[Statement]) -> bytes:
    return b"".join(each.id for each in statements)


class MessageTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = World(A)
        self.opening = opening(self.world, [self.world.root])

    def changed(self, **fields: object) -> bytes:
        return msgspec.json.encode({**msgspec.json.decode(msgspec.json.encode(self.opening)), **fields})

    def test_opening(self) -> None:
        """An opening is what CL-82 shows, and nothing else."""
        self.assertEqual(
            msgspec.json.decode(msgspec.json.encode(self.opening)),
            {
                "v": 1,
                "cluster": self.world.cluster,
                "instance": INSTANCE,
                "root": set_root([self.world.root.id]).hex(),
            },
        )

    def test_equal(self) -> None:
        """The reply among equals has the root alone (CL-82)."""
        self.assertEqual(msgspec.json.encode(SyncReply(1, "00" * 32)), b'{"v":1,"root":"' + b"00" * 32 + b'"}')

    def test_ids_and_statements(self) -> None:
        """Ids are one base64 of 32 bytes each, statements are a list of base64 (CL-62, CL-82)."""
        told = [self.world.root, self.world.admit(A, B)]
        body = self.changed(want=b64encode(ids(told)).decode(), statements=[b64encode(encode(told[0])).decode()])
        request = read_request(body)
        self.assertEqual(split_ids(request.want), tuple(each.id for each in told))
        self.assertEqual(request.statements, carried(told[:1]))

    def test_unknown_fields(self) -> None:
        """Fields of later versions are passed over."""
        self.assertEqual(read_request(self.changed(more=[{}])), self.opening)

    def test_malformed(self) -> None:
        """Whatever is no message is refused as a whole (CL-21)."""
        for body in (
            b"",
            b"[]",
            b"{}",
            b"\xff",
            b'{"v":1,"x":' + b"[" * 5000,
            self.changed(v=2),
            self.changed(v="1"),
            self.changed(cluster="home"),
            self.changed(instance="9F3A6C0D51E2B774"),
            self.changed(instance=""),
            self.changed(root="00"),
            self.changed(root="00" * 32 + "\n"),
            self.changed(want="AAAA"),
            self.changed(want="*"),
            self.changed(want=None),
            self.changed(statements={}),
            self.changed(statements=[1]),
            self.changed(statements=["AA=="] * (MESSAGE_STATEMENTS_MAX + 1)),
            self.changed(statements=[b64encode(bytes(12 * 1024 + 1)).decode()]),
        ):
            self.assertRaises(MalformedError, read_request, body)
        for body in (b"", b"{}", b'{"v":1}', b'{"v":1,"root":"' + b"00" * 32 + b'","have":"AAAA"}'):
            self.assertRaises(MalformedError, read_reply, body)

    def test_evidence(self) -> None:
        """Of a refusal the evidence is read; what has none, or is none of ours, has none."""
        self.assertEqual(read_evidence(b'{"error":{"code":"not_member"},"evidence":["AAAA"]}'), (bytes(3),))
        for body in (b"", b"Forbidden", b"[]", b'{"error":{}}', b'{"evidence":[1]}', b'{"evidence":"AAAA"}'):
            self.assertEqual(read_evidence(body), ())

    def test_shows_nothing(self) -> None:
        """A message in a log is the name of its class (CL-105)."""
        self.assertEqual((repr(self.opening), repr(SyncReply(1, "00" * 32))), ("<SyncRequest>", "<SyncReply>"))

    @given(st.binary())
    def test_anything(self, body: bytes) -> None:
        """Any bytes are a message or MalformedError."""
        for read_it in (read_request, read_reply):
            with contextlib.suppress(MalformedError):
                read_it(body)
        read_evidence(body)


class AnswerTests(SynchronousTestCase):
    """The server's half; the server is A, in a cluster with B, who joined, and C, who was admitted."""

    def setUp(self) -> None:
        self.world = World(A)
        self.statements = [self.world.root, *self.world.enter(A, B), self.world.admit(A, C)]
        self.trust = Trustee(self.world, A, self.statements)

    def answer(self, who: Player, request: SyncRequest) -> Deferred[SyncReply]:
        return Deferred.fromCoroutine(answer(self.trust, request, PeerLeaf.of(who.leaf), "10.0.0.9"))

    def request(self, want: bytes, brought: Iterable[Statement], world: World | None) -> SyncRequest:
        asked = opening(world or self.world, ())
        return SyncRequest(1, asked.cluster, INSTANCE, asked.root, want, carried(brought))

    def ask(self, who: Player, want: bytes = b"", *brought: Statement) -> SyncReply:
        return self.successResultOf(self.answer(who, self.request(want, brought, None)))

    def assert_refused(
        self, kind: type[BaseException], who: Player, *brought: Statement, world: World | None = None
    ) -> None:
        """The request is refused, and nothing was stored."""
        before = self.trust.statements
        self.failureResultOf(self.answer(who, self.request(b"", brought, world)), kind)
        self.assertEqual(self.trust.statements, before)

    def test_equal(self) -> None:
        """Equal roots: nothing more is said (CL-82)."""
        reply = self.successResultOf(self.answer(B, opening(self.world, self.trust.statements)))
        self.assertEqual(reply, SyncReply(1, self.trust.root.hex()))

    def test_unequal(self) -> None:
        """Unequal roots: the ids of all that is here (CL-82)."""
        self.assertEqual(self.ask(B), SyncReply(1, self.trust.root.hex(), ids(self.trust.statements)))

    def test_wanted(self) -> None:
        """What is wanted is given as far as it is here, each behind those on which it rests."""
        some = self.trust.statements[1:]
        self.assertEqual(self.ask(B, ids(reversed(some)) + bytes(32)).statements, carried(some))

    def test_brought(self) -> None:
        """What a member brings is taken; the answer has no ids then."""
        join = self.world.join(C)
        self.assertEqual(self.ask(B, b"", join), SyncReply(1, self.trust.root.hex(), None, ()))
        self.assertIn(join, self.trust.statements)

    def test_admitted(self) -> None:
        """Who was admitted may ask and bring its join, and is given statements when it is a member (CL-76)."""
        self.assertEqual(self.ask(C).have, ids(self.trust.statements))
        want = self.statements[0].id
        self.assertEqual(self.ask(C, want).statements, ())
        self.assertEqual(self.ask(C, want, self.world.join(C)).statements, carried(self.statements[:1]))

    def test_strangers(self) -> None:
        """Strangers and former members get nothing, not even the root (CL-80)."""
        self.trust.say(*self.world.enter(A, D), self.world.remove(A, D))
        for who in (D, player("nobody")):
            self.assert_refused(NotIntroduced, who)

    def test_introduction(self) -> None:
        """A member that was admitted while we were off introduces itself (CL-80)."""
        elsewhere = Trustee(self.world, D, [*self.statements, *self.world.enter(B, D)])
        assert elsewhere.view is not None
        assert elsewhere.me is not None
        self.ask(D, b"", *read(introduction(elsewhere.view, elsewhere.me)).statements)
        self.assertEqual(self.trust.pins.check(PeerLeaf.of(D.leaf)).relation, "member")

    def test_valid_looking(self) -> None:
        """64 statements of a stranger that look valid store nothing (CL-80)."""
        stranger = player("stranger")
        members = [player(f"sock {number}") for number in range(31)]
        forged = [each for who in members for each in self.world.enter(stranger, who)]
        self.assert_refused(NotIntroduced, stranger, *forged, self.world.admit(stranger, stranger))
        own = World(stranger)
        self.assert_refused(NotIntroduced, stranger, own.root, *own.enter(stranger, *members[:20]))

    def test_too_much_for_an_introduction(self) -> None:
        """65 statements are no introduction, whatever they say (CL-80)."""
        entering = self.world.enter(B, D)
        notes = [self.world.note(B, 1 + number) for number in range(63)]
        self.assert_refused(NotIntroduced, D, *notes, *entering)
        self.ask(D, b"", *notes[1:], *entering)

    def test_other_cluster(self) -> None:
        """A member that asks about another cluster is told so, others are strangers (CL-82)."""
        other = World(B, "other")
        self.assert_refused(OtherCluster, B, world=other)
        self.assert_refused(OtherCluster, B, other.root, world=other)
        for who in (C, D):
            self.assert_refused(NotIntroduced, who, other.root, world=other)

    def test_in_no_cluster(self) -> None:
        """In no cluster everybody is a stranger."""
        self.trust = Trustee(self.world, D)
        self.assert_refused(NotIntroduced, B, *self.statements)

    def test_leaver(self) -> None:
        """What a member brings to leave is taken, and answered."""
        self.ask(B, b"", self.world.leave(B))
        self.assertEqual(self.trust.pins.check(PeerLeaf.of(B.leaf)).relation, "former")


class TalkTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = World(A)
        self.said = [self.world.root, *self.world.enter(A, B)]

    def sync(self, here: Trustee, there: Trustee) -> int:
        """Sync as a caller does; the number of messages that it took."""
        caller = PeerLeaf.of(here.who.leaf)

        def ask(request: SyncRequest) -> SyncReply:
            self.assertLessEqual(len(msgspec.json.encode(request)), BODY_MAX)
            asked = read_request(msgspec.json.encode(request))
            reply = self.successResultOf(Deferred.fromCoroutine(answer(there, asked, caller, "10.0.0.9")))
            self.assertLessEqual(len(msgspec.json.encode(reply)), BODY_MAX)
            return read_reply(msgspec.json.encode(reply))

        first = opening(self.world, here.statements)
        reply = ask(first)
        messages = 1
        if reply.have is None:
            return messages
        talk = Talk(here.statements, first, reply.have)
        while messages < MESSAGES_MAX and (request := talk.next()) is not None:
            talk.heard(ask(request))
            messages += 1
        taking = here.take(talk.received, here.pins.check(PeerLeaf.of(there.who.leaf)), there.who.node)
        self.successResultOf(Deferred.fromCoroutine(taking))
        return messages

    def test_nothing_lacks(self) -> None:
        """Who has the same has nothing to say."""
        self.assertIsNone(Talk(self.said, opening(self.world, self.said), ids(self.said)).next())

    def test_large_difference(self) -> None:
        """300 statements on each side: both have all after few messages (CL-82)."""
        members = [player(f"member {number}") for number in range(40)]
        self.said += self.world.enter(A, *members)
        ours = [self.world.admit(A, each.again(2 + epoch)) for epoch in range(8) for each in members][:300]
        theirs = [self.world.admit(B, each.again(2 + epoch)) for epoch in range(8) for each in members][:300]
        here = Trustee(self.world, A, [*self.said, *ours])
        there = Trustee(self.world, B, [*self.said, *theirs])
        self.assertLessEqual(self.sync(here, there), 3)
        self.assertEqual(here.root, there.root)
        self.assertEqual(len(here.statements), len(self.said) + 600)

    def test_more_than_a_message(self) -> None:
        """More than one message holds comes in several, each of which can be taken by itself."""
        ours = [self.world.admit(A, C.again(2 + epoch)) for epoch in range(MESSAGE_STATEMENTS_MAX + 10)]
        here, there = Trustee(self.world, A, [*self.said, *ours]), Trustee(self.world, B, self.said)
        self.assertEqual(self.sync(here, there), 3)
        self.assertEqual(here.root, there.root)
        here, there = Trustee(self.world, B, self.said), Trustee(self.world, A, [*self.said, *ours])
        self.assertEqual(self.sync(here, there), 3)
        self.assertEqual(here.root, there.root)

    def test_nothing_comes(self) -> None:
        """A peer that does not give what it says to have is not asked again and again."""
        talk = Talk(self.said, opening(self.world, self.said), ids(self.said) + bytes(range(32)))
        request = talk.next()
        assert request is not None
        self.assertEqual(request.want, bytes(range(32)))
        talk.heard(SyncReply(1, "00" * 32, None, ()))
        self.assertIsNone(talk.next())

    def test_hostile_ids(self) -> None:
        """However many ids a peer claims to have, a request is no larger than it may be."""
        chance = random.Random(7)
        claimed = chance.randbytes(32 * 20_000)
        ours = [self.world.admit(A, C.again(2 + epoch)) for epoch in range(2000)]
        talk = Talk([*self.said, *ours], opening(self.world, ()), claimed)
        request = talk.next()
        assert request is not None
        self.assertLessEqual(len(msgspec.json.encode(request)), BODY_MAX)
        self.assertTrue(request.statements)

    def test_portion(self) -> None:
        """A message takes statements up to its bounds, in their order (CL-82)."""
        long = self.world.remove(A, D, *(self.world.admit(D, C.again(2 + epoch)) for epoch in range(200)))
        many = [long] * 200
        taken = portion(many)
        self.assertTrue(0 < len(taken) < 200)
        self.assertLessEqual(len(msgspec.json.encode(carried(taken))), MESSAGE_BYTES_MAX)
        self.assertEqual(len(portion([self.world.root] * 600)), MESSAGE_STATEMENTS_MAX)
        self.assertEqual(portion(many, 0), [])

    @given(SCRIPT, st.randoms(use_true_random=False))
    def test_two_stores(self, script: bytes, chance: random.Random) -> None:
        """Whatever two members have, after one sync they have the same, as far as it counts for both together.

        Who learns by it that the other is out, or in a clash, or out itself, takes no more of it; the other hears why
        at its next contact (CL-85, CL-90).
        """
        self.world = World(A)
        said = [self.world.root]
        play(script, self.world, said, CAST[:4])
        base = [self.world.root, *self.world.enter(A, B)]
        here = Trustee(self.world, A, [*base, *chance.sample(said, len(said) // 2)])
        there = Trustee(self.world, B, [*base, *chance.sample(said, len(said) // 2)])

        def members() -> bool:
            peers = here.pins.check(PeerLeaf.of(B.leaf)), there.pins.check(PeerLeaf.of(A.leaf))
            return all(each.relation == "member" for each in peers)

        if not members():
            return
        union = merge((), (*here.statements, *there.statements), self.world.cluster, self.world.verify).kept
        self.sync(here, there)
        if members():
            for each in (here, there):
                self.assertEqual({one.id for one in each.statements}, {one.id for one in union})

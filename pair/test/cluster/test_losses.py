"""Whole pairings over networks that lose, repeat and change messages (CL-28, CL-47, CL-52)."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, get_args

import msgspec

from pair.test.cluster.neighbours import Caught, Fate, Message, wrong
from pair.test.cluster.test_inviting import InviterTests

if TYPE_CHECKING:
    from pair.protocols.pairing.keys import Pake


class Counted:
    """An inviter's run of the PAKE; how often a proof was put to it is counted."""

    def __init__(self, pake: Pake) -> None:
        self.message = pake.message
        self.judged = 0
        self._pake = pake

    def finish(self, message: bytes) -> bytes:
        self.judged += 1
        return self._pake.finish(message)


class LossTests(InviterTests):
    def test_every_single_loss(self) -> None:
        """Each message of a pairing lost, repeated or changed once, on the way there or back: both paired (CL-28)."""
        for fate in get_args(Fate):
            for which in range(4):
                self.setUp()
                made = self._with_one(fate, which)
                if which == 0 and fate not in ("pass", "twice", "flip mac"):
                    self.assertEqual(self.clusters, (None, None))  # a hello is for the person to repeat
                elif (fate, which) == ("lose request", 1):  # the joiner waits 10 s for it, and is asked again after 25
                    self.assertEqual(self.both, (("failed", "peer_restarted"), None))
                else:
                    self.assertIsNone(made.error)
                    self.assertEqual(self.both, (("paired", None), ("paired", None)), (fate, which))
                    self.assertEqual(*self.clusters)

    def _with_one(self, fate: Fate, which: int) -> Caught:
        count = iter(range(1000))
        self.network.fate = lambda _: fate if next(count) == which else "pass"
        made = self.desk.invite(self.rack)
        self.network.run(14.0)
        if made.error is None:
            self.rack.accept(made.code)
        self.network.run(400.0)
        return made

    def test_any_network(self) -> None:
        """Whatever is done to the messages: both paired, nobody, or the joiner while the inviter heard nothing.

        At most one proof is judged, nothing is stored without the right code,
        and no cluster of one is left where the joiner said that it failed
        (CL-28, CL-47, CL-52).
        """
        for seed in range(120):
            self.setUp()
            self._play(Random(seed))

    def _play(self, random: Random) -> None:
        badness = random.choice((0.1, 0.3, 0.6))
        fates = get_args(Fate)

        def fate(message: Message) -> Fate:
            chosen: Fate = random.choice(fates) if random.random() < badness else "pass"
            hello = b'"step":"hello"' in message.body
            return "pass" if hello and chosen.startswith("flip") else chosen

        self.network.fate = fate
        made = self.desk.invite(self.rack)
        self.network.run(20.0)
        if made.error is not None:
            self.assertEqual(made.refused, (502, "unreachable"))
            return
        prompt = self.desk.service._book.outbound[made.value[0].id]
        pake = prompt.exchange._pake = Counted(prompt.exchange._pake)  # type: ignore[assignment]
        right = random.random() < 0.8
        if self.rack.service.all():
            self._act(random, made, right)
        self.network.run(400.0)
        self._judge(right)
        self.assertLessEqual(pake.judged, 1)

    def _act(self, random: Random, made: Caught, right: bool) -> None:
        self.rack.accept(made.code if right else wrong(made.code))
        self.network.run(random.choice((0.05, 0.1, 0.2, 5.0)))
        if random.random() < 0.2:
            self.rack.accept(made.code)
        for _ in range(random.randrange(4)):  # a bystander repeats what he saw
            seen = random.choice(self.network.sent)
            self.rack.service.receive(seen.body, seen.mac, "10.0.0.66").addErrback(lambda _: None)

    def _judge(self, right: bool) -> None:
        here = self.desk.states[-1]
        there = self.rack.states[-1] if self.rack.states else None
        self.assertNotIn(here[0], ("waiting", "confirming"))
        if there == ("paired", None):
            self.assertTrue(right)
            self.assertIn(here, (("paired", None), ("failed", "no_answer")))
            self.assertEqual(*self.clusters)
        else:
            self.assertNotEqual(here[0], "paired")
            self.assertIsNone(self.rack.cluster)
        if not right:
            self.assertEqual(self.clusters, (None, None))
        if self.desk.trust.stored[-1:] == ["retract"]:
            self.assertIsNone(self.desk.cluster)

    def test_replies_are_json(self) -> None:
        """Refusals and replies alike are JSON objects."""
        self.pair(1.0)
        for message in self.network.sent:
            assert message.reply is not None
            self.assertIsInstance(msgspec.json.decode(message.reply.body), dict)

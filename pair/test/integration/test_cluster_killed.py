"""Nodes killed at any moment of pairing, removal, leave and rejoin: no half-trust is left (CL-100).

What each round does, to whom and when, follows from its number; the moment at
which the signal meets the process does not.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from functools import partial
from http.client import HTTPException
from random import Random
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from pair.records.cluster import OVER
from pair.test.integration.cluster import ClusterNode, ClusterTestCase, start
from pair.test.integration.node import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pair.test.integration.node import Answer

Deed = Literal["pair", "remove", "leave", "rejoin"]
Stage = Literal["invite", "accept", "once"]

ROUNDS = 200 if os.environ.get("PAIR_FAULTS") else 10

STAGES: dict[Deed, tuple[Stage, ...]] = {
    "pair": ("invite", "accept"),
    "remove": ("once",),
    "leave": ("once",),
    "rejoin": ("accept",),
}
"""What may be struck of a deed: rejoining is pairing of nodes that know each other."""

DURATIONS: dict[Stage, float] = {"invite": 0.03, "accept": 0.2, "once": 0.02}
"""Seconds in which the answer comes, as a rule; a kill meets any moment of them, or of what follows at once."""

ANSWERED = 3.0
"""Seconds after a kill in which an answer counts. A joiner waits for the proof of a dead inviter much longer."""

SETTLED = 20.0
"""Seconds in which both know the same, with syncs every 5 s."""


class Round(Struct, frozen=True):
    """What is done in a round: the node of number ``doer`` does it, ``killed`` are the numbers of the victims."""

    deed: Deed
    stage: Stage
    doer: int
    killed: tuple[int, ...]
    after: float


def draw(number: int) -> Round:
    """The round of this number."""
    random = Random(number)
    deed = tuple(STAGES)[number % len(STAGES)]
    stage: Stage = random.choice(STAGES[deed])
    killed = random.choice(((0,), (1,), (0,), (1,), (0, 1)))
    return Round(deed, stage, random.randrange(2), killed, random.uniform(0, 1.5 * DURATIONS[stage]))


class Done(Thread):
    """A deed, begun; it may never be answered."""

    def __init__(self, deed: Callable[[], Answer]) -> None:
        super().__init__(daemon=True)
        self._deed = deed
        self._answer: Answer | None = None
        self.start()

    def run(self) -> None:
        """See :class:`threading.Thread`."""
        with contextlib.suppress(OSError, HTTPException):
            self._answer = self._deed()

    def well(self, seconds: float) -> bool:
        """Whether it is answered by then, and done."""
        self.join(seconds)
        answer = self._answer
        return answer is not None and answer.status == 200 and answer.value.get("state", "paired") == "paired"


class KilledTests(ClusterTestCase):
    def test_killed(self) -> None:
        """CL-100: each start comes up again, and the two count each other as members, or neither does the other.

        What was answered before the kill holds after it. Then the two pair anew, who is in a cluster having left it.
        """
        nodes: list[ClusterNode] = []
        for number in range(ROUNDS):
            planned = draw(number)
            try:
                nodes = self.play(planned, nodes)
            except AssertionError as failure:
                raise AssertionError(f"in round {number}, {planned}: {failure}") from failure

    def play(self, planned: Round, nodes: list[ClusterNode]) -> list[ClusterNode]:
        """One round with two nodes that are paired; for a first pairing with new ones. Those that it left, paired."""
        if planned.deed == "pair":
            for each in nodes:
                each.destroy()
            nodes = self.start_peers(2, "cluster.gossip_interval=5")
        doer, other = nodes[planned.doer], nodes[1 - planned.doer]
        if planned.deed == "rejoin":
            self.leave(doer, other)
            doer, other = other, doer
        answered = self.strike(planned, doer, other, [nodes[each] for each in planned.killed])
        for each in nodes:
            end_invitations(each)
        wait_for("the two to agree", lambda: agreed(doer, other), SETTLED)
        together = doer.members() == {doer.uuid, other.uuid}
        if answered:
            self.assertEqual(together, planned.deed in ("pair", "rejoin"))
        self.assertEqual((doer.serves(other), other.serves(doer)), (together, together))

        inviter, joiner = (other, doer) if doer.cluster() is None else (doer, other)
        if joiner.cluster() is not None:
            self.leave(joiner, inviter)
        self.pair(inviter, joiner)
        self.wait_until_agreed(inviter, joiner)
        return nodes

    def strike(self, planned: Round, doer: ClusterNode, other: ClusterNode, victims: Sequence[ClusterNode]) -> bool:
        """Do it, kill the victims meanwhile, and start them again; whether there was an answer, and a good one."""
        deed: Callable[[], Answer]
        if planned.deed == "remove":
            deed = partial(doer.call, f"/cluster/members/{other.uuid}", method="DELETE")
        elif planned.deed == "leave":
            deed = partial(doer.call, "/cluster/leave", {})
        elif planned.stage == "invite":
            deed = partial(invite_and_accept, doer, other)
        else:
            invitation = doer.invite(other)
            wait_for("the invitation", lambda: live(other))
            deed = partial(accept, other, invitation)
        done = Done(deed)
        time.sleep(planned.after)
        for each in victims:
            each.signal(signal.SIGKILL)
        for each in victims:
            self.assertEqual(each.end(), -signal.SIGKILL)
        answered = done.well(ANSWERED)
        start(*victims)
        return answered

    def leave(self, leaver: ClusterNode, other: ClusterNode) -> None:
        """Leave, and wait until the other knows."""
        leaver.leave()
        wait_for("the other to drop it", lambda: leaver.uuid not in other.members(), SETTLED)


def invite_and_accept(inviter: ClusterNode, joiner: ClusterNode) -> Answer:
    """Pair, without a pause; the last answer."""
    invited = inviter.call("/cluster/invitations", {"address": joiner.places[0]})
    return accept(joiner, invited.value) if invited.status == 201 else invited


def accept(joiner: ClusterNode, invitation: Any) -> Answer:
    """Type the code of an invitation."""
    body = {"accept": True, "code": invitation["code"]}
    return joiner.call(f"/cluster/invitations/{invitation['id']}/answer", body)


def live(node: ClusterNode) -> list[Any]:
    """The invitations that have not ended."""
    return [each for each in node.invitations() if each["state"] not in OVER]


def end_invitations(node: ClusterNode) -> None:
    """End what is under way: as people do, or by a restart where the proof of a dead inviter is waited for (CL-53)."""
    for each in live(node):
        path = f"/cluster/invitations/{each['id']}"
        if each["state"] != "waiting":
            continue
        if each["direction"] == "in":
            node.call(f"{path}/answer", {"accept": False})
        else:
            node.call(path, method="DELETE")
    if any(each["direction"] == "in" for each in live(node)):
        node.stop()
        node.start()
    wait_for("the invitations to end", lambda: not live(node))


def agreed(first: ClusterNode, second: ClusterNode) -> bool:
    """Whether both list both, in one cluster; or each nobody besides itself."""
    lists = first.members(), second.members()
    if lists == ({first.uuid, second.uuid},) * 2:
        return first.cluster() == second.cluster()
    return lists[0] <= {first.uuid} and lists[1] <= {second.uuid}

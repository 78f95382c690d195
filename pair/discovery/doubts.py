"""Nodes of which there is doubt who they are: conflicts, looked into by asking (discovery page, section 11; DS-49).

What findings mean is pure: :mod:`~pair.discovery.conflicts`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore

from pair.addresses import Place, is_own
from pair.discovery.addresses import candidates
from pair.discovery.conflicts import Clashes, Mismatches, Party, Sighting, judge, nominate
from pair.discovery.held import Held
from pair.logs import Logger
from pair.records.asking import AskFailed
from pair.records.errors import Subject
from pair.records.nodes import DEFAULT_PORTS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence
    from typing import Any

    from twisted.internet.interfaces import IReactorTime

    from pair.addresses import Interface
    from pair.discovery.asking import Asking, Me
    from pair.discovery.claims import Claim, Standing
    from pair.discovery.conflicts import Nomination
    from pair.discovery.nodes import Nodes
    from pair.interfaces import IErrorBook
    from pair.records.asking import Answer
    from pair.records.nodes import NodeEntry

AT_ONCE = 4
"""Conflicts that are looked into at once."""

LOOK_SECONDS = 10.0
"""From one look at a UUID that several addresses announce to the next."""

ASK_SECONDS = 1.0
REACH_SECONDS = 2.0
"""For one address, and for all addresses of a node."""

OWN = "discovery:own_identity_clash"

_WAITING_MAX = 64

_OWN_MAX = 4
"""Addresses of one record that claims to be ours at which is asked: it may name any."""

log = Logger()


class Doubts:
    """Looks into conflicts.

    Args:
        clock: seconds.
        me: this node.
        nodes: all that are known.
        asking: asks.
        errors: told of what people have to mend.
        standing: whom this node trusts.
        found: the interfaces of this host.
        answered: told of each answer: what, and whether it was proven.
    """

    def __init__(
        self,
        clock: IReactorTime,
        me: Me,
        nodes: Nodes,
        asking: Asking,
        errors: IErrorBook,
        standing: Callable[[], Standing],
        found: Callable[[], Sequence[Interface]],
        answered: Callable[[Answer, bool], None],
    ) -> None:
        self._clock = clock
        self._me = me
        self._nodes = nodes
        self._asking = asking
        self._held = Held(errors)
        self._standing = standing
        self._found = found
        self._answered = answered
        self._clashes = Clashes(me.uuid, me.instance)
        self._mismatches = Mismatches()
        self._clashing: frozenset[str] = frozenset()
        self._mismatching: frozenset[str] = frozenset()
        self._looked: dict[str, float] = {}
        self._slots = DeferredSemaphore(AT_ONCE)
        self._works: dict[object, Deferred[None]] = {}

    @property
    def clashing(self) -> frozenset[str]:
        """The UUIDs by which more than one machine answers (DS-67)."""
        return self._clashing

    def close(self) -> None:
        """Look into nothing any more."""
        works, self._works = self._works, {}
        for work in reversed(works.values()):  # or the first would make room for the next
            work.cancel()

    def tick(self) -> None:
        """Time has passed: tell of what has held for long enough, and of what does no more."""
        now = self._clock.seconds()
        before, self._clashing = self._clashing, self._clashes.standing(now)
        for uuid in (before | self._clashing) - {self._me.uuid}:
            clash = uuid in self._clashing and uuid in self._nodes.claims
            name = self._name(uuid)
            self._held.set(f"discovery:identity_clash:{uuid}", clash, Subject(node=uuid), name=name, node=uuid)
            self._nodes.warn(uuid, "identity_clash", "More than one machine answers as this node." if clash else None)
        if self._me.uuid not in self._clashing:
            self._held.set(OWN, False)
        before, self._mismatching = self._mismatching, self._mismatches.standing(now)
        for uuid in before | self._mismatching:
            differs = uuid in self._mismatching
            self._held.set(f"discovery:cluster_mismatch:{uuid}", differs, Subject(node=uuid), name=self._name(uuid))
            text = "It announces that it is in another cluster, or in none." if differs else None
            self._nodes.warn(uuid, "cluster_mismatch", text)
        self._looked = {uuid: at for uuid, at in self._looked.items() if now - at < LOOK_SECONDS}

    # What others say.

    def announced(self, claim: Claim, known: Iterable[Claim]) -> None:
        """A record was heard.

        Args:
            claim: What it says.
            known: What those that were heard before said of the same UUID.
        """
        uuid = claim.uuid
        assert uuid is not None, "a record without is none (DS-12)"
        said = (*claim.addresses, *claim.records)
        if uuid == self._me.uuid:
            others = [_place(each, claim) for each in said if not is_own(each, self._found())]
            self._look(uuid, others[:_OWN_MAX])
            return
        self.compare(uuid, claim)
        before = {_place(each, old) for old in known for each in (*old.addresses, *old.records)}
        places = [_place(each, claim) for each in said]
        if before and places and before.isdisjoint(places):
            # Who was there before is asked again after the other: only then it cannot have moved (DS-67).
            old = min(before, key=str)
            self._look(uuid, [old, places[0], old])

    def compare(self, uuid: str, claim: Claim | None) -> None:
        """Whether a member announces another cluster than ours; None: it is none any more, or announces nothing."""
        standing = self._standing()
        differs = claim is not None and uuid in standing.members and claim.cluster != standing.cluster
        self._mismatches.hear(uuid, differs, self._clock.seconds())

    def saw(self, answer: Answer) -> None:
        """Somebody answered."""
        info, host = answer.info, answer.place.host
        sighting = Sighting(info.host_uuid, self._clock.seconds(), host, info.instance, answer.leaf)
        if not self._clashes.see(sighting, is_own(host, self._found())):
            return
        if info.host_uuid == self._me.uuid:
            self._held.set(OWN, True, address=host)
        self.tick()

    def met(self, entry: NodeEntry) -> None:
        """A node is new: it may have taken the place of another (DS-63)."""
        others = [
            Party(each, sign.proven_at)
            for each in self._nodes.entries
            if (sign := self._nodes.liveness.sign(each.key)) is not None
        ]
        port = entry.services.get("ni", DEFAULT_PORTS["ni"])
        for nomination in nominate(entry, others, self._clock.seconds()):
            self._do(partial(self._replaced, nomination, Place(nomination.address, port)))

    def proven(self, uuid: str) -> None:
        """A node has proven that it is there: nobody has taken its place."""
        for code in [each for each in self._nodes.facts(uuid).warnings if each.startswith("replaced_by:")]:
            self._nodes.warn(uuid, code, None)

    # What is looked into.

    def _look(self, uuid: str, places: Sequence[Place]) -> None:
        """Ask at each of these who is there, in order."""
        now = self._clock.seconds()
        if not places or now - self._looked.get(uuid, now - LOOK_SECONDS) < LOOK_SECONDS:
            return
        self._looked[uuid] = now
        self._do(partial(self._ask_each, places))

    async def _ask_each(self, places: Sequence[Place]) -> None:
        for place in places:
            answer = await self._who(place)
            if answer is not None:
                self._answered(answer, False)

    async def _replaced(self, nomination: Nomination, place: Place) -> None:
        began = self._clock.seconds()
        answer = await self._who(place)
        if answer is not None:
            self._answered(answer, False)
        names = None if answer is None else answer.info.host_uuid
        if names != nomination.new:
            return
        answers = await self._is_there(nomination.old)
        sign = self._nodes.liveness.sign(nomination.old)
        if sign is None:
            return
        member = nomination.old in self._standing().members
        verdict = judge(nomination, names, answers or sign.proven_at > began, member)
        if verdict == "drop":
            log.info("{old} is {new} now.", old=nomination.old, new=nomination.new)
            self._nodes.drop(nomination.old, "mdns")
        elif verdict == "offline":
            self._nodes.warn(nomination.old, f"replaced_by:{nomination.new}", "Another node answers in its place.")
            self._nodes.take(self._nodes.liveness.doubt(nomination.old))

    async def _who(self, place: Place) -> Answer | None:
        try:
            return await self._asking.node_info(None, (place,), ASK_SECONDS)
        except AskFailed:
            return None

    async def _is_there(self, uuid: str) -> bool:
        places = candidates("ni", self._nodes.reach(uuid, "ni"))
        try:
            answer = await self._asking.node_info(uuid, places, REACH_SECONDS)
        except AskFailed:
            return False
        self._answered(answer, uuid in self._standing().pins)
        return True

    def _do(self, work: Callable[[], Coroutine[Deferred[Any], Any, None]]) -> None:
        if len(self._works) >= _WAITING_MAX:
            return  # whoever makes so many conflicts gains nothing by more
        ticket = object()
        done = self._slots.run(lambda: Deferred.fromCoroutine(work()))
        self._works[ticket] = done
        done.addErrback(_ended).addBoth(lambda _: self._works.pop(ticket, None))

    def _name(self, uuid: str) -> str:
        entry = self._nodes.entries.get(uuid)
        return uuid if entry is None else entry.name


def _place(address: str, claim: Claim) -> Place:
    return Place(address, claim.services.get("ni", DEFAULT_PORTS["ni"]))


def _ended(failure: Any) -> None:
    if not failure.check(CancelledError):
        log.failure("A conflict could not be looked into, by a fault of PAIR.", failure)

"""Trust: the one part that changes which cluster this node is in, and whom it counts as a member there.

Here is what a node may do to its cluster, and what others may. What follows
from statements is said by the pure modules, and the book lets it be in force.
It must not know of connections, requests, or how statements travel.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from twisted.internet.defer import Deferred, execute

from pair.cluster import signing
from pair.cluster.audit import Entry, read_rows
from pair.cluster.changes import (
    PAIRING,
    SELF,
    About,
    IsSelf,
    Leaving,
    NoSuchNode,
    NotClustered,
    Objection,
    Removal,
    Taken,
)
from pair.cluster.cutting import keep_list, removal
from pair.cluster.membership import evaluate
from pair.cluster.merging import merge
from pair.cluster.offers import Accepted, judge_offer, make_offer, objection
from pair.cluster.roster import make_roster
from pair.cluster.statements import NUMBER_MAX, Admit, Found, Join, Leave, Note, StatementError, encode, found
from pair.cluster.transitions import Weighed, advance, drop, weigh
from pair.cluster.trustbook import TrustBook

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pair.cluster.identity import Identity
    from pair.cluster.membership import Member, View
    from pair.cluster.pins import Caller, PeerLeaf, PinTable
    from pair.cluster.signing import Verify
    from pair.cluster.statements import Statement
    from pair.interfaces import IErrorBook
    from pair.protocols.pairing import Offer, Peer, Reason
    from pair.records.cluster import AuditRow, Roster
    from pair.store import Store

T = TypeVar("T")

FEW = 16
"""A batch of so many statements is verified where it comes, a larger one in a thread (CL-78)."""

REFUSALS_APART_MS = 60_000
"""Between two rows of the audit about refused introductions, however many there are."""


class InThread(Protocol):
    """Does work elsewhere: ``twisted.internet.threads.deferToThread``."""

    def __call__(self, work: Callable[[], T], /) -> Deferred[T]:
        """Its result."""


class TrustService:
    """The statements of this node's cluster, and what they say.

    A change that fails for the store's sake fails with the store's own error
    (:exc:`sqlite3.Error`, :exc:`~pair.store.StoreClosed`), and nothing of it is
    in force. Who cancels one no longer waits for it; it goes on.

    Attributes:
        changed: Emits each change that made another view, once it is in force.
    """

    def __init__(
        self,
        identity: Identity,
        about: About,
        store: Store,
        now: Callable[[], int],
        errors: IErrorBook,
        *,
        entropy: Callable[[int], bytes] = os.urandom,
        verify: Verify | None = None,
        in_thread: InThread = execute,
    ) -> None:
        """In no cluster, until :meth:`load`.

        Args:
            identity: This node's.
            about: What its notes say of it, until :meth:`note` says otherwise.
            store: Where the tables of trust are.
            now: Epoch milliseconds.
            errors: Told of what is wrong with the cluster.
            entropy: Gives so many random bytes.
            verify: Whether a signature is good; with a memory, since it is asked again and again.
            in_thread: Where many signatures are verified.
        """
        self._about = about
        self._store = store
        self._now = now
        self._entropy = entropy
        self._verify = verify or signing.remembering(signing.verify)
        self._in_thread = in_thread
        self._book = TrustBook(identity, store, now, errors, self._verify)
        self.changed = self._book.changed
        self._founding: tuple[str, str, bytes] | None = None  # invitation, cluster, and the leaf it is for
        self._least = 0  # what this node last said; it confirms one invitation at a time
        self._refusals = 0
        self._refusal_written = 0

    def load(self) -> None:
        """See :meth:`pair.cluster.trustbook.TrustBook.load`; the store must be open."""
        self._book.load()

    # What is in force.

    @property
    def view(self) -> View | None:
        """The cluster that this node is in; None: in none."""
        return self._book.held.view

    @property
    def pins(self) -> PinTable:
        """Who is who by it; another table for each view."""
        return self._book.pins

    @property
    def me(self) -> Member | None:
        """This node as a member; None in no cluster, and in a clash about its UUID (CL-78)."""
        return self._book.held.me

    @property
    def statements(self) -> tuple[Statement, ...]:
        """All of the present cluster, each behind those on which it rests."""
        return self._book.held.statements

    @property
    def root(self) -> bytes:
        """Their set root (CL-82)."""
        return self._book.held.root

    def evidence(self, peer: PeerLeaf) -> tuple[bytes, ...]:
        """What a refusal tells ``peer`` (CL-17, CL-90)."""
        return tuple(map(encode, self._book.pins.evidence(peer)))

    def roster(self, last_seen: Mapping[str, int], flags: Mapping[str, Sequence[str]] | None = None) -> Roster:
        """Who is in the cluster; see :func:`pair.cluster.roster.make_roster`."""
        return make_roster(self.view, self._book.held.uuid, last_seen, flags or {})

    def least_epoch(self) -> int:
        """The least epoch by which this node may be admitted (CL-69), and to which the offer that follows is held."""
        self._least = self._next_epoch()
        return self._least

    def _next_epoch(self) -> int:
        return min(max(self._book.held.epoch + 1, self._now()), NUMBER_MAX)

    def objection(self, peer: Peer) -> Reason | None:
        """Why this joiner may not be admitted, as things are (CL-48)."""
        return objection(self._book.held, peer)

    def offer_objection(self, peer: Peer, offer: Offer) -> Reason | None:
        """Why this offer may not be taken, as things are (CL-50)."""
        judged = self._judge(peer, offer)
        return None if isinstance(judged, Accepted) else judged

    def _judge(self, peer: Peer, offer: Offer) -> Accepted | Reason:
        held = self._book.held
        return judge_offer(held, max(self._least, held.epoch + 1), peer, offer, self._verify)

    # Pairing.

    async def admit(self, peer: Peer, least_epoch: int, invite: str) -> Offer:
        """Let a joiner in that has proven itself; found a cluster for it if this node is in none (CL-49, CL-102).

        Args:
            peer: The joiner.
            least_epoch: The least that it accepts.
            invite: Id of the invitation, for :meth:`retract`.

        Raises:
            Objection: It may not be let in, as things are now.
        """
        return await self._book.alone(self._admit(peer, least_epoch, invite))

    async def _admit(self, peer: Peer, least_epoch: int, invite: str) -> Offer:
        reason = self.objection(peer)
        if reason is not None:
            raise Objection(reason)
        before = self._book.held.view
        said = self._found() if before is None else []
        cluster = said[0].cluster if before is None else before.cluster
        me = said[0].signer if self.me is None else self.me.incarnation
        epoch = least_epoch if before is None else before.epoch_for(peer.uuid, least_epoch)
        try:
            admission = self._book.say(Admit(peer.uuid, epoch, peer.leaf), cluster, me)
        except StatementError:  # the last epoch that there is was used for this UUID
            raise Objection("identity_clash") from None
        view = await self._book.announce((*said, admission), cluster)
        if before is None:
            self._founding = invite, cluster, peer.leaf
        member = view.signs_as(self._book.held.leaf)
        assert member is not None, "who may admit is a member"
        return make_offer(view, member, admission)

    def _found(self) -> list[Statement]:
        held, name = self._book.held, f"{self._about.name}'s cluster"
        body = Found(held.uuid, self._next_epoch(), held.leaf, name, self._entropy(16))
        root = found(body, self._now(), self._book.sign)
        return [root, self._book.say(self._note(), root.cluster, root.signer)]

    async def join(self, peer: Peer, offer: Offer) -> tuple[bytes, ...]:
        """Be a member by this offer (CL-50).

        Returns:
            The own ``join`` and ``note``, for the inviter.

        Raises:
            Objection: It may not be taken, as things are now.
        """
        return await self._book.alone(self._join(peer, offer))

    async def _join(self, peer: Peer, offer: Offer) -> tuple[bytes, ...]:
        judged = self._judge(peer, offer)
        if not isinstance(judged, Accepted):
            raise Objection(judged)
        cluster, me = judged.cluster, judged.incarnation.id
        own = self._book.say(Join(), cluster, me), self._book.say(self._note(), cluster, me)
        merged = merge((), (*judged.statements, *own), cluster, self._verify, bounded=False)
        weighed = Weighed(merged, evaluate(merged.kept, cluster, self._verify))
        step = advance(self._book.held, weighed, self._now(), PAIRING, {each.id for each in own})
        await self._book.carry_out(step, PAIRING)
        return tuple(map(encode, own))

    async def keep(self, statements: Sequence[bytes], source: str) -> Taken:
        """Store what a joiner returned that has proven itself (CL-51)."""
        return await self._book.alone(self._take_in(statements, source, None))

    async def retract(self, invite: str) -> bool:
        """Delete the cluster that this invitation founded, if nobody else has come (CL-52); whether there was one."""
        return await self._book.alone(self._retract(invite))

    async def _retract(self, invite: str) -> bool:
        view, held = self._book.held.view, self._book.held
        if view is None or self._founding is None or self._founding[:2] != (invite, view.cluster):
            return False
        admitted = {each.leaf for each in view.admitted}
        if len(view.members) > 1 or view.clashes or not admitted <= {self._founding[2]}:
            return False
        await self._book.carry_out(drop(held, self._now(), "retracted"), SELF)
        return True

    # What others tell.

    async def take(self, batch: Sequence[bytes], caller: Caller, source: str, leaf: bytes | None = None) -> Taken:
        """Merge what a peer hands in: anything from a member, an introduction from another (CL-79, CL-80).

        Args:
            batch: Statements as they are carried.
            caller: Who the peer is by the pins.
            source: What the audit calls it: its UUID, or for who has none its address.
            leaf: The peer's (DER); only a member's may lack.
        """
        return await self._book.alone(self._take(batch, caller, source, leaf))

    async def _take(self, batch: Sequence[bytes], caller: Caller, source: str, leaf: bytes | None) -> Taken:
        if caller.relation == "member" and caller.node is not None and self._book.pins.pin(caller.node) is not None:
            return await self._take_in(batch, source, None)
        taken = Taken(0, refused=True)
        if leaf is not None and caller.relation != "own":
            taken = await self._take_in(batch, source, leaf)
        if taken.refused:
            self._note_refusal(caller, source)
        return taken

    async def take_evidence(self, statements: Sequence[bytes], from_node: str) -> Taken:
        """Merge what a member that was dialled by its pin gave as the reason for a refusal (CL-85)."""
        return await self._book.alone(self._take_in(statements, from_node, None))

    async def _take_in(self, batch: Sequence[bytes], source: str, introduced: bytes | None) -> Taken:
        held = self._book.held
        if held.view is None:
            return Taken(0, refused=True)
        work = partial(weigh, held.view, held.statements, batch, introduced, self._verify)
        weighed = work() if len(batch) <= FEW else await self._in_thread(work)
        if weighed is None:
            return Taken(0, refused=True)
        if weighed.merged.added:
            await self._book.carry_out(advance(held, weighed, self._now(), source), source)
        return Taken(len(weighed.merged.added))

    def _note_refusal(self, caller: Caller, source: str) -> None:
        self._refusals += 1
        now = self._now()
        if now < self._refusal_written + REFUSALS_APART_MS:
            return
        detail = {"from": source, "relation": caller.relation, "count": self._refusals}
        self._refusals, self._refusal_written = 0, now
        cluster = None if self.view is None else self.view.cluster
        self._book.mention(Entry("introduction_refused", caller.node, caller.node, cluster, detail))

    # What this node says.

    async def remove(self, node: str, with_admitted: bool = False) -> Removal:
        """Put a node out, and those that it let in too, if so wished (CL-86, CL-87).

        Raises:
            NotClustered: This node is a member nowhere.
            IsSelf: It is this node.
            NoSuchNode: The cluster has never heard of it.
        """
        return await self._book.alone(self._remove(node, with_admitted))

    async def _remove(self, node: str, with_admitted: bool) -> Removal:
        view, me = self.view, self.me
        if view is None or me is None:
            raise NotClustered
        if node == me.node:
            raise IsSelf
        known = view.standing.proven.incarnations
        if all(each.node != node for each in known.values()):
            raise NoSuchNode
        nodes = {node, *(view.admitted_by(node) if with_admitted else ())} - {me.node}
        cuts = removal(view, nodes)
        if cuts:
            said = tuple(self._book.say(each, view.cluster, me.incarnation) for each in cuts)
            await self._book.announce(said, view.cluster)
        return Removal(tuple(sorted({known[each.incarnation].node for each in cuts})))

    async def leave(self) -> Leaving | None:
        """Leave the cluster, also one in which this node's UUID is in a clash (CL-88). None: it is in none."""
        return await self._book.alone(self._leave())

    async def _leave(self) -> Leaving | None:
        view, own, pins = self.view, self._book.held.own(), self._book.pins
        if view is None or own is None:
            return None
        leave = self._book.say(Leave(keep_list(view, own.leaf, (own.node,))), view.cluster, own.id)
        await self._book.announce((leave,), view.cluster)
        told = self._book.held.archives[0].evidence or (leave,)
        return Leaving(view.cluster, tuple(map(encode, told)), view, pins)

    async def abandon(self) -> bool:
        """Drop the membership without a word to anybody (CL-96); false: there was none."""
        return await self._book.alone(self._abandon())

    async def _abandon(self) -> bool:
        if self.view is None:
            return False
        await self._book.carry_out(drop(self._book.held, self._now(), "abandoned"), SELF)
        return True

    async def note(self, name: str, addresses: Sequence[str], ports: Sequence[tuple[str, int]]) -> bool:
        """This is what notes say of this node from now on; whether a new one was needed.

        Args:
            name: As in CL-1.
            addresses: At most 8 IP literals, without zone.
            ports: Service and port.
        """
        return await self._book.alone(self._note_again(About(name, tuple(addresses), tuple(ports))))

    async def _note_again(self, about: About) -> bool:
        self._about = about
        view, me = self.view, self.me
        if view is None or me is None:
            return False
        note = self._book.say(self._note(), view.cluster, me.incarnation)
        body = note.body
        assert isinstance(body, Note)
        if (body.name, body.addresses, body.ports) == (me.name, me.addresses, me.ports):
            return False
        await self._book.announce((note,), view.cluster)
        return True

    def _note(self) -> Note:
        counter = min(max(self._book.held.counter + 1, self._now()), NUMBER_MAX)
        return Note(counter, self._about.name, self._about.addresses, self._about.ports)

    # The audit.

    async def record(
        self, event: str, actor: str | None, subject: str | None, cluster: str | None, detail: dict[str, Any]
    ) -> None:
        """Add a row to the audit (CL-104). ``detail`` becomes JSON; no codes, keys or leaves."""
        await self._book.record(Entry(event, actor, subject, cluster, detail))

    async def audit_rows(self, limit: int) -> list[AuditRow]:
        """The newest rows of the audit, the newest first."""
        return self._store.read(partial(read_rows, limit=limit))

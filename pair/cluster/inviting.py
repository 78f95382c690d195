"""Drives the inviter's side of one invitation: addresses, requests, clocks, the store (cluster page, 5.3 and 5.4).

What is right is judged by :class:`~pair.protocols.pairing.InviterExchange`,
who comes first by :mod:`~pair.cluster.life`; requests are carried by
:mod:`~pair.cluster.courier`. It must not know of other invitations: when a
proof may be judged is asked of its caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError, Deferred

from pair.cluster.courier import Courier, Parcel
from pair.cluster.leaf import check_leaf
from pair.cluster.life import TTL_SECONDS
from pair.cluster.means import PATH, QUIET_SECONDS, why
from pair.cluster.posting import CallError
from pair.cluster.prompts import Prompt
from pair.cluster.refusing import NO_ADDRESS, Refusal, read_refusal
from pair.logs import Logger
from pair.privacy import normalize_error
from pair.protocols.dial import DialError
from pair.protocols.pairing import Admit, Ended, ForeignReplyError, InviterExchange, Keep, Retract, Send
from pair.records.cluster import ClusterName
from pair.records.nodes import DEFAULT_PORTS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from twisted.python.failure import Failure

    from pair.addresses import Place
    from pair.cluster.means import Means, PlainReply
    from pair.cluster.prompts import Keeper
    from pair.privacy import Secret
    from pair.protocols.pairing import CodeKind, InviterAction, Offer, Peer, Reason

WALK_SECONDS = 15.0
CALL_SECONDS = 13.0
"""For one try: 3 for the connection and 10 for the reply (CL-56)."""

POLL_SECONDS = 25.0
"""For a poll, which the joiner holds open for 20. It is asked again well before it gives up on us, after 30."""

POLLS_APART = 1.0
"""Between the beginnings of two polls: a joiner that holds none open does not make us ask without a pause."""

FAREWELL_SECONDS = 30.0
"""The joiner is told of an end until the invitation would have expired, and for so long at least."""

_FIELDS = {b"Content-Type": b"application/json"}

_REFUSED_AS: dict[Reason | None, str] = {
    "identity_clash": "identity_clash",
    "joined_another_cluster": "already_clustered",
}
"""What an invitation that ended before its code was shown is refused with."""

_MISSED = {
    "refused": "nothing listens there",
    "timeout": "it does not answer in time",
    "unreachable": "there is no way to it",
    "unresolvable": "the name does not resolve",
    "lost": "it closed the connection",
    "broken": "its answer broke off",
    "too_large": "what answers is no PAIR",
}
"""Why nobody answered at a place, for the person who invites."""

log = Logger()


class Inviting(Prompt):
    """One invitation of this node's."""

    exchange: InviterExchange

    def __init__(
        self,
        means: Means,
        keeper: Keeper,
        kind: CodeKind,
        code: Secret,
        node: str | None,
        places: Callable[[str | None], Sequence[Place]],
        turn: Callable[[], Deferred[None]],
    ) -> None:
        """One that nobody knows of yet.

        Args:
            means: What it works with.
            keeper: Who is told.
            kind: Of the code.
            code: What a person will type at the other node.
            node: The UUID of the node that is invited, where it is known.
            places: Where to try, for the UUID of the node where it is known by then.
            turn: Fires when a proof may be judged (CL-46).
        """
        super().__init__(means, keeper, "out", kind, None)
        view = means.trust.view
        self._from_cluster = None if view is None else view.cluster
        self.exchange = InviterExchange(means.party(), kind, code, check_leaf, self._objection, means.entropy, node)
        self._node = node
        self._places = places
        self._turn = turn
        self._place: Place | None = None
        self._quiet_until = 0.0
        self._next_poll = 0.0
        self._stopped = False
        self._greeting: Deferred[Refusal | None] | None = None
        self._courier = Courier(means.clock, self._post, self._search, self._received, self._forgotten)

    @property
    def id(self) -> str:
        """See :class:`~pair.cluster.prompts.Prompt`."""
        return self.exchange.invite

    @property
    def claimed(self) -> tuple[str | None, str | None]:
        """See :class:`~pair.cluster.prompts.Prompt`."""
        return self.exchange.peer or (self._node, None)

    async def greet(self) -> None:
        """Say hello. After this the code may be shown (CL-43).

        Raises:
            Refusal: The node refused, or none was found. It is as if it had never been.
        """
        self._greeting = Deferred.fromCoroutine(self._walk())
        refusal = await self._greeting
        if refusal is None and not self.live:
            refusal = Refusal(_REFUSED_AS.get(self.exchange.reason, "peer_failed"))
        if refusal is not None:
            self.stop()
            raise refusal

    def cancel(self) -> None:
        """A person does not want it any more.

        Raises:
            Refusal: ``invitation_over``: something else came first (CL-55).
        """
        self._withdraw("cancelled")

    def stop(self) -> None:
        """Forget it, and carry nothing any more."""
        self._stopped = True
        self.life.drop()
        self._courier.rest()
        if self._greeting is not None:
            self._greeting.cancel()

    def _do(self, actions: Iterable[InviterAction]) -> None:
        for action in actions:
            match action:
                case Send():
                    self._send(action)
                case Admit():
                    self._admit(action)
                case Keep():
                    self._store(self._means.trust.keep(action.statements, "pairing"))
                case Retract():
                    self._store(self._means.trust.retract(self.id))
                case Ended():
                    self._courier.rest()
                    self.life.end()
                    self.when_stored().addCallback(lambda _: self._conclude())

    # What is stored.

    def _admit(self, admit: Admit) -> None:
        """Let the joiner in, and only then prove ourselves (CL-49)."""
        self.proven = admit.peer
        self.life.store()
        self._keeper.note_change(self)
        admitting = Deferred.fromCoroutine(self._means.trust.admit(admit.peer, admit.epoch, self.id))
        self._storing = admitting.addCallbacks(self._admitted, self._not_admitted)

    def _admitted(self, offer: Offer) -> None:
        self._cluster = ClusterName(offer.cluster, offer.name)
        self.life.stored()
        self._do(self.exchange.admitted(offer.cluster, offer.name, offer.statements))

    def _not_admitted(self, failure: Failure) -> None:
        self._do(self.exchange.end("failed", why(failure)))

    def _store(self, work: Coroutine[Deferred[object], object, object]) -> None:
        """What the joiner's answer brought. If that fails, the next sync brings it, or an unused admission stays."""
        self._storing = Deferred.fromCoroutine(work).addCallbacks(lambda _: None, _leave_it)

    def _objection(self, peer: Peer) -> Reason | None:
        view = self._means.trust.view
        if view is not None and self._from_cluster not in (None, view.cluster):
            return "joined_another_cluster"
        return self._means.trust.objection(peer)

    # What is sent.

    def _send(self, send: Send) -> None:
        if self._stopped:
            return
        now = self._means.clock.seconds()
        seconds, at, until = CALL_SECONDS, self._quiet_until, float("inf")
        if self.exchange.state == "waiting":
            seconds, at = POLL_SECONDS, max(at, self._next_poll)
            self._next_poll = max(at, now) + POLLS_APART
        elif not self.live:
            until = max(self.began + TTL_SECONDS, now + FAREWELL_SECONDS)
        self._courier.carry(Parcel(send.body, send.mac, seconds, at, until))

    def _post(self, parcel: Parcel) -> Deferred[PlainReply]:
        """Send it to where the joiner is; its answer counts when it is its turn."""
        assert self._place is not None, "nothing is sent before the hello was answered"
        fields = {**_FIELDS, b"X-Pair-Mac": parcel.mac}
        call = self._call(self._place, parcel.body, fields, parcel.seconds)
        return call.addCallback(lambda reply: self._turn().addCallback(lambda _: reply))

    def _received(self, body: bytes, mac: bytes | None) -> None:
        actions = self.exchange.received(body, mac)
        if any(isinstance(each, Admit | Ended) for each in actions):
            self._quiet_until = self._means.clock.seconds() + QUIET_SECONDS
        self._do(actions)

    def _forgotten(self) -> None:
        """The joiner has started anew (CL-54). What it was sent our proof for, it may have stored before."""
        if self.live:
            confirming = self.exchange.state == "confirming"
            self._do(self.exchange.end("failed", "no_answer" if confirming else "peer_restarted"))

    # Where the joiner is.

    def _search(self) -> Deferred[bool]:
        """Look for it anew; what it replied to the hello is replied again by no other."""
        return Deferred.fromCoroutine(self._walk()).addCallback(lambda refusal: refusal is None)

    async def _walk(self) -> Refusal | None:
        """Say hello at one place after the other, until one answers as the node that is invited (CL-56, CL-57)."""
        clock, hello = self._means.clock, self.exchange.hello
        end = clock.seconds() + WALK_SECONDS
        greeted = self.exchange.peer is not None
        node = self.exchange.peer[0] if self.exchange.peer else self._node
        tried: list[str] = []
        places = self._places(node)
        if not places:
            return Refusal("unreachable", message=NO_ADDRESS)
        for place in places:
            left = end - clock.seconds()
            if left <= 0:
                break
            reply = await self._call(place, hello, _FIELDS, min(CALL_SECONDS, left)).addErrback(_unreached)
            if isinstance(reply, str):
                tried.append(f"{place} ({reply})")
                continue
            if reply.status == 200 and self._greet(place, reply.body):
                return None
            refusal = None if greeted else read_refusal(reply.status, reply.body, self._node)
            if refusal is not None:
                return refusal
            tried.append(f"{place} (what answers is no PAIR, or another node)")
        return Refusal("unreachable", tried=", ".join(tried))

    def _greet(self, place: Place, body: bytes) -> bool:
        """Whether the joiner is there. The first time the polls begin with it."""
        known = self.exchange.peer is not None
        try:
            actions = self.exchange.greeted(body)
        except ForeignReplyError:
            return False
        self._place = place
        self.address = place.host if place.port == DEFAULT_PORTS["cl"] else str(place)
        if self.live and not known:
            self._show()
        self._do(actions)
        return True

    def _call(self, place: Place, body: bytes, fields: dict[bytes, bytes], seconds: float) -> Deferred[PlainReply]:
        return self._means.caller.post(place.host, place.port, PATH, body, fields, seconds)


def _leave_it(failure: Failure) -> None:
    why(failure)


def _unreached(failure: Failure) -> str:
    """Nobody answered there, and why: the next place may be the right one."""
    if failure.check(CancelledError):
        failure.raiseException()
    assert failure.value is not None, "it failed with something"
    error = normalize_error(failure.value)
    log.debug("Nothing answered the hello of a pairing: {error}.", error=error)
    if isinstance(failure.value, DialError | CallError):
        return _MISSED[failure.value.reason]
    return error.partition(": ")[2]

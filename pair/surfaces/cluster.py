"""Port 14321: pairing for anyone, in the clear, and syncs for members, over mutual TLS (cluster page, section 4).

What a request means is for :mod:`pair.cluster.invitations` and
:mod:`pair.cluster.syncing` to say. Here is who may ask it, and how an answer
is brought back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from klein import Klein
from twisted.internet.defer import Deferred

from pair.cluster.limits import Sparing, source_of
from pair.cluster.means import PATH as PAIRING
from pair.cluster.merging import INTRODUCTION_BYTES_MAX, INTRODUCTION_STATEMENTS_MAX
from pair.cluster.syncing import BODY_MAX, NotIntroduced, OtherCluster, Trust, answer, read_request
from pair.cluster.syncing import PATH as SYNC
from pair.protocols.pairing import MalformedError, Prove
from pair.protocols.pairing import read_request as read_pairing
from pair.protocols.pairing.messages import encode
from pair.surfaces.answers import JSON, Reply, detached, render_failures, send
from pair.surfaces.callers import MTLS_REQUIRED
from pair.surfaces.refusals import Refusal, Refused
from pair.surfaces.rules import BAD_REQUEST, is_json, too_large
from pair.surfaces.site import SurfaceRequest, SurfaceSite

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twisted.internet.interfaces import IReactorTime
    from twisted.web.iweb import IRequest

    from pair.cluster.pins import PeerLeaf
    from pair.cluster.refusing import PairingReply
    from pair.cluster.syncing import SyncRequest
    from pair.surfaces.callers import Callers
    from pair.surfaces.rules import Head, Peer

PAIRING_MAX = 16 * 1024
PROVE_MAX = 256 * 1024
"""Octets of a pairing request, and of the one that brings a proof."""

INTRODUCTION_MAX = INTRODUCTION_BYTES_MAX
"""Octets of a sync by one that is no member."""

INTRODUCTIONS_APART = 5.0
"""Seconds between two introductions from one source (CL-80)."""

_SOURCES_MAX = 1024
_MAC = "X-Pair-Mac"

_BROWSER = Refusal(403, "browser", "Nodes pair by JSON; web pages have no part in it.")
_NO_ROUTE = Refusal(404, "no_such_route", "There is no such route over TLS.")
_OTHER_CLUSTER = "This node is in another cluster than the one that was asked about."


class Pairing(Protocol):
    """The invitations of this node (:class:`pair.cluster.invitations.Invitations`)."""

    def receive(self, body: bytes, mac: bytes | None, source: str) -> Deferred[PairingReply]:
        """Answer a pairing request; cancelled when its client hangs up."""


class Evident(Trust, Protocol):
    """The statements of this node (:class:`pair.cluster.trust.TrustService`)."""

    def evidence(self, peer: PeerLeaf) -> tuple[bytes, ...]:
        """What a refusal tells ``peer``."""


class ClusterGuard:
    """Provides :class:`pair.surfaces.rules.Guard` for port 14321 (CL-16, CL-17, CL-20 to CL-22).

    Args:
        callers: who is a member.
    """

    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    def check(self, head: Head) -> Refusal | None:
        """See :class:`pair.surfaces.rules.Guard`."""
        return self._check_peer(head) if head.peer.tls else _check_stranger(head)

    def body_limit(self, head: Head) -> int:
        """See :class:`pair.surfaces.rules.Guard`.

        By its head a proof is known as a request with a MAC; the others that
        have one are measured again when they can be read.
        """
        if not head.peer.tls:
            return PROVE_MAX if head.values(_MAC.lower().encode()) else PAIRING_MAX
        return BODY_MAX if self._callers.check(head.peer).relation == "member" else INTRODUCTION_MAX

    def _check_peer(self, head: Head) -> Refusal | None:
        caller = self._callers.check(head.peer)
        if caller.relation == "member":
            return _NO_ROUTE if head.path == PAIRING else None
        may_introduce = (head.method, head.path) == ("POST", SYNC) and head.peer.leaf is not None
        return None if may_introduce and caller.relation != "own" else self._callers.refuse(head.peer, caller)


def _check_stranger(head: Head) -> Refusal | None:
    if head.path != PAIRING:
        return MTLS_REQUIRED
    from_page = head.values(b"origin") or (head.method == "POST" and not is_json(head))
    return _BROWSER if from_page else None


class Introductions:
    """How often strangers of one source may make us read statements (CL-80)."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def admit(self, source: str, now: float) -> bool:
        """Whether ``source``, as :func:`source_of` names it, may at this instant, in seconds that do not go back."""
        self._last = {each: at for each, at in self._last.items() if now < at + INTRODUCTIONS_APART}
        if source in self._last or len(self._last) >= _SOURCES_MAX:
            return False
        self._last[source] = now
        return True


class ClusterApi:
    """Answers both routes.

    Args:
        clock: for the limits of introductions.
        trust: the statements of this node.
        pairing: its invitations.
        callers: who is a member.
        heard: told the UUID of each member that asks something.
    """

    def __init__(
        self, clock: IReactorTime, trust: Evident, pairing: Pairing, callers: Callers, heard: Callable[[str], None]
    ) -> None:
        self._clock = clock
        self._trust = trust
        self._pairing = pairing
        self._callers = callers
        self._heard = heard
        self._introductions = Introductions()

    def pair(self, body: bytes, macs: Sequence[bytes], peer: Peer) -> Deferred[PairingReply]:
        """CL-21 to CL-59, as far as they are the joiner's."""
        if len(body) > PAIRING_MAX and not _is_proof(body):
            raise Refused.by(too_large(PAIRING_MAX))
        return self._pairing.receive(body, macs[0] if len(macs) == 1 else None, peer.address)

    async def sync(self, body: bytes, peer: Peer) -> Reply:
        """CL-80, CL-82."""
        try:
            asked = read_request(body)
        except MalformedError:
            raise Refused.by(BAD_REQUEST) from None
        leaf = peer.leaf
        assert leaf is not None, "the guard lets nobody pass without"
        self._admit(asked, peer)
        try:
            return Reply(encode(await answer(self._trust, asked, leaf, peer.address)))
        except NotIntroduced:
            raise self._refused(peer) from None
        except OtherCluster:
            refusal = Refusal(409, "other_cluster", _OTHER_CLUSTER, evidence=self._trust.evidence(leaf))
            raise Refused.by(refusal) from None

    def _admit(self, asked: SyncRequest, peer: Peer) -> None:
        caller = self._callers.check(peer)
        if caller.relation == "member" and caller.node is not None:
            self._heard(caller.node)
        elif asked.statements and (
            len(asked.statements) > INTRODUCTION_STATEMENTS_MAX
            or not self._introductions.admit(source_of(peer.address), self._clock.seconds())
        ):
            raise self._refused(peer)

    def _refused(self, peer: Peer) -> Refused:
        return Refused.by(self._callers.refuse(peer, self._callers.check(peer)))


def _is_proof(body: bytes) -> bool:
    try:
        return isinstance(read_pairing(body), Prove)
    except MalformedError:
        return False


def cluster_app(api: ClusterApi) -> Klein:
    """``api`` behind its routes."""
    app = Klein()

    @app.route(PAIRING, methods=["POST"])
    def pair(request: IRequest) -> Deferred[bytes]:
        macs = request.requestHeaders.getRawHeaders(_MAC.encode(), [])

        def bring(reply: PairingReply) -> bytes:
            for name, value in reply.fields if reply.mac is None else (*reply.fields, (_MAC.encode(), reply.mac)):
                request.setHeader(name, value)
            return send(request, Reply(reply.body, reply.status, JSON))

        return api.pair(request.content.read(), macs, _peer(request)).addCallback(bring)

    @app.route(SYNC, methods=["POST"])
    def sync(request: IRequest) -> Deferred[bytes]:
        # Whoever takes its own leave from us is cut off in the middle of that.
        reply = detached(Deferred.fromCoroutine(api.sync(request.content.read(), _peer(request))))
        return reply.addCallback(lambda reply: send(request, reply))

    render_failures(app)
    return app


def _peer(request: IRequest) -> Peer:
    return cast(SurfaceRequest, request).peer


def cluster_site(reactor: IReactorTime, api: ClusterApi, callers: Callers) -> SurfaceSite:
    """``api`` behind its guard. Of strangers that are refused it writes little (CL-105)."""
    return SurfaceSite(cluster_app(api).resource(), ClusterGuard(callers), reactor, Sparing())

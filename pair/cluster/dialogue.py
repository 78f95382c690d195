"""The caller's side of one sync, and of telling a member that we leave (CL-82, CL-85, CL-88).

What is said is in :mod:`~pair.cluster.syncing`; here it is said, and what comes
back is kept until the talk is over, broken off or not. It must not know how a
member is reached, nor what is done with what came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from msgspec.structs import replace

from pair.cluster.dialing import PeerUnreachable
from pair.cluster.merging import set_root
from pair.cluster.posting import CallError
from pair.cluster.statements import read
from pair.cluster.syncing import (
    BODY_MAX,
    MESSAGES_MAX,
    PATH,
    SyncRequest,
    Talk,
    introduction,
    read_evidence,
    read_reply,
)
from pair.protocols.pairing.messages import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twisted.internet.defer import Deferred

    from pair.cluster.changes import Leaving
    from pair.cluster.links import Outcome
    from pair.cluster.membership import Member, View
    from pair.cluster.syncing import SyncReply, Trust

PORT = 14321
SERVICE = "cl"
"""How notes call this port."""


class PeerAnswer(Protocol):
    """A member's answer."""

    @property
    def status(self) -> int:
        """Its status."""

    @property
    def body(self) -> bytes:
        """Its whole body."""

    @property
    def address(self) -> str:
        """Where it came from."""


class PeerCaller(Protocol):
    """Calls members by their pins: :class:`pair.cluster.calls.PeerCaller`, as far as it is needed here."""

    def post(
        self, node: str, path: str, body: bytes, limit_bytes: int, addresses: Sequence[str], port: int = PORT
    ) -> Deferred[Any]:
        """POST JSON, for a :class:`PeerAnswer`.

        It fails with :class:`PeerUnreachable`, or for want of a whole answer with :class:`CallError`.
        """


class Line(Protocol):
    """Sends one request to one member."""

    def __call__(self, body: bytes) -> Deferred[PeerAnswer]:
        """Its answer; fails as :meth:`PeerCaller.post`."""


def line(caller: PeerCaller, member: Member, addresses: Sequence[str]) -> Line:
    """A line to ``member``, at the first of ``addresses`` that answers."""
    return lambda body: caller.post(member.node, PATH, body, BODY_MAX, addresses, port_of(member))


def port_of(member: Member) -> int:
    """Where ``member`` takes syncs, as its note says."""
    return dict(member.ports).get(SERVICE, PORT)


class Dialogue:
    """One sync with one member.

    Attributes:
        evidence: What it gave as the reason for a refusal.
        address: Where it answered.
    """

    def __init__(self, trust: Trust, instance: str, send: Line) -> None:
        """One that has not begun.

        Args:
            trust: Of this node; asked for what it has, never changed.
            instance: This run's nonce.
            send: Leads to the member.
        """
        self.evidence: tuple[bytes, ...] = ()
        self.address: str | None = None
        self._trust = trust
        self._instance = instance
        self._send = send
        self._messages = 0
        self._talk: Talk | None = None

    @property
    def received(self) -> tuple[bytes, ...]:
        """The statements that it gave so far."""
        return () if self._talk is None else tuple(self._talk.received)

    async def run(self, view: View) -> Outcome:
        """Hold it, about the cluster of ``view``.

        Raises:
            PeerUnreachable: It did not answer.
            CallError, MalformedError: What it answered is no answer.
        """
        opening = SyncRequest(1, UUID(view.cluster), self._instance, self._trust.root.hex())
        reply = await self._open(opening, view)
        if reply is None:
            return "evidence" if self.evidence else "refused"
        if reply.have is None:
            return "synced"
        self._talk = Talk(self._trust.statements, opening, reply.have)
        while self._messages < MESSAGES_MAX and (request := self._talk.next()) is not None:
            reply = await self._say(request)
            if reply is None:
                return "evidence" if self.evidence else "refused"
            self._talk.heard(reply)
        return "synced"

    async def _open(self, opening: SyncRequest, view: View) -> SyncReply | None:
        """The answer to the opening. To one that does not know this node, it is introduced first (CL-80)."""
        reply = await self._say(opening)
        me = self._trust.me
        if reply is not None or self.evidence or me is None:
            return reply
        introduced = await self._say(replace(opening, statements=introduction(view, me)))
        return None if introduced is None else await self._say(opening)

    async def _say(self, request: SyncRequest) -> SyncReply | None:
        """The answer; None where it is a refusal."""
        self._messages += 1
        answer = await self._send(encode(request))
        self.address = answer.address
        if answer.status in (403, 409):
            self.evidence = read_evidence(answer.body)
            if answer.status == 409 and not self.evidence:
                raise CallError("broken")
            return None
        if answer.status != 200:
            raise CallError("broken")
        return read_reply(answer.body)


async def tell(send: Line, leaving: Leaving, instance: str) -> bool:
    """Tell a member of the cluster that this node leaves it; whether it knows by now (CL-88).

    Whoever takes a ``leave`` cuts the leaver off, with the answer still unsaid
    (CL-18). Asked once more, it gives that ``leave`` as its reason for a
    refusal, and so it does where another member was faster.
    """
    request = SyncRequest(1, UUID(leaving.cluster), instance, set_root(()).hex(), b"", leaving.statements)
    body = encode(request)
    try:
        answer = await _insist(send, body)
    except (PeerUnreachable, CallError):
        return False
    return answer.status == 200 or _cuts(leaving.statements) <= _cuts(read_evidence(answer.body))


async def _insist(send: Line, body: bytes) -> PeerAnswer:
    try:
        return await send(body)
    except PeerUnreachable as miss:
        if not miss.met:
            raise
        return await send(body)


def _cuts(statements: Sequence[bytes]) -> set[bytes]:
    return {each.id for each in read(statements).statements if each.is_cut}

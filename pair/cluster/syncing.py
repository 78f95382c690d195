"""Sync: what two members say to each other until both have the same statements (CL-80, CL-82).

Pure. The caller opens with its set root. If the other's is not the same, it
answers with the ids of all that it has; from then on each message of the
caller asks for some and gives some, and each answer brings some of what was
asked for. Here are the messages and what is in them; who is asked, and when,
is for :mod:`pair.cluster.gossip` to say. Fields that are not known are passed over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Protocol
from uuid import UUID

from msgspec import Meta, Struct
from msgspec.structs import replace

from pair.cluster.merging import CUTS_MAX, MESSAGE_BYTES_MAX, MESSAGE_STATEMENTS_MAX, OTHERS_MAX, difference
from pair.cluster.proofs import carried_size, proof
from pair.cluster.statements import STATEMENT_BYTES_MAX, Statement, encode, read
from pair.protocols.pairing.messages import Digest, MalformedError, Silent
from pair.protocols.pairing.messages import read as read_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pair.cluster.changes import Taken
    from pair.cluster.membership import Member, View
    from pair.cluster.pins import Caller, PeerLeaf, PinTable

PATH = "/v1/cluster/sync"

BODY_MAX = 1024 * 1024
"""Octets of a message, either way."""

MESSAGES_MAX = 8
"""Messages of a caller in one sync."""

ID_BYTES = 32

_ID_CARRIED = -(-ID_BYTES // 3) * 4
"""Octets of an id in base64, at most."""

_WANTED_MAX = CUTS_MAX + OTHERS_MAX

Carried = Annotated[bytes, Meta(max_length=STATEMENT_BYTES_MAX)]
Statements = Annotated[tuple[Carried, ...], Meta(max_length=MESSAGE_STATEMENTS_MAX)]


class SyncRequest(Silent, Struct, frozen=True, omit_defaults=True):
    """What a caller says.

    ``instance`` is its nonce of this run, ``root`` the set root of what it
    has. ``want`` are ids, one after the other. One with neither ``want`` nor
    ``statements`` opens.
    """

    v: Literal[1]
    cluster: UUID
    instance: Annotated[str, Meta(pattern=r"^[0-9a-f]{16}\Z")]
    root: Digest
    want: bytes = b""
    statements: Statements = ()

    def __post_init__(self) -> None:
        _check_ids(self.want)


class SyncReply(Silent, Struct, frozen=True, omit_defaults=True):
    """What is answered. ``have`` are ids, one after the other, where the roots of an opening differ."""

    v: Literal[1]
    root: Digest
    have: bytes | None = None
    statements: Statements | None = None

    def __post_init__(self) -> None:
        _check_ids(self.have or b"")


class Denial(Silent, Struct, frozen=True):
    """A refusal as its caller reads it: only the evidence in it counts (CL-17)."""

    evidence: tuple[Carried, ...] = ()


class OtherCluster(Exception):  # noqa: N818 - the word of CL-82
    """A member asks about another cluster than that in which both are here."""


class NotIntroduced(Exception):  # noqa: N818 - an answer, not a fault
    """The caller is no member, and what it brings does not make it one."""


class Trust(Protocol):
    """What a sync asks of :class:`pair.cluster.trust.TrustService`."""

    @property
    def view(self) -> View | None:
        """The cluster that this node is in."""

    @property
    def me(self) -> Member | None:
        """This node as a member of it."""

    @property
    def pins(self) -> PinTable:
        """Who is who by the view."""

    @property
    def statements(self) -> tuple[Statement, ...]:
        """All of the cluster, each behind those on which it rests."""

    @property
    def root(self) -> bytes:
        """Their set root."""

    async def take(self, batch: Sequence[bytes], caller: Caller, source: str, leaf: bytes | None = None) -> Taken:
        """Merge what a peer hands in (CL-79, CL-80)."""


def read_request(body: bytes) -> SyncRequest:
    """The request in ``body``.

    Raises:
        MalformedError: It is none.
    """
    return read_message(SyncRequest, body)


def read_reply(body: bytes) -> SyncReply:
    """The reply in ``body``.

    Raises:
        MalformedError: It is none.
    """
    return read_message(SyncReply, body)


def read_evidence(body: bytes) -> tuple[bytes, ...]:
    """The evidence in a refusal; nothing where it has none, or is none of ours."""
    try:
        return read_message(Denial, body).evidence
    except MalformedError:
        return ()


async def answer(trust: Trust, request: SyncRequest, leaf: PeerLeaf, address: str) -> SyncReply:
    """The server's half: take what the caller brings, and tell it what it asks for.

    Args:
        trust: Of this node.
        request: As it came.
        leaf: The caller's.
        address: Where it came from; names it in the audit where no UUID does.

    Raises:
        OtherCluster: It asks about another cluster, and is a member of this one.
        NotIntroduced: It is neither member nor admitted, and has brought nothing that makes it so. Nothing was stored.
    """
    caller = trust.pins.check(leaf)
    if trust.view is None or trust.view.cluster != str(request.cluster):
        raise OtherCluster if caller.relation == "member" else NotIntroduced
    if request.statements:
        taken = await trust.take(request.statements, caller, caller.node or address, leaf.der)
        if taken.refused:
            raise NotIntroduced
        caller = trust.pins.check(leaf)  # it may have come in just now, or left
    elif not caller.pinned:
        raise NotIntroduced
    ours = trust.root.hex()
    if not request.want and not request.statements:
        have = None if ours == request.root else b"".join(each.id for each in trust.statements)
        return SyncReply(1, ours, have)
    wanted = frozenset(split_ids(request.want)) if caller.relation == "member" else frozenset()
    asked = [each for each in trust.statements if each.id in wanted]
    return SyncReply(1, ours, None, carried(portion(asked)))


class Talk:
    """The caller's half, after its opening: what is still wanted, and still to be given.

    Attributes:
        received: What was brought, as it is carried, in the order in which it came.
    """

    def __init__(self, statements: Sequence[Statement], opening: SyncRequest, have: bytes) -> None:
        """What follows from the answer to ``opening``, which said that the other has the ids ``have``."""
        lacking = difference(statements, split_ids(have))
        self.received: list[bytes] = []
        self._opening = opening
        self._wanted = set(lacking.want[:_WANTED_MAX])
        self._gifts = lacking.give

    def next(self) -> SyncRequest | None:
        """The next message; None when there is nothing more to say."""
        if not self._wanted and not self._gifts:
            return None
        gifts = portion(self._gifts, MESSAGE_BYTES_MAX - len(self._wanted) * _ID_CARRIED)
        self._gifts = self._gifts[len(gifts) :]
        return replace(self._opening, want=b"".join(sorted(self._wanted)), statements=carried(gifts))

    def heard(self, reply: SyncReply) -> None:
        """The answer to the last message. One that brings nothing that was wanted ends the wanting."""
        brought = reply.statements or ()
        self.received += brought
        before = len(self._wanted)
        self._wanted.difference_update(each.id for each in read(brought).statements)
        if len(self._wanted) == before:
            self._wanted.clear()


def introduction(view: View, me: Member) -> tuple[bytes, ...]:
    """What convinces a member that has not heard of this node: the way from the root to it, and its note (CL-80)."""
    note = view.standing.proven.notes.get(me.incarnation)
    return carried((*proof(view, me.incarnation), *(() if note is None else (note,))))


def portion(statements: Sequence[Statement], octets: int = MESSAGE_BYTES_MAX) -> Sequence[Statement]:
    """As many of the first of ``statements`` as one message takes; of whole base64 in JSON, at most ``octets``."""
    count = 0
    for each in statements[:MESSAGE_STATEMENTS_MAX]:
        octets -= carried_size((each,))
        if octets < 0:
            break
        count += 1
    return statements[:count]


def carried(statements: Iterable[Statement]) -> tuple[bytes, ...]:
    """``statements`` as a message carries them."""
    return tuple(map(encode, statements))


def split_ids(ids: bytes) -> tuple[bytes, ...]:
    """The ids that stand one after the other in ``ids``."""
    return tuple(ids[at : at + ID_BYTES] for at in range(0, len(ids), ID_BYTES))


def _check_ids(ids: bytes) -> None:
    if len(ids) % ID_BYTES:
        raise ValueError("a list of ids has the wrong length")

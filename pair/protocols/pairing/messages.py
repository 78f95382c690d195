"""The messages of a pairing as strict structs, and their JSON.

Pure. A struct says what has the right form; whether it is true is judged in the
exchanges. Bytes are base64 in JSON. Fields that are not known are passed over.
"""

from __future__ import annotations

import unicodedata
from typing import Annotated, Literal, TypeVar
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from pair.protocols.pairing.codes import CodeKind

VERSIONS = (1,)
"""The versions of this exchange that are spoken here."""

T = TypeVar("T")

Version = Annotated[int, Meta(ge=1, le=255)]
Number = Annotated[int, Meta(ge=1, le=2**53 - 1)]
Invite = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Bytes32 = Annotated[bytes, Meta(min_length=32, max_length=32)]
Name = Annotated[str, Meta(min_length=1, max_length=63)]
Told = Annotated[str, Meta(max_length=64)]

EndState = Literal["declined", "cancelled", "expired", "voided", "failed"]


class MalformedError(ValueError):
    """A message has not the form of its step. Quotes nothing of it."""


class Silent:
    """Mixed into what holds keys, proofs or certificates: its ``repr`` is the name of its class (CL-105)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class Greeting(Silent, Struct, frozen=True, rename="camel", kw_only=True):
    """What both sides say of themselves in a hello (CL-24). Nothing of it is proven yet.

    ``leaf`` is the digest of the sender's certificate in hex, ``share`` its X25519 public key.
    """

    invite: Invite
    node: UUID
    name: Name
    leaf: Digest
    nonce: Bytes32
    share: Bytes32

    def __post_init__(self) -> None:
        check_name(self.name)


class Hello(Greeting, frozen=True, rename="camel", kw_only=True, tag_field="step", tag="hello"):
    """The inviter's first words."""

    versions: Annotated[tuple[Version, ...], Meta(min_length=1, max_length=255)]
    code_kind: CodeKind

    @property
    def version(self) -> int | None:
        """The highest version that both sides speak."""
        return max(set(VERSIONS).intersection(self.versions), default=None)


class HelloReply(Greeting, frozen=True, rename="camel", kw_only=True):
    """The joiner's."""

    version: Version


class Wait(Silent, Struct, frozen=True, tag_field="step", tag="wait"):
    """The long poll for the joiner's proof."""

    invite: Invite
    n: Number
    pake: bytes


class Prove(Silent, Struct, frozen=True, tag_field="step", tag="prove"):
    """The inviter's proof, and what the joiner needs to be a member."""

    invite: Invite
    n: Number
    confirm: bytes
    sealed: bytes


class End(Silent, Struct, frozen=True, tag_field="step", tag="end"):
    """The inviter ends it."""

    invite: Invite
    n: Number
    state: EndState
    reason: Told | None = None


class Reply(Silent, Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The joiner's reply to any request but a hello.

    ``proof`` comes with ``pake``, ``confirm`` and ``sealed``, ``paired`` with
    ``sealed``, the ends with ``reason``. A field that lacks is empty, and fails
    where it is judged.
    """

    state: Literal["waiting", "proof", "paired"] | EndState
    reason: Told | None = None
    pake: bytes = b""
    confirm: bytes = b""
    sealed: bytes = b""


class JoinerIdentity(Silent, Struct, frozen=True):
    """What the joiner seals with its proof (CL-38). ``epoch`` is the least that it accepts."""

    leaf: bytes
    epoch: Number
    signature: bytes


class Cluster(Struct, frozen=True):
    """Which cluster the joiner is admitted to."""

    id: UUID
    name: str

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("no name")


class InviterIdentity(Silent, Struct, frozen=True):
    """What the inviter seals with its proof (CL-39)."""

    leaf: bytes
    signature: bytes
    cluster: Cluster
    statements: tuple[bytes, ...]


class Acknowledgement(Silent, Struct, frozen=True):
    """What the joiner seals in the end (CL-40)."""

    statements: tuple[bytes, ...]


Request = Hello | Wait | Prove | End


def check_name(name: str) -> None:
    """A name is in NFC and has no control characters (CL-1).

    Raises:
        ValueError: It is not so.
    """
    if not unicodedata.is_normalized("NFC", name) or any(unicodedata.category(each) == "Cc" for each in name):
        raise ValueError("no name")


def encode(message: Struct) -> bytes:
    """The message as JSON."""
    return msgspec.json.encode(message)


def read(kind: type[T], body: bytes) -> T:
    """The message of one kind in a body. Who sent it may be anybody.

    Raises:
        MalformedError: There is none.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError):  # the latter for what is nested in a field that is passed over
        raise MalformedError("it is not a message of this exchange") from None


def read_request(body: bytes) -> Request:
    """The request in a body, of whichever step: so its invitation is found before its MAC is judged.

    Raises:
        MalformedError: It is none.
    """
    request: Request = read(Request, body)  # type: ignore[arg-type]  # a union is no type to mypy
    return request

"""Statements: what members sign of a cluster, byte by byte (CL-62 to CL-67).

A statement is a payload and a signature over it. This module knows the kinds
and their layout, makes them, and reads them strictly: there is one way to
write each, and :func:`decode` takes no other. What a set of statements means
is for :mod:`pair.cluster.membership` to say, and whether a signature is good
for :mod:`pair.cluster.signing`. Pure.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
import struct
import unicodedata
import uuid
from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import sha256
from typing import ClassVar, TypeAlias

from msgspec import Struct

from pair.cluster.leaf import LeafError, check_leaf

Sign: TypeAlias = Callable[[bytes], bytes]
"""The signature of the signer's leaf key over a payload."""

STATEMENT_BYTES_MAX = 12 * 1024
SIGNATURE_BYTES = 64
NUMBER_MAX = 2**53 - 1
"""The greatest epoch, counter and instant: the last integer that every reader of JSON holds exactly."""
NAME_MAX = 63
CLUSTER_NAME_MAX = 80
"""Room for a node's name and what is put behind it (CL-102)."""
KEEP_MAX = 256
ADDRESSES_MAX = 8
PORTS_MAX = 16

# Magic and version, kind, cluster, signer, issuedAt; the fields follow.
_HEADER = struct.Struct(">9sB16s32sQ")
_MAGIC = b"PAIRSTMT\x01"
_CLUSTER_AT = slice(10, 26)

_PORT = re.compile(r"([a-z]{2})=([1-9][0-9]{0,4})")


class StatementError(ValueError):
    """Bytes are no statement; the text says which rule they break and quotes nothing of them."""


class UnknownKindError(StatementError):
    """A statement of a kind that this version lacks (CL-67)."""


class Found(Struct, frozen=True):
    """Kind 1: the signer founds a cluster called ``name`` and is its first member, the root of all trust in it.

    ``random`` is 16 bytes.
    """

    KIND: ClassVar[int] = 1
    node: str
    epoch: int
    leaf: bytes
    name: str
    random: bytes


class Admit(Struct, frozen=True):
    """Kind 2: the signer has seen a person prove the code on this node, and lets it in."""

    KIND: ClassVar[int] = 2
    node: str
    epoch: int
    leaf: bytes


class Join(Struct, frozen=True):
    """Kind 3: the signer wants to be in this cluster, as this incarnation."""

    KIND: ClassVar[int] = 3


class Remove(Struct, frozen=True):
    """Kind 4: ``incarnation`` is out. Of what it signed, the admissions in ``keep`` (statement ids) stay valid."""

    KIND: ClassVar[int] = 4
    incarnation: bytes
    keep: tuple[bytes, ...]


class Leave(Struct, frozen=True):
    """Kind 5: the signer is out. Of what it signed, the admissions in ``keep`` (statement ids) stay valid."""

    KIND: ClassVar[int] = 5
    keep: tuple[bytes, ...]


class Note(Struct, frozen=True):
    """Kind 7: the signer's name, addresses and ports (service and number); the highest counter wins."""

    KIND: ClassVar[int] = 7
    counter: int
    name: str
    addresses: tuple[str, ...]
    ports: tuple[tuple[str, int], ...]


Body: TypeAlias = Found | Admit | Join | Remove | Leave | Note

_KINDS = frozenset(each.KIND for each in (Found, Admit, Join, Remove, Leave, Note))


class Statement(Struct, frozen=True):
    """One statement, structurally sound; whether its signature is good is not known.

    ``id`` is the hash of the payload alone: signed anew, it is the same
    statement. ``signer`` and ``subject`` are incarnation ids; the subject is
    whom the statement lets in or puts out, else the signer itself.
    ``issued_at`` (epoch milliseconds) is what the signer's clock said: it is
    shown, and decides nothing.
    """

    payload: bytes
    signature: bytes
    id: bytes
    cluster: str
    signer: bytes
    subject: bytes
    issued_at: int
    body: Body

    @property
    def is_cut(self) -> bool:
        """Whether it ends an incarnation."""
        return isinstance(self.body, Remove | Leave)

    @property
    def keep(self) -> tuple[bytes, ...]:
        """The admissions that a cut leaves valid; nothing for any other kind."""
        return self.body.keep if isinstance(self.body, Remove | Leave) else ()


class Batch(Struct, frozen=True):
    """What was read of many: the statements, and how many were none."""

    statements: tuple[Statement, ...]
    malformed: int
    unknown: int


def found(body: Found, issued_at: int, sign: Sign) -> Statement:
    """The statement that begins a cluster. The cluster's id follows from it (CL-64)."""
    signer = incarnation_id(body.node, body.epoch, body.leaf)
    unnamed = _payload(body, bytes(16), signer, issued_at)
    return make(body, cluster_id(unnamed), signer, issued_at, sign)


def make(body: Body, cluster: str, signer: bytes, issued_at: int, sign: Sign) -> Statement:
    """``body`` as a signed statement. It goes through the same checks as one that came from elsewhere.

    Args:
        body: What is said; names are put into NFC.
        cluster: The cluster's id, as text.
        signer: Incarnation id of the node whose key is in ``sign``.
        issued_at: Epoch milliseconds.
        sign: Makes the signature.

    Raises:
        StatementError: Some field is out of its bounds.
    """
    try:
        payload = _payload(body, uuid.UUID(cluster).bytes, signer, issued_at)
    except (OverflowError, struct.error):
        raise StatementError("a number is out of its range") from None
    return decode(lp(payload, sign(payload)))


def encode(statement: Statement) -> bytes:
    """The form in which a statement is carried and stored."""
    return lp(statement.payload, statement.signature)


def decode(framed: bytes) -> Statement:
    """The statement in ``framed``: the one reader of statements, strict in everything (CL-66).

    Raises:
        UnknownKindError: Its form is that of a statement, its kind is new.
        StatementError: It is none.
    """
    if len(framed) > STATEMENT_BYTES_MAX:
        raise StatementError("it is too long")
    match _split(framed):
        case [payload, signature] if len(payload) >= _HEADER.size and len(signature) == SIGNATURE_BYTES:
            pass
        case _:
            raise StatementError("it is not a payload and a signature")
    magic, kind, cluster, signer, issued_at = _HEADER.unpack_from(payload)
    if magic != _MAGIC:
        raise StatementError("it does not begin as a statement of this version")
    if issued_at > NUMBER_MAX:
        raise StatementError("its instant is out of range")
    body = _body(kind, _split(payload[_HEADER.size :]))
    name = str(uuid.UUID(bytes=cluster))
    match body:
        case Found(node, epoch, leaf):
            subject = incarnation_id(node, epoch, leaf)
            if signer != subject or name != cluster_id(payload):
                raise StatementError("it founds a cluster of another id, or for another node")
        case Admit(node, epoch, leaf):
            subject = incarnation_id(node, epoch, leaf)
        case Remove(incarnation):
            subject = incarnation
        case _:
            subject = signer
    return Statement(payload, signature, sha256(payload).digest(), name, signer, subject, issued_at, body)


def read(batch: Iterable[bytes]) -> Batch:
    """All statements of ``batch``, in its order; what is none of a known kind is counted and dropped."""
    statements = []
    malformed = unknown = 0
    for framed in batch:
        try:
            statements.append(decode(framed))
        except UnknownKindError:
            unknown += 1
        except StatementError:
            malformed += 1
    return Batch(tuple(statements), malformed, unknown)


def lp(*items: bytes) -> bytes:
    """Each item behind its length (4 bytes, big-endian): no two lists of items give the same bytes."""
    return b"".join(len(item).to_bytes(4, "big") + item for item in items)


def incarnation_id(node: str, epoch: int, leaf: bytes) -> bytes:
    """The id of one admission of one node (CL-63): whoever knows it knows the leaf by its hash."""
    digest = sha256(leaf).digest()
    return sha256(lp(b"pair/incarnation/1", uuid.UUID(node).bytes, _number(epoch), digest)).digest()


def cluster_id(payload: bytes) -> str:
    """The id of the cluster that a `found` payload founds: a hash of it without its cluster field (CL-64)."""
    start, stop = _CLUSTER_AT.start, _CLUSTER_AT.stop
    derived = bytearray(sha256(payload[:start] + bytes(16) + payload[stop:]).digest()[:16])
    derived[6] = derived[6] & 0x0F | 0x80  # version 8 of RFC 9562: made by a rule of one's own
    derived[8] = derived[8] & 0x3F | 0x80
    return str(uuid.UUID(bytes=bytes(derived)))


def _payload(body: Body, cluster: bytes, signer: bytes, issued_at: int) -> bytes:
    return _HEADER.pack(_MAGIC, body.KIND, cluster, signer, issued_at) + _fields(body)


def _fields(body: Body) -> bytes:
    match body:
        case Found(node, epoch, leaf, name, random):
            return lp(uuid.UUID(node).bytes, _number(epoch), leaf, _text(name), random)
        case Admit(node, epoch, leaf):
            return lp(uuid.UUID(node).bytes, _number(epoch), leaf)
        case Join():
            return lp()
        case Remove(incarnation, keep):
            return lp(incarnation, b"".join(keep))
        case Leave(keep):
            return lp(b"".join(keep))
        case Note(counter, name, addresses, ports):
            services = ",".join(f"{service}={port}" for service, port in ports)
            return lp(_number(counter), _text(name), lp(*map(_text, addresses)), _text(services))


def _body(kind: int, items: list[bytes]) -> Body:
    match kind, items:
        case Found.KIND, [node, epoch, leaf, name, random]:
            founded = _read_name(name, CLUSTER_NAME_MAX)
            return Found(_read_node(node, leaf), _read_number(epoch), leaf, founded, _exactly(16, random))
        case Admit.KIND, [node, epoch, leaf]:
            return Admit(_read_node(node, leaf), _read_number(epoch), leaf)
        case Join.KIND, []:
            return Join()
        case Remove.KIND, [incarnation, keep]:
            return Remove(_exactly(32, incarnation), _read_keep(keep))
        case Leave.KIND, [keep]:
            return Leave(_read_keep(keep))
        case Note.KIND, [counter, name, addresses, ports]:
            return Note(
                _read_number(counter), _read_name(name, NAME_MAX), _read_addresses(addresses), _read_ports(ports)
            )
    if kind not in _KINDS:
        raise UnknownKindError("its kind is not known")
    raise StatementError("it has another number of fields than its kind")


def _split(data: bytes) -> list[bytes]:
    items = []
    at = 0
    while at < len(data):
        begin = at + 4
        at = begin + int.from_bytes(data[at:begin], "big")
        if at > len(data):
            raise StatementError("an item is cut short")
        items.append(data[begin:at])
    return items


def _exactly(size: int, item: bytes) -> bytes:
    if len(item) != size:
        raise StatementError("a field has the wrong length")
    return item


def _number(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _read_number(item: bytes) -> int:
    number = int.from_bytes(_exactly(8, item), "big")
    if not 1 <= number <= NUMBER_MAX:
        raise StatementError("a number is out of its range")
    return number


def _text(text: str) -> bytes:
    return unicodedata.normalize("NFC", text).encode()


def _read_text(item: bytes) -> str:
    try:
        return item.decode()
    except UnicodeDecodeError:
        raise StatementError("a text is not UTF-8") from None


def _read_name(item: bytes, most: int) -> str:
    # Whether it is NFC is not asked: that depends on the reader's version of Unicode, and all must judge alike.
    name = _read_text(item)
    if not 1 <= len(name) <= most or any(unicodedata.category(each) == "Cc" for each in name):
        raise StatementError("a name is empty, too long or has control characters")
    return name


def _read_node(item: bytes, leaf: bytes) -> str:
    node = str(uuid.UUID(bytes=_exactly(16, item)))
    try:
        named = _leaf_node(leaf)
    except LeafError as error:
        raise StatementError(f"its certificate is no leaf: {error}") from None
    if named != node:
        raise StatementError("its leaf names another node")
    return node


# Few leaves stand in many statements, and to check one takes a signature.
_leaf_node = lru_cache(maxsize=256)(check_leaf)


def _read_keep(item: bytes) -> tuple[bytes, ...]:
    keep = tuple(item[at : at + 32] for at in range(0, len(item), 32))
    if len(item) % 32 or len(keep) > KEEP_MAX:
        raise StatementError("its list of kept admissions has the wrong length")
    if any(one >= other for one, other in itertools.pairwise(keep)):
        raise StatementError("its list of kept admissions is not sorted, or repeats one")
    return keep


def _read_addresses(item: bytes) -> tuple[str, ...]:
    addresses = tuple(map(_read_text, _split(item)))
    if len(addresses) > ADDRESSES_MAX or not all(map(_is_address, addresses)):
        raise StatementError("its addresses are too many, or one is no IP address without a zone")
    return addresses


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text


def _read_ports(item: bytes) -> tuple[tuple[str, int], ...]:
    text = _read_text(item)
    matches = [_PORT.fullmatch(each) for each in text.split(",")] if text else []
    ports = tuple((each[1], int(each[2])) for each in matches if each is not None)
    if len(ports) != len(matches) or len(ports) > PORTS_MAX or len(dict(ports)) != len(ports):
        raise StatementError("its ports are too many, repeated or not of the form service=port")
    if any(port > 65535 for _, port in ports):
        raise StatementError("a port is out of its range")
    return ports

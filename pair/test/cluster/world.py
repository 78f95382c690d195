"""Made-up nodes that sign statements: with their real keys, or with a stand-in where only order matters."""

from __future__ import annotations

import os
import random
import uuid
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from msgspec import Struct
from msgspec.structs import replace

from pair.cluster import signing
from pair.cluster.cutting import departure, removal
from pair.cluster.membership import evaluate
from pair.cluster.statements import (
    Admit,
    Found,
    Join,
    Leave,
    Note,
    Remove,
    Statement,
    found,
    incarnation_id,
    make,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pair.cluster.membership import View
    from pair.cluster.signing import Verify
    from pair.cluster.statements import Body, Sign

SETS = 20_000 if os.environ.get("PAIR_FAULTS") else 500
"""How many random sets of statements a property is tried on (QA-14)."""


def make_key(seed: str) -> Ed25519PrivateKey:
    """A key that is the same in each run."""
    return Ed25519PrivateKey.from_private_bytes(sha256(seed.encode()).digest())


def make_leaf(node: str, key: Ed25519PrivateKey, serial: int = 1) -> bytes:
    """A leaf that is the same in each run."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node)])
    names = [x509.UniformResourceIdentifier(f"urn:uuid:{node}")]
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(datetime(2026, 1, 1))
        .not_valid_after(datetime(2036, 1, 1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, None)
        .public_bytes(Encoding.DER)
    )


class Player(Struct, frozen=True):
    """One incarnation of a made-up node."""

    node: str
    leaf: bytes
    key: Ed25519PrivateKey
    epoch: int = 1

    @property
    def id(self) -> bytes:
        return incarnation_id(self.node, self.epoch, self.leaf)

    def again(self, epoch: int) -> Player:
        """The same node, let in another time."""
        return replace(self, epoch=epoch)

    def sign(self, payload: bytes) -> bytes:
        return signing.sign(self.key, payload)

    def stand_in(self, payload: bytes) -> bytes:
        return stand_in(self.leaf, payload)


def player(name: str, key: str = "") -> Player:
    """The node called ``name``; with ``key``, another that claims its UUID."""
    node = str(uuid.UUID(bytes=sha256(name.encode()).digest()[:16], version=4))
    secret = make_key(name + key)
    return Player(node, make_leaf(node, secret), secret)


def stand_in(leaf: bytes, payload: bytes) -> bytes:
    """What stands for a signature where only order matters: it names signer and payload, and can be checked."""
    return sha256(leaf + payload).digest() * 2


def check(leaf: bytes, payload: bytes, signature: bytes) -> bool:
    """Whether a stand-in is good."""
    return signature == stand_in(leaf, payload)


class World:
    """A cluster and the statements that its nodes may make of it; each instant is one later than the last."""

    def __init__(self, founder: Player, name: str = "home", *, real: bool = False) -> None:
        self._real = real
        self.verify: Verify = signing.verify if real else check
        self.now = 0
        body = Found(founder.node, founder.epoch, founder.leaf, name, bytes(16))
        self.root = found(body, self.now, self._sign(founder))
        self.cluster = self.root.cluster

    def _sign(self, by: Player) -> Sign:
        return by.sign if self._real else by.stand_in

    def say(self, by: Player, body: Body) -> Statement:
        self.now += 1
        return make(body, self.cluster, by.id, self.now, self._sign(by))

    def admit(self, by: Player, who: Player) -> Statement:
        return self.say(by, Admit(who.node, who.epoch, who.leaf))

    def join(self, who: Player) -> Statement:
        return self.say(who, Join())

    def enter(self, by: Player, *those: Player) -> list[Statement]:
        """Each is admitted by ``by`` and joins."""
        return [each for who in those for each in (self.admit(by, who), self.join(who))]

    def remove(self, by: Player, who: Player, *keep: Statement) -> Statement:
        return self.say(by, Remove(who.id, tuple(sorted(each.id for each in keep))))

    def leave(self, who: Player, *keep: Statement) -> Statement:
        return self.say(who, Leave(tuple(sorted(each.id for each in keep))))

    def note(self, who: Player, counter: int, name: str = "x", addresses: tuple[str, ...] = ()) -> Statement:
        return self.say(who, Note(counter, name, addresses, ()))

    def put_out(self, by: Player, view: View, *nodes: str) -> list[Statement]:
        """What a node that is honest signs to remove ``nodes``."""
        return [self.say(by, each) for each in removal(view, nodes)]

    def go(self, who: Player, view: View) -> Statement:
        """What a node that is honest signs to leave."""
        member = view.signs_as(who.leaf)
        assert member is not None
        return self.say(who.again(member.epoch), departure(view, member))

    def view(self, statements: Iterable[Statement]) -> View:
        return evaluate(statements, self.cluster, self.verify)


A, B, C, D, E, F = map(player, "ABCDEF")
B_TWIN = player("B", "twin")
"""Another key that claims the UUID of B."""

CAST = tuple(each.again(epoch) for epoch in (1, 2, 3) for each in (A, B, C, D, E, F, B_TWIN))


def play(script: bytes, world: World, statements: list[Statement], actors: Sequence[Player] = CAST) -> None:
    """Add to ``statements`` what ``script`` makes ``actors`` say, four bytes a turn, much of it dishonest.

    Mostly those act who have come in before, so that there are chains of admissions and not strangers only.
    """
    present = [each for each in actors if each.id == world.root.signer] or list(actors[:1])
    for at in range(0, len(script) - 3, 4):
        act, one, other, more = script[at : at + 4]
        by = actors[one % len(actors)] if one >= 224 else present[one % len(present)]
        who = CAST[other % len(CAST)]
        pick = random.Random(more)
        match act % 32:
            case 0 | 1 | 2:
                statements.append(world.admit(by, who))
            case 3 | 4:
                statements.append(world.join(by))
            case 5 | 6:
                statements.append(world.remove(by, who, *_some(pick, statements)))
            case 7:
                statements.append(world.leave(by, *_some(pick, statements)))
            case 8 | 9:
                statements.append(world.note(by, 1 + more % 4, f"n{other}"))
            case 10 | 11 | 12:
                view = world.view(statements)
                if (member := view.signs_as(by.leaf)) is not None and who.node != by.node:
                    statements += world.put_out(by.again(member.epoch), view, who.node)
            case 13:
                view = world.view(statements)
                if view.signs_as(by.leaf) is not None:
                    statements.append(world.go(by, view))
            case 14 | 15 if statements:
                forged = pick.choice(statements)
                statements.insert(pick.randrange(len(statements)), replace(forged, signature=bytes(64)))
            case 16:
                elsewhere = World(by, "elsewhere")
                statements += [elsewhere.root, elsewhere.admit(by, who), elsewhere.remove(by, who)]
            case _:
                statements.append(world.admit(by, who))
                if who in actors:
                    statements.append(world.join(who))
                    present.append(who)


def _some(pick: random.Random, statements: Sequence[Statement]) -> list[Statement]:
    """Some of the admissions, mostly few; all of them now and then."""
    admissions = sorted(
        {each.id: each for each in statements if isinstance(each.body, Admit)}.values(), key=lambda each: each.id
    )
    share = pick.choice((0.0, 0.3, 0.7, 1.0))
    return [each for each in admissions if pick.random() < share]

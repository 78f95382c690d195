"""An inviter and a joiner in one process, and a wire between them that a test has in its hands."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar

from pair.cluster.identity import mint
from pair.cluster.leaf import check_leaf
from pair.privacy import Secret
from pair.protocols.pairing import (
    Admit,
    Answer,
    Ended,
    InviterExchange,
    Join,
    JoinerExchange,
    Offer,
    Party,
    Send,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pair.protocols.pairing import CodeKind, Peer, Reason

T = TypeVar("T")

CODE = "004217"
WRONG = "004218"
EPOCH = 1_700_000_000_000
CLUSTER = "b7d0f6f0-0a3c-8f41-9d27-5f0c2f6f1a10"
OFFERED = (b"found", b"note of desk", b"admit")
RETURNED = (b"join", b"note of rack")


def party(name: str) -> Party:
    """A node with a new identity."""
    identity = mint(EPOCH / 1000)
    return Party(identity.uuid, name, identity.key, identity.leaf)


DESK, RACK, MALLORY = party("desk"), party("rack"), party("mallory")


class Draws:
    """Randomness that a seed gives; how much was asked for is kept.

    Attributes:
        sizes: The size of each draw.
    """

    def __init__(self, seed: str) -> None:
        self.sizes: list[int] = []
        self._seed = seed

    def __call__(self, size: int) -> bytes:
        self.sizes.append(size)
        blocks = (sha256(f"{self._seed} {len(self.sizes)} {at}".encode()).digest() for at in range(0, size, 32))
        return b"".join(blocks)[:size]


class Side:
    """What one side was told to do, in order. A test stands for its store and its people.

    Attributes:
        done: All actions so far.
    """

    def __init__(self) -> None:
        self.done: list[Any] = []

    def do(self, actions: Iterable[Any]) -> None:
        """Keep what a call gave."""
        self.done += actions

    def all(self, kind: type[T]) -> list[T]:
        """The actions of one kind."""
        return [each for each in self.done if isinstance(each, kind)]

    def last(self, kind: type[T]) -> T:
        """The newest of them."""
        return self.all(kind)[-1]


class Couple:
    """Both sides of one invitation.

    Attributes:
        inviter, joiner: The exchanges.
        here, there: What the inviter and the joiner were told to do.
    """

    def __init__(
        self,
        kind: CodeKind = "pin",
        code: str = CODE,
        inviter: Party = DESK,
        joiner: Party = RACK,
        seed: str = "couple",
        admits: Callable[[Peer], Reason | None] = lambda _: None,
        joins: Callable[[Peer, Offer], Reason | None] = lambda _, __: None,
        checks: Callable[[bytes], str] = check_leaf,
    ) -> None:
        self.here, self.there = Side(), Side()
        self.draws = Draws(f"{seed} inviter"), Draws(f"{seed} joiner")
        self.inviter = InviterExchange(inviter, kind, Secret(code), checks, admits, self.draws[0])
        self.joiner = JoinerExchange(joiner, self.inviter.hello, checks, joins, self.draws[1])

    def greet(self) -> None:
        """Bring the joiner's hello home: the first poll is made, and not yet delivered."""
        self.here.do(self.inviter.greeted(self.joiner.reply))

    def ask(self) -> None:
        """Deliver the newest request."""
        request = self.here.last(Send)
        self.there.do(self.joiner.received(request.body, request.mac))

    def reply(self) -> None:
        """Deliver the newest answer."""
        answer = self.there.last(Answer)
        self.here.do(self.inviter.received(answer.body, answer.mac))

    def poll(self) -> None:
        """Greet, and leave the first poll open at the joiner."""
        self.greet()
        self.ask()

    def type(self, code: str = CODE) -> None:
        """A person types a code at the joiner."""
        self.there.do(self.joiner.prove(Secret(code), EPOCH))

    def store_here(self) -> None:
        """What the inviter asked for is stored."""
        self.here.do(self.inviter.admitted(CLUSTER, "desk's cluster", OFFERED))

    def store_there(self) -> None:
        """What the joiner asked for is stored."""
        self.there.do(self.joiner.joined(RETURNED))

    def prove(self, code: str = CODE) -> None:
        """All up to the joiner's proof at the inviter."""
        self.poll()
        self.type(code)
        self.reply()

    def pair(self) -> None:
        """The whole, without a hitch."""
        self.prove()
        self.store_here()
        self.ask()
        self.store_there()
        self.reply()

    @property
    def states(self) -> tuple[str, str]:
        """Where the inviter and the joiner stand."""
        return self.inviter.state, self.joiner.state

    @property
    def ends(self) -> tuple[list[Ended], list[Ended]]:
        """What both were told of the end."""
        return self.here.all(Ended), self.there.all(Ended)

    @property
    def stored(self) -> int:
        """How often either was told to store anything."""
        return len(self.here.all(Admit)) + len(self.there.all(Join))

"""B-pin, B-eval: what it costs to know a peer at each request, and the members by all statements that there can be."""

from __future__ import annotations

import random
import statistics
import sys
import time
import uuid
from functools import partial
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct
from msgspec.structs import replace
from twisted.internet.task import Clock

from benchmarks._report import Bound, Report, main
from pair.cluster import signing
from pair.cluster.leaf import make_leaf
from pair.cluster.membership import MEMBERS_MAX, evaluate
from pair.cluster.merging import CUTS_MAX, OTHERS_MAX, merge
from pair.cluster.pins import PeerLeaf, PinTable
from pair.cluster.statements import Admit, Body, Found, Join, Note, Remove, Statement, encode, incarnation_id, make
from pair.cluster.statements import found as make_root
from pair.cluster.transitions import weigh
from pair.errors.book import ErrorBook
from pair.errors.registry import Registry
from pair.surfaces.callers import Callers
from pair.surfaces.rules import Peer

if TYPE_CHECKING:
    from collections.abc import Callable

    from pair.cluster.membership import View

NODES = 4 * MEMBERS_MAX
"""That come and go, each more than once."""

ENTRIES = (OTHERS_MAX - 2) // 3
"""Each is an admission, a join and a note; so the founder's two statements leave room for so many."""

REMOVERS = 3
"""Members that remove the same node at once."""

ADDRESS = "192.168.1.20"


class Node(Struct, frozen=True):
    """A node that never was, as it was let in one time."""

    uuid: str
    key: Ed25519PrivateKey
    leaf: bytes
    epoch: int = 0

    @property
    def incarnation(self) -> bytes:
        """The id of that admission."""
        return incarnation_id(self.uuid, self.epoch, self.leaf)


class History:
    """A cluster that let nodes in, removed them and let them in again until it held all statements that it can.

    Anybody lets in and removes anybody; who removes a node keeps those that it had let in.

    Attributes:
        cluster: its id.
        statements: all but the last note of the founder, which is ``news``.
    """

    def __init__(self) -> None:
        self._chance = random.Random(1)
        self._outside = [_node(number) for number in range(NODES)]
        self._admissions: dict[bytes, list[bytes]] = {}
        founder = replace(self._outside.pop(), epoch=1)
        body = Found(founder.uuid, founder.epoch, founder.leaf, "home", bytes(16))
        root = make_root(body, 0, partial(signing.sign, founder.key))
        self.cluster = root.cluster
        self.statements = [root]
        self.say(founder, _note(1))
        self._inside = [founder]
        ended = []
        for _ in range(ENTRIES):
            if len(self._inside) == MEMBERS_MAX:
                ended.append(self._remove())
            self._enter()
        while len(self.statements) < CUTS_MAX + OTHERS_MAX:
            self._cut(self._chance.choice(ended), 1)
        self.news = self.say(self._inside[-1], _note(2))
        self.statements.pop()

    def say(self, by: Node, body: Body) -> Statement:
        """Let a node sign something."""
        said = make(body, self.cluster, by.incarnation, len(self.statements), partial(signing.sign, by.key))
        self.statements.append(said)
        return said

    def _enter(self) -> None:
        by = self._chance.choice(self._inside)
        place = self._chance.randrange(len(self._outside))
        node = self._outside.pop(place)
        node = replace(node, epoch=node.epoch + 1)
        admission = self.say(by, Admit(node.uuid, node.epoch, node.leaf))
        self._admissions.setdefault(by.leaf, []).append(admission.id)
        self.say(node, Join())
        self.say(node, _note(1))
        self._inside.append(node)

    def _remove(self) -> Node:
        node = self._inside.pop(self._chance.randrange(len(self._inside)))
        self._cut(node, REMOVERS)
        self._outside.append(node)
        return node

    def _cut(self, node: Node, by: int) -> None:
        keep = tuple(sorted(self._admissions.get(node.leaf, ())))
        for each in self._chance.sample(self._inside, by):
            self.say(each, Remove(node.incarnation, keep))


class Trust:
    """What a node with one view has to say of its peers.

    Attributes:
        pins: who is who.
    """

    def __init__(self, view: View, own: Node) -> None:
        self.pins = PinTable(view, own.uuid, own.leaf)

    def evidence(self, peer: PeerLeaf) -> tuple[bytes, ...]:
        """Why ``peer`` is no member."""
        return tuple(map(encode, self.pins.evidence(peer)))


def _node(number: int) -> Node:
    name = f"{number:08x}-0000-4000-8000-000000000000"
    key = Ed25519PrivateKey.from_private_bytes(number.to_bytes(32, "big"))
    return Node(str(uuid.UUID(name)), key, make_leaf(name, key, 0.0))


def _note(counter: int) -> Note:
    return Note(counter, "rack", (ADDRESS,), (("cl", 14321),))


def _cpu(call: Callable[[], object], number: int) -> float:
    """Seconds of CPU of one call, of so many."""
    begun = time.process_time()
    for _ in range(number):
        call()
    return (time.process_time() - begun) / number


def _check_all(callers: Callers, peers: list[Peer]) -> None:
    for each in peers:
        callers.objection(each)


def measure(quick: bool) -> Report:
    """Take the figures."""
    history = History()
    verify = signing.remembering(signing.verify)
    store = merge((), history.statements, history.cluster, verify, bounded=False).kept
    view = evaluate(store, history.cluster, verify)
    cuts = sum(each.is_cut for each in store)
    assert (len(view.members), cuts, len(store) - cuts) == (MEMBERS_MAX, CUTS_MAX, OTHERS_MAX), "it is full"

    own = _node(NODES)
    errors = ErrorBook(own.uuid, Registry(()), lambda: 0)
    callers = Callers(Clock(), own.uuid, Trust(view, own), lambda address: False, errors)
    # Copies, for what a peer shows is never the very object that the table holds.
    members = [Peer(ADDRESS, tls=True, leaf=PeerLeaf.of(bytes(bytearray(each.leaf)))) for each in view.members]
    assert all(callers.objection(each) is None for each in members), "they are members"

    news = (encode(history.news),)
    checks, evaluations, changes = [], [], []
    for _ in range(3 if quick else 9):
        checks.append(1e6 * _cpu(partial(_check_all, callers, members), 200) / len(members))
        evaluations.append(1e3 * _cpu(partial(evaluate, store, history.cluster, verify), 3))
        changes.append(1e3 * _cpu(partial(weigh, view, store, news, None, verify), 2))
    figures = {
        "check": {"cpu_us": statistics.median(checks)},
        "evaluation": {"cpu_ms": statistics.median(evaluations)},
        "one statement more": {"cpu_ms": statistics.median(changes)},
    }
    bounds = (
        Bound("pin_us", figures["check"]["cpu_us"], must=20, goal=5),
        Bound("eval_ms", figures["evaluation"]["cpu_ms"], must=50, goal=15),
    )
    return Report("B-pin, B-eval", figures, bounds, {"python": sys.version.split()[0]})


if __name__ == "__main__":
    main(measure)

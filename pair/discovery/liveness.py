"""Who is alive: scans, misses, evidence, rounds of checks (discovery page, sections 9 and 10).

Pure. It is told what was heard and what came of checks, and says what is to be
done; all instants are seconds on one monotonic clock. A node is known here by
the key of its entry. It must not know addresses, nor how a check is made.
"""

from __future__ import annotations

import math

from msgspec import Struct

from pair.discovery.watched import Watched
from pair.records.nodes import EvidenceKind, Presence

SCAN_SECONDS = 5.0
SCAN_JITTER = 0.5
"""From one scan to the next, and by how much more or less, at random (DS-54)."""

SILENT_ROUNDS = 2
GOODBYE_SECONDS = 2.0
"""From a goodbye's first round to its second (DS-61); goodbyes between them say nothing new."""

_PROVEN_SECONDS = 30.0
"""So long after a member or a manual node has proven that it is there, its record alone shows that it still is."""

_ACCEPTED_SECONDS = 120.0
"""So long after a stranger was heard, or named itself, a connection that is accepted shows that it is there."""

_HEARD_SECONDS = 5.0
_QUESTION_SECONDS = 30.0
_EMPTY_SCANS = 6
_GRACE_SCANS = 2
_WAKE_SECONDS = 5.0


class Check(Struct, frozen=True):
    """Ask the node directly now, and tell :meth:`Liveness.checked` what came of it (DS-56)."""

    node: str


class Turned(Struct, frozen=True):
    """The node's presence is another."""

    node: str
    old: Presence
    new: Presence


class Lost(Struct, frozen=True):
    """What multicast said of the node is to be dropped; one without another claim is known here no more (DS-57)."""

    node: str


Action = Check | Turned | Lost


class Scan(Struct, frozen=True):
    """What a scan comes to. ``ask``: one question is to be sent."""

    ask: bool
    actions: tuple[Action, ...]


class Sign(Struct, frozen=True):
    """The last sign of life of a node; before the first, ``kind`` is None.

    ``at`` is when it came; ``proven_at`` when the last came that proves who
    the node is (DS-45), or when it became known.
    """

    kind: EvidenceKind | None
    at: float | None
    proven_at: float


class Clocks(Struct, frozen=True):
    """One reading of the clocks, in seconds; ``boot`` goes on during sleep and is None where there is none."""

    wall: float
    monotonic: float
    boot: float | None = None


def woke(before: Clocks, after: Clocks) -> bool:
    """Whether the machine slept between two readings: its clocks do not agree on how long it was (DS-27)."""
    elapsed = [after.wall - before.wall, after.monotonic - before.monotonic]
    if before.boot is not None and after.boot is not None:
        elapsed.append(after.boot - before.boot)
    return max(elapsed) - min(elapsed) > _WAKE_SECONDS


class Liveness:
    """The nodes that are known besides this one, and whether they are there.

    Each call but those that only look returns what is to be done, in order.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, Watched] = {}
        self._checking: set[str] = set()
        self._asked = -math.inf
        self._asking = False
        self._empty = 0
        self._grace = 0

    # What is known of nodes.

    def presence(self, key: str) -> Presence:
        """That of a node; of one that is not known, ``offline``."""
        node = self._nodes.get(key)
        return "offline" if node is None else node.presence

    def sign(self, key: str) -> Sign | None:
        """When and how a node last showed that it is alive; None: it is not known."""
        node = self._nodes.get(key)
        return None if node is None else Sign(node.kind, node.last, node.proven_at)

    def keep(self, key: str, announced: bool, lasting: bool, now: float) -> list[Action]:
        """A node is known, by these claims; by none: it is so no more.

        A node that is new, and that multicast alone tells of, is online; any
        other is offline until it shows that it is there, and is checked at once.

        Args:
            key: The node's.
            announced: By a record heard from multicast.
            lasting: By the roster or by hand: it stays when it falls silent (DS-41).
            now: The instant.
        """
        node = self._nodes.get(key)
        if not (announced or lasting):
            self._nodes.pop(key, None)
            self._checking.discard(key)
            return []
        if node is None:
            return self._meet(Watched(key, now), announced, lasting, now)
        node.announced, node.lasting = announced, lasting
        # Multicast alone may tell of it from now on, and of those none is offline.
        return self._turn(node, "online") if node.presence == "offline" and not lasting else []

    def rekey(self, old: str, new: str) -> None:
        """The key of a node is another (DS-74). One that is known by the new one already stays as it is.

        What came of a check that is under way is told by the new key.
        """
        node = self._nodes.pop(old, None)
        if node is not None:
            node.key = new
            self._nodes.setdefault(new, node)
        if old in self._checking:
            self._checking.discard(old)
            self._checking.add(new)

    # Signs of life.

    def heard(self, key: str, now: float) -> list[Action]:
        """The node's SRV or TXT arrived, asked for or not.

        Anybody can send it: it does not prove that a node is there that was
        gone, nor of one that is known otherwise that it still is (DS-55).
        """
        node = self._nodes.get(key)
        if node is None:
            return []
        node.heard_at = now
        if node.presence == "offline" or (node.lasting and node.presence == "suspect"):
            node.heard = node.heard or node.presence == "offline"
            node.hurry(now)
            return self._check_due(node, now)
        if node.lasting and now - node.proven_at >= _PROVEN_SECONDS:
            return []
        node.heard = True
        return self._alive(node, "mdns", now)

    def note(self, key: str, kind: EvidenceKind, now: float) -> list[Action]:
        """There is evidence for a node, proven by its identity; multicast is told by :meth:`heard`."""
        node = self._nodes.get(key)
        if node is None:
            return []
        node.evidence[kind] = node.proven_at = now
        return self._alive(node, kind, now)

    def checked(self, key: str, answer: EvidenceKind | None, now: float) -> list[Action]:
        """A check has ended.

        Args:
            key: The node's.
            answer: ``probe_ni``, ``probe_em``, or None for silence. Of a node
                that is known by hand and is no member, only node-info counts.
            now: The instant.
        """
        self._checking.discard(key)
        node = self._nodes.get(key)
        if node is None:
            return []
        began, node.asked_at = node.asked_at, now
        if answer == "probe_em" and not node.lasting and now - max(node.heard_at, node.proven_at) >= _ACCEPTED_SECONDS:
            answer = None  # anybody's port may accept, and what a record says of one is not to be asked for ever
        if answer is not None:
            if answer == "probe_ni" or node.lasting:
                node.proven_at = now
            return self._alive(node, answer, now)
        if node.presence == "offline":
            node.wait(now)
        elif node.presence == "suspect":
            if node.last is None or node.last <= began:
                node.silent += 1
            if node.silent >= SILENT_ROUNDS:
                return self._end(node, now)
            if node.leaving:
                node.due = max(now, began + GOODBYE_SECONDS)
        return []

    def break_off(self, now: float) -> None:
        """The checks under way will never end: they are due again, as if they had not begun."""
        for key in self._checking & self._nodes.keys():
            self._nodes[key].due = now
        self._checking.clear()

    # Reasons for doubt.

    def goodbye(self, key: str, now: float) -> list[Action]:
        """The node's record was taken back, by itself or by a liar (DS-61).

        It is sent several times, so a further one within the time of the two
        rounds says nothing new.
        """
        node = self._nodes.get(key)
        if node is None or not node.announced or now - node.left_at < GOODBYE_SECONDS:
            return []
        node.left_at = now
        if node.presence == "offline":
            return self._unannounce(node)
        node.leaving, node.silent, node.due = True, 0, now
        return [*self._turn(node, "suspect"), *self._check_due(node, now)]

    def doubt(self, key: str) -> list[Action]:
        """The last live feed from the node has closed, or another answers at its address (DS-69).

        What it showed before counts no more, or a node that has just died
        would be there again at the next scan; inference, which may go on
        without a line for long, does.
        """
        node = self._nodes.get(key)
        if node is None:
            return []
        node.evidence = {kind: at for kind, at in node.evidence.items() if kind == "inference"}
        return self._turn(node, "suspect") if node.presence == "online" else []

    # What time brings.

    def scan(self, now: float) -> Scan:
        """One scan: what was not heard since the last is missed, and who is missed too often is checked."""
        grace = self._grace > 0
        self._grace -= grace
        excused = grace or self._hears_nobody()
        actions: list[Action] = []
        for node in self._nodes.values():
            actions += self._look(node, not (excused if node.announced else grace), now)
        announced = [each for each in self._nodes.values() if each.announced]
        quiet = announced and all(now - each.heard_at < _HEARD_SECONDS for each in announced)
        ask = not quiet or now - self._asked >= _QUESTION_SECONDS
        self._asking = ask
        if ask:
            self._asked = now
        return Scan(ask, tuple(actions))

    def due(self, now: float) -> list[Action]:
        """The checks whose time has come: of nodes that are offline, and second ones after goodbyes."""
        return [action for node in self._nodes.values() for action in self._check_due(node, now)]

    @property
    def next_due(self) -> float | None:
        """When :meth:`due` is to be called next; None: not until something else happens."""
        return min((each.due for each in self._nodes.values() if each.due is not None), default=None)

    def moved(self, now: float) -> list[Action]:
        """An interface of this host is another: two scans charge nothing, and all waits end (DS-59, DS-62)."""
        self._grace = _GRACE_SCANS
        for node in self._nodes.values():
            if node.presence == "offline":
                node.hurry(now)
        return self.due(now)

    def woken(self, now: float) -> list[Action]:
        """This host has slept: as :meth:`moved`, and what was missed does not count (DS-27)."""
        for node in self._nodes.values():
            node.misses = node.silent = 0
        return self.moved(now)

    def found(self, key: str, now: float) -> list[Action]:
        """There is a new address for a node: if it is offline, it is checked at once (DS-62)."""
        node = self._nodes.get(key)
        if node is None or node.presence != "offline":
            return []
        node.hurry(now)
        return self._check_due(node, now)

    # How it is done.

    def _meet(self, node: Watched, announced: bool, lasting: bool, now: float) -> list[Action]:
        self._nodes[node.key] = node
        node.announced, node.lasting = announced, lasting
        if not lasting:
            node.presence = "online"
            return self.heard(node.key, now)
        node.due = now
        return self._check_due(node, now)

    def _hears_nobody(self) -> bool:
        """Whether it is rather this host that hears nothing than all others who are gone (DS-59).

        A scan that asked nothing need not hear anything, and counts as any other.
        """
        present = [each for each in self._nodes.values() if each.announced and each.presence != "offline"]
        nobody = self._asking and len(present) >= 2 and not any(each.heard for each in present)
        self._empty = self._empty + 1 if nobody else 0
        return 1 <= self._empty <= _EMPTY_SCANS

    def _look(self, node: Watched, charged: bool, now: float) -> list[Action]:
        """What a scan comes to for one node."""
        lives = node.lives(now)
        missed = node.miss(charged) and not lives
        if node.leaving:
            return []
        if node.presence == "offline":
            return self._unannounce(node) if missed else []
        if node.presence == "suspect":
            return self._turn(node, "online") if lives else self._check(node, now)
        return [*self._turn(node, "suspect"), *self._check(node, now)] if missed else []

    def _alive(self, node: Watched, kind: EvidenceKind, now: float) -> list[Action]:
        if node.leaving and kind == "inbound":
            # It may have asked that just before it went, and be overtaken by its goodbye; the rounds will show.
            return []
        node.kind, node.last = kind, now
        node.misses = 0
        return [] if node.presence == "online" else self._turn(node, "online")

    def _turn(self, node: Watched, presence: Presence) -> list[Action]:
        old, node.presence = node.presence, presence
        if presence != "suspect":
            node.leaving, node.due = False, None
            node.misses = node.waits = 0
        node.silent = 0
        return [] if old == presence else [Turned(node.key, old, presence)]

    def _end(self, node: Watched, now: float) -> list[Action]:
        """It does not answer any more (DS-57)."""
        lost = self._unannounce(node)
        if not node.lasting:
            del self._nodes[node.key]
            return lost
        turned = self._turn(node, "offline")
        node.wait(now)
        return [*lost, *turned]

    def _unannounce(self, node: Watched) -> list[Action]:
        was, node.announced = node.announced, False
        return [Lost(node.key)] if was else []

    def _check_due(self, node: Watched, now: float) -> list[Action]:
        if node.due is None or node.due > now:
            return []
        node.due = None
        return self._check(node, now)

    def _check(self, node: Watched, now: float) -> list[Action]:
        if node.key in self._checking:
            return []
        self._checking.add(node.key)
        node.asked_at = now
        return [Check(node.key)]

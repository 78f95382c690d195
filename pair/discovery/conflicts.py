"""Two nodes where there should be one, and one where there were two (discovery page, section 11; DS-49).

Pure. It says what to look into and what the findings mean; nothing is asked
here, and what a record alone says decides nothing. Instants are seconds on one
monotonic clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from pair.records.nodes import NodeEntry

if TYPE_CHECKING:
    from collections.abc import Iterable

UNPROVEN_SECONDS = 300.0
"""Only a node that nobody has proven to be there for so long may have been replaced (DS-63)."""

CLASH_SECONDS = 10.0
"""What is seen of one UUID within so long is put together (DS-67)."""

CLASH_KEPT_SECONDS = 600.0
"""A clash stands for so long after it was last seen."""

MISMATCH_SECONDS = 60.0
"""A member that names another cluster for so long is told of (DS-49)."""

_SIGHTINGS_MAX = 16
_UUIDS_MAX = 512

Verdict = Literal["keep", "drop", "offline"]


class Party(Struct, frozen=True):
    """A node that may have been replaced; ``proven_at`` is that of its :class:`~pair.discovery.liveness.Sign`."""

    entry: NodeEntry
    proven_at: float


class Nomination(Struct, frozen=True):
    """The node ``old`` may be ``new`` now, since both have one name and ``address``; to be proven (DS-63)."""

    old: str
    new: str
    address: str


def nominate(new: NodeEntry, others: Iterable[Party], now: float) -> tuple[Nomination, ...]:
    """Which nodes ``new`` may have taken the place of (DS-63). It changes nothing.

    Self neither supersedes nor is superseded (DS-65), and a node whose UUID is
    not known has no place to be taken.
    """
    if new.me or new.uuid is None:
        return ()
    found = []
    for each in others:
        old = each.entry
        shared = next((address for address in new.ips if address in old.ips), None)
        if shared is None or old.name != new.name or old.me or old.uuid in (None, new.uuid):
            continue
        if now - each.proven_at >= UNPROVEN_SECONDS:
            found.append(Nomination(old.key, new.key, shared))
    return tuple(found)


def judge(nomination: Nomination, names: str | None, answered: bool, member: bool) -> Verdict:
    """What becomes of the old node (DS-64, DS-65).

    Args:
        nomination: The two.
        names: The UUID that node-info names at the shared address, at the
            newcomer's port; None: nothing answers there.
        answered: Whether the old UUID answers at any of its candidate
            addresses, or has shown since that it is there.
        member: Whether the old one is a member, which is never superseded.

    Returns:
        ``drop``: its multicast claim is to be dropped. ``offline``: it stays,
        with the warning ``replaced_by:<uuid>``. ``keep``: nothing is proven.
    """
    if answered or names != nomination.new:
        return "keep"
    return "offline" if member else "drop"


class Sighting(Struct, frozen=True):
    """An answer in the name of a UUID: from which address, with which nonce of its process, by which leaf."""

    uuid: str
    at: float
    address: str
    instance: str | None = None
    leaf: str | None = None


class Clashes:
    """Which UUIDs more than one machine answers by (DS-67, DS-68)."""

    def __init__(self, me: str, instance: str) -> None:
        """None yet.

        Args:
            me: Our own UUID.
            instance: Our own nonce.
        """
        self._me = me
        self._instance = instance
        self._seen: dict[str, tuple[Sighting, ...]] = {}
        self._until: dict[str, float] = {}

    def see(self, sighting: Sighting, own_address: bool = False) -> bool:
        """Somebody answered; whether that shows a clash.

        Args:
            sighting: The answer of a node-info or of a handshake.
            own_address: Whether the address is one of ours.
        """
        if sighting.uuid == self._me:
            clash = not own_address and sighting.instance not in (None, self._instance)
        else:
            seen = self._seen.pop(sighting.uuid, ())
            recent = [each for each in seen if sighting.at - each.at < CLASH_SECONDS]
            clash = _is_clash(recent, sighting)
            self._remember(sighting, recent)
        if clash:
            self._until.pop(sighting.uuid, None)
            self._until[sighting.uuid] = sighting.at + CLASH_KEPT_SECONDS
            if len(self._until) > _UUIDS_MAX:
                del self._until[next(iter(self._until))]
        return clash

    def standing(self, now: float) -> frozenset[str]:
        """The UUIDs with a clash now; our own may be among them."""
        self._until = {uuid: until for uuid, until in self._until.items() if now < until}
        return frozenset(self._until)

    def _remember(self, sighting: Sighting, recent: list[Sighting]) -> None:
        self._seen[sighting.uuid] = (*recent[1 - _SIGHTINGS_MAX :], sighting)
        if len(self._seen) > _UUIDS_MAX:
            del self._seen[next(iter(self._seen))]


class Mismatches:
    """Members whose records name another cluster than ours (DS-49)."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def hear(self, uuid: str, differs: bool, now: float) -> None:
        """A record of a member was read, or it is a member no more, with which nothing differs."""
        if differs:
            self._since.setdefault(uuid, now)
        else:
            self._since.pop(uuid, None)

    def standing(self, now: float) -> frozenset[str]:
        """The UUIDs of those that have done so for long enough to be told of."""
        return frozenset(uuid for uuid, since in self._since.items() if now - since >= MISMATCH_SECONDS)


def _is_clash(recent: list[Sighting], last: Sighting) -> bool:
    """Whether what was seen shows two machines.

    Two leaves do. So do two processes at two addresses of which one comes back
    after the other was seen: after a restart, the one before does not.
    """
    if last.leaf is not None and any(each.leaf not in (None, last.leaf) for each in recent):
        return True
    if last.instance is None:
        return False
    before = [at for at, each in enumerate(recent) if each.instance == last.instance]
    between = recent[before[0] :] if before else []
    others = [each for each in between if each.instance not in (None, last.instance)]
    places = {last.address, *(recent[at].address for at in before)}
    return any(each.address not in places or len(places) > 1 for each in others)

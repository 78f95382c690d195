"""Claims: what each source says of a node, and what follows from all of them (discovery page, section 7).

Pure. A source is believed only as far as :func:`describe` says; none gives
trust, which is shown here and decided elsewhere (DS-48).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from pair.addresses import Place
from pair.discovery.addresses import Reach
from pair.discovery.txt import TEXT_MAX
from pair.privacy import clean_text
from pair.records.nodes import (
    ClusterState,
    EvidenceKind,
    NodeEntry,
    NodeHardware,
    NodeWarning,
    Presence,
    Relation,
    Source,
)
from pair.records.telemetry import NodeInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STRANGERS_MAX = 256
"""Nodes known by multicast alone that are kept (DS-15)."""

_INSTANCES_MAX = 4
"""Instances that are kept of one UUID: a host that is renamed has two for a while, and a liar has any number."""

_SOURCES: tuple[Source, ...] = ("self", "mdns", "roster", "manual")


class Claim(Struct, frozen=True):
    """One source's statement about one node.

    ``id`` tells claims of one source on one node apart: the instance's name
    (``mdns``), the row's id (``manual``), else empty. ``typed`` is the address
    of a manual node, which alone may be without ``uuid``. ``addresses`` are in
    the order in which the source has them; ``records`` are the A and AAAA of a
    record, and both are usable ones (DS-13). ``cluster`` is the record's.
    """

    source: Source
    uuid: str | None = None
    id: str = ""
    typed: Place | None = None
    name: str = ""
    addresses: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    services: dict[str, int] = {}
    cluster: str | None = None

    @property
    def key(self) -> str:
        """That of the entry which it is about (DS-40)."""
        return self.uuid or f"manual:{self.typed}"


class Claims:
    """All claims that stand, by the node that they are about."""

    def __init__(self) -> None:
        self._by_key: dict[str, dict[tuple[Source, str], Claim]] = {}
        self._strangers: set[str] = set()
        self._refused = False

    def __iter__(self) -> Iterator[str]:
        """The keys of all nodes of which there is a claim."""
        return iter(tuple(self._by_key))

    def __contains__(self, key: object) -> bool:
        """Whether there is a claim on the node with this key."""
        return key in self._by_key

    @property
    def crowded(self) -> bool:
        """Whether newcomers were dropped, and still would be (DS-15)."""
        return self._refused and len(self._strangers) >= STRANGERS_MAX

    def of(self, key: str) -> tuple[Claim, ...]:
        """Those on one node, of each source the newest first."""
        return tuple(reversed(self._by_key.get(key, {}).values()))

    def put(self, claim: Claim) -> bool:
        """Make ``claim`` stand, in place of an older one of the same source and id on the same node.

        Returns:
            False if it says nothing new, or is of one stranger too many.
        """
        there = self._by_key.get(claim.key, {})
        if claim.source == "mdns" and not there and len(self._strangers) >= STRANGERS_MAX:
            self._refused = True
            return False
        old = there.pop((claim.source, claim.id), None)
        there[claim.source, claim.id] = claim
        self._by_key[claim.key] = there
        instances = [each for each in there if each[0] == "mdns"]
        for each in instances[:-_INSTANCES_MAX]:
            del there[each]
        self._count(claim.key)
        return old != claim

    def drop(self, key: str, source: Source, id: str | None = None) -> bool:
        """Take back the claims of ``source`` on a node: the one with ``id``, or all; whether there was any."""
        there = self._by_key.get(key, {})
        gone = [each for each in there if each[0] == source and id in (None, each[1])]
        for each in gone:
            del there[each]
        if not there:
            self._by_key.pop(key, None)
        self._count(key)
        return bool(gone)

    def named(self, instance: str) -> tuple[str, ...]:
        """The keys of the nodes with an instance of this name; two nodes may have one (DS-24)."""
        return tuple(key for key, there in self._by_key.items() if ("mdns", instance) in there)

    def learn(self, id: str, uuid: str) -> tuple[str, str] | None:
        """The manual node ``id`` answered as ``uuid``: its claim moves there (DS-74).

        Returns:
            The keys before and after, if they differ. It is a rekeying if the
            one before was no UUID.
        """
        for key, there in self._by_key.items():
            claim = there.get(("manual", id))
            if claim is not None and claim.uuid != uuid:
                self.drop(key, "manual", id)
                self.put(Claim("manual", uuid, id, claim.typed))
                return key, uuid
        return None

    def _count(self, key: str) -> None:
        there = self._by_key.get(key)
        if there and all(source == "mdns" for source, _ in there):
            self._strangers.add(key)
        else:
            self._strangers.discard(key)
        self._refused = self.crowded


class Known(Struct, frozen=True):
    """What the directory knows of a node besides what is claimed.

    ``authenticated`` came over mutual TLS with the node's pin, ``plain`` from a
    node-info that named the right UUID. ``confirmed`` has the address that
    answered last, by service. Times are in epoch milliseconds.
    """

    presence: Presence = "offline"
    last_heard_at: int | None = None
    evidence: EvidenceKind | None = None
    authenticated: NodeInfo | None = None
    plain: NodeInfo | None = None
    confirmed: dict[str, Place] = {}
    hardware: NodeHardware | None = None
    hardware_at: int | None = None
    inventory_at: int | None = None
    warnings: tuple[NodeWarning, ...] = ()


class Standing(Struct, frozen=True):
    """Whom this node trusts: its own UUID and cluster, and the UUIDs of members, of pins, and of those invited."""

    me: str
    cluster: str | None = None
    members: frozenset[str] = frozenset()
    pins: frozenset[str] = frozenset()
    pending: frozenset[str] = frozenset()


def describe(key: str, claims: Sequence[Claim], known: Known, standing: Standing) -> NodeEntry:
    """The entry of one node (DS-42 to DS-47).

    Args:
        key: The node's.
        claims: Those on it, of each source the newest first; not empty.
        known: What else is known of it.
        standing: Whom this node trusts.
    """
    uuid = claims[0].uuid
    me = any(each.source == "self" for each in claims)
    member = uuid in standing.members and not me
    said = standing.cluster if me else _said(claims, known, member)
    state = _state(said, standing)
    addresses = _addresses(claims, known)
    return NodeEntry(
        key,
        uuid,
        _name(claims, known),
        "online" if me else known.presence,
        _relation(uuid, me, member, state, standing),
        me,
        tuple(each for each in _SOURCES if any(claim.source == each for claim in claims)),
        known.last_heard_at,
        known.evidence,
        uuid in standing.members,
        uuid is not None and is_trusted(uuid, known, standing),
        said if isinstance(said, str) else None,
        state,
        addresses[0] if addresses else None,
        addresses,
        {service: str(place) for service, place in known.confirmed.items()},
        _services(claims, known),
        known.hardware,
        known.hardware_at,
        known.inventory_at,
        known.warnings,
    )


def is_trusted(uuid: str, known: Known, standing: Standing) -> bool:
    """Whether the node is shown as one that is trusted (DS-47)."""
    said = UNSET if known.authenticated is None else known.authenticated.cluster_uuid
    return uuid in standing.pins and uuid in standing.members and said in (UNSET, standing.cluster)


def newest(old: NodeInfo | None, new: NodeInfo) -> NodeInfo:
    """What a node said last: ``new``, and of what that says nothing, what it said before (DS-44, DS-45)."""
    if old is None:
        return new
    return replace(
        new,
        name=old.name if new.name is None else new.name,
        services=old.services if new.services is None else new.services,
        cluster_uuid=old.cluster_uuid if new.cluster_uuid is UNSET else new.cluster_uuid,
    )


def reach(service: str, claims: Sequence[Claim], known: Known) -> Reach:
    """What is known of where a node's service is (DS-36).

    Its port is what a member signed last, which spreads with each change; else
    what the node said over mutual TLS, else what its record says, else what its
    plain node-info does.
    """
    claimed = (_from(claims, each) for each in ("self", "mdns"))
    sources = (_from(claims, "roster"), _told(known.authenticated) or {}, *claimed, _told(known.plain) or {})
    confirmed = known.confirmed.get(service)
    return Reach(
        () if confirmed is None else (confirmed,),
        _published(claims),
        tuple(address for each in claims if each.source == "roster" for address in each.addresses),
        tuple(address for each in claims for address in each.records),
        tuple(each.typed for each in claims if each.typed is not None),
        next((each[service] for each in sources if service in each), None),
        tuple(place.host for other, place in known.confirmed.items() if other != service),
    )


def _from(claims: Sequence[Claim], source: str) -> dict[str, int]:
    return next((each.services for each in claims if each.source == source), {})


def _published(claims: Sequence[Claim]) -> tuple[str, ...]:
    return tuple(address for each in claims if each.source in ("self", "mdns") for address in each.addresses)


def _addresses(claims: Sequence[Claim], known: Known) -> tuple[str, ...]:
    where = reach("ni", claims, known)
    confirmed = (each.host for each in known.confirmed.values())
    typed = (each.host for each in where.typed)
    found = tuple(dict.fromkeys((*confirmed, *where.published, *where.roster, *where.records, *typed)))
    return found or (("127.0.0.1",) if any(each.source == "self" for each in claims) else ())


def _name(claims: Sequence[Claim], known: Known) -> str:
    by_source = {each.source: each.name for each in reversed(claims)}
    answers = (each.name for each in (known.authenticated, known.plain) if each is not None)
    typed = (str(each.typed) for each in claims if each.typed is not None)
    named = (by_source.get("self"), by_source.get("roster"), *answers, by_source.get("mdns"), *typed)
    cleaned = (clean_text(each, TEXT_MAX) for each in named if each)
    return next((each for each in cleaned if each), (claims[0].uuid or "")[:8])


def _services(claims: Sequence[Claim], known: Known) -> dict[str, int]:
    heard = next((each.services for each in claims if each.source in ("self", "mdns")), None)
    known_of = (_from(claims, "roster") or None, _told(known.authenticated), heard, _told(known.plain))
    return next((each for each in known_of if each is not None), {})


def _told(answer: NodeInfo | None) -> dict[str, int] | None:
    return None if answer is None else answer.services


def _said(claims: Sequence[Claim], known: Known, member: bool) -> str | UnsetType | None:
    """In which cluster the node says that it is; UNSET where it has not said it."""
    proof = known.authenticated if member or known.plain is None else known.plain
    if proof is not None and proof.cluster_uuid is not UNSET:
        return proof.cluster_uuid
    return next((each.cluster for each in claims if each.source == "mdns"), UNSET)


def _state(said: str | UnsetType | None, standing: Standing) -> ClusterState:
    if said is UNSET:
        return "unknown"
    if said is None:
        return "none"
    return "same" if said == standing.cluster else "other"


def _relation(uuid: str | None, me: bool, member: bool, state: ClusterState, standing: Standing) -> Relation:
    if me:
        return "self"
    if member:
        return "member"
    if uuid in standing.pending:
        return "pending"
    return "other_cluster" if state == "other" else "stranger"

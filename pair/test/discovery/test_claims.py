"""What sources say of nodes, and what follows."""

from __future__ import annotations

import random
import uuid
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from pair.addresses import Place
from pair.discovery.addresses import candidates
from pair.discovery.claims import STRANGERS_MAX, Claim, Claims, Known, Standing, describe, newest, reach
from pair.discovery.txt import Record, decode, encode, instance_name, shown_name
from pair.records.telemetry import NodeInfo

if TYPE_CHECKING:
    from msgspec import UnsetType

    from pair.records.nodes import NodeEntry


def node(number: int) -> str:
    """The UUID of a made-up node."""
    return f"3f0c8a52-1d7e-4b6f-9a51-{number:012x}"


ME, A, B = node(0), node(1), node(2)
HOME = "b7d0f6f0-9c1b-4d1e-8f5a-2a6f3b0c9d11"
AWAY = "c7d0f6f0-9c1b-4d1e-8f5a-2a6f3b0c9d11"
STANDING = Standing(ME, HOME, frozenset((ME, A)), frozenset((A,)))


def mdns(uuid: str, host: str = "spark", *addresses: str, cluster: str | None = None, **services: int) -> Claim:
    """The claim that a record makes, by way of its bytes."""
    record = decode(encode(Record(uuid, cluster, addresses, services)))
    assert record is not None
    name = instance_name(host, uuid)
    return Claim(
        "mdns",
        uuid,
        name,
        name=shown_name(name, uuid),
        addresses=record.addresses,
        services=record.services,
        cluster=record.cluster,
    )


def entry_of(*claims: Claim, known: Known | None = None, standing: Standing = STANDING) -> NodeEntry:
    return describe(claims[0].key, claims, known or Known(), standing)


class ClaimsTests(SynchronousTestCase):
    """Which claims stand (DS-40)."""

    def setUp(self) -> None:
        self.claims = Claims()

    def test_one_name(self) -> None:
        """D14: two hosts of one name are two nodes (DS-6)."""
        self.claims.put(mdns(A, "spark", "10.0.0.1"))
        self.claims.put(mdns(B, "spark", "10.0.0.1"))
        self.assertEqual(list(self.claims), [A, B])
        names = {describe(key, self.claims.of(key), Known(), STANDING).name for key in self.claims}
        self.assertEqual(names, {"spark"})

    def test_one_instance(self) -> None:
        """Two records under one instance name are told apart by their UUIDs (DS-24)."""
        instance = instance_name("spark", A)
        self.claims.put(replace(mdns(A), id=instance))
        self.claims.put(replace(mdns(B), id=instance))
        self.assertEqual(list(self.claims), [A, B])
        self.assertEqual(self.claims.named(instance), (A, B))

    def test_two_links(self) -> None:
        """One UUID under two instances is one node with the addresses of both (DS-6)."""
        self.claims.put(mdns(A, "old", "10.0.0.1"))
        self.claims.put(mdns(A, "new", "10.1.0.1"))
        entry = describe(A, self.claims.of(A), Known(), STANDING)
        self.assertEqual((entry.name, entry.ips), ("new", ("10.1.0.1", "10.0.0.1")))

    def test_drop(self) -> None:
        """A node is there as long as one claim on it stands (DS-40)."""
        self.claims.put(mdns(A))
        self.claims.put(Claim("roster", A))
        self.assertTrue(self.claims.drop(A, "mdns"))
        self.assertFalse(self.claims.drop(A, "mdns"))
        self.assertEqual(list(self.claims), [A])
        self.claims.drop(A, "roster")
        self.assertEqual(list(self.claims), [])

    def test_nothing_new(self) -> None:
        """A claim that is made again changes nothing."""
        self.assertTrue(self.claims.put(mdns(A)))
        self.assertFalse(self.claims.put(mdns(A)))

    def test_strangers(self) -> None:
        """Newcomers beyond 256 are dropped, and neither members nor manual nodes give way or are hindered (DS-15)."""
        self.claims.put(Claim("roster", A))
        self.claims.put(Claim("manual", id="1", typed=Place("rack", 14318)))
        for number in range(10, 10 + STRANGERS_MAX):
            self.assertTrue(self.claims.put(mdns(node(number))))
        self.assertFalse(self.claims.crowded)
        self.assertFalse(self.claims.put(mdns(node(9999))))
        self.assertTrue(self.claims.crowded)
        self.assertTrue(self.claims.put(mdns(A)))
        self.assertTrue(self.claims.put(Claim("roster", B)))
        self.assertEqual(len(list(self.claims)), STRANGERS_MAX + 3)
        self.claims.drop(node(10), "mdns")
        self.assertFalse(self.claims.crowded)

    def test_random_records(self) -> None:
        """Ten thousand records of anybody leave a bounded number of nodes and claims (DS-15)."""
        chance = random.Random(4)
        self.claims.put(Claim("roster", A))
        for _ in range(10_000):
            uuid_ = chance.choice(
                (A, node(chance.randrange(400)), str(uuid.UUID(int=chance.getrandbits(128), version=4)))
            )
            self.claims.put(mdns(uuid_, str(chance.random()), "10.0.0.1"))
        kept = [len(self.claims.of(key)) for key in self.claims]
        self.assertLessEqual(len(kept), STRANGERS_MAX + 1)
        self.assertLessEqual(max(kept), 5)
        self.assertIn("roster", {each.source for each in self.claims.of(A)})

    def test_learn(self) -> None:
        """A manual node whose UUID becomes known is merged with what there is of it (DS-74)."""
        self.claims.put(mdns(A, "spark", "10.0.0.1"))
        self.claims.put(Claim("manual", id="1", typed=Place("10.0.0.1", 14318)))
        self.assertEqual(list(self.claims), [A, "manual:10.0.0.1:14318"])
        self.assertEqual(self.claims.learn("1", A), ("manual:10.0.0.1:14318", A))
        self.assertIsNone(self.claims.learn("1", A))
        self.assertEqual(entry_of(*self.claims.of(A)).claims, ("mdns", "manual"))
        self.assertEqual(list(self.claims), [A])

    def test_learn_another(self) -> None:
        """Where another UUID answers later, the claim moves to it, and the node before stays by its others (DS-74)."""
        self.claims.put(mdns(A))
        self.claims.put(Claim("manual", A, "1", Place("rack", 14318)))
        self.assertEqual(self.claims.learn("1", B), (A, B))
        self.assertEqual([each.source for each in self.claims.of(A)], ["mdns"])
        self.assertFalse(entry_of(*self.claims.of(B)).trusted)

    def test_learn_after_removal(self) -> None:
        """A manual node that was removed meanwhile is nothing that could learn (test 17)."""
        self.claims.put(Claim("manual", id="1", typed=Place("rack", 14318)))
        self.claims.drop("manual:rack:14318", "manual", "1")
        self.assertIsNone(self.claims.learn("1", A))
        self.assertEqual(list(self.claims), [])


class DescribeTests(SynchronousTestCase):
    """What an entry says (DS-42 to DS-47)."""

    def test_names(self) -> None:
        """The signed name, else that of node-info, else the instance's, else the typed address (DS-42)."""
        typed = Claim("manual", A, "1", Place("rack", 99))
        plain = Known(plain=NodeInfo(host_uuid=A, name="said"))
        self.assertEqual(entry_of(typed).name, "rack:99")
        self.assertEqual(entry_of(typed, mdns(A, "heard")).name, "heard")
        self.assertEqual(entry_of(typed, mdns(A, "heard"), known=plain).name, "said")
        self.assertEqual(entry_of(typed, Claim("roster", A, name="signed"), known=plain).name, "signed")
        self.assertEqual(entry_of(Claim("roster", A)).name, A[:8])

    def test_hostile_names(self) -> None:
        """A name is cleaned whoever says it (DS-14)."""
        known = Known(plain=NodeInfo(host_uuid=B, name="\x1b[31m\u202e" + "x" * 99))
        self.assertEqual(entry_of(mdns(B), known=known).name, "[31m" + "x" * 58 + "…")

    def test_services(self) -> None:
        """What a member signed, else an authenticated answer, else the record, else a plain answer (DS-42)."""
        plain = Known(plain=NodeInfo(host_uuid=A, services={"ni": 3}))
        self.assertEqual(entry_of(Claim("roster", A), known=plain).services, {"ni": 3})
        self.assertEqual(entry_of(mdns(A, ni=2), known=plain).services, {"ni": 2})
        authenticated = replace(plain, authenticated=NodeInfo(host_uuid=A, services={"ni": 4}))
        self.assertEqual(entry_of(mdns(A, ni=2), known=authenticated).services, {"ni": 4})
        self.assertEqual(entry_of(Claim("roster", A, services={"cl": 1}), known=authenticated).services, {"cl": 1})

    def test_addresses(self) -> None:
        """Confirmed ones, then what it publishes, the roster's, its record's and the typed one (DS-36)."""
        claims = (
            Claim("manual", A, "1", Place("rack", 99)),
            Claim("roster", A, addresses=("10.0.0.3", "10.0.0.1")),
            replace(mdns(A, "spark", "10.0.0.1", "10.0.0.2"), records=("fe80::1%eth0",)),
        )
        known = Known(confirmed={"cl": Place("10.0.0.2", 14321)})
        entry = entry_of(*claims, known=known)
        self.assertEqual(entry.ips, ("10.0.0.2", "10.0.0.1", "10.0.0.3", "fe80::1%eth0", "rack"))
        self.assertEqual(entry.ip, "10.0.0.2")
        self.assertEqual(entry.confirmed, {"cl": "10.0.0.2:14321"})

    def test_ports(self) -> None:
        """A port is the one that was signed, else the proven one; a record's only where nothing is proven (DS-36)."""
        claims = (Claim("roster", A, addresses=("10.0.0.1",), services={"cl": 1}), mdns(A, cl=2, ni=2))
        self.assertEqual(candidates("cl", reach("cl", claims, Known())), (Place("10.0.0.1", 1),))
        self.assertEqual(candidates("ni", reach("ni", claims, Known())), (Place("10.0.0.1", 2),))
        answer = NodeInfo(host_uuid=A, services={"cl": 3, "em": 4})
        known = Known(authenticated=answer, confirmed={"cl": Place("10.0.0.9", 8)})
        self.assertEqual(candidates("cl", reach("cl", claims, known)), (Place("10.0.0.9", 8), Place("10.0.0.1", 1)))
        self.assertEqual(candidates("em", reach("em", claims, known)), (Place("10.0.0.9", 4), Place("10.0.0.1", 4)))

    def test_self(self) -> None:
        """This node is online, in its own cluster, and at 127.0.0.1 where it has no other address (DS-43)."""
        entry = entry_of(Claim("self", ME, name="desk"))
        self.assertEqual((entry.me, entry.relation, entry.presence), (True, "self", "online"))
        self.assertEqual((entry.ips, entry.cluster_uuid, entry.cluster_state), (("127.0.0.1",), HOME, "same"))

    def test_cluster_of_a_stranger(self) -> None:
        """What it answers beats its record; without a record and an answer nothing is known (DS-45, DS-46)."""
        for claim, answer, state in [
            (mdns(B), UNSET, "none"),
            (mdns(B, cluster=HOME), UNSET, "same"),
            (mdns(B, cluster=AWAY), UNSET, "other"),
            (mdns(B, cluster=AWAY), None, "none"),
            (mdns(B), AWAY, "other"),
            (Claim("manual", B, "1", Place("rack", 1)), UNSET, "unknown"),
        ]:
            known = Known(plain=NodeInfo(host_uuid=B, cluster_uuid=answer))
            self.assertEqual(entry_of(claim, known=known).cluster_state, state)

    def test_cluster_of_a_member(self) -> None:
        """Only what a member says over mutual TLS beats its record (DS-45)."""
        known = Known(plain=NodeInfo(host_uuid=A, cluster_uuid=AWAY))
        self.assertEqual(entry_of(mdns(A, cluster=HOME), known=known).cluster_state, "same")
        known = replace(known, authenticated=NodeInfo(host_uuid=A, cluster_uuid=None))
        self.assertEqual(entry_of(mdns(A, cluster=HOME), known=known).cluster_state, "none")

    def test_trusted(self) -> None:
        """A pin, membership, and no word over mutual TLS against it; a record changes nothing (DS-47)."""
        liar = mdns(A, "spark", "10.6.6.6", cluster=AWAY)
        self.assertTrue(entry_of(liar, known=Known(plain=NodeInfo(host_uuid=A, cluster_uuid=None))).trusted)
        self.assertFalse(entry_of(liar, standing=replace(STANDING, pins=frozenset())).trusted)
        self.assertFalse(entry_of(liar, standing=replace(STANDING, members=frozenset((ME,)))).trusted)
        words: list[tuple[str | UnsetType | None, bool]] = [(UNSET, True), (HOME, True), (AWAY, False), (None, False)]
        for said, trusted in words:
            known = Known(authenticated=NodeInfo(host_uuid=A, cluster_uuid=said))
            self.assertEqual(entry_of(liar, known=known).trusted, trusted)

    def test_attacker(self) -> None:
        """Whoever announces a member's UUID adds an address to try, and takes none away (test 14)."""
        claims = (
            mdns(A, "spark", "10.6.6.6", cl=666),
            Claim("roster", A, addresses=("10.0.0.1",), services={"cl": 14321}),
        )
        entry = entry_of(*claims)
        self.assertEqual((entry.relation, entry.trusted, entry.ips), ("member", True, ("10.6.6.6", "10.0.0.1")))
        self.assertIn(Place("10.0.0.1", 14321), candidates("cl", reach("cl", claims, Known())))

    def test_relations(self) -> None:
        """Self, member, invited, in another cluster, stranger."""
        pending = replace(STANDING, pending=frozenset((B,)))
        self.assertEqual(entry_of(Claim("roster", A)).relation, "member")
        self.assertEqual(entry_of(mdns(B, cluster=AWAY), standing=pending).relation, "pending")
        self.assertEqual(entry_of(mdns(B, cluster=AWAY)).relation, "other_cluster")
        self.assertEqual(entry_of(mdns(B)).relation, "stranger")
        alone = Standing(ME)
        self.assertEqual(entry_of(mdns(B, cluster=AWAY), standing=alone).relation, "other_cluster")

    def test_withheld(self) -> None:
        """What a later answer says nothing of is as it was (DS-44, DS-45)."""
        first = NodeInfo(host_uuid=A, name="spark", services={"ni": 1}, cluster_uuid=HOME)
        self.assertEqual(newest(None, first), first)
        self.assertEqual(newest(first, NodeInfo(host_uuid=A)), first)
        second = NodeInfo(host_uuid=A, name="box", services={}, cluster_uuid=None)
        self.assertEqual(newest(first, second), second)

"""All invitations of a node together (CL-42 to CL-46, CL-55, CL-61, CL-101 to CL-105)."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from pair.cluster.membership import MEMBERS_MAX
from pair.cluster.refusing import Refusal
from pair.protocols.pairing import Party
from pair.test.cluster.asker import Asker
from pair.test.cluster.neighbours import Network, Node, wrong
from pair.test.protocols.couple import CLUSTER


class NeighbourTests(SynchronousTestCase):
    """Three nodes that can reach one another."""

    def setUp(self) -> None:
        self.network = Network(Clock())
        self.desk = Node(self.network, "desk", "10.0.0.1")
        self.rack = Node(self.network, "rack", "10.0.0.2")
        self.shed = Node(self.network, "shed", "10.0.0.3")

    @property
    def clock(self) -> Clock:
        return self.network.clock

    @property
    def nodes(self) -> tuple[Node, Node, Node]:
        return self.desk, self.rack, self.shed

    def assert_no_orphans(self) -> None:
        """Nobody is in two clusters, and every cluster has at least two nodes that both count each other."""
        by_cluster: dict[str, set[str]] = {}
        for node in self.nodes:
            if node.cluster is not None:
                by_cluster.setdefault(node.cluster, set()).add(node.party.uuid)
        for node in self.nodes:
            view = node.trust.view
            if view is not None:
                self.assertGreater(len(by_cluster[view.cluster]), 1)
                self.assertLessEqual({each.node for each in view.members}, by_cluster[view.cluster])


class AcceptTests(NeighbourTests):
    def test_forms(self) -> None:
        """A code is taken with any spacing and in any case, leading zeros too (CL-32)."""
        forms = (
            lambda code: code,
            lambda code: code.replace(" ", ""),
            lambda code: f"  {' '.join(code)} ",
            str.upper,
        )
        for kind in ("pin", "long"):
            for form in forms:
                self.setUp()
                code = self.desk.invite(self.rack, kind).code
                answer = self.rack.accept(form(code.reveal()))
                self.network.run(1.0)
                self.assertEqual(answer.value.state, "paired")

    def test_leading_zeros(self) -> None:
        """A PIN is six digits, also if it begins with zeros."""
        self.desk.service._below = lambda _: 42
        code = self.desk.invite(self.rack).code
        self.assertEqual(code.reveal(), "000 042")
        self.rack.accept("000042")
        self.network.run(1.0)
        self.assertEqual(self.rack.states, [("paired", None)])

    def test_malformed(self) -> None:
        """What is no code of its kind is 422 and spends nothing (CL-46)."""
        code = self.desk.invite(self.rack).code
        for typed in ("", "12345", "1234567", "12345a", "１２３４５６", "0" * 20):
            self.assertEqual(self.rack.accept(typed).refused, (422, "invalid_value"))
        self.assertEqual(self.rack.states, [("waiting", None)])
        self.rack.accept(code)
        self.network.run(1.0)
        self.assertEqual(self.rack.states, [("paired", None)])

    def test_which(self) -> None:
        """Without an id the only one that waits is meant; of several one has to be named."""
        self.assertEqual(self.rack.accept("123456").refused, (404, "no_such_invitation"))
        self.assertEqual(self.rack.accept("123456", "0" * 32).refused, (404, "no_such_invitation"))
        first = self.desk.invite(self.rack)
        second = self.shed.invite(self.rack)
        self.assertEqual(self.rack.accept(first.code).refused, (409, "ambiguous"))
        self.rack.service.decline(second.value[0].id)
        self.assertFalse(self.rack.accept(first.code).done)

    def test_same_name(self) -> None:
        """Two prompts under one name stand side by side, with tags and addresses of their own (CL-45)."""
        self.shed.party = Party(self.shed.party.uuid, "desk", self.shed.party.key, self.shed.party.leaf)
        ours, theirs = self.desk.invite(self.rack), self.shed.invite(self.rack)
        shown = self.rack.service.all()
        self.assertEqual([each.peer.name for each in shown], ["desk", "desk"])
        self.assertEqual([each.peer.address for each in shown], ["10.0.0.1", "10.0.0.3"])
        self.assertEqual([each.tag for each in shown], [ours.value[0].tag, theirs.value[0].tag])
        self.assertNotEqual(*[each.tag for each in shown])

    def test_clustered(self) -> None:
        """In a cluster by now: 409, and the invitation fails on both sides (CL-46)."""
        code = self.desk.invite(self.rack).code
        self.rack.trust.enter(CLUSTER, "home", self.rack.party.uuid)
        self.assertEqual(self.rack.accept("12").refused, (422, "invalid_value"))
        self.assertEqual(self.rack.accept(code).refused, (409, "already_clustered"))
        self.network.run(0.1)
        failed = [("failed", "already_clustered")]
        self.assertEqual((self.desk.states, self.rack.states), (failed, failed))

    def test_busy(self) -> None:
        """While one is being confirmed, another one is not, and waits unhurt (CL-46)."""
        first, second = self.desk.invite(self.rack), self.shed.invite(self.rack)
        self.rack.accept(wrong(first.code), first.value[0].id)
        busy = self.rack.accept(second.code, second.value[0].id)
        self.assertEqual(busy.refused, (409, "pairing_busy"))
        self.network.run(1.0)
        self.assertEqual([state for state, _ in self.rack.states], ["voided", "waiting"])
        self.rack.accept(second.code)
        self.network.run(1.0)
        self.assertEqual([state for state, _ in self.rack.states], ["voided", "paired"])

    def test_busy_inviting(self) -> None:
        """So it is while a proof for one of this node's own is being stored (CL-46)."""
        ours, theirs = self.rack.invite(self.desk), self.shed.invite(self.rack)
        self.rack.trust.slow = Deferred()
        self.desk.accept(ours.code)
        self.network.run(1.0)
        self.assertEqual(self.rack.accept(theirs.code).refused, (409, "pairing_busy"))

    def test_two_at_once(self) -> None:
        """Two that are paired by two codes typed at once: the second is refused, or finds a member (test 6)."""
        first, second = self.desk.invite(self.rack), self.shed.invite(self.rack)
        self.rack.accept(first.code, first.value[0].id)
        self.rack.accept(second.code, second.value[0].id)
        self.network.run(1.0)
        self.assertEqual(self.rack.accept(second.code).refused, (409, "already_clustered"))
        self.network.run(1.0)
        self.assertEqual(self.shed.states, [("failed", "already_clustered")])
        self.assert_no_orphans()

    def test_person_gone(self) -> None:
        """Who typed the code may go: it goes on."""
        code = self.desk.invite(self.rack).code
        self.rack.accept(code).deferred.cancel()
        self.network.run(1.0)
        self.assertEqual(self.rack.states, [("paired", None)])


class CrossedTests(NeighbourTests):
    def test_each_other(self) -> None:
        """Both invite each other, and one code is typed: the other invitation is cancelled (CL-46)."""
        there, back = self.desk.invite(self.rack), self.rack.invite(self.desk)
        self.rack.accept(there.code)
        self.network.run(1.0)
        self.assertEqual(self.rack.states, [("paired", None), ("cancelled", None)])
        self.assertEqual(self.desk.states, [("paired", None), ("cancelled", None)])
        self.assertEqual(self.desk.accept(back.code, back.value[0].id).refused, (409, "invitation_over"))
        self.assert_no_orphans()

    def test_each_other_at_once(self) -> None:
        """Both codes typed, at once or nearly: never two clusters (test 6)."""
        for pause in (0.0, 0.001, 0.003, 0.05, 0.061, 0.07, 0.12, 0.13, 0.2, 0.25):
            self.setUp()
            there, back = self.desk.invite(self.rack), self.rack.invite(self.desk)
            self.rack.accept(there.code, there.value[0].id)
            self.network.run(pause)
            self.desk.accept(back.code, back.value[0].id)
            self.network.run(400.0)
            self.assert_no_orphans()
            self.assertEqual(self.desk.cluster, self.rack.cluster)

    def test_ring(self) -> None:
        """Three in a ring, all codes typed at once or nearly: no node in two clusters, no orphan (test 6)."""
        for pause in (0.0, 0.03, 0.061, 0.1, 0.13, 0.2, 1.0, 40.0):
            self.setUp()
            codes = [
                (self.rack, self.desk.invite(self.rack)),
                (self.shed, self.rack.invite(self.shed)),
                (self.desk, self.shed.invite(self.desk)),
            ]
            for joiner, made in codes:
                joiner.accept(made.code, made.value[0].id)
                self.network.run(pause)
            self.network.run(450.0)
            self.assert_no_orphans()
            for node in self.nodes:
                self.assertFalse({"waiting", "confirming"} & {state for state, _ in node.states})

    def test_held_back(self) -> None:
        """A proof for an own invitation is judged once the code typed here has come to its end (CL-46)."""
        ours, theirs = self.rack.invite(self.shed), self.desk.invite(self.rack)
        slow: Deferred[None] = Deferred()
        self.desk.trust.slow = slow
        self.rack.accept(theirs.code)
        self.shed.accept(ours.code)
        self.network.run(5.0)
        self.assertEqual([state for state, _ in self.rack.states], ["waiting", "confirming"])
        self.desk.trust.slow = None
        self.desk.trust.failing = OSError()
        slow.callback(None)
        self.network.run(1.0)
        self.assertEqual(self.rack.states, [("paired", None), ("failed", "peer_failed")])
        self.assert_no_orphans()
        self.flushLoggedErrors(OSError)

    def test_joined_another(self) -> None:
        """To be paired ends the own invitations (CL-46)."""
        ours, theirs = self.rack.invite(self.shed), self.desk.invite(self.rack)
        self.rack.accept(theirs.code)
        self.shed.accept(ours.code)
        self.network.run(1.0)
        self.assertEqual(self.rack.states, [("failed", "joined_another_cluster"), ("paired", None)])
        self.assertEqual(self.shed.states, [("failed", "joined_another_cluster")])
        self.assert_no_orphans()

    def test_joined_while_greeting(self) -> None:
        """One that has no code yet is refused then."""
        theirs = self.desk.invite(self.rack)
        self.network.fate = lambda message: "lose request" if message.address == "10.0.0.9" else "pass"
        ours = self.rack.invite("10.0.0.9")
        self.rack.accept(theirs.code)
        self.network.run(1.0)
        self.assertEqual(self.rack.states, [("paired", None)])
        self.network.run(20.0)
        self.assertIn(ours.refused, ((409, "already_clustered"), (502, "unreachable")))

    def test_loop(self) -> None:
        """A node that invites itself is told so; a copy of it elsewhere is another thing (CL-42)."""
        self.assertEqual(self.desk.invite(self.desk.party.uuid).refused, (409, "is_self"))
        self.assertEqual(self.desk.invite(self.desk).refused, (409, "is_self"))
        self.rack.party = self.desk.party
        self.assertEqual(self.desk.invite(self.rack).refused, (409, "identity_clash"))
        self.assertEqual(self.rack.service.all(), ())


class InviteTests(NeighbourTests):
    def test_refused_here(self) -> None:
        """What needs no other node to be refused, is refused at once (cluster page, section 12)."""
        self.assertEqual(self.desk.invite("no place").refused, (422, "invalid_value"))
        self.desk.trust.enter(CLUSTER, "home", self.desk.party.uuid, self.rack.party.uuid)
        self.assertEqual(self.desk.invite(self.rack.party.uuid.upper()).refused, (409, "already_clustered"))
        self.desk.trust.enter(CLUSTER, "home", *map(str, range(MEMBERS_MAX)))
        self.assertEqual(self.desk.invite(self.rack).refused, (409, "cluster_full"))
        self.assertEqual(self.network.sent, [])

    def test_no_address(self) -> None:
        """A node of which no address is known is not searched, and it is said how to go on (CL-57)."""
        invited = self.desk.invite("c0ffee00-0000-4000-8000-000000000004")
        self.assertEqual(invited.refused, (502, "unreachable"))
        self.assertIn("No address of that node is known here. Invite it by one", invited.error.message)
        self.assertEqual((invited.error.details, self.network.sent), ({}, []))

    def test_retired(self) -> None:
        """A node whose identity ends with this run neither invites, nor accepts, nor is invited (CL-96)."""
        invited = self.desk.invite(self.rack)
        for each in (self.desk, self.rack):
            each.service.retired = True
        self.assertEqual(self.desk.invite(self.rack).refused, (409, "restart_needed"))
        self.assertEqual(self.rack.accept(invited.code).refused, (409, "restart_needed"))
        self.assertEqual(self.shed.invite(self.rack).refused, (403, "pairing_off"))

    def test_eight(self) -> None:
        """Eight at once, and then 429, until one of them has ended (CL-44)."""
        made = []
        for at in range(8):
            Node(self.network, f"node {at}", f"10.1.0.{at}")
            made.append(self.desk.invite(f"10.1.0.{at}"))
        self.assertEqual(self.desk.invite(self.rack).refused, (429, "too_many"))
        self.desk.service.cancel(made[0].value[0].id)
        self.assertEqual(self.desk.invite(self.rack).value[0].state, "waiting")

    def test_codes(self) -> None:
        """The code is in the one answer, in groups; its kind is told (CL-32, CL-101)."""
        pin, long = self.desk.invite(self.rack), self.desk.invite(self.shed, "long")
        self.assertRegex(pin.code.reveal(), r"^\d{3} \d{3}$")
        self.assertRegex(long.code.reveal(), r"^[0-9a-f]{5}( [0-9a-f]{5}){3}$")
        self.assertEqual([each.value[0].code_kind for each in (pin, long)], ["pin", "long"])
        self.assertEqual(self.shed.service.all()[0].code_kind, "long")

    def test_nothing_is_told_of_a_code(self) -> None:
        """A code is in no log line, record, audit row or message, right or wrong (CL-101, CL-105)."""
        lines: list[str] = []

        @implementer(ILogObserver)
        def observe(event: Any) -> None:
            lines.append(f"{formatEvent(event)} {event!r}")

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        made = self.desk.invite(self.rack, "long")
        plain = made.code.reveal()
        bad = wrong(made.code)
        self.rack.accept(bad)
        self.network.run(11.0)
        again = self.desk.invite(self.rack, "long")
        self.rack.accept(again.code)
        self.network.run(1.0)
        told = [repr(each) for node in self.nodes for each in (*node.news, *node.rows, *node.service.all())]
        told += [repr(each.body) + repr(each.reply) for each in self.network.sent] + lines
        self.assertIn("paired", "".join(told))
        for code in (plain, bad, again.code.reveal()):
            for form in (code, code.replace(" ", "")):
                self.assertNotIn(form, "".join(told))
        ended = [line for line in lines if line.startswith("An invitation ended")]
        self.assertEqual(len(ended), 4)


class KeptTests(NeighbourTests):
    def test_an_hour(self) -> None:
        """Ended ones are shown for an hour, in the order in which they came (cluster page, section 12)."""
        first = self.desk.invite(self.rack).value[0]
        self.desk.service.cancel(first.id)
        self.network.run(10.0)
        second = self.desk.invite(self.shed).value[0]
        self.assertEqual([each.id for each in self.desk.service.all()], [first.id, second.id])
        self.network.run(3595.0)
        self.assertEqual([each.id for each in self.desk.service.all()], [second.id])
        self.assertEqual([each.id for each in self.rack.service.all()], [])
        self.network.run(400.0)
        self.assertEqual(self.desk.service.all(), ())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_sixty_four(self) -> None:
        """Of ended ones the latest 64 are kept."""
        made = []
        for _ in range(66):
            made.append(self.desk.invite(self.rack).value[0].id)
            self.desk.service.cancel(made[-1])
            self.network.run(10.0)
        made.append(self.desk.invite(self.rack).value[0].id)
        self.assertEqual([each.id for each in self.desk.service.all()], made[2:])

    def test_audit(self) -> None:
        """Each end that people could see is a row: role, end, reason, who it claimed and proved to be (CL-104)."""
        code = self.desk.invite(self.rack).code
        self.rack.accept(wrong(code))
        self.network.run(11.0)
        self.rack.accept(self.desk.invite(self.rack, "long").code)
        self.network.run(1.0)
        desk, rack, cluster = self.desk.party.uuid, self.rack.party.uuid, self.desk.cluster
        wrong_code = {"end": "voided", "reason": "wrong_code", "proven": None, "codeKind": "pin"}
        paired = {"end": "paired", "reason": None, "codeKind": "long"}
        inviter = {"role": "inviter", "claimed": rack, "address": "10.0.0.2"}
        joiner = {"role": "joiner", "claimed": desk, "address": "10.0.0.1"}
        self.assertEqual(
            self.desk.rows,
            [
                ("invitation_ended", desk, None, None, inviter | wrong_code),
                ("invitation_ended", desk, rack, cluster, inviter | paired | {"proven": rack}),
            ],
        )
        self.assertEqual(
            self.rack.rows,
            [
                ("invitation_ended", rack, None, None, joiner | wrong_code),
                ("invitation_ended", rack, desk, cluster, joiner | paired | {"proven": desk}),
            ],
        )
        self.assertEqual(self.desk.service.ended_total.values, {("inviter", "voided"): 1, ("inviter", "paired"): 1})

    def test_audit_fails(self) -> None:
        """A row that cannot be written is logged, and changes nothing."""
        self.desk.audit_fails = True
        self.rack.accept(self.desk.invite(self.rack).code)
        self.network.run(1.0)
        self.assertEqual(self.desk.states, [("paired", None)])
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)

    def test_attacked(self) -> None:
        """Three that were voided within an hour are reported (CL-61)."""
        for pause, raised in ((11.0, 0), (3600.0, 0), (11.0, 0), (11.0, 0), (11.0, 1)):
            self.rack.accept(wrong(self.desk.invite(self.rack).code))
            self.network.run(pause)
            self.assertEqual(len(self.desk.entries.raised), raised)
        self.assertEqual(self.desk.entries.raised, ["cluster:pairing_attacked"])

    def test_unshown_is_not_cancelled(self) -> None:
        """What is not shown cannot be named, and each direction has its own verb."""
        asker = Asker(self.rack)
        asker.hello()
        made = self.desk.invite(self.rack)
        for verb, id in (
            (self.rack.service.decline, asker.id),
            (self.rack.service.cancel, made.value[0].id),
            (self.desk.service.decline, made.value[0].id),
        ):
            self.assertEqual(self.assertRaises(Refusal, verb, id).code, "no_such_invitation")

"""Tests of pair.control.cluster, asked through the site that stands in front of it (UI-48 to UI-51)."""

from __future__ import annotations

import dataclasses
import sqlite3
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from pair.cluster.refusing import Refusal
from pair.control.cluster import AnswerBody, Invited
from pair.control.route import BASE
from pair.records.cluster import Invitation, Roster
from pair.store import StoreClosed
from pair.test.control.samples import ALONE, ASKED, CODE, HOME, INVITED, MAC, NODE, NOW, RACK, TOKEN, Node
from pair.test.surfaces.wire import Conversation, request

if TYPE_CHECKING:
    from pair.control.sources import ControlSources
    from pair.test.surfaces.wire import Answer


class NodeWithout(Node):
    """A node whose membership is not up."""

    @property
    def sources(self) -> ControlSources:
        return dataclasses.replace(super().sources, cluster=None)


class ClusterTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.node = Node()
        self.cluster, self.invitations = self.node.cluster, self.node.invitations

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        document = None if body is None else msgspec.json.encode(body)
        return self.node.ask(method, f"{BASE}/cluster{path}", document)

    def assert_refused(self, answer: Answer, status: int, code: str, **details: str) -> None:
        self.assertEqual((answer.status, answer.code), (status, code))
        self.assertEqual(answer.json["error"]["details"], details)


class MembershipTests(ClusterTestCase):
    def test_roster(self) -> None:
        """The roster is the record of the cluster page (UI-48)."""
        found = self.ask("GET", "").json
        self.assertEqual(found["cluster"], {"id": HOME.id, "name": "home"})
        self.assertEqual(found["self"], NODE)
        rack = found["members"][1]
        self.assertEqual(
            (rack["admittedBy"], rack["joinedAt"], rack["lastSeenAt"], rack["flags"]),
            (NODE, NOW - 50_000, NOW - 4_000, ["one_way"]),
        )
        self.assertEqual([each["how"] for each in found["former"]], ["removed"])
        self.assertEqual(msgspec.json.decode(self.ask("GET", "").body, type=Roster), self.cluster.present)

    def test_in_none(self) -> None:
        """A node in no cluster says so (cluster page, section 12)."""
        self.cluster.present = ALONE
        self.assertEqual(self.ask("GET", "").json, {"cluster": None, "self": NODE, "members": [], "former": []})

    def test_removed(self) -> None:
        """A UUID is taken in any spelling (CL-4), and those that it let in are removed if so wished (CL-87)."""
        for spelling in (RACK, RACK.upper(), RACK.replace("-", ""), f"urn:uuid:{RACK}"):
            answer = self.ask("DELETE", f"/members/{spelling}")
            self.assertEqual(answer.json, {"removed": True, "nodes": [RACK], "told": [MAC], "untold": []})
            self.assertEqual(self.cluster.asked.pop(), ("remove", RACK, False))
        self.assertEqual(self.ask("DELETE", f"/members/{RACK}?withAdmitted=true").json["nodes"], [RACK, MAC])
        self.assertEqual(self.cluster.asked.pop(), ("remove", RACK, True))
        self.ask("DELETE", "/members/self")
        self.assertEqual(self.cluster.asked.pop(), ("remove", NODE, False))

    def test_removal_refused(self) -> None:
        """What is no UUID is no node, and what is no flag is named; nothing is done then."""
        self.assert_refused(self.ask("DELETE", "/members/rack"), 404, "no_such_node")
        for query in ("withAdmitted=maybe", "with_admitted=true"):
            self.assertEqual(self.ask("DELETE", f"/members/{RACK}?{query}").code, "invalid_value")
        self.assertEqual(self.cluster.asked, [])

    def test_left(self) -> None:
        """Leaving tells who knows of it; in no cluster there is nothing to leave (CL-88)."""
        self.assertEqual(self.ask("POST", "/leave").json, {"left": True, "told": [RACK], "untold": [MAC]})
        self.cluster.present = ALONE
        self.assertEqual(self.ask("POST", "/leave").json, {"left": False, "told": [], "untold": []})

    def test_audit(self) -> None:
        """The audit comes as a list, cut at the limit (UI-25)."""
        found = self.ask("GET", "/audit").json
        self.assertEqual((found["generation"], found["revision"]), ("5d0e8c11a2b34f66", 0))
        (row,) = found["audit"]
        detail = {"from": "self", "issuedAt": NOW - 3000}
        self.assertEqual((row["event"], row["subject"], row["detail"]), ("admit", RACK, detail))
        self.ask("GET", "/audit?limit=7")
        self.assertEqual(self.cluster.asked, [("audit", 100), ("audit", 7)])
        for query in ("limit=0", "limit=501", "cursor=x"):
            self.assertEqual(self.ask("GET", f"/audit?{query}").code, "invalid_value")

    def test_store(self) -> None:
        """What cannot be written has not happened: 503 ``store`` (CL-86)."""
        for self.cluster.fault in (sqlite3.OperationalError("/secret is full"), StoreClosed()):
            for answer in (
                self.ask("DELETE", f"/members/{RACK}"),
                self.ask("POST", "/leave"),
                self.ask("POST", "/identity/new", {"confirm": True, "abandon": True}),
            ):
                self.assert_refused(answer, 503, "store")
                self.assertNotIn(b"secret", answer.body)

    def test_not_up(self) -> None:
        """Where membership is not up every route says so."""
        for method, path in (("GET", ""), ("POST", "/leave"), ("GET", "/invitations"), ("GET", "/audit")):
            self.assert_refused(NodeWithout().ask(method, f"{BASE}/cluster{path}"), 503, "not_ready")


class IdentityTests(ClusterTestCase):
    def test_shown(self) -> None:
        """UUID and digest of the certificate (CL-7)."""
        self.assertEqual(self.ask("GET", "/identity").json["node"], NODE)
        self.assertRegex(self.ask("GET", "/identity").json["leaf"], "^sha256:[0-9a-f]{64}$")

    def test_new(self) -> None:
        """In a cluster it needs ``abandon``, and everywhere a confirmation (UI-51, CL-96)."""
        for body in ({"confirm": True}, {"confirm": True, "abandon": False}):
            self.assert_refused(self.ask("POST", "/identity/new", body), 409, "still_member")
        for body in ({}, {"abandon": True}, {"confirm": False}):
            self.assert_refused(self.ask("POST", "/identity/new", body), 409, "confirm_needed")
        self.assertEqual(self.cluster.asked, [])
        answer = self.ask("POST", "/identity/new", {"confirm": True, "abandon": True})
        self.assertEqual((answer.status, answer.json["restart"]), (200, True))
        self.assertNotEqual(answer.json["node"], NODE)
        self.cluster.present = ALONE
        self.assertEqual(self.ask("POST", "/identity/new", {"confirm": True}).status, 200)


class InvitationTests(ClusterTestCase):
    def test_invited(self) -> None:
        """201: the record and, there and nowhere else, the code (UI-49, CL-101)."""
        answer = self.ask("POST", "/invitations", {"address": "192.168.1.20:15000"})
        self.assertEqual(answer.status, 201)
        found = answer.json
        self.assertEqual((found.pop("code"), found["state"], found["codeKind"]), (CODE, "waiting", "pin"))
        self.assertEqual(self.ask("GET", f"/invitations/{INVITED.id}").json, found)
        self.assertEqual(self.ask("GET", "/invitations").json["invitations"], [found])
        self.assertEqual(self.invitations.asked, [("invite", "192.168.1.20:15000", "pin")])

    def test_by_node(self) -> None:
        """A node is named by its UUID in any spelling (CL-4)."""
        self.ask("POST", "/invitations", {"node": RACK.upper(), "codeKind": "long"})
        self.assertEqual(self.invitations.asked, [("invite", RACK, "long")])

    def test_nobody(self) -> None:
        """One of the two names is needed, and what is none is refused before anybody is asked (UI-12)."""
        for body, path in (
            ({}, "node"),
            ({"node": RACK, "address": "rack"}, "node"),
            ({"node": "rack"}, "node"),
            ({"address": ""}, "address"),
        ):
            self.assert_refused(self.ask("POST", "/invitations", body), 422, "invalid_value", path=path)
        for body, path in (({"address": "a", "codeKind": "word"}, "codeKind"), ({"code": "123456"}, "code")):
            self.assert_refused(self.ask("POST", "/invitations", body), 400, "bad_request", path=path)
        self.assertEqual(self.invitations.asked, [])

    def test_invitation_refused(self) -> None:
        """A refusal is told as it is, with its cure (CL-43); a 429 says when to come again."""
        for code, status in (
            ("already_clustered", 409),
            ("identity_clash", 409),
            ("cluster_full", 409),
            ("is_self", 409),
            ("unreachable", 502),
            ("invalid_value", 422),
            ("pairing_off", 403),
        ):
            self.invitations.fault = why = Refusal(code, "there" if code == "pairing_off" else "here")
            answer = self.ask("POST", "/invitations", {"address": "rack"})
            self.assert_refused(answer, status, code)
            self.assertEqual(answer.json["error"]["message"], why.message)
            self.assertEqual(answer.field("retry-after"), None)
        self.invitations.fault = Refusal("too_many")
        answer = self.ask("POST", "/invitations", {"address": "rack"})
        self.assert_refused(answer, 429, "too_many")
        self.assertEqual(answer.field("retry-after"), "10")

    def test_unknown(self) -> None:
        """An invitation that is not there is 404 for every verb (UI-50)."""
        for answer in (
            self.ask("GET", "/invitations/x"),
            self.ask("DELETE", "/invitations/x"),
            self.ask("POST", "/invitations/x/answer", {"accept": False}),
            self.ask("POST", "/invitations/x/answer", {"accept": True, "code": CODE}),
        ):
            self.assert_refused(answer, 404, "no_such_invitation")

    def test_cancelled(self) -> None:
        """What comes too late is told with the state (CL-55)."""
        self.invitations.found = [INVITED]
        self.assertEqual(self.ask("DELETE", f"/invitations/{INVITED.id}").json["state"], "cancelled")
        self.invitations.fault = Refusal("invitation_over", state="cancelled")
        answer = self.ask("DELETE", f"/invitations/{INVITED.id}")
        self.assert_refused(answer, 409, "invitation_over", state="cancelled")


class AnswerTests(ClusterTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.invitations.found = [ASKED]

    def answer(self, **body: object) -> Answer:
        return self.ask("POST", f"/invitations/{ASKED.id}/answer", body)

    def test_accepted(self) -> None:
        """The right code joins; the answer is the invitation at its end (CL-46)."""
        found = self.answer(accept=True, code="048 392").json
        self.assertEqual((found["state"], found["cluster"]["name"]), ("paired", "home"))
        self.assertEqual(self.invitations.asked, [("accept", ASKED.id, "048 392")])

    def test_under_way(self) -> None:
        """After 30 s it is the invitation as it is then."""
        self.invitations.after = {"state": "confirming"}
        answer = self.answer(accept=True, code=CODE)
        self.assertEqual((answer.status, answer.json["state"]), (200, "confirming"))

    def test_wrong_code(self) -> None:
        """A wrong code is 403, and the invitation void (UI-50)."""
        self.invitations.after = {"state": "voided", "reason": "wrong_code", "ended_at": NOW}
        self.assert_refused(self.answer(accept=True, code=CODE), 403, "wrong_code", state="voided")
        self.assertEqual(self.ask("GET", f"/invitations/{ASKED.id}").json["state"], "voided")

    def test_other_end(self) -> None:
        """Another end is the invitation's own."""
        self.invitations.after = {"state": "failed", "reason": "no_answer", "ended_at": NOW}
        answer = self.answer(accept=True, code=CODE)
        self.assertEqual((answer.status, answer.json["reason"]), (200, "no_answer"))

    def test_refused(self) -> None:
        """What speaks against it is told, and nothing was spent (CL-46)."""
        for code, status in (("invalid_value", 422), ("already_clustered", 409), ("pairing_busy", 409)):
            self.invitations.fault = Refusal(code)
            self.assert_refused(self.answer(accept=True, code="12"), status, code)
        self.invitations.fault = Refusal("invitation_over", state="paired")
        self.assert_refused(self.answer(accept=True, code=CODE), 409, "invitation_over", state="paired")

    def test_declined(self) -> None:
        """Without a code one can decline, and only that."""
        self.assert_refused(self.answer(accept=True), 422, "invalid_value", path="code")
        self.assertEqual(self.answer(accept=False).json["state"], "declined")
        self.assertEqual(self.invitations.asked, [("decline", ASKED.id)])

    def test_client_that_leaves(self) -> None:
        """A pairing goes on when whoever typed the code hangs up."""
        going = Deferred[Invitation]()
        self.invitations.accept = lambda *_: going  # type: ignore[method-assign]
        conversation = Conversation(self.node.site())
        path, body = f"{BASE}/cluster/invitations/{ASKED.id}/answer", b'{"accept":true,"code":"048392"}'
        conversation.send(request("POST", path, body, authorization=f"Bearer {TOKEN.decode()}"))
        conversation.transport.loseConnection()
        self.assertFalse(going.called)
        going.callback(replace(ASKED, state="paired"))

    def test_silent(self) -> None:
        """What holds a code does not show it (CL-105)."""
        fields = msgspec.structs.asdict(ASKED)
        for value in (AnswerBody(True, CODE), Invited(**fields, code=CODE)):
            self.assertNotIn(CODE, f"{value} {value!r}")

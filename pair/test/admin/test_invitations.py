"""Tests of ``pair-admin invite``, ``pending``, ``accept``, ``decline`` and ``cancel`` (cluster page, section 12)."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from pair.cluster.refusing import Refusal
from pair.control.views import Listener
from pair.records.cluster import InvitationPeer
from pair.test.admin.desk import Desk, Terminal
from pair.test.control.samples import ALONE, ASKED, CODE, ENTRIES, HOME, INVITED, MAC, NODE, NOW, OLD, RACK, ROSTER

if TYPE_CHECKING:
    from collections.abc import Callable

OTHER = replace(ASKED, id="c3d40000000000000000000000000003", peer=InvitationPeer(OLD, "old", "192.168.1.40"))
PAIRED = {"state": "paired", "ended_at": NOW, "cluster": HOME}


class InvitationTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.desk = Desk(self)
        self.desk.node.cluster.present = ALONE
        self.invitations = self.desk.node.invitations

    def change(self, id: str, **fields: object) -> Callable[[], object]:
        return lambda: self.invitations.change(id, **fields)

    @property
    def records(self) -> list[Any]:
        """The output, a JSON value on each line."""
        return [msgspec.json.decode(line) for line in self.desk.lines]


class InviteTests(InvitationTestCase):
    def test_code(self) -> None:
        """The code is shown in groups, with where to type it, how long it holds, and how to go on (CL-101)."""
        self.assertEqual(self.desk.run("invite", "192.168.1.20"), 0)
        self.assertEqual(self.desk.lines[0], "Code for rack at 192.168.1.20:")
        self.assertEqual(self.desk.lines[2], "    048 392")
        self.assertIn("within 5 min 0 s: pair-admin accept", self.desk.lines[4])
        self.assertIn("K7QX", self.desk.lines[5])
        self.assertIn("pair-admin cancel 9f0c0000", self.desk.err.getvalue())
        self.assertEqual(self.desk.timeouts, [30])

    def test_json(self) -> None:
        """With --json it is one value with the code in it."""
        self.assertEqual(self.desk.run("invite", "192.168.1.20", "--json"), 0)
        self.assertEqual((self.desk.json["code"], self.desk.json["state"]), (CODE, "waiting"))

    def test_target(self) -> None:
        """A UUID or a name that is known here is a node; all else is an address (CL-4)."""
        for text, target in (
            (RACK.upper(), RACK),
            ("192.168.1.20:15000", "192.168.1.20:15000"),
            ("fe80::1%eth0", "fe80::1%eth0"),
            ("garage", "garage"),
        ):
            self.assertEqual(self.desk.run("invite", text, "--code", "long"), 0)
            self.assertEqual(self.invitations.asked.pop(), ("invite", target, "long"))
        self.desk = Desk(self)
        for text in ("old", "c0ff"):
            self.assertEqual(self.desk.run("invite", text), 0)
            self.assertEqual(self.desk.node.invitations.asked.pop(), ("invite", OLD, "pin"))
        self.assertEqual(self.desk.run("invite", "b7d"), 1)

    def test_found_here(self) -> None:
        """A node that was found is invited by its name or by how its UUID begins, a stranger too (CL-4)."""
        nodes = self.desk.node.nodes
        nodes.entries = (*ENTRIES[:2], replace(ENTRIES[2], name="mac.lan"), ENTRIES[3])
        for text, target in (
            ("mac.lan", MAC),
            ("b7d1", MAC),
            ("rack", RACK),
            ("desk", NODE),
            ("shed", "shed"),
            ("10.8.0.3", "10.8.0.3"),
            ("rack:14321", "rack:14321"),
        ):
            self.assertEqual(self.desk.run("invite", text), 0, text)
            self.assertEqual(self.invitations.asked.pop(), ("invite", target, "pin"))
        self.assertEqual(self.desk.run("invite", "b7d"), 1)
        self.assertIn("b7d0f6f0 (rack), b7d1aaaa (mac.lan)", self.desk.err.getvalue())

    def test_no_code_as_argument(self) -> None:
        """A code is never an argument (CL-101)."""
        self.assertEqual(self.desk.run("invite", "rack", "--code", CODE), 2)
        for words in (("accept", "--code", CODE), ("accept", "a1b2", CODE)):
            self.assertEqual(self.desk.run(*words), 2)
        self.assertEqual(self.invitations.asked, [])

    def test_refused(self) -> None:
        """A refusal is exit 1, with its code and its cure."""
        for code in ("already_clustered", "identity_clash", "cluster_full", "too_many", "unreachable"):
            self.invitations.fault = Refusal(code)
            self.assertEqual(self.desk.run("invite", "192.168.1.20"), 1)
            self.assertIn(f"({code}, e-", self.desk.err.getvalue())
            self.assertEqual(self.desk.run("invite", "192.168.1.20", "--wait", "--json"), 1)
            self.assertEqual(self.desk.json["error"]["code"], code)

    def test_where_it_was_tried(self) -> None:
        """Where nobody could be reached it says at which address, and why (CL-57)."""
        self.invitations.fault = Refusal("unreachable", tried="192.168.1.20:14321 (the connection was refused)")
        self.desk.run("invite", "192.168.1.20")
        self.assertIn("tried 192.168.1.20:14321 (the connection was refused)", self.desk.err.getvalue())

    def test_wait(self) -> None:
        """--wait shows the code at once and asks until the end: paired is exit 0."""
        self.desk.then = [
            lambda: self.assertEqual([each["state"] for each in self.records], ["waiting"]),
            self.change(INVITED.id, state="confirming"),
            self.change(INVITED.id, **PAIRED),
        ]
        self.assertEqual(self.desk.run("invite", "192.168.1.20", "--wait", "--json"), 0)
        first, last = self.records
        self.assertEqual((first["code"], first["state"]), (CODE, "waiting"))
        self.assertEqual((last["id"], last["state"]), (first["id"], "paired"))
        self.assertNotIn("code", last)
        self.assertEqual(self.desk.err.getvalue(), "")

    def test_wait_at_a_terminal(self) -> None:
        """On a terminal too each record is on one line, and the code comes once."""
        self.desk.out = Terminal()
        self.desk.then = [self.change(INVITED.id, **PAIRED)]
        self.desk.run("invite", "192.168.1.20", "--wait", "--json")
        self.assertEqual([each["state"] for each in self.records], ["waiting", "paired"])
        self.assertEqual(self.desk.out.getvalue().count(CODE), 1)

    def test_other_ends(self) -> None:
        """Any other end is exit 1, and says why (cluster page, section 12)."""
        for state, reason, words in (
            ("voided", "wrong_code", "The code was wrong. The invitation is void on both sides"),
            ("failed", "no_answer", "it may yet appear by itself"),
            ("failed", "something_new", "something_new The pairing has failed"),
            ("declined", None, "declined"),
            ("cancelled", None, "taken back"),
            ("expired", None, "expired"),
        ):
            self.desk.then = [self.change(INVITED.id, state=state, reason=reason, ended_at=NOW)]
            self.invitations.found = []
            self.assertEqual(self.desk.run("invite", "192.168.1.20", "--wait"), 1)
            self.assertIn(words, self.desk.lines[-1])

    def test_forgotten(self) -> None:
        """A service that was started anew knows nothing of it (CL-54): exit 1."""
        self.desk.then = [self.invitations.found.clear]
        self.assertEqual(self.desk.run("invite", "192.168.1.20", "--wait"), 1)
        self.assertIn("no_such_invitation", self.desk.err.getvalue())


class PendingTests(InvitationTestCase):
    def test_list(self) -> None:
        """Both directions, with what tells them apart; ended ones with why."""
        void = replace(INVITED, state="voided", reason="wrong_code", ended_at=NOW)
        self.invitations.found = [void, ASKED]
        self.assertEqual(self.desk.run("pending"), 0)
        mine, asked = (line.split() for line in self.desk.lines[1:])
        self.assertEqual(mine[:6], ["9f0c0000", "to", "rack", "192.168.1.20", "K7QX", "voided"])
        self.assertEqual(asked[:6], ["a1b20000", "from", "mac", "192.168.1.30", "K7QX", "waiting"])
        self.assertIn("The code was wrong.", self.desk.lines[1])
        self.assertIn("ends in 5 min 0 s", self.desk.lines[2])
        self.assertIn("pair-admin accept a1b20000", self.desk.err.getvalue())

    def test_port(self) -> None:
        """Who waits to be invited is told at which port (UI-31)."""
        self.desk.run("pending")
        self.assertIn("none can invite this one", self.desk.err.getvalue())
        self.desk.node.listeners = (Listener("cluster", "[::]:14400", "bound"),)
        self.desk.run("pending")
        self.assertIn("Other machines invite this one at port 14400.", self.desk.err.getvalue())
        self.desk.asked.clear()
        self.desk.run("pending", "--json")
        self.assertEqual(self.desk.asked, [("GET", "/api/v1/cluster/invitations")])

    def test_none(self) -> None:
        """None is told, and with --json is an empty list."""
        self.assertEqual((self.desk.run("pending"), self.desk.lines), (0, ["There are no invitations."]))
        self.desk.run("pending", "--json")
        self.assertEqual(self.desk.json["invitations"], [])


class AcceptTests(InvitationTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.invitations.found = [INVITED, ASKED]
        self.desk.environ["PAIR_CODE"] = CODE

    def accepted(self, code: str = CODE) -> tuple[str, str, str]:
        return ("accept", ASKED.id, code)

    def test_only_one(self) -> None:
        """Without ID it is the only one that waits; paired is exit 0."""
        self.assertEqual(self.desk.run("accept"), 0)
        self.assertEqual(self.invitations.asked, [self.accepted()])
        self.assertEqual(self.desk.lines, ["Paired with mac. This node is in the cluster home."])
        self.assertIn("calls itself mac, at 192.168.1.30", self.desk.err.getvalue())
        self.assertEqual(self.desk.timeouts, [15, 45])

    def test_json(self) -> None:
        """With --json the output is the invitation at its end, and nothing else."""
        self.assertEqual(self.desk.run("accept", "--wait", "--json"), 0)
        self.assertEqual((self.desk.json["state"], self.desk.json["cluster"]["name"]), ("paired", "home"))
        self.assertEqual(self.desk.err.getvalue(), "")

    def test_sources_of_the_code(self) -> None:
        """Standard input, the environment, a prompt without echo; never shown anywhere (CL-101)."""
        self.desk.stdin = io.StringIO("111 111\nmore\n")
        self.desk.run("accept", "--code-stdin")
        self.assertEqual(self.invitations.asked.pop(), self.accepted("111 111"))
        self.invitations.found = [ASKED]
        del self.desk.environ["PAIR_CODE"]
        self.desk.stdin, self.desk.typed = Terminal(), "222222"
        self.desk.run("accept")
        self.assertEqual(self.invitations.asked.pop(), self.accepted("222222"))
        self.assertEqual(self.desk.prompts, ["Code that is shown there (6 digits): "])
        self.assertNotIn("222222", self.desk.out.getvalue() + self.desk.err.getvalue())

    def test_long_code(self) -> None:
        """The prompt says what kind of code is meant."""
        self.invitations.found = [replace(ASKED, code_kind="long")]
        self.desk.environ["PAIR_CODE"] = ""
        self.desk.stdin = Terminal()
        self.desk.run("accept")
        self.assertIn("20 characters", self.desk.prompts[0])

    def test_no_code(self) -> None:
        """Without a terminal and without a code it is wrong usage, and nothing is spent."""
        del self.desk.environ["PAIR_CODE"]
        self.assertEqual(self.desk.run("accept"), 2)
        self.assertIn("PAIR_CODE", self.desk.err.getvalue())
        self.assertEqual(self.invitations.asked, [])

    def test_by_id(self) -> None:
        """An id may be cut; one that is not there is the service's to refuse or waited for."""
        self.assertEqual(self.desk.run("accept", "A1B2"), 0)
        self.assertEqual(self.desk.run("accept", "ffff", "--json"), 1)
        self.assertEqual(self.desk.json["error"]["code"], "no_such_invitation")
        self.assertEqual(self.desk.run("accept", INVITED.id), 1)
        self.invitations.found.append(replace(ASKED, id="a1b3"))
        self.assertEqual(self.desk.run("accept", "a1b", "--json"), 1)
        self.assertEqual(self.desk.json["error"]["code"], "ambiguous")

    def test_several(self) -> None:
        """Several are exit 2 with the list (CL-101)."""
        self.invitations.found = [ASKED, OTHER]
        self.assertEqual(self.desk.run("accept"), 2)
        self.assertIn("  a1b20000  mac at 192.168.1.30, tag K7QX", self.desk.err.getvalue())
        self.assertIn("  c3d40000  old at 192.168.1.40", self.desk.err.getvalue())
        self.assertEqual(self.desk.run("accept", "--json"), 2)
        error = self.desk.json["error"]
        self.assertEqual([each["id"] for each in error["details"]["invitations"]], [ASKED.id, OTHER.id])
        self.assertEqual(self.invitations.asked, [])

    def test_from(self) -> None:
        """--from tells them apart: by UUID, how it begins, name or address (CL-4)."""
        for sender in (MAC, MAC.upper(), "b7d1", "mac", "192.168.1.30"):
            self.invitations.found = [ASKED, OTHER, replace(OTHER, id="e5", peer=InvitationPeer(None, None, "::1"))]
            self.assertEqual(self.desk.run("accept", "--from", sender), 0, sender)
            self.assertEqual(self.invitations.asked.pop(), self.accepted())
        self.assertEqual(self.desk.run("accept", "--from", "rack"), 1)
        self.assertEqual(self.desk.run("accept", "--from", NODE, "--json"), 1)
        self.assertEqual(self.desk.json["error"]["code"], "no_such_invitation")

    def test_wait_for_one(self) -> None:
        """--wait waits for one to come, as long as is said (CL-101)."""
        for words in (("--wait",), ("--wait", "2"), ("--wait", "--from", "mac"), (ASKED.id[:6], "--wait")):
            self.invitations.found = [INVITED]
            self.desk.then = [lambda: None, lambda: self.invitations.found.append(ASKED)]
            self.assertEqual(self.desk.run("accept", *words), 0, words)
            self.assertEqual(self.invitations.asked.pop(), self.accepted())

    def test_none_comes(self) -> None:
        """None is exit 1: at once, or after the time that is said."""
        self.invitations.found = []
        self.desk.pace = 100
        for words, seconds in (((), 0), (("--wait", "50"), 50), (("--wait",), 300)):
            began = self.desk.now
            self.assertEqual(self.desk.run("accept", *words, "--json"), 1)
            self.assertEqual(self.desk.now - began, seconds * 1000)
            self.assertEqual(self.desk.json["error"]["code"], "no_such_invitation")

    def test_none_can_come(self) -> None:
        """A node that takes no invitations does not wait for one, and says why."""
        self.invitations.found = []
        self.desk.node.cluster.present = ROSTER
        began = self.desk.now
        self.assertEqual(self.desk.run("accept", "--wait"), 1)
        self.assertEqual(self.desk.now, began)
        self.assertIn("in a cluster, and takes no invitations", self.desk.err.getvalue())

    def test_slow(self) -> None:
        """One that is under way after 30 s is followed to its end."""
        self.invitations.after = {"state": "confirming"}
        self.desk.then = [self.change(ASKED.id, state="failed", reason="no_answer", ended_at=NOW)]
        self.assertEqual(self.desk.run("accept", "--json"), 1)
        self.assertEqual(self.desk.json["reason"], "no_answer")

    def test_wrong_code(self) -> None:
        """A wrong code is exit 1 and says that the invitation is void."""
        self.invitations.after = {"state": "voided", "reason": "wrong_code", "ended_at": NOW}
        self.assertEqual(self.desk.run("accept"), 1)
        self.assertIn("(wrong_code, e-", self.desk.err.getvalue())
        self.invitations.found = [ASKED]
        self.assertEqual(self.desk.run("accept", "--json"), 1)
        self.assertEqual(self.desk.json["error"]["details"], {"state": "voided"})
        self.assertNotIn(CODE, self.desk.out.getvalue())

    def test_interrupted(self) -> None:
        """Ctrl-C at the prompt is exit 130, and nothing is spent (UI-100)."""

        def interrupted(prompt: str) -> str:
            raise KeyboardInterrupt

        del self.desk.environ["PAIR_CODE"]
        self.desk.stdin, self.desk.ask = Terminal(), interrupted  # type: ignore[method-assign]
        self.assertEqual(self.desk.run("accept"), 130)
        self.assertEqual(self.invitations.asked, [])


class EndTests(InvitationTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.invitations.found = [INVITED, ASKED]

    def test_declined(self) -> None:
        """By id, or the only one that waits."""
        for words in ((), ("a1b2",), (ASKED.id,)):
            self.invitations.found = [INVITED, ASKED]
            self.assertEqual(self.desk.run("decline", *words, "--json"), 0)
            self.assertEqual((self.desk.json["id"], self.desk.json["state"]), (ASKED.id, "declined"))
        self.assertEqual(self.desk.run("decline"), 1)

    def test_all_declined(self) -> None:
        """--all declines those that wait, and only them; none is no failure."""
        self.invitations.found = [INVITED, ASKED, OTHER, replace(ASKED, id="e5", state="expired", ended_at=NOW)]
        self.assertEqual(self.desk.run("decline"), 2)
        self.assertEqual(self.desk.run("decline", "--all", "--json"), 0)
        self.assertEqual([each["id"] for each in self.desk.json["invitations"]], [ASKED.id, OTHER.id])
        self.assertEqual(self.desk.run("decline", "--all"), 0)
        self.assertEqual(self.desk.run("decline", "--all", "a1b2"), 2)

    def test_cancelled(self) -> None:
        """One of ours by its id; what has ended, or is not there, is refused (CL-55)."""
        self.assertEqual(self.desk.run("cancel", "9f0c"), 0)
        self.assertEqual(self.desk.lines, ["The invitation was taken back."])
        self.assertEqual(self.desk.run("cancel", "ffff", "--json"), 1)
        self.assertEqual(self.desk.json["error"]["code"], "no_such_invitation")
        self.invitations.fault = Refusal("invitation_over", state="paired")
        self.assertEqual(self.desk.run("cancel", INVITED.id, "--json"), 1)
        self.assertEqual(self.desk.json["error"]["details"], {"state": "paired"})

    def test_only_one_cancelled(self) -> None:
        """Without ID it is the only open one of ours; several are exit 2 with the list, none is exit 1."""
        self.assertEqual(self.desk.run("cancel", "--json"), 0)
        self.assertEqual((self.desk.json["id"], self.desk.json["state"]), (INVITED.id, "cancelled"))
        self.assertEqual(self.desk.run("cancel", "--json"), 1)
        self.assertEqual(self.desk.json["error"]["code"], "no_such_invitation")
        self.invitations.found = [replace(INVITED, id=id) for id in ("9f0d", "9f0e")]
        self.assertEqual(self.desk.run("cancel"), 2)
        self.assertIn("  9f0d  rack at 192.168.1.20, tag K7QX", self.desk.err.getvalue())

    def test_unreachable(self) -> None:
        """Exit 3 when nobody answers (UI-100)."""
        self.desk.fault = ConnectionRefusedError()
        for words in (("pending",), ("accept",), ("decline",), ("cancel", "x"), ("invite", "192.168.1.20")):
            self.assertEqual(self.desk.run(*words), 3)

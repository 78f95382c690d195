"""How the node that is invited is found, and what counts as its answer (CL-43, CL-56 to CL-58)."""

from __future__ import annotations

from typing import Any, get_args

from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectError

from pair.cluster.posting import CallError
from pair.cluster.refusing import PairingReply, refuse
from pair.protocols.dial import DialError, DialReason
from pair.test.cluster.neighbours import Node
from pair.test.cluster.test_inviting import InviterTests


class WalkTests(InviterTests):
    def setUp(self) -> None:
        super().setUp()
        self.node = self.rack.party.uuid

    def test_next_address(self) -> None:
        """The same hello goes to one address after the other, until one replies (CL-56)."""
        self.desk.known[self.node] = ["10.0.0.7", "10.0.0.8:14321", "no address", "10.0.0.7", "10.0.0.2"]
        made = self.desk.invite(self.node)
        self.assertEqual([each for each, _ in self.tried()], ["10.0.0.7", "10.0.0.8", "10.0.0.2"])
        self.assertEqual(len({each.body for each in self.network.bodies(b'"step":"hello"')}), 1)
        self.assertEqual(made.value[0].peer.address, "10.0.0.2")

    def test_patience(self) -> None:
        """An address has 13 seconds, all together 15; then it is unreachable, and was never there (CL-56, CL-57)."""
        self.network.fate = lambda _: "lose request"
        self.desk.known[self.node] = ["10.0.0.7", "10.0.0.8", "10.0.0.2"]
        made = self.desk.invite(self.node)
        self.network.run(14.8)
        self.assertFalse(made.done)
        self.network.run(0.2)
        self.assertEqual(made.refused, (502, "unreachable"))
        tried = "10.0.0.7:14321 (it took too long), 10.0.0.8:14321 (it took too long)"
        self.assertEqual(made.error.details, {"tried": tried})
        self.assertEqual(self.tried(), [("10.0.0.7", 0.0), ("10.0.0.8", 13.0)])
        self.assertEqual((self.desk.news, self.desk.service.all(), self.desk.rows), ([], (), []))

    def test_nowhere(self) -> None:
        """A node whose address nobody knows is unreachable."""
        made = self.desk.invite(self.node)
        self.assertEqual((made.refused, made.error.details), ((502, "unreachable"), {}))

    def test_why(self) -> None:
        """It says of each address why nobody was reached there."""
        faults: list[Exception] = [DialError(reason) for reason in get_args(DialReason)]
        faults += [
            CallError("lost"),
            CallError("timeout"),
            CallError("broken"),
            CallError("too_large"),
            ConnectError(),
        ]
        words = set()
        for fault in faults:
            self.fault = fault
            self.patch(self.network, "send", self.failing)
            words.add(self.desk.invite("10.0.0.2").error.details["tried"])
        self.assertEqual(len(words), len(faults) - 1)
        self.assertIn("10.0.0.2:14321 (nothing listens there)", words)

    def failing(self, *_: Any) -> Deferred[Any]:
        return fail(self.fault)

    def test_link_local(self) -> None:
        """A link-local address without zone is tried on each interface (CL-58)."""
        self.desk.zones = ["eth0", "wlan0"]
        self.network.places["fe80::2%wlan0"] = self.rack
        made = self.desk.invite("fe80::2")
        self.assertEqual([each for each, _ in self.tried()], ["fe80::2%eth0", "fe80::2%wlan0"])
        self.assertEqual(made.value[0].peer.address, "fe80::2%wlan0")

    def test_another_node(self) -> None:
        """A node other than the one invited is passed by, whether it takes the hello or refuses it (CL-57)."""
        Node(self.network, "third", "10.0.0.3")
        Node(self.network, "fourth", "10.0.0.4").enabled = False
        self.desk.known[self.node] = ["10.0.0.3", "10.0.0.4", "10.0.0.2"]
        self.assertEqual(self.desk.invite(self.node).value[0].peer.node, self.node)

    def test_right_node_refuses(self) -> None:
        """A refusal of the node itself ends the walk (CL-57)."""
        self.rack.enabled = False
        self.desk.known[self.node] = ["10.0.0.2", "10.0.0.3"]
        self.assertEqual(self.desk.invite(self.node).refused, (403, "pairing_off"))
        self.assertEqual(len(self.tried()), 1)

    def test_refusals(self) -> None:
        """Each refusal is told as it is, with a cure, and no code was shown (CL-43)."""
        rows = [
            (403, "pairing_off"),
            (400, "version"),
            (409, "is_self"),
            (409, "identity_clash"),
            (409, "already_clustered"),
            (429, "too_many"),
        ]
        for status, code in rows:
            self.rack.service = Answering(refuse(status, code, self.node))  # type: ignore[assignment]
            refused = self.desk.invite(self.rack)
            self.assertEqual(refused.refused, (status, code))
            self.assertGreater(len(refused.error.message), 40)
        self.assertEqual(self.desk.news, [])

    def test_no_reply_of_ours(self) -> None:
        """Whatever else answers there counts as nobody (CL-57)."""
        rows = [
            PairingReply(200, b""),
            PairingReply(200, b"{}"),
            PairingReply(200, b"[" * 100_000),
            PairingReply(404, b"<html>"),
            PairingReply(409, b'{"error":{"code":"too_many"}}'),
            PairingReply(409, b'{"error":{"code":"unknown"}}'),
            PairingReply(500, b'{"error":"x"}'),
        ]
        for reply in rows:
            self.rack.service = Answering(reply)  # type: ignore[assignment]
            self.assertEqual(self.desk.invite(self.rack).refused, (502, "unreachable"))

    def test_given_up(self) -> None:
        """Who asked for the invitation and is gone before the code was shown leaves nothing."""
        self.network.fate = lambda _: "lose request"
        made = self.desk.invite(self.rack)
        made.deferred.cancel()
        self.assertTrue(made.done)
        self.assertEqual(self.network.clock.getDelayedCalls(), [])
        self.assertEqual(self.desk.service.all(), ())


class Answering:
    """A service that has one answer to everything."""

    def __init__(self, reply: PairingReply) -> None:
        self._reply = reply

    def receive(self, body: bytes, mac: bytes | None, source: str) -> Deferred[PairingReply]:
        answer: Deferred[PairingReply] = Deferred()
        answer.callback(self._reply)
        return answer

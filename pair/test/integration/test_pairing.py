"""Pairing with real processes, from the command line alone (cluster page, section 5)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pair.test.integration.cluster import ClusterNode, ClusterTestCase, Command, start
from pair.test.integration.network import cabled

if TYPE_CHECKING:
    from pair.test.integration.network import Host

PROMPTLY = 1.0
"""Seconds in which the other side knows that a code was wrong."""


class HostNode(ClusterNode):
    """A node on a host of its own, listening at all its addresses."""

    def __init__(self, folder: Path, host: Host) -> None:
        super().__init__(folder, 'node.bind=["0.0.0.0","::"]')
        self._host = host

    def launch(self, *options: str) -> None:
        """See :class:`pair.test.integration.node.Node`."""
        with self._host.inside():
            super().launch(*options)

    def get(self, path: str) -> Any:
        """See :class:`pair.test.integration.node.Node`."""
        with self._host.inside():
            return super().get(path)

    def command(self, *arguments: str, **environ: str) -> Command:
        """See :class:`ClusterNode`."""
        with self._host.inside():
            return super().command(*arguments, **environ)

    def _is_ready(self) -> bool:
        with self._host.inside():
            return super()._is_ready()


class PairingTests(ClusterTestCase):
    def test_by_command(self) -> None:
        """P01: two nodes pair from the command line, and a third joins by the one that joined; all list the same."""
        first, second, third = self.start_peers(3)
        self.pair_by_command(first, second, second.places[0])
        for node in (first, second):
            self.assertEqual(listed(node), {first.uuid, second.uuid})
        self.pair_by_command(second, third, third.places[0])
        self.wait_until_agreed(first, second, third)
        self.assertEqual(listed(first), {first.uuid, second.uuid, third.uuid})
        for node in (first, second, third):
            node.stop()

    def test_over_network(self) -> None:
        """P01: two hosts pair by an address of the one that is invited; both list both."""
        self.pair_hosts("10.77.0.2:{port}")

    def test_over_link_local_address(self) -> None:
        """CL-58: by a link-local address with the inviter's own zone; that of the other has another name."""
        self.pair_hosts("[fe80::2%uplink0]:{port}")

    def test_wrong_code(self) -> None:
        """CL-47, CL-48: a wrong code voids an invitation on both sides at once; a new one works.

        After that not even the right code is worth anything (CL-46).
        """
        first, second = self.start_peers(2)
        inviting = first.command("invite", second.places[0], "--wait")
        invitation = inviting.line()
        wrong = f"{(int(invitation['code']) + 1) % 10**6:06}"
        exit_code, said = second.command("accept", "--wait", PAIR_CODE=wrong).end()
        self.assertEqual((exit_code, said["error"]["code"]), (1, "wrong_code"))
        since = time.monotonic()
        for node in (second, first):
            self.assertEqual(node.outcome(invitation), ("voided", "wrong_code"))
        self.assertLess(time.monotonic() - since, PROMPTLY)
        exit_code, said = inviting.end()
        self.assertEqual((exit_code, said["state"], said["reason"]), (1, "voided", "wrong_code"))

        exit_code, said = second.command("accept", invitation["id"], PAIR_CODE=invitation["code"]).end()
        self.assertEqual((exit_code, said["error"]["code"]), (1, "invitation_over"))
        answer = second.accept(invitation, invitation["code"])
        self.assertEqual((answer.status, answer.value["error"]["code"]), (409, "invitation_over"))
        self.assertEqual([each.cluster() for each in (first, second)], [None, None])

        self.pair(first, second)
        self.wait_until_agreed(first, second)

    def pair_hosts(self, place: str) -> None:
        """Pair two nodes on two hosts, by a place of the second one as the first one calls it."""
        first, second = (HostNode(Path(self.mktemp()), host) for host in cabled(self, "uplink0", "lan7"))
        for node in (first, second):
            self.addCleanup(node.destroy)
        start(first, second)
        self.pair_by_command(first, second, place.format(port=second.port))
        self.wait_until_agreed(first, second)

    def pair_by_command(self, inviter: ClusterNode, joiner: ClusterNode, address: str) -> None:
        """Invite at an address and accept, both by ``pair-admin --wait``; both succeed, and say so."""
        inviting = inviter.command("invite", address, "--wait")
        code = inviting.line()["code"]
        for command in (joiner.command("accept", "--wait", PAIR_CODE=code), inviting):
            exit_code, said = command.end()
            self.assertEqual((exit_code, said["state"]), (0, "paired"), said)


def listed(node: ClusterNode) -> set[str]:
    """The members that ``pair-admin cluster show`` lists."""
    _, said = node.command("cluster", "show").end()
    return {each["node"] for each in said["members"]}

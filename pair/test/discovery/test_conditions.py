"""The entries of discovery (JB-70, JB-80)."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from pair.discovery.conditions import CONDITIONS

ERRORS = {"multicast_denied", "identity_clash:<node>", "own_identity_clash"}
WARNINGS = {
    *("too_many_nodes", "multicast_port_taken", "multicast_blocked", "cluster_mismatch:<node>"),
    *("manual_unreachable:<id>", "manual_identity_changed:<id>"),
}


class ConditionsTests(SynchronousTestCase):
    def test_declared(self) -> None:
        """All of the registry are declared, as severe as it says, and clear by themselves."""
        severities = {each.id.removeprefix("discovery:"): each.severity for each in CONDITIONS}
        self.assertEqual(severities, {**dict.fromkeys(ERRORS, "error"), **dict.fromkeys(WARNINGS, "warning")})
        self.assertEqual({(each.cleared, each.action) for each in CONDITIONS}, {("auto", "none")})

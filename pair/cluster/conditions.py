"""The conditions that the cluster raises (registry of the jobs page)."""

from __future__ import annotations

from pair.records.errors import Condition

CONDITIONS = (
    Condition(
        id="cluster:removed:<node>",
        severity="warning",
        action="dismiss",
        cleared="dismiss",
        text="This node was put out of the cluster {cluster}: {how} by {by}, at {at}. "
        "Unless it is a member again, it can be invited anew.",
    ),
    Condition(
        id="cluster:refused",
        severity="warning",
        action="none",
        cleared="auto",
        text="Every member that can be reached refuses this node, and none says why. Ask on a member whether it was "
        "removed there (pair-admin cluster show), or leave: pair-admin cluster leave.",
    ),
    Condition(
        id="cluster:one_way:<node>",
        severity="warning",
        action="none",
        cleared="auto",
        text="Only one of this node and {name} can reach the other: {side} gets no answer at port {port}. "
        "Most likely a firewall on {blocked} does not let it pass.",
    ),
    Condition(
        id="cluster:pairing_attacked",
        severity="warning",
        action="none",
        cleared="age",
        text="{count} invitations failed within an hour because the code did not fit. If it was typed right, somebody "
        "may be interfering: invite with --code long.",
    ),
    Condition(
        id="cluster:certificate_changed:<node>",
        severity="error",
        action="none",
        cleared="auto",
        text="What answers for {name} shows another certificate than that of the member. Nothing is sent to it. "
        "If that node has a new identity, remove the old one and invite it again.",
    ),
    Condition(
        id="cluster:leaf_clash:<node>",
        severity="error",
        action="none",
        cleared="auto",
        text="Two nodes with different keys are in the cluster under one UUID, {node}, admitted by {admitters}. "
        "Neither is trusted until that UUID is removed and the right node is invited again.",
    ),
    Condition(
        id="cluster:identity_clash:<node>",
        severity="error",
        action="none",
        cleared="auto",
        text="Another machine, at {address}, has the identity of this node: one is a copy of the other's disk. "
        "Make a new identity on one of the two: pair-admin identity new.",
    ),
    Condition(
        id="cluster:statements_full",
        severity="warning",
        action="none",
        cleared="auto",
        text="The cluster has as many statements as it may, most of them by {signer}. Only removals and leaves are "
        "taken from now on. To begin anew, leave on all nodes and pair them again.",
    ),
    Condition(
        id="cluster:state_rolled_back",
        severity="warning",
        action="dismiss",
        cleared="dismiss",
        text="Members know of {count} statements of this node that it has no record of. Either its state was restored "
        "from an old copy, or another machine has its identity; then: pair-admin identity new on one of the two.",
    ),
)

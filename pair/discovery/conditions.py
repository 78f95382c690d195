"""The conditions that discovery raises (registry of the jobs page)."""

from __future__ import annotations

from pair.records.errors import Condition

CONDITIONS = (
    Condition(
        id="discovery:too_many_nodes",
        severity="warning",
        action="none",
        cleared="auto",
        text="More than {limit} nodes that are no members announce themselves on this network. Further ones are not "
        "shown; members and nodes added by address always are.",
    ),
    Condition(
        id="discovery:multicast_port_taken",
        severity="warning",
        action="none",
        cleared="auto",
        text="Another program holds UDP port {port} for itself, so that no nodes are found by multicast. Members and "
        "nodes added by address are reached all the same. It is tried again every minute.",
    ),
    Condition(
        id="discovery:multicast_blocked",
        severity="warning",
        action="none",
        cleared="auto",
        text="Other nodes on this network answer when asked directly, but no multicast of theirs arrives. Most likely "
        "a firewall or an access point drops it (UDP port 5353).",
    ),
    Condition(
        id="discovery:multicast_denied",
        severity="error",
        action="none",
        cleared="auto",
        text="The system lets no multicast out on any interface, so that other nodes do not find this one. {advice}",
    ),
    Condition(
        id="discovery:cluster_mismatch:<node>",
        severity="warning",
        action="none",
        cleared="auto",
        text="{name} is a member here, but announces that it is in another cluster or in none. If it left, remove it; "
        "else somebody else announces a node in its name.",
    ),
    Condition(
        id="discovery:identity_clash:<node>",
        severity="error",
        action="none",
        cleared="auto",
        text="More than one machine answers as {name} ({node}): one is a copy of the other's disk, or an impostor. "
        "Nothing pairs with it. Make a new identity on one of the two: pair-admin identity new.",
    ),
    Condition(
        id="discovery:own_identity_clash",
        severity="error",
        action="none",
        cleared="auto",
        text="Another machine, at {address}, answers with the identity of this node: one is a copy of the other's "
        "disk. Make a new identity on one of the two: pair-admin identity new.",
    ),
    Condition(
        id="discovery:manual_unreachable:<id>",
        severity="warning",
        action="none",
        cleared="auto",
        text="The node that was added at {address} does not answer ({result}).",
    ),
    Condition(
        id="discovery:manual_identity_changed:<id>",
        severity="warning",
        action="none",
        cleared="auto",
        text="Another node than before answers at {address}. If that is right, add the address again; else remove it.",
    ),
)

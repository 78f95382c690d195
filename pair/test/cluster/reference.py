"""The evaluation as the specification writes it, step by step and without any haste: what the real one is held to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pair.cluster.statements import Admit, Found, Join, Leave, Note, Remove, Statement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pair.cluster.signing import Verify

Members = dict[str, tuple[bytes, str]]


def evaluate(
    statements: Iterable[Statement], cluster: str, verify: Verify
) -> tuple[set[bytes], Members, set[str], set[bytes]]:
    """Who stands; by UUID each member's incarnation and name; the UUIDs that clash; who is admitted (section 7)."""
    everything = [each for each in statements if each.cluster == cluster]
    # 0
    roots = [each for each in everything if isinstance(each.body, Found)]
    roots = [each for each in roots if verify(leaf_of(each), each.payload, each.signature)]
    if not roots:
        return set(), {}, set(), set()
    root = min(roots, key=lambda each: each.id)
    # 1
    about = {root.subject: root}
    joined = {root.subject}

    def good(each: Statement) -> bool:
        return each.signer in about and verify(leaf_of(about[each.signer]), each.payload, each.signature)

    grown = True
    while grown:
        before = len(about), len(joined)
        for each in everything:
            if isinstance(each.body, Admit) and each.signer in joined and good(each):
                about.setdefault(each.subject, each)
            if isinstance(each.body, Join) and good(each):
                joined.add(each.signer)
        grown = before != (len(about), len(joined))
    # 2
    counted = {each.id: each for each in everything if each.signer in joined and good(each)}.values()

    # 3
    def cuts(incarnation: bytes) -> list[Statement]:
        own = about[incarnation].body
        ended = {incarnation}
        for other in joined:
            body = about[other].body
            assert isinstance(body, Found | Admit)
            assert isinstance(own, Found | Admit)
            if (body.node, body.leaf) == (own.node, own.leaf) and body.epoch > own.epoch:
                ended.add(other)
        return [
            each
            for each in counted
            if (isinstance(each.body, Remove) and each.subject in ended and each.signer != each.subject)
            or (isinstance(each.body, Leave) and each.signer in ended)
        ]

    # 4
    edges = [each for each in counted if isinstance(each.body, Admit)]
    live = [each for each in edges if all(each.id in cut.keep for cut in cuts(each.signer))]
    # 5
    valid = {root.subject}
    grown = True
    while grown:
        more = {each.subject for each in live if each.signer in valid} - valid
        valid |= more
        grown = bool(more)
    # 6
    standing = {incarnation for incarnation in valid if not cuts(incarnation)}
    # 7
    by_node: dict[str, dict[bytes, tuple[int, bytes]]] = {}
    for incarnation in standing & joined:
        body = about[incarnation].body
        assert isinstance(body, Found | Admit)
        leaves = by_node.setdefault(body.node, {})
        leaves[body.leaf] = max(leaves.get(body.leaf, (0, b"")), (body.epoch, incarnation))
    members = {}
    for node, leaves in by_node.items():
        if len(leaves) == 1:
            [(_, incarnation)] = leaves.values()
            # 8
            notes = [
                (each.body.counter, each.id, each.body.name)
                for each in counted
                if isinstance(each.body, Note) and each.signer == incarnation
            ]
            members[node] = incarnation, max(notes)[2] if notes else ""
    # CL-76
    leaves_in = {leaf_of(about[incarnation]) for incarnation, _ in members.values()}
    admitted = {each for each in standing - joined if leaf_of(about[each]) not in leaves_in}
    return standing, members, {node for node, leaves in by_node.items() if len(leaves) > 1}, admitted


def leaf_of(edge: Statement) -> bytes:
    assert isinstance(edge.body, Found | Admit)
    return edge.body.leaf

"""What people decide of routing, asked by the API: the policy, a node to prefer, and a drain (UI-36, UI-54, UI-55)."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from pair.choices import SettingLocked
from pair.control.reading import invalid
from pair.privacy import clean_text
from pair.proxy.steering import NoSuchPolicy
from pair.records.engines import Drain
from pair.settings.structs import Facade
from pair.store import StoreClosed
from pair.surfaces.refusals import Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from pair.control.nodes import NodeView
    from pair.control.sources import Steering

REASON_MAX = 200
"""Characters of the reason for a drain."""


class PolicyBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of ``PUT /routing/policy``."""

    policy: str


class SelectionBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of ``PUT /routing/selection``; ``node`` is a UUID, or ``self``."""

    facade: Facade
    node: str


class DrainBody(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The body of ``PUT /nodes/{id}/drain``; ``reason`` is for people, and goes with ``drained``."""

    drained: bool
    reason: Annotated[str, Meta(max_length=REASON_MAX)] | None = None


async def policy_chosen(steering: Steering, asked: PolicyBody) -> None:
    """Plan by that policy (RT-60).

    Raises:
        Refused: There is none of that name, a setting fixes it, or it could not be written.
    """
    try:
        await _kept(steering.choose_policy(asked.policy))
    except NoSuchPolicy:
        raise invalid("policy", f"There is no such policy; known: {', '.join(steering.policies)}.") from None
    except SettingLocked as locked:
        raise fixed(locked) from None


async def selected(steering: Steering, asked: SelectionBody, node: NodeView) -> None:
    """Prefer ``node`` on that facade (RT-27).

    Raises:
        Refused: It is no member, or it could not be written.
    """
    if node.uuid is None or not (node.me or node.member):
        raise invalid("node", "Only this node and members of its cluster can be selected.")
    await _kept(steering.select(asked.facade, node.uuid))


async def unselected(steering: Steering, facade: str) -> None:
    """Prefer no node on ``facade`` any more.

    Raises:
        Refused: There is no such facade, or it could not be written.
    """
    if facade not in steering.facades:
        raise Refused(404, "no_such_endpoint", "There is no such facade.")
    await _kept(steering.unselect(facade))


async def drained(steering: Steering, asked: DrainBody, node: NodeView) -> None:
    """Let ``node`` take no new work, or take it again (RT-22).

    Raises:
        Refused: It is another node, or it could not be written.
    """
    if not node.me:
        if not node.member:
            raise Refused(403, "forbidden", "It is no member of this cluster.")
        message = "Members cannot do this to one another yet. Do it there: pair-admin node drain, or undrain, self."
        raise Refused(409, "not_origin", message, node=node.key)
    reason = clean_text(asked.reason, REASON_MAX) if asked.reason else ""
    await _kept(steering.drain(Drain(reason or None) if asked.drained else None))


def fixed(locked: SettingLocked) -> Refused:
    """The refusal of a choice that a setting fixes (OP-7)."""
    message = f"It is set by the {locked.source.name}, and so cannot be changed while the node runs."
    return Refused(409, locked.code, message, key=locked.key, source=locked.source.where)


async def _kept(change: Awaitable[None]) -> None:
    try:
        await change
    except (sqlite3.Error, StoreClosed):
        raise Refused(503, "store", "It could not be written to the disk; nothing has changed.") from None

"""Asking a node who it is: what it answered, or why nothing came of it (discovery page, sections 6 and 12)."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from pair.addresses import Place
from pair.records.telemetry import NodeInfo

AskFault = Literal["timeout", "refused", "unreachable", "unresolvable", "not_pair", "other"]
"""``not_pair``: what answers sends no node-info. ``other``: another node answers, or one that cannot prove itself."""


class Answer(Struct, frozen=True):
    """What a node-info said, and where. ``leaf`` is the digest of the certificate that proved it, if one did."""

    info: NodeInfo
    place: Place
    leaf: str | None = None


class AskFailed(Exception):  # noqa: N818 - a fact, not a fault
    """Nobody answered as was expected, and why."""

    def __init__(self, word: AskFault) -> None:
        super().__init__(word)
        self.word = word

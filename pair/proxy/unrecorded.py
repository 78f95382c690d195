"""Requests that are no jobs (JB-45)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zope.interface import implementer

from pair.interfaces import IJob

if TYPE_CHECKING:
    from pair.records.jobs import Outcome, Usage


@implementer(IJob)
class Unrecorded:
    """Stands in for a job where there is none: hears all, keeps nothing."""

    id = ""

    def attempt_began(self, node: str, engine: str, policy: str, why: str) -> None:
        """Nothing."""

    def attempt_ended(self, outcome: Outcome, status: int | None = None, error: str | None = None) -> None:
        """Nothing."""

    def committed(self, status: int) -> None:
        """Nothing."""

    def completed(self, status: int, response_bytes: int, usage: Usage, unterminated: bool = False) -> None:
        """Nothing."""

    def failed(self, code: str, status: int | None = None, response_bytes: int = 0) -> None:
        """Nothing."""

    def cancelled(self, code: str, response_bytes: int = 0) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


UNRECORDED = Unrecorded()

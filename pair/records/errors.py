"""Error entries: conditions that hold now (jobs page, section 9)."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import asdict

from pair.records.jobs import Instant, Number

Severity = Literal["info", "warning", "error"]
Action = Literal["dismiss", "retry", "none"]
Cleared = Literal["auto", "dismiss", "age"]


class Subject(Struct, frozen=True):
    """What an entry is about; what does not apply is None."""

    component: str | None = None
    engine: str | None = None
    model: str | None = None
    operation: str | None = None
    node: str | None = None
    port: Number | None = None


class Condition(Struct, frozen=True):
    """One kind of entry, as an area declares it in its ``conditions.py`` (JB-70).

    ``id`` is ``<area>:<condition>``, with ``:<subject>`` behind it, in angle
    brackets, where entries have one. ``text`` is a ``str.format`` template.
    """

    id: str
    severity: Severity
    action: Action
    cleared: Cleared
    text: str

    @property
    def stem(self) -> str:
        """The id without its subject: ``<area>:<condition>``."""
        return ":".join(self.id.split(":")[:2])


class ServiceError(Struct, frozen=True, rename="camel"):
    """An entry of the error book. ``ref`` names the log record with the detail."""

    id: str
    node: str
    severity: Severity
    message: str
    action: Action
    cleared: Cleared
    first_at: Instant
    at: Instant
    count: Number
    seq: Number
    subject: Subject = Subject()
    ref: str | None = None


class ShownError(ServiceError, frozen=True, rename="camel"):
    """An entry as it is shown. ``stale``: its node is offline, and may have cleared it since (JB-78)."""

    stale: bool = False

    @classmethod
    def of(cls, entry: ServiceError, *, stale: bool = False) -> ShownError:
        """``entry`` as it is shown."""
        return cls(**asdict(entry), stale=stale)


class ErrorChanged(Struct, frozen=True):
    """What is shown under ``id`` of ``node`` is ``entry``; None: nothing any more."""

    node: str
    id: str
    entry: ShownError | None

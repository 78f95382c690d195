"""What a route of the API is, and what any of them may have (UI-29). Pure data."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

BASE = "/api/v1"

Auth = Literal["token", "public", "metrics"]
"""``token``: the control token. ``metrics``: as the setting ``metrics.auth`` says."""

JSON = "application/json"
TEXT = "text/plain"
EVENTS = "text/event-stream"


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """No query, or an empty body."""


class Route(Struct, frozen=True, kw_only=True):
    """One method of one path.

    ``path`` is a werkzeug rule. ``cli`` is the ``pair-admin`` form, or
    ``no_cli`` says why there is none (UI-30). ``example`` is a body for it,
    ``status`` that of a good answer and ``content`` its media type.
    """

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    operation: str
    summary: str
    answer: Any
    content: str = JSON
    query: type[Struct] = Nothing
    body: type[Struct] = Nothing
    example: Struct | None = None
    status: int = 200
    auth: Auth = "token"
    cli: str | None = None
    no_cli: str = ""

"""Refusals, and the one form in which every surface tells them (UI-23, UI-24). Pure.

A refusal's message is a fixed text: no path, no exception's words, nothing
that the caller sent.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import msgspec
from msgspec import Struct

Fields = tuple[tuple[bytes, bytes], ...]


class Refusal(Struct, frozen=True):
    """Why a request goes no further, and what its answer says of it.

    ``evidence`` are statements for a peer (CL-17); None where none are due,
    which is not the same as that there are none.
    """

    status: int
    code: str
    message: str
    details: Mapping[str, str] = {}
    fields: Fields = ()
    evidence: tuple[bytes, ...] | None = None

    def __repr__(self) -> str:
        return f"<Refusal {self.status} {self.code}>"


class Refused(Exception):  # noqa: N818 - it is the answer, not a fault
    """Raised where a request is answered; whatever serves the request renders it."""

    def __init__(self, status: int, code: str, message: str, *, fields: Fields = (), **details: str) -> None:
        super().__init__(code)
        self.refusal = Refusal(status, code, message, details, fields)

    @classmethod
    def by(cls, refusal: Refusal) -> Refused:
        """Raise this to answer with ``refusal``."""
        refused = cls(refusal.status, refusal.code, refusal.message)
        refused.refusal = refusal
        return refused


class _Error(Struct, frozen=True):
    code: str
    message: str
    details: Mapping[str, str]
    id: str


class ErrorBody(Struct, frozen=True):
    """The body of every refusal. ``id`` is that of the log record with the rest."""

    error: _Error


class _Evidenced(ErrorBody, frozen=True):
    evidence: tuple[bytes, ...]


def new_error_id() -> str:
    """A name for one refusal, to find it again in the log."""
    return f"e-{secrets.token_hex(4)}"


def error_body(refusal: Refusal, error_id: str) -> bytes:
    """The JSON that tells of ``refusal``."""
    error = _Error(refusal.code, refusal.message, refusal.details, error_id)
    body = ErrorBody(error) if refusal.evidence is None else _Evidenced(error, refusal.evidence)
    return msgspec.json.encode(body)

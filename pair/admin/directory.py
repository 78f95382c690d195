"""The nodes that the service knows, for commands that take or show one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pair.admin.api import decoded
from pair.admin.failures import Failed
from pair.admin.naming import Names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pair.admin.session import Session

    Row = Mapping[str, Any]


def listed(session: Session) -> Sequence[Row]:
    """All of them, this one first. Raises as :meth:`pair.admin.api.Api.get`."""
    found: Sequence[Row] = decoded(session.api.get("/nodes"))["nodes"]
    return found


def known(session: Session) -> Sequence[Row]:
    """As :func:`listed`; none while the directory is not up."""
    try:
        return listed(session)
    except Failed as failed:
        if failed.code != "not_ready":
            raise
        return ()


def names(session: Session) -> Names:
    """How they are called, as far as that is known."""
    return Names(known(session))

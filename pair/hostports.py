"""Who holds a TCP port on this host.

The judging is pure (:func:`choose`). :func:`holder` reads the system's tables,
which may take a tenth of a second and more: call it in a thread.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import psutil
from msgspec import Struct

from pair.privacy import clean_text

if TYPE_CHECKING:
    from collections.abc import Iterable


OURSELVES = "another part of PAIR"
"""How the process that asks is described."""


class Listener(NamedTuple):
    """A listening socket; ``pid`` is None where the system does not tell whose it is."""

    port: int
    pid: int | None


class Holder(Struct, frozen=True):
    """The process that holds a port. All None: one that we may not see, mostly another user's."""

    pid: int | None = None
    name: str | None = None
    user: str | None = None

    @property
    def described(self) -> str:
        """For a sentence: ``ollama (pid 812, user ollama)``."""
        if self.pid is None:
            return "a program of another user"
        if self.pid == os.getpid():
            return OURSELVES
        user = "" if self.user is None else f", user {self.user}"
        return f"{self.name or 'a program'} (pid {self.pid}{user})"


def choose(port: int, listeners: Iterable[Listener]) -> Listener | None:
    """The listener on ``port``, one whose process is known before others; None: nobody listens there."""
    found = [each for each in listeners if each.port == port]
    return min(found, key=lambda each: (each.pid is None, each.pid or 0), default=None)


def holder(port: int) -> Holder | None:
    """Who listens on ``port``, as far as this account may know.

    Returns:
        None where nobody does, or where the system refuses to tell.
    """
    try:
        connections = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return None
    listeners = [
        Listener(getattr(each.laddr, "port", 0), each.pid)  # a socket without an address has an empty tuple
        for each in connections
        if each.status == psutil.CONN_LISTEN
    ]
    found = choose(port, listeners)
    return None if found is None else _described(found.pid)


def _described(pid: int | None) -> Holder:
    if pid is None:
        return Holder()
    try:
        shown = psutil.Process(pid).as_dict(["name", "username"])
    except psutil.Error:  # it ended meanwhile
        return Holder(pid)
    return Holder(pid, _clean(shown["name"]), _clean(shown["username"]))


def _clean(text: str | None) -> str | None:
    return clean_text(text, 64) if text else None

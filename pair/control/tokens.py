"""Bearer tokens that lie in files of the state directory (UI-15, OP-40)."""

from __future__ import annotations

import hmac
import re
import secrets
from typing import TYPE_CHECKING

from pair.logs import Logger

if TYPE_CHECKING:
    from pair.statedir import StateDirectory


log = Logger()


class TokenFile:
    """One token. Whoever replaces its file has replaced the token, from the next request on.

    Args:
        state: where the file is.
        name: of the file.
        prefix: of the token, by which a secret scanner knows it.
    """

    def __init__(self, state: StateDirectory, name: str, prefix: str) -> None:
        self._state = state
        self._path = state.path / name
        self._prefix = prefix
        self._seen: tuple[int, ...] = ()
        self._token = b""

    def ensure(self) -> None:
        """Make the token, unless there is one: the prefix and 32 random bytes in base64url, or more.

        What is in the file and is no such token would lock everybody out, an
        empty text for one: it is replaced.

        Raises:
            OSError: It cannot be read or written.
        """
        try:
            if re.fullmatch(rb"%b[A-Za-z0-9_-]{43,}" % self._prefix.encode(), self._path.read_bytes().strip()):
                return
            log.warn("{file} held no token; there is a new one in it.", file=self._path.name)
        except FileNotFoundError:
            pass
        token = f"{self._prefix}{secrets.token_urlsafe(32)}\n"
        self._state.replace(self._path.name, token.encode(), 0o600)

    @property
    def version(self) -> tuple[int, ...]:
        """It is another when the file was replaced; empty while there is none."""
        try:
            status = self._path.stat()
        except OSError:
            return ()
        return status.st_ino, status.st_mtime_ns, status.st_size

    def matches(self, candidate: bytes) -> bool:
        """Whether ``candidate`` is the token. How long it takes does not tell how much of it is right."""
        version = self.version
        try:
            if version != self._seen:
                self._token, self._seen = self._path.read_bytes().strip(), version
        except OSError:
            return False
        return bool(self._token) and hmac.compare_digest(candidate, self._token)

"""How many strangers may knock, and how often one line is written of them (CL-44, CL-105).

Pure: instants are arguments, in seconds on one clock that does not go back.
"""

from __future__ import annotations

from ipaddress import IPv6Address, IPv6Network, ip_address

from pair.authority import unwrap

PENDING_MAX = 8
"""Invitations that have not ended: so many inbound, and so many outbound."""

PENDING_PER_SOURCE = 2
APART_SECONDS = 10.0
"""Between two new ones of one source."""

LINE_SECONDS = 60.0
"""Between two log lines about one source."""

_SOURCES_MAX = 1024


def source_of(address: str) -> str:
    """Who counts as one at ``address``: an IPv4 address, an IPv6 /64, and of link-local ones each for itself.

    Args:
        address: The IP literal of a socket's other end, with its zone where it has one.
    """
    ip = ip_address(unwrap(address))
    if not isinstance(ip, IPv6Address) or ip.is_link_local:
        return str(ip)
    return str(IPv6Network((int(ip), 64), strict=False))


class Doorkeeper:
    """Who may open one more prompt here."""

    def __init__(self) -> None:
        self._pending: dict[str, str] = {}
        self._admitted: dict[str, float] = {}

    def admit(self, invite: str, source: str, now: float) -> float | None:
        """Let an invitation in, or not.

        Args:
            invite: Its id; it counts as pending until :meth:`release`.
            source: From :func:`source_of`.
            now: The instant.

        Returns:
            None if it is let in, else after how many seconds it may be worth another try.
        """
        last = self._admitted.get(source)
        if last is not None and now < last + APART_SECONDS:
            return last + APART_SECONDS - now
        of_source = sum(each == source for each in self._pending.values())
        if len(self._pending) >= PENDING_MAX or of_source >= PENDING_PER_SOURCE:
            return APART_SECONDS
        self._admitted = {each: at for each, at in self._admitted.items() if now < at + APART_SECONDS}
        self._admitted[source] = now
        self._pending[invite] = source
        return None

    def release(self, invite: str) -> None:
        """It has ended, or was dropped."""
        self._pending.pop(invite, None)


class Sparing:
    """Says whether something about a source is worth a line again: once a minute."""

    def __init__(self) -> None:
        self._written: dict[str, float] = {}

    def worth(self, source: str, now: float) -> bool:
        """Whether to write it. With a thousand sources in one minute, further ones are not written of."""
        last = self._written.get(source)
        if last is not None and now < last + LINE_SECONDS:
            return False
        if len(self._written) >= _SOURCES_MAX:
            self._written = {each: at for each, at in self._written.items() if now < at + LINE_SECONDS}
            if len(self._written) >= _SOURCES_MAX:
                return False
        self._written[source] = now
        return True

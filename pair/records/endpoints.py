"""Facades as a person sees them: where they listen, and why not where one would expect."""

from __future__ import annotations

import ipaddress
from typing import Literal

from msgspec import Struct

ClaimState = Literal["off", "pending", "bound", "bypassed", "failed"]
BypassReason = Literal["engine", "foreign", "shadowed", "setting"]


class Endpoint(Struct, frozen=True, rename="camel"):
    """One facade's claim on its port (engines page, Ports and takeover)."""

    facade: str
    state: ClaimState
    wanted_port: int
    port: int | None = None
    addresses: tuple[str, ...] = ()
    reason: BypassReason | None = None
    detail: str | None = None
    """One sentence for a person when the state is not ``bound``: what is in the way, and what to do."""

    @property
    def url(self) -> str | None:
        """The address that applications on this machine use, or None while there is none."""
        return None if self.port is None else f"http://{_reached_at(self.addresses)}:{self.port}"


def _reached_at(addresses: tuple[str, ...]) -> str:
    """The host of a URL that leads to sockets on ``addresses``: 127.0.0.1, unless they have another loopback alone."""
    local = [ip for ip in map(ipaddress.ip_address, addresses) if ip.is_loopback or ip.is_unspecified]
    if not local or any(ip.version == 4 and ip.is_unspecified for ip in local):
        return "127.0.0.1"
    first = min(local, key=lambda ip: ip.version)
    return str(first) if first.version == 4 else "[::1]"

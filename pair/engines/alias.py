"""``OLLAMA_HOST``, read as Ollama reads it, as far as it names this machine (EN-53, EN-54). Pure.

The variable tells the user's tools where Ollama is. Only a loopback target
concerns us: an engine may answer there, or else the Ollama facade does.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

STANDARD_PORT = 11434
LOOPBACK = ("127.0.0.1", "::1")

_QUOTES = ("'", '"')


class Alias(Struct, frozen=True):
    """What a value of ``OLLAMA_HOST`` comes to.

    ``local``: a port of this machine, at ``hosts``. ``standard``: this machine
    at the standard port, so no alias. ``ignored``: another machine, or https.
    ``refused``: no address at all, or one with a path, query or user name.
    """

    verdict: Literal["local", "standard", "ignored", "refused"]
    hosts: tuple[str, ...] = ()
    port: int = STANDARD_PORT


_REFUSED = Alias("refused")
_IGNORED = Alias("ignored")


def parse(value: str) -> Alias:
    """The local target that ``value`` names, if it names one. Never raises."""
    text = _unquoted(value.strip())
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "", text
    if scheme == "https":
        return _IGNORED
    if scheme not in ("", "http"):
        return _REFUSED
    authority = rest.removesuffix("/")
    if any(mark in authority for mark in "/?#@"):
        return _REFUSED
    split = _split(authority)
    if split is None:
        return _REFUSED
    host, port_text = split
    hosts = _local(host)
    if not hosts:
        return _IGNORED
    port = _port(port_text, 80 if scheme else STANDARD_PORT)
    return Alias("standard") if port == STANDARD_PORT else Alias("local", hosts, port)


def chosen(setting: str, environment: Mapping[str, str]) -> Alias | None:
    """The local target that the setting ``facade.ollama.alias`` asks for (EN-54); None where there is none."""
    if setting == "off":
        return None
    alias = named(environment) if setting == "env" else parse(setting)
    return alias if alias.verdict == "local" else None


def named(environment: Mapping[str, str]) -> Alias:
    """The target in the environment."""
    return parse(environment.get("OLLAMA_HOST", ""))


def _unquoted(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in _QUOTES:
        return text[1:-1].strip()
    return text


def _split(authority: str) -> tuple[str, str | None] | None:
    """Host and port as they are written; None where brackets do not match."""
    if authority.startswith("["):
        host, closed, rest = authority[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            return None
        return host, rest[1:] if rest else None
    if authority.count(":") > 1:  # a bare IPv6 address has no port
        return authority, None
    host, colon, port = authority.partition(":")
    return host, port if colon else None


def _port(text: str | None, default: int) -> int:
    if text is None:
        return default
    if text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= 65535:
        return int(text)
    return STANDARD_PORT


def _local(host: str) -> tuple[str, ...]:
    """The loopback addresses that ``host`` stands for; empty for another machine."""
    if host == "" or host.lower() == "localhost":
        return LOOPBACK
    if "%" in host:
        return ()
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return ()
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_unspecified:  # all interfaces: reached by either loopback address
        return LOOPBACK
    return (str(address),) if address.is_loopback else ()

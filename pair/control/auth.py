"""Who may ask the control API what (UI-4 to UI-7, UI-13, UI-14). Pure.

Every web page in every browser of this machine can reach a loopback port. The
Host rule stops a page whose name was made to resolve to 127.0.0.1, the Origin
rules one that simply sends, and the token everybody else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pair.authority import Origin, is_loopback, parse_authority, parse_origin
from pair.surfaces.refusals import Refusal

if TYPE_CHECKING:
    from pair.control.route import Auth, Route
    from pair.surfaces.rules import Head

BODY_LIMIT = 1024 * 1024
"""Octets of a request body, at most (UI-12)."""

Matches = Callable[[bytes], bool]
"""Whether these octets are the token, in constant time."""

_BAD_HOST = Refusal(421, "bad_host", "The Host of this request is not this machine.")
_BAD_ORIGIN = Refusal(403, "bad_origin", "Web pages of other origins may not use the control API.")
_PREFLIGHT = Refusal(403, "forbidden", "No other origin is ever allowed, so there is nothing to ask for.")
_UNAUTHORIZED = Refusal(
    401,
    "unauthorized",
    "Send the control token, which is in control.token of the state directory, as a bearer token.",
    fields=((b"WWW-Authenticate", b"Bearer"),),
)


class ControlGuard:
    """Provides :class:`pair.surfaces.rules.Guard` for the control API.

    Args:
        routes: the table; a path that is not in it needs the token too.
        is_token: for the control token.
        is_metrics_token: for the token that opens ``/metrics`` alone; None where anybody may read them.
        allowed_origins: ``console.allowed_origins``.
    """

    def __init__(
        self,
        routes: Iterable[Route],
        is_token: Matches,
        is_metrics_token: Matches | None = None,
        allowed_origins: Iterable[str] = (),
    ) -> None:
        self._open: dict[tuple[str, str], Auth] = {
            (route.method, route.path): route.auth for route in routes if route.auth != "token"
        }
        self._is_token = is_token
        self._is_metrics_token = is_metrics_token
        self._origins = frozenset(filter(None, map(parse_origin, allowed_origins)))
        self._hosts = frozenset(origin.host for origin in self._origins)

    def check(self, head: Head) -> Refusal | None:
        """See :class:`pair.surfaces.rules.Guard`."""
        authority = self._authority(head)
        if authority is None:
            return _BAD_HOST
        if not self._origin_allowed(head, authority) or _crosses_sites(head):
            return _BAD_ORIGIN
        if head.method == "OPTIONS" and head.values(b"access-control-request-method"):
            return _PREFLIGHT
        return None if self._known(head) else _UNAUTHORIZED

    def body_limit(self, head: Head) -> int:
        """See :class:`pair.surfaces.rules.Guard`."""
        return BODY_LIMIT

    def _authority(self, head: Head) -> tuple[str, int | None] | None:
        """The host and port that the request is for, if they are ours."""
        hosts = head.values(b"host")
        authority = parse_authority(hosts[0].decode("latin-1")) if len(hosts) == 1 else None
        if authority is None or not (is_loopback(authority[0]) or authority[0] in self._hosts):
            return None
        return authority

    def _origin_allowed(self, head: Head, authority: tuple[str, int | None]) -> bool:
        values = head.values(b"origin")
        if not values:
            return True
        host, port = authority
        origin = parse_origin(values[0].decode("latin-1")) if len(values) == 1 else None
        return origin is not None and (origin == Origin("http", host, port or 80) or origin in self._origins)

    def _known(self, head: Head) -> bool:
        method = "GET" if head.method == "HEAD" else head.method
        auth = self._open.get((method, head.path), "token")
        if auth == "public" or (auth == "metrics" and self._is_metrics_token is None):
            return True
        token = _bearer(head)
        if token is None:
            return False
        return self._is_token(token) or (
            auth == "metrics" and self._is_metrics_token is not None and self._is_metrics_token(token)
        )


def _crosses_sites(head: Head) -> bool:
    """A browser says that a page of elsewhere makes it ask (UI-6)."""
    return head.path.startswith("/api/") and any(
        site in (b"cross-site", b"same-site") for site in head.values(b"sec-fetch-site")
    )


def _bearer(head: Head) -> bytes | None:
    values = head.values(b"authorization")
    if len(values) != 1:
        return None
    scheme, _, token = values[0].partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" and token.strip() else None

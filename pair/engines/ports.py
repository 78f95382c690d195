"""Which port an engine gets (EN-43). Pure: who holds a port is asked of the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

SPAN = 64

_OURS = frozenset({1234, 11434, 14300, *range(14318, 14324)})
"""Both standard ports, the control API and the peer surfaces."""


def reserved(chosen: Iterable[int] = ()) -> frozenset[int]:
    """The ports that no plan gives away: our own, and those ``chosen`` for engines and facades."""
    return _OURS.union(chosen)


def first_free(base: int, reserved: Container[int], free: Callable[[int], bool]) -> int | None:
    """The first of ``base`` … ``base + 63`` that is not reserved and is ``free``.

    Returns:
        A port, or None where there is none.
    """
    for port in range(base, min(base + SPAN, 65536)):
        if port not in reserved and free(port):
            return port
    return None

"""Which port a facade and an engine get (EN-42, EN-43). Pure: who holds a port is asked of the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from pair.records.endpoints import BypassReason

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

    from pair.engines.alias import Alias
    from pair.settings import Settings

Holder = Literal["engine", "foreign", "shadowed"]
"""Who has a port that we want: an engine that we use, or anybody else. ``shadowed``: it is ours by bind (EN-48)."""

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


class Wish(Struct, frozen=True):
    """Where a facade is to listen.

    ``base`` is the first of the ports that may stand in for ``port`` (EN-43).
    ``chosen``: a person chose the port, so that none does (EN-46). ``takes_over``:
    it may take the port though an engine is used to it (EN-47).
    """

    port: int
    base: int
    chosen: bool = False
    takes_over: bool = True

    @property
    def tries(self) -> bool:
        """Whether its port is to be had at all."""
        return self.chosen or self.takes_over


class Plan(Struct, frozen=True):
    """What a facade does: it listens on ``port``, or on none. ``reason`` says why that is not as it wishes."""

    state: Literal["bound", "bypassed", "failed"]
    port: int | None
    reason: BypassReason | None = None


def plan(wish: Wish, holder: Holder | None, reserved: Container[int], free: Callable[[int], bool]) -> Plan:
    """The plan for a facade (EN-42).

    Args:
        wish: of the facade.
        holder: who has its port; None: nobody.
        reserved: ports that stand in for none.
        free: whether a port can be had; not asked again after the first that can.
    """
    reason: BypassReason
    if not wish.tries:
        reason = "setting"
    elif holder is None:
        return Plan("bound", wish.port)
    else:
        reason = holder
    stand_in = None if wish.chosen else first_free(wish.base, reserved, free)
    if stand_in is None and reason == "shadowed":
        stand_in = wish.port  # some clients may still reach it there
    return Plan("failed" if stand_in is None else "bypassed", stand_in, reason)


def reserved_in(settings: Settings, alias: Alias | None) -> frozenset[int]:
    """The ports that no plan gives away: those of :func:`reserved`, of ``settings``, and of the alias (EN-43)."""
    engines = (engine.port for engine in settings.engines.values() if engine.port is not None)
    ours = (settings.proxy.ports.ollama, settings.proxy.ports.lmstudio, settings.ports.control)
    return reserved((*engines, *ours, *(() if alias is None else (alias.port,))))

"""What a person is told of a facade's port: what is in the way, and the way out (EN-49, EN-52). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pair.hostports import OURSELVES

if TYPE_CHECKING:
    from pair.engines.ports import Plan, Wish
    from pair.proxy.listeners import PortDenied


def denial(denied: PortDenied) -> str:
    """Why the system does not let us listen."""
    if denied.lacks_address:
        return f"{denied.address} is not an address of this machine (node.bind)."
    return f"The system does not let PAIR listen on port {denied.port}; it may lie in a reserved range."


def detail(wish: Wish, plan: Plan, holder: str | None, denied: PortDenied | None) -> str | None:
    """A sentence or two; None where the facade has the port that it wishes.

    Args:
        wish: of the facade.
        plan: what it does instead.
        holder: who holds the port, in words, if that is known.
        denied: how the system refused it to us, if it did, whoever holds it.
    """
    if plan.state == "bound":
        return None
    if denied is not None and denied.lacks_address:
        return denial(denied)  # and no other port would do
    return f"{_trouble(wish, plan, holder, denied)} {_instead(wish, plan)}".rstrip()


def _trouble(wish: Wish, plan: Plan, holder: str | None, denied: PortDenied | None) -> str:
    if plan.reason == "setting":
        return f"The setting proxy.takeover leaves port {wish.port} alone."
    if denied is not None:
        return denial(denied)
    if plan.reason == "engine":
        return (
            f"Port {wish.port} is held by the engine itself, which PAIR uses there; "
            "once that stops or moves, PAIR takes it."
        )
    if plan.reason == "shadowed":
        return (
            f"Another program answers on port {wish.port} in PAIR's place; "
            "once that stops, PAIR is reached there again."
        )
    if holder == OURSELVES:
        return f"Port {wish.port} is needed by {OURSELVES}: choose another one."
    return f"Port {wish.port} is held by {holder or 'another program'}; once that stops, PAIR takes it."


def _instead(wish: Wish, plan: Plan) -> str:
    if plan.state == "failed":
        return "That port was chosen, so no other is taken." if wish.chosen else "No other port was free."
    if plan.port == wish.port:
        return ""
    return f"PAIR listens on port {plan.port}: point your applications there."

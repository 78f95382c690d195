"""How long an invitation lives, and which of those who want to end it comes first (CL-31, CL-53, CL-55).

One machine for both sides. It knows clocks and people; what is said between
the nodes, and how it ends, is the exchange's, and :class:`Effects` stands for
that. Its timers are data of the states that own them.

All ends are one state here, ``Over``: which it was is in the exchange.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from automat import TypeMachineBuilder

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IDelayedCall, IReactorTime

    from pair.protocols.pairing import EndState, Reason

UNSEEN_SECONDS = 10.0
"""An inbound invitation without a valid poll is dropped after so long (CL-31)."""

TTL_SECONDS = 300.0
"""From the hello until it expires (CL-53)."""

EXTRA_SECONDS = 60.0
"""So much later ends one that is being confirmed (CL-53)."""

PROOF_SECONDS = 30.0
"""So long a joiner waits for the inviter's proof, from its own on and from each time that it leaves (CL-53)."""

KEPT_SECONDS = 3600.0
"""So long an ended one is shown, and its last answer said again (cluster page, section 12)."""


class Life(Protocol):
    """What can happen to an invitation. What means nothing in the present state is ignored."""

    def hide(self) -> None:
        """The joiner has answered the hello. People are not told yet."""

    def show(self) -> None:
        """People are told: the inviter's from the first reply on, the joiner's from the first poll on."""

    def confirm(self) -> bool:
        """A code was typed. False: something else came first."""

    def withdraw(self) -> bool:
        """A person declines or cancels. False: something else came first."""

    def sent(self) -> None:
        """The joiner's proof is made, or has left, once more maybe: from now on the inviter's is waited for."""

    def store(self) -> None:
        """What was proven is being stored; nobody ends it meanwhile."""

    def stored(self) -> None:
        """That is done, and the other side is waited for again."""

    def end(self) -> None:
        """The exchange has ended."""

    def drop(self) -> None:
        """It is forgotten at once, and nobody is told."""

    def overdue(self) -> None:
        """The time of the present state is over."""


class Effects(Protocol):
    """What the machine has done for it."""

    def ran_out(self, state: EndState, reason: Reason | None) -> None:
        """End the exchange so."""

    def forget(self) -> None:
        """Nothing more is to be known of it."""


@dataclass
class Core:
    """What the machine of one invitation knows. ``began`` is the instant of the hello, on ``clock``."""

    clock: IReactorTime
    effects: Effects
    began: float

    def after(self, machine: Life, seconds: float) -> IDelayedCall:
        """A timer for the state that is entered."""
        return self.clock.callLater(seconds, machine.overdue)

    def left(self, seconds: float) -> float:
        """What is left of so many seconds since the hello."""
        return max(0.0, self.began + seconds - self.clock.seconds())


def _hide(machine: Life, core: Core) -> IDelayedCall:
    return core.after(machine, UNSEEN_SECONDS)


def _wait(machine: Life, core: Core) -> IDelayedCall:
    return core.after(machine, core.left(TTL_SECONDS))


def _confirm(machine: Life, core: Core) -> IDelayedCall:
    return core.after(machine, core.left(TTL_SECONDS + EXTRA_SECONDS))


def _keep(machine: Life, core: Core) -> IDelayedCall:
    return core.after(machine, KEPT_SECONDS)


def _cancel(machine: Life, core: Core, timer: IDelayedCall) -> None:
    if timer.active():
        timer.cancel()


def _win(machine: Life, core: Core, timer: IDelayedCall) -> bool:
    _cancel(machine, core, timer)
    return True


def _await_proof(machine: Life, core: Core, timer: IDelayedCall) -> None:
    timer.reset(min(PROOF_SECONDS, core.left(TTL_SECONDS + EXTRA_SECONDS)))


def _expire(machine: Life, core: Core, timer: IDelayedCall) -> None:
    core.effects.ran_out("expired", None)


def _give_up(machine: Life, core: Core, timer: IDelayedCall) -> None:
    core.effects.ran_out("failed", "no_answer")


def _forget(machine: Life, core: Core, timer: IDelayedCall) -> None:
    core.effects.forget()


def _build() -> Callable[[Core], Life]:
    builder = TypeMachineBuilder(Life, Core)
    meant: set[tuple[str, str]] = set()

    def upon(state: Any, happening: Callable[..., Any]) -> Any:
        meant.add((state.name, happening.__name__))
        return state.upon(happening)

    new = builder.state("New")
    hidden = builder.state("Hidden", _hide)
    waiting = builder.state("Waiting", _wait)
    confirming = builder.state("Confirming", _confirm)
    storing = builder.state("Storing")
    over = builder.state("Over", _keep)
    gone = builder.state("Gone")

    upon(new, Life.hide).to(hidden).returns(None)
    upon(new, Life.show).to(waiting).returns(None)
    upon(new, Life.end).to(gone).returns(None)
    upon(new, Life.drop).to(gone).returns(None)

    upon(hidden, Life.show).to(waiting)(_cancel)
    upon(hidden, Life.overdue).to(gone)(_forget)
    upon(hidden, Life.drop).to(gone)(_cancel)

    upon(waiting, Life.confirm).to(confirming)(_win)
    upon(waiting, Life.withdraw).to(over)(_win)
    upon(waiting, Life.store).to(storing)(_cancel)
    upon(waiting, Life.end).to(over)(_cancel)
    upon(waiting, Life.overdue).to(over)(_expire)
    upon(waiting, Life.drop).to(gone)(_cancel)

    upon(confirming, Life.sent).loop()(_await_proof)
    upon(confirming, Life.store).to(storing)(_cancel)
    upon(confirming, Life.end).to(over)(_cancel)
    upon(confirming, Life.overdue).to(over)(_give_up)
    upon(confirming, Life.drop).to(gone)(_cancel)

    upon(storing, Life.stored).to(confirming).returns(None)
    upon(storing, Life.end).to(over).returns(None)
    upon(storing, Life.drop).to(gone).returns(None)

    upon(over, Life.overdue).to(gone)(_forget)
    upon(over, Life.drop).to(gone)(_cancel)

    for state in (new, hidden, waiting, confirming, storing, over, gone):
        for name, happening in vars(Life).items():
            if not name.startswith("_") and (state.name, name) not in meant:
                late = False if happening in (Life.confirm, Life.withdraw) else None
                upon(state, happening).loop().returns(late)
    return builder.build()


machine = _build()
"""Makes the machine of one invitation from its :class:`Core`; it begins ``New``."""

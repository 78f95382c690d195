"""What people decide of routing while the node runs: the policy, a node to prefer, and that this node rests.

It keeps what they choose, and lets it be in force; what that does to a request
is said in :mod:`pair.routing`. Who may choose was settled before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from twisted.application.service import Service

from pair.choices import drained, routing_policy, selection
from pair.events import Signal
from pair.logs import Logger
from pair.settings.structs import Facade

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from twisted.internet.defer import Deferred

    from pair.choices import Choices
    from pair.interfaces import IErrorBook, IRoutingPolicy
    from pair.proxy.scheduling import SchedulerService
    from pair.records.engines import Drain

FACADES: tuple[str, ...] = get_args(Facade)

log = Logger()


class NoSuchPolicy(Exception):  # noqa: N818 - an answer, not a fault
    """There is no routing policy of that name."""


class Steering(Service):
    """Keeps the choices, over the settings, and puts them in force.

    What cannot be written is an error of the store, and then nothing has
    changed.

    Args:
        choices: what people chose.
        scheduling: plans by it.
        policies: those that there are.
        drain: has this node take no new work, or take it again for None.
        members: the UUIDs of the nodes that may be selected, as of now.
        errors: where a policy is told of that was chosen and is not there any more.

    Attributes:
        changed: emits when something else is in force.
    """

    name = "steering"

    def __init__(
        self,
        choices: Choices,
        scheduling: SchedulerService,
        policies: Iterable[IRoutingPolicy],
        drain: Callable[[Drain | None], None],
        members: Callable[[], Collection[str]],
        errors: IErrorBook,
    ) -> None:
        self.changed: Signal[None] = Signal()
        self._choices = choices
        self._scheduling = scheduling
        self._policies = {each.name: each for each in policies}
        self._drain = drain
        self._members = members
        self._errors = errors

    def startService(self) -> None:
        """Let what was chosen before be in force."""
        super().startService()
        self._use(self._choices.effective().settings.routing.policy)
        for facade in FACADES:
            self._scheduling.select(facade, self._choices.get(selection(facade)))
        self._drain(self._choices.get(drained()))
        self.members_changed()

    @property
    def facades(self) -> tuple[str, ...]:
        """Those on which a node can be selected."""
        return FACADES

    @property
    def policies(self) -> tuple[str, ...]:
        """The names of those that can be chosen."""
        return tuple(self._policies)

    def choose_policy(self, name: str) -> Deferred[None]:
        """Plan by another policy; the Deferred fires when that is so, and stored (RT-60).

        Raises:
            NoSuchPolicy: There is none of that name.
            SettingLocked: A setting fixes it.
        """
        if name not in self._policies:
            raise NoSuchPolicy
        return self._then(self._choices.put(routing_policy(), name), lambda: self._use(name))

    def select(self, facade: str, node: str) -> Deferred[None]:
        """Prefer ``node`` on a facade; the Deferred fires when that is so, and stored (RT-27)."""

        def prefer() -> None:
            self._scheduling.select(facade, node)
            self.members_changed()  # it may have left in the meantime

        return self._then(self._choices.put(selection(facade), node), prefer)

    def unselect(self, facade: str) -> Deferred[None]:
        """Prefer no node on a facade any more; the Deferred fires when that is so, and stored."""
        return self._then(self._choices.remove(selection(facade)), lambda: self._scheduling.select(facade, None))

    def drain(self, drain: Drain | None) -> Deferred[None]:
        """Take no new work, or take it again; the Deferred fires when that is so, and stored (RT-22)."""
        stored = self._choices.remove(drained()) if drain is None else self._choices.put(drained(), drain)
        return self._then(stored, lambda: self._drain(drain))

    def members_changed(self, _: object = None) -> None:
        """Prefer no node that is no member any more (RT-27)."""
        members = self._members()
        for facade in FACADES:
            node = self._scheduling.selected(facade)
            if node is not None and node not in members:
                # At once, for it could not serve anyhow; should the disk fail, the next start does this again.
                self._scheduling.select(facade, None)
                self.changed.emit(None)
                self._choices.remove(selection(facade)).addErrback(_not_forgotten, facade)

    def _use(self, name: str) -> None:
        policy = self._policies.get(name)
        if policy is None:
            # A plugin's, chosen when that was there. It is kept for its return.
            self._errors.raise_entry(f"routing:policy:{name}", name=name)
        else:
            self._scheduling.use(policy)

    def _then(self, stored: Deferred[None], act: Callable[[], None]) -> Deferred[None]:
        return stored.addCallback(lambda _: act()).addCallback(self.changed.emit)


def _not_forgotten(failure: object, facade: str) -> None:
    log.warn("The selection of a node for {facade} could not be taken back on the disk.", facade=facade)

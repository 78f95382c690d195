"""All that is known of nodes, joined: what is claimed, what they said, who is alive; and what is told of each change.

What is claimed and said comes from others, and so do the answers to checks.
Nothing is asked here.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from pair.discovery.claims import Claims, Known, describe, newest, reach
from pair.discovery.entries import Entries
from pair.discovery.liveness import Check, Liveness, Lost
from pair.events import Signal
from pair.records.nodes import NodeHardware, NodeWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from twisted.internet.interfaces import IDelayedCall, IReactorTime

    from pair.addresses import Place
    from pair.discovery.addresses import Reach
    from pair.discovery.claims import Claim, Standing
    from pair.discovery.liveness import Action
    from pair.records.nodes import EvidenceKind, NodeEvent
    from pair.records.telemetry import NodeInfo


class Facts:
    """What is known of one node besides claims and presence; see :class:`~pair.discovery.claims.Known`.

    ``confirmed`` is by service, ``warnings`` are by their code.
    """

    def __init__(self) -> None:
        self.authenticated: NodeInfo | None = None
        self.plain: NodeInfo | None = None
        self.confirmed: dict[str, Place] = {}
        self.hardware: NodeHardware | None = None
        self.hardware_at: int | None = None
        self.inventory_at: int | None = None
        self.warnings: dict[str, str] = {}


class Nodes:
    """The nodes of the directory, by the keys of their entries.

    Args:
        me: our own UUID.
        clock: whose seconds count for presence.
        now: epoch milliseconds.
        standing: whom this node trusts, as of each call.
        check: told the key of each node that is to be checked; :meth:`checked` is to be called with what came of it.

    Attributes:
        events: emits what is told of each change, one after the other even if a listener causes further ones.
    """

    def __init__(
        self,
        me: str,
        clock: IReactorTime,
        now: Callable[[], int],
        standing: Callable[[], Standing],
        check: Callable[[str], None],
    ) -> None:
        self.events: Signal[NodeEvent] = Signal()
        self.claims = Claims()
        self.entries = Entries()
        self.liveness = Liveness()
        self._me = me
        self._clock = clock
        self._now = now
        self._standing = standing
        self._check = check
        self._facts: dict[str, Facts] = {}
        self._telling: deque[NodeEvent] = deque()
        self._timer: IDelayedCall | None = None
        self._waits_for: float | None = None

    def facts(self, key: str) -> Facts:
        """Those of a node of which there is a claim; they may be changed, and :meth:`refresh` tells of it."""
        return self._facts.setdefault(key, Facts())

    def is_stranger(self, key: str) -> bool:
        """Whether multicast alone tells of a node (DS-15)."""
        return all(each.source == "mdns" for each in self.claims.of(key))

    def reach(self, key: str, service: str) -> Reach:
        """What is known of where a service of a node is."""
        return reach(service, self.claims.of(key), self._known(key))

    def close(self) -> None:
        """Wait for nothing any more."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    # Claims.

    def put(self, claim: Claim) -> bool:
        """A claim stands.

        Returns:
            False if there is no room for its node (DS-15).
        """
        key = claim.key
        before = self._addresses(key)
        if self.claims.put(claim):
            self._follow(key)
            if not self._addresses(key) <= before:
                self.take(self.liveness.found(key, self._clock.seconds()))
        return key in self.claims

    def drop(self, key: str, source: str, id: str | None = None) -> None:
        """The claims of ``source`` on a node stand no more: the one with ``id``, or all."""
        if self.claims.drop(key, source, id):  # type: ignore[arg-type]
            self._follow(key)

    def learn(self, id: str, uuid: str) -> tuple[str, str] | None:
        """The manual node ``id`` answers as ``uuid``: its claim moves there (DS-74).

        Returns:
            The keys before and after, if that was how its UUID became known.
        """
        moved = self.claims.learn(id, uuid)
        if moved is None:
            return None
        before, after = moved
        if not before.startswith("manual:"):
            self._follow(before, after)
            return None
        facts = self._facts.pop(before, None)
        if facts is not None:
            self._facts.setdefault(after, facts)
        if after == self._me:
            self.take(self.liveness.keep(before, False, False, self._clock.seconds()))
        else:
            self.liveness.rekey(before, after)
        self._follow(after, rekeyed=(moved,))
        return moved

    # Presence.

    def take(self, actions: Iterable[Action]) -> None:
        """Do what :attr:`liveness` says."""
        changed: dict[str, None] = {}
        for action in actions:
            if isinstance(action, Check):
                self._check(action.node)
                continue
            if isinstance(action, Lost):
                self.claims.drop(action.node, "mdns")
            changed[action.node] = None
        if changed:
            self.refresh(*changed)
        self._wait()

    def note(self, key: str, kind: EvidenceKind) -> None:
        """There is evidence for a node, proven by its identity."""
        self.take(self.liveness.note(key, kind, self._clock.seconds()))

    def checked(self, key: str, answer: EvidenceKind | None) -> None:
        """A check has ended."""
        self.take(self.liveness.checked(key, answer, self._clock.seconds()))

    # What nodes say of themselves.

    def tell(self, key: str, info: NodeInfo, authenticated: bool, proven: bool) -> None:
        """What a node-info says; of the machine it is believed only what is ``proven`` to be the node's own."""
        facts = self.facts(key)
        if authenticated:
            facts.authenticated = newest(facts.authenticated, info)
        else:
            facts.plain = newest(facts.plain, info)
        if proven and (info.os or info.cpu or info.memory or info.gpus):
            facts.hardware = NodeHardware(info.os, info.cpu, info.memory, info.gpus)
            facts.hardware_at = self._now()
        self.refresh(key)

    def warn(self, key: str, code: str, text: str | None) -> None:
        """Add a warning to a node, or take it back."""
        if key not in self.claims:
            return
        warnings = self.facts(key).warnings
        if text is None:
            warnings.pop(code, None)
        else:
            warnings[code] = text
        self.refresh(key)

    # Entries.

    def refresh(self, *keys: str, rekeyed: Iterable[tuple[str, str]] = ()) -> None:
        """Make the entries of these nodes anew, and tell of what is another."""
        standing = self._standing()
        fresh = {}
        for key in keys:
            claims = self.claims.of(key)
            fresh[key] = describe(key, claims, self._known(key), standing) if claims else None
            if not claims:
                self._facts.pop(key, None)
        self._tell(self.entries.update(fresh, rekeyed))

    def _follow(self, *keys: str, rekeyed: Iterable[tuple[str, str]] = ()) -> None:
        """The claims on these nodes are others: with them goes how they are watched."""
        actions: list[Action] = []
        for key in keys:
            sources = {each.source for each in self.claims.of(key)}
            if key != self._me:
                lasting = not sources.isdisjoint(("roster", "manual"))
                actions += self.liveness.keep(key, "mdns" in sources, lasting, self._clock.seconds())
        self.refresh(*keys, rekeyed=rekeyed)
        self.take(actions)

    def _addresses(self, key: str) -> set[str]:
        return {each for claim in self.claims.of(key) for each in (*claim.addresses, *claim.records)}

    def _known(self, key: str) -> Known:
        facts = self._facts.get(key) or Facts()
        sign = self.liveness.sign(key)
        heard_at = None
        if sign is not None and sign.at is not None:
            heard_at = self._now() - round(1000 * (self._clock.seconds() - sign.at))
        return Known(
            self.liveness.presence(key),
            heard_at,
            None if sign is None else sign.kind,
            facts.authenticated,
            facts.plain,
            dict(facts.confirmed),
            facts.hardware,
            facts.hardware_at,
            facts.inventory_at,
            tuple(NodeWarning(code, text) for code, text in sorted(facts.warnings.items())),
        )

    def _tell(self, events: Iterable[NodeEvent]) -> None:
        telling = bool(self._telling)
        self._telling.extend(events)
        while self._telling and not telling:
            self.events.emit(self._telling[0])
            self._telling.popleft()

    def _wait(self) -> None:
        """For the next check that is due apart from scans."""
        due = self.liveness.next_due
        waiting = self._timer is not None and self._timer.active()
        if waiting and due == self._waits_for:
            return
        if self._timer is not None and waiting:
            self._timer.cancel()
        self._waits_for = due
        if due is not None:
            self._timer = self._clock.callLater(max(0.0, due - self._clock.seconds()), self._due, due)

    def _due(self, due: float) -> None:
        # A timer may come a rounding error too early.
        self.take(self.liveness.due(max(due, self._clock.seconds())))

"""The multicast service: makes this node known on its networks, and tells of those it hears (discovery page, 4).

It says when to announce, and passes on what arrives. The library with its
sockets is behind :mod:`pair.discovery.airing`, in threads of its own; who is
believed, who is there and when to ask is the directory's affair.
"""

from __future__ import annotations

import os
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorFromThreads, IReactorTime

from pair.discovery.airing import Said, open_airing
from pair.discovery.bursts import Bursts
from pair.discovery.hearing import Allowance, Hearing, zone_of
from pair.discovery.sending import Sends, legs, own_records
from pair.discovery.txt import encode, instance_name, target_name
from pair.discovery.upkeep import upkeep
from pair.discovery.worker import Worker
from pair.events import Signal
from pair.logs import Logger
from pair.records.nodes import DEFAULT_PORTS
from pair.supervision.deadline import settled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twisted.internet.interfaces import IDelayedCall
    from twisted.python.failure import Failure

    from pair.addresses import Interface
    from pair.discovery.airing import Airing, Arrival, Open
    from pair.discovery.claims import Claim
    from pair.discovery.sending import Sent
    from pair.discovery.txt import Record
    from pair.discovery.upkeep import Upkeep
    from pair.interfaces import IErrorBook

DENIED = "discovery:multicast_denied"

GOODBYE_SECONDS = 1.0
"""So long a stop waits for the goodbye (DS-25)."""

REPEAT_SECONDS = 1.0
"""From the first packet of an announcement to its second (RFC 6762, section 8.3): one may be lost."""

AGAIN_SECONDS = 1.2
"""After which the first question is asked again: who was asked the same by another within a second is silent."""

_SAME_GOODBYE_SECONDS = 1.0
"""A goodbye comes several times, and by each family of addresses."""

_GOODBYES_MAX = 256
"""Goodbyes within that time that are told, and more are not; who is gone without one is missed."""

_UNREAD_MAX = 256
"""News from the library's thread that the reactor has not yet heard; more are dropped."""

log = Logger()


class MulticastService(Service):
    """Announces one record, and hears those of others.

    It may be started again after its stop.

    Args:
        reactor: its time, and its thread (``IReactorFromThreads``).
        node: UUID of this node.
        name: of this host, for the name of the instance.
        ipv6: whether IPv6 is used where there is any (``discovery.ipv6``).
        links: the interfaces of this host, as they are now.
        errors: where ``discovery:multicast_port_taken``, ``discovery:multicast_denied`` and
            ``supervision:down:multicast`` are raised, and cleared.
        open: opens the sockets.
        make_worker: the thread for calls that block.

    Attributes:
        heard: emits a claim for each SRV or TXT record that arrives, new or not. Those with the own UUID come from
            another host (DS-68).
        left: emits the name of an instance that says goodbye (DS-61). Anybody can say it.
        last_foreign: when a packet of any kind last came from another host, in the reactor's seconds (DS-29).
    """

    def __init__(
        self,
        reactor: IReactorTime,
        node: str,
        name: str,
        ipv6: bool,
        links: Callable[[], Sequence[Interface]],
        errors: IErrorBook,
        open: Open = open_airing,
        make_worker: Callable[[Callable[..., object], str], Worker] = Worker,
    ) -> None:
        self.heard: Signal[Claim] = Signal()
        self.left: Signal[str] = Signal()
        self.last_foreign: float | None = None
        self._reactor = reactor
        self._in_reactor = IReactorFromThreads(reactor).callFromThread
        self._node = node
        self._instance = instance_name(name, node)
        self._ipv6 = ipv6
        self._links = links
        self._errors = errors
        self._open = open
        self._make_worker = make_worker
        self._published: tuple[Record, tuple[str, ...]] | None = None
        self._said: Said | None = None
        self._found: Sequence[Interface] = ()
        self._hearing = Hearing()
        self._allowance = Allowance()
        self._sends = Sends()
        self._denied = False
        self._asking = False
        self._goodbyes: dict[str, float] = {}
        self._bursts = Bursts(reactor.seconds())
        self._airing: Airing | None = None
        self._ear: _Ear | None = None
        self._worker: Worker | None = None
        self._upkeep: Upkeep | None = None
        self._next: IDelayedCall | None = None
        self._repeat: IDelayedCall | None = None
        self._again: IDelayedCall | None = None

    def startService(self) -> None:
        """Open the sockets, or wait for an interface; neither is waited for."""
        super().startService()
        self._bursts = Bursts(self._reactor.seconds())
        self._worker = self._make_worker(self._in_reactor, "pair-multicast")
        self._upkeep = upkeep(self._reactor, self._worker, self._prepare, self._changed, self._errors)
        self._upkeep.begin()

    def stopService(self) -> Deferred[None]:
        """Say goodbye. The Deferred fires when that is done, or after :data:`GOODBYE_SECONDS`."""
        super().stopService()
        machine, worker = self._upkeep, self._worker
        if machine is None or worker is None:
            return succeed(None)
        self._upkeep = self._worker = None
        ended = machine.end()
        ended.addCallback(lambda _: worker.end())
        self._show_denied(False)
        return settled(self._reactor, ended, GOODBYE_SECONDS).addCallback(lambda _: None)

    def publish(self, record: Record, addresses: Sequence[str]) -> None:
        """Announce ``record`` from now on; what is equal to what was announced is no news.

        Args:
            record: What TXT says.
            addresses: IP literals for A and AAAA, besides those of the interfaces that are sent by.
        """
        self._published = record, tuple(addresses)
        self._renew_said()

    def ask(self) -> None:
        """Ask all nodes to say who they are (DS-54); while no socket is open, as soon as there is one."""
        self._asking = self._airing is None
        if self._airing is not None:
            self._airing.ask()

    def moved(self) -> None:
        """The interfaces have come to rest, or the host woke: open sockets anew, and announce (DS-26, DS-27)."""
        if self._upkeep is not None:
            self._upkeep.renew()

    # The airing

    def _prepare(self) -> Callable[[], Airing | None]:
        self._found = found = tuple(self._links())
        self._hearing.forget_addresses()
        chosen = legs(found, self._ipv6)
        if not chosen:
            log.info("There is no interface for multicast.")
            self._sends.forget()
            self._show_denied(False)
            return lambda: None
        own = [str(each.ip) for interface in found for each in interface.addresses]
        self._ear = ear = _Ear(self._in_reactor, self._arrived, self._sent, self._broke)
        return partial(self._open, chosen, own, ear)

    def _changed(self, airing: Airing | None) -> None:
        self._airing = airing
        if airing is None:
            if self._ear is not None:
                self._ear.close()
            self._schedule()
            return
        log.info(
            "Multicast goes by {interfaces}.",
            interfaces=", ".join(each.name for each in legs(self._found, self._ipv6)) or "no interface",
        )
        self._bursts.changed(self._reactor.seconds())
        self._renew_said()
        self._schedule()
        if self._asking:
            self.ask()
            self._again = self._reactor.callLater(AGAIN_SECONDS, self.ask)

    # What is said

    def _renew_said(self) -> None:
        if self._published is None:
            return
        record, addresses = self._published
        records = dict.fromkeys((*addresses, *own_records(self._found, self._ipv6)))
        port = record.services.get("ni", DEFAULT_PORTS["ni"])
        said = Said(self._instance, target_name(self._node), port, encode(record), tuple(records))
        if said != self._said:
            self._said = said
            self._bursts.changed(self._reactor.seconds())
            self._schedule()

    def _schedule(self) -> None:
        for each in (self._next, *((self._repeat, self._again) if self._airing is None else ())):
            if each is not None and each.active():
                each.cancel()
        if self._airing is not None and self._said is not None:
            delay = max(0.0, self._bursts.due - self._reactor.seconds())
            self._next = self._reactor.callLater(delay, self._announce)

    def _announce(self) -> None:
        airing, said = self._airing, self._said
        assert airing is not None, "else nothing is planned"
        assert said is not None, "else nothing is planned"
        self._bursts.sent(self._reactor.seconds())
        airing.announce(said)
        if self._repeat is not None and self._repeat.active():
            self._repeat.cancel()
        self._repeat = self._reactor.callLater(REPEAT_SECONDS, airing.announce, said)
        self._schedule()

    # What is heard

    def _arrived(self, arrival: Arrival) -> None:
        now = self._reactor.seconds()
        if not arrival.own:
            self.last_foreign = now
            if not self._allowance.covers(arrival.packet, now):
                return
        self._goodbyes = {each: at for each, at in self._goodbyes.items() if now - at < _SAME_GOODBYE_SECONDS}
        for instance in arrival.packet.gone:
            if not (arrival.own and instance == self._instance):
                self._goodbye(instance, now)
        zone = arrival.zone or zone_of(arrival.source, self._found)
        for claim in self._hearing.take(arrival.packet, zone, self._found):
            if claim.uuid != self._node or not arrival.own:
                self.heard.emit(claim)

    def _goodbye(self, instance: str, now: float) -> None:
        if instance not in self._goodbyes and len(self._goodbyes) < _GOODBYES_MAX:
            self._goodbyes[instance] = now
            self.left.emit(instance)

    # How it goes

    def _sent(self, sent: Sent) -> None:
        now = self._reactor.seconds()
        for interface, number in self._sends.told(sent, now).items():
            log.warn("Multicast by {interface} failed: {error}.", interface=interface, error=os.strerror(number))
        self._show_denied(self._sends.denied(now))

    def _show_denied(self, denied: bool) -> None:
        if denied and not self._denied:
            self._errors.raise_entry(DENIED, advice=advice(sys.platform, started_by_system=os.getppid() == 1))
        elif self._denied and not denied:
            self._errors.clear(DENIED)
        self._denied = denied

    def _broke(self, failure: Failure) -> None:
        if self._upkeep is not None:
            self._upkeep.fault(failure)


class _Ear:
    """Hears in the library's thread, tells in the reactor's; not more than can be listened to."""

    def __init__(
        self,
        in_reactor: Callable[..., object],
        arrived: Callable[[Arrival], None],
        sent: Callable[[Sent], None],
        broke: Callable[[Failure], None],
    ) -> None:
        self._in_reactor = in_reactor
        self._arrived = arrived
        self._sent = sent
        self._broke = broke
        self._room = threading.BoundedSemaphore(_UNREAD_MAX)
        self._closed = False

    def arrived(self, arrival: Arrival) -> None:
        self._pass_on(self._arrived, arrival)

    def sent(self, sent: Sent) -> None:
        self._pass_on(self._sent, sent)

    def broke(self, failure: Failure) -> None:
        self._pass_on(self._broke, failure)

    def close(self) -> None:
        """Tell no more. In the reactor thread."""
        self._closed = True

    def _pass_on(self, to: Callable[[Any], None], news: object) -> None:
        if self._room.acquire(blocking=False):
            self._in_reactor(self._tell, to, news)

    def _tell(self, to: Callable[[Any], None], news: object) -> None:
        self._room.release()
        if not self._closed:
            to(news)


def advice(platform: str, started_by_system: bool) -> str:
    """What a person can do where the system lets no multicast out. Pure.

    Args:
        platform: As :data:`sys.platform` has it.
        started_by_system: PAIR runs as a service, and not in a terminal.
    """
    if platform == "darwin":
        how = (
            "PAIR was started as a service, so that the entry there is that of Python"
            if started_by_system
            else "PAIR was started from a terminal, so that the entry there is that of the terminal's program"
        )
        return f"Allow it in System Settings, Privacy & Security, Local Network; {how}."
    return "A firewall, or the rules of a container, may be the cause (UDP port 5353)."

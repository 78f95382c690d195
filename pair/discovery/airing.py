"""One ``zeroconf.Zeroconf``: its sockets, its thread, and what of both we need (DS-16 to DS-19, DS-24, DS-25).

The only module that imports the library. Opening and closing block, so that
one thread of ours does them; what arrives is told in the library's own thread.
It must not know what is made of that, nor when to announce.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
from typing import TYPE_CHECKING, Any, Protocol, cast

import zeroconf
from msgspec import Struct
from twisted.python.failure import Failure
from zeroconf._dns import DNSQuestion
from zeroconf._protocol.outgoing import DNSOutgoing
from zeroconf._utils import net
from zeroconf.const import _CLASS_IN, _FLAGS_QR_QUERY, _TYPE_PTR

from pair.addresses import bare_ip
from pair.discovery.packets import Packet, is_ours, read
from pair.discovery.sending import Sent
from pair.discovery.txt import TTL_SECONDS, TYPE

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pair.discovery.sending import Leg

PORT = 5353

_STEP_SECONDS = 10.0
"""After so long the library's thread is taken to hang."""

_FOREIGN_SECONDS = 1.0
"""Of packets that say nothing of us one is told in so long: that another host was heard at all (DS-29)."""


class Said(Struct, frozen=True):
    """The record of this node: TXT data, SRV port, and what goes into A and AAAA."""

    instance: str
    target: str
    port: int
    text: bytes
    addresses: tuple[str, ...]


class Arrival(Struct, frozen=True):
    """A packet that arrived. ``zone`` is the interface, where the system names it; ``own`` if it is of this host."""

    source: str
    zone: str | None
    own: bool
    packet: Packet


class Ear(Protocol):
    """Who is told, in the library's thread."""

    def arrived(self, arrival: Arrival) -> None:
        """A packet has come."""

    def sent(self, sent: Sent) -> None:
        """A multicast of ours went out, or not."""

    def broke(self, failure: Failure) -> None:
        """The library, or what it called, raised."""


class Airing(Protocol):
    """Sockets that are open, and a thread that answers for the record that was last announced."""

    @property
    def complete(self) -> bool:
        """Whether each of the addresses that were asked for could be used."""

    def announce(self, said: Said) -> None:
        """Say it now, and to whoever asks. Does not block."""

    def ask(self) -> None:
        """One question for all instances: multicast, and without known answers (DS-17, DS-54). Does not block."""

    def close(self, goodbye: bool) -> None:
        """End the thread, after a goodbye if it is for good. Blocks."""


class Open(Protocol):
    """What opens an airing."""

    def __call__(self, legs: Sequence[Leg], own: Collection[str], ear: Ear) -> Airing:
        """See :func:`open_airing`."""


def open_airing(legs: Sequence[Leg], own: Collection[str], ear: Ear) -> Airing:
    """Open the sockets. Blocks for some milliseconds.

    Args:
        legs: The interfaces to send by; at least one.
        own: The addresses of this host, IP literals without zone.
        ear: Who is told what arrives.

    Raises:
        OSError: Of the system, with ``EADDRINUSE`` if another program has the port for itself (DS-20).
        Exception: Whatever else the library raises.
    """
    if sys.platform == "linux":
        # There it would give each packet to one of the sockets, and not to all (DS-19).
        net.set_so_reuseport_if_available = lambda s: None
    names: dict[str | int, str] = {}
    for leg in legs:
        if leg.ipv4 is not None:
            names[leg.ipv4] = leg.name
        if leg.ipv6:
            names[socket.if_nametoindex(leg.name)] = leg.name
    library = _Library(names, frozenset(own), ear)
    try:
        library.listen_in()
    except BaseException:
        library.close()
        raise
    return library


def is_port_taken(error: BaseException | None) -> bool:
    """Whether an opening failed since another program has the port for itself."""
    return isinstance(error, OSError) and error.errno == errno.EADDRINUSE


class _Library(zeroconf.Zeroconf):
    """An airing.

    Args:
        names: of interfaces, by the IPv4 address or the index for IPv6 that is to be used.
        own: the addresses of this host.
    """

    def __init__(self, names: dict[str | int, str], own: frozenset[str], ear: Ear) -> None:
        self._names = names
        self._own = own
        self._ear = ear
        self._failed: dict[str, int] = {}
        self._refused = 0
        self._foreign_at = float("-inf")
        super().__init__(interfaces=list(names), use_asyncio=False)

    @property
    def complete(self) -> bool:
        """See :class:`Airing`, as all that follows."""
        return len(self.engine.senders) == len(self._names)

    def announce(self, said: Said) -> None:
        self._loop.call_soon_threadsafe(self._announce, said)

    def ask(self) -> None:
        self._loop.call_soon_threadsafe(self._ask)

    def close(self, goodbye: bool = False) -> None:
        if not goodbye:
            self._in_loop(self._withdraw)
        super().close()

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        assert self.loop is not None, "it is made with its thread"
        return self.loop

    def listen_in(self) -> None:
        """Hear what the sockets receive, and what goes wrong."""
        self._in_loop(self._listen_in)

    # In the library's thread

    def _in_loop(self, call: Any) -> None:
        async def step() -> None:
            call()

        asyncio.run_coroutine_threadsafe(step(), self._loop).result(_STEP_SECONDS)

    def _listen_in(self) -> None:
        self._loop.set_exception_handler(self._raised)
        senders = {each.transport: self._name(each.transport.get_extra_info("socket")) for each in self.engine.senders}
        for each in self.engine.readers:
            behind = cast(asyncio.DatagramProtocol, each.transport.get_protocol())
            each.transport.set_protocol(_Tap(self, behind, senders.get(each.transport)))

    def _name(self, sender: socket.socket) -> str:
        if sender.family == socket.AF_INET6:
            return self._names[sender.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF)]
        return self._names[sender.getsockname()[0]]

    def _raised(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None:
            self._ear.broke(Failure(error, type(error), error.__traceback__))

    def _announce(self, said: Said) -> None:
        info = zeroconf.ServiceInfo(
            TYPE,
            said.instance,
            said.port,
            properties=said.text,
            server=said.target,
            host_ttl=TTL_SECONDS,
            other_ttl=TTL_SECONDS,
            parsed_addresses=list(said.addresses),
        )
        # As by async_register_service(cooperating_responders=True): no probe, no other name. That, however, would
        # send by a rhythm of its own (DS-23).
        self.registry.async_update(info)
        self.async_send(self.generate_service_broadcast(info, None))

    def _ask(self) -> None:
        question = DNSOutgoing(_FLAGS_QR_QUERY)
        question.add_question(DNSQuestion(TYPE, _TYPE_PTR, _CLASS_IN))
        self.async_send(question)

    def _withdraw(self) -> None:
        self.registry.async_remove(self.registry.async_get_service_infos())

    def async_send(self, out: Any, addr: str | None = None, *args: Any, **kwargs: Any) -> None:
        """Send, and tell how that went if it was to all. The library's own answers come by here too."""
        self._failed, self._refused = {}, 0
        super().async_send(out, addr, *args, **kwargs)
        if addr is None and self.engine.senders and not self.done:
            self._ear.sent(Sent(self._refused < len(self.engine.senders), self._failed))

    def refused(self, name: str, error: Exception) -> None:
        """A socket could not send; told from within the sending."""
        self._refused += 1
        self._failed[name] = getattr(error, "errno", None) or 0

    def arrived(self, data: bytes, address: tuple[Any, ...]) -> None:
        """A packet came, before the library looks at it."""
        source = str(bare_ip(address[0]))
        own = source in self._own
        zone = self._names.get(address[3]) if len(address) == 4 else None
        # An answer from another port is none (RFC 6762, section 6).
        if is_ours(data) and address[1] == PORT:
            self._ear.arrived(Arrival(source, zone, own, read(data)))
        elif not own and self._loop.time() - self._foreign_at >= _FOREIGN_SECONDS:
            self._foreign_at = self._loop.time()
            self._ear.arrived(Arrival(source, zone, own, Packet()))


class _Tap(asyncio.DatagramProtocol):
    """Stands before the library's protocol of one socket; ``name`` is the interface by which it sends, if it does."""

    def __init__(self, library: _Library, behind: asyncio.DatagramProtocol, name: str | None) -> None:
        self._library = library
        self._behind = behind
        self._name = name

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        self._library.arrived(data, addr)
        self._behind.datagram_received(data, addr)

    def error_received(self, exc: Exception) -> None:
        if self._name is not None:
            self._library.refused(self._name, exc)

    def connection_lost(self, exc: Exception | None) -> None:
        self._behind.connection_lost(exc)

"""Nodes on hosts of their own, at one switch: with the usual ports and multicast, as people run them."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pair.records.nodes import DEFAULT_PORTS
from pair.test.integration.cluster import ClusterNode, ClusterTestCase, Command
from pair.test.integration.network import Host, Switch, switched

if TYPE_CHECKING:
    from pair.test.integration.node import Answer

SEEN = 6.0
"""Seconds from its start in which a node is seen by others, by multicast."""


class HostNode(ClusterNode):
    """A node on a host, listening at all its addresses, at the usual ports.

    Args:
        folder: for all that it writes.
        host: where it runs.
        settings: as ``KEY=VALUE``.

    Attributes:
        host: where it runs.
    """

    def __init__(self, folder: Path, host: Host, *settings: str) -> None:
        super().__init__(folder, *settings)
        self.host = host
        self.ports = {"cluster": DEFAULT_PORTS["cl"]}
        ours = ("node.bind=", "ports.", "proxy.ports.", "discovery.mdns=false")
        self._settings = [each for each in self._settings if each in settings or not each.startswith(ours)]

    def launch(self, *options: str) -> None:
        """See :class:`pair.test.integration.node.Node`."""
        with self.host.inside():
            super().launch(*options)

    def get(self, path: str) -> Any:
        """See :class:`pair.test.integration.node.Node`."""
        with self.host.inside():
            return super().get(path)

    def call(self, path: str, body: object = None, method: str | None = None) -> Answer:
        """See :class:`ClusterNode`."""
        with self.host.inside():
            return super().call(path, body, method)

    def command(self, *arguments: str, **environ: str) -> Command:
        """See :class:`ClusterNode`."""
        with self.host.inside():
            return super().command(*arguments, **environ)

    @property
    def places(self) -> tuple[str, ...]:
        """Where other hosts reach its port for members."""
        return (f"{self.host.address}:{self.port}",)

    def nodes(self) -> dict[str, Any]:
        """All that its directory knows, by key."""
        return {each["key"]: each for each in self.get("/nodes")["nodes"]}

    def sees(self, *others: ClusterNode) -> bool:
        """Whether it lists these as online."""
        nodes = self.nodes()
        return all(nodes.get(each.uuid, {}).get("presence") == "online" for each in others if each is not self)

    def presence(self, other: ClusterNode) -> str | None:
        """How it lists another; None: it does not."""
        found = self.nodes().get(other.uuid)
        return None if found is None else str(found["presence"])

    def _is_ready(self) -> bool:
        with self.host.inside():
            return super()._is_ready()


class HostTestCase(ClusterTestCase):
    """Makes hosts at a switch, each with a node.

    Attributes:
        switch: joins the hosts.
        hosts: all of them.
    """

    switch: Switch
    hosts: list[Host]

    def make_hosts(self, number: int) -> None:
        """Build the network."""
        self.switch, self.hosts = switched(self, number)

    def node_on(self, host: Host, *settings: str, folder: Path | None = None) -> HostNode:
        """A node there, not started; in the folder of another, it is its copy."""
        node = HostNode(Path(self.mktemp()) if folder is None else folder, host, *settings)
        self.addCleanup(node.destroy)
        return node

    def start_on_hosts(self, number: int, *settings: str) -> list[HostNode]:
        """So many hosts, and on each a node that serves."""
        self.make_hosts(number)
        nodes = [self.node_on(each, *settings) for each in self.hosts]
        for each in nodes:
            each.launch()
        for each in nodes:
            each.wait_until_ready()
        return nodes


class Packet(Struct, frozen=True):
    """A datagram of multicast DNS on the wire: from which address and port, and with which TTL."""

    source: str
    source_port: int
    port: int
    ttl: int
    payload: bytes


class Capture:
    """All IPv4 datagrams from or to port 5353 that come to a host or leave it, while it is the context.

    Attributes:
        packets: those so far.
    """

    def __init__(self, host: Host) -> None:
        self.packets: list[Packet] = []
        self._ending = threading.Event()
        with host.inside():
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
            self._socket.bind((host.interface, 3))
        self._socket.settimeout(0.1)
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Capture:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()
        self._socket.close()

    def _read(self) -> None:
        while not self._ending.is_set():
            with suppress(TimeoutError):
                packet = _read_packet(self._socket.recv(65536))
                if packet is not None and 5353 in (packet.source_port, packet.port):
                    self.packets.append(packet)


def _read_packet(data: bytes) -> Packet | None:
    """The datagram in an IPv4 packet, if it is one."""
    if len(data) < 28 or data[0] >> 4 != 4 or data[9] != socket.IPPROTO_UDP:
        return None
    header = (data[0] & 15) * 4
    source_port, port = struct.unpack_from("!HH", data, header)
    return Packet(socket.inet_ntoa(data[12:16]), source_port, port, data[8], data[header + 8 :])

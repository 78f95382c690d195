"""Several hosts on one machine, with a cable or a switch between them: network namespaces.

What happens to a network happens here: a port of the switch goes down, or lets
no multicast through; a host is given another address.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest import SkipTest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from twisted.trial.unittest import SynchronousTestCase

_CLONE_NEWNET = 0x40000000
_NETWORK = "/proc/thread-self/ns/net"


class Host:
    """A network namespace, which ends with the test.

    Args:
        test: whose it is.
        interface: the name of its one interface, besides loopback.
        number: 1 or 2: the last part of its addresses.
    """

    def __init__(self, test: SynchronousTestCase, interface: str, number: int) -> None:
        self.interface = interface
        self.address = f"10.77.0.{number}"
        self.link_local = f"fe80::{number}"
        self.namespace = _namespace()
        test.addCleanup(os.close, self.namespace)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Be on this host, with all that is started meanwhile."""
        before = os.open(_NETWORK, os.O_RDONLY)
        try:
            _enter(self.namespace)
            yield
        finally:
            _enter(before)
            os.close(before)

    def readdress(self, number: int) -> None:
        """Take another IPv4 address in place of the one it has, as from another lease."""
        with self.inside():
            _change("ip", "address", "del", f"{self.address}/24", "dev", self.interface)
            self.address = f"10.77.0.{number}"
            _change("ip", "address", "add", f"{self.address}/24", "dev", self.interface)

    def plug_in(self) -> None:
        """Bring its interfaces up, with addresses that can be used at once."""
        with self.inside():
            _ip("link", "set", "lo", "up")
            _ip("link", "set", self.interface, "up")
            _ip("address", "add", f"{self.address}/24", "dev", self.interface)
            _ip("address", "add", f"{self.link_local}/64", "dev", self.interface, "nodad")


class Switch:
    """Joins hosts, each at a port of its own."""

    def __init__(self, test: SynchronousTestCase, hosts: Sequence[Host]) -> None:
        self._itself = Host(test, "switch", 254)
        self._ports = {each: f"port{number}" for number, each in enumerate(hosts)}
        with self._itself.inside():
            _ip("link", "add", "switch", "type", "bridge", "mcast_snooping", "0")
            _ip("link", "set", "switch", "up")
            for host, port in self._ports.items():
                there = f"/proc/{os.getpid()}/fd/{host.namespace}"
                _ip("link", "add", port, "type", "veth", "peer", "name", host.interface, "netns", there)
                _ip("link", "set", port, "master", "switch", "up")

    def cut(self, host: Host) -> None:
        """Pull the host's cable."""
        self._set(host, "down")

    def heal(self, host: Host) -> None:
        """Put it back."""
        self._set(host, "up")

    def slow(self, *hosts: Host) -> None:
        """Let no more than 256 kbit/s through to each of these hosts."""
        limit = ("rate", "256kbit", "burst", "16kb", "latency", "2s")
        with self._itself.inside():
            for each in hosts:
                _run("tc", "qdisc", "add", "dev", self._ports[each], "root", "tbf", *limit)

    def filter_multicast(self, *hosts: Host) -> None:
        """Let no multicast through to these hosts."""
        with self._itself.inside():
            for each in hosts:
                _change("bridge", "link", "set", "dev", self._ports[each], "mcast_flood", "off")

    def _set(self, host: Host, state: str) -> None:
        with self._itself.inside():
            _change("ip", "link", "set", self._ports[host], state)


def switched(test: SynchronousTestCase, number: int) -> tuple[Switch, list[Host]]:
    """So many hosts at one switch.

    Raises:
        SkipTest: The system has no such thing, or does not let us.
    """
    _check_system()
    hosts = [Host(test, "eth0", each) for each in range(1, number + 1)]
    switch = Switch(test, hosts)
    for each in hosts:
        each.plug_in()
    return switch, hosts


def cabled(test: SynchronousTestCase, near: str, far: str) -> tuple[Host, Host]:
    """Two hosts that reach each other.

    Args:
        test: they end with it.
        near: the name of the first one's interface.
        far: that of the other's.

    Raises:
        SkipTest: The system has no such thing, or does not let us.
    """
    _check_system()
    first, second = Host(test, near, 1), Host(test, far, 2)
    with first.inside():
        there = f"/proc/{os.getpid()}/fd/{second.namespace}"
        _ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", there)
    for each in (first, second):
        each.plug_in()
    return first, second


def _check_system() -> None:
    if sys.platform != "linux":
        raise SkipTest("only Linux has network namespaces")
    if shutil.which("ip") is None or shutil.which("bridge") is None:
        raise SkipTest("there is no program ip or no program bridge (iproute2) here")


def _namespace() -> int:
    """A new network namespace, as an open file."""
    before = os.open(_NETWORK, os.O_RDONLY)
    try:
        if _libc.unshare(_CLONE_NEWNET) != 0:
            raise SkipTest(f"no network namespace can be made: {os.strerror(ctypes.get_errno())}")
        made = os.open(_NETWORK, os.O_RDONLY)
        _enter(before)
        return made
    finally:
        os.close(before)


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "cannot enter a network namespace")


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    """A step without which there is no such network here."""
    fault = _fault(*command)
    if fault:
        raise SkipTest(fault)


def _change(*command: str) -> None:
    """A step in a network that is there: it must succeed."""
    fault = _fault(*command)
    assert not fault, fault


def _fault(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"{' '.join(command)}: {done.stderr.strip() or done.returncode}"


_libc = ctypes.CDLL(None, use_errno=True)

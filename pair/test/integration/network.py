"""Two hosts on one machine, and a cable between them: network namespaces, whose interfaces have names of their own."""

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
    from collections.abc import Iterator

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

    def plug_in(self) -> None:
        """Bring its interfaces up, with addresses that can be used at once."""
        with self.inside():
            _ip("link", "set", "lo", "up")
            _ip("link", "set", self.interface, "up")
            _ip("address", "add", f"{self.address}/24", "dev", self.interface)
            _ip("address", "add", f"{self.link_local}/64", "dev", self.interface, "nodad")


def cabled(test: SynchronousTestCase, near: str, far: str) -> tuple[Host, Host]:
    """Two hosts that reach each other.

    Args:
        test: they end with it.
        near: the name of the first one's interface.
        far: that of the other's.

    Raises:
        SkipTest: The system has no such thing, or does not let us.
    """
    if sys.platform != "linux":
        raise SkipTest("only Linux has network namespaces")
    if shutil.which("ip") is None:
        raise SkipTest("there is no program ip (iproute2) here")
    first, second = Host(test, near, 1), Host(test, far, 2)
    with first.inside():
        there = f"/proc/{os.getpid()}/fd/{second.namespace}"
        _ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", there)
    for each in (first, second):
        each.plug_in()
    return first, second


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
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SkipTest(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


_libc = ctypes.CDLL(None, use_errno=True)

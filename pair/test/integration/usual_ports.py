"""A network of a test's own, in which the usual ports are free: 11434 itself can be taken, and nobody is disturbed."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys
from typing import TYPE_CHECKING
from unittest import SkipTest

from pair.test.integration.node import Node

if TYPE_CHECKING:
    from twisted.trial.unittest import SynchronousTestCase

_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS = 0x8914
_UP_AND_RUNNING = 0x41


def enter_network(test: SynchronousTestCase) -> None:
    """Go into a network namespace with a loopback alone, and so all that the test starts; leave it after the test.

    Raises:
        SkipTest: The system has none, or does not let us.
    """
    if sys.platform != "linux":
        raise SkipTest("only Linux has network namespaces")
    before = os.open("/proc/self/ns/net", os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        os.close(before)
        raise SkipTest(f"no network namespace can be made: {os.strerror(ctypes.get_errno())}")

    def leave() -> None:
        libc.setns(before, _CLONE_NEWNET)
        os.close(before)

    test.addCleanup(leave)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _UP_AND_RUNNING))


class UsualNode(Node):
    """A node that listens where a node of a user does, and looks for an Ollama."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, embedded=False, **options)  # type: ignore[arg-type]
        ours = ("node.bind=", "proxy.ports.", "engines.ollama.mode=")
        self._settings = [each for each in self._settings if not each.startswith(ours)]

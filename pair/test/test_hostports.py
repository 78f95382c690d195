"""Tests of who holds a port."""

from __future__ import annotations

import os
import socket

import psutil
from twisted.trial.unittest import SynchronousTestCase

from pair.hostports import OURSELVES, Holder, Listener, choose, holder


class ChooseTests(SynchronousTestCase):
    def test_nobody(self) -> None:
        """No listener on that port."""
        self.assertIsNone(choose(1234, [Listener(1235, 7), Listener(12340, None)]))

    def test_a_known_process_comes_first(self) -> None:
        """Several listen on one port by address; one with a pid tells more, the lowest by order."""
        listeners = [Listener(1234, None), Listener(1234, 9), Listener(1234, 8)]
        self.assertEqual(choose(1234, listeners), Listener(1234, 8))
        self.assertEqual(choose(1234, listeners[:1]), Listener(1234, None))


class HolderTests(SynchronousTestCase):
    def test_our_own_listener(self) -> None:
        """A port of this process is held by this process."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            found = holder(listener.getsockname()[1])
        own = psutil.Process()
        self.assertEqual(found, Holder(os.getpid(), own.name(), own.username()))

    def test_a_free_port(self) -> None:
        """Nobody holds a port whose listener has closed."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        self.assertIsNone(holder(port))

    def test_described(self) -> None:
        """What goes into a sentence."""
        self.assertEqual(Holder(812, "ollama", "svc").described, "ollama (pid 812, user svc)")
        self.assertEqual(Holder(812).described, "a program (pid 812)")
        self.assertEqual(Holder().described, "a program of another user")
        self.assertEqual(Holder(os.getpid(), "twistd", "svc").described, OURSELVES)

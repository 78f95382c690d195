"""Tests of :mod:`pair.records.endpoints`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from pair.records.endpoints import Endpoint


class UrlTests(SynchronousTestCase):
    def test_reachable(self) -> None:
        """The URL is one at which the sockets are: 127.0.0.1, unless they have another loopback address alone."""
        for addresses, host in (
            (("0.0.0.0", "::"), "127.0.0.1"),
            (("192.168.1.7", "127.0.0.1", "::1"), "127.0.0.1"),
            (("::1", "127.0.0.1"), "127.0.0.1"),
            (("127.0.0.2", "::"), "127.0.0.2"),
            (("127.0.0.2", "0.0.0.0"), "127.0.0.1"),
            (("::",), "[::1]"),
            (("192.168.1.7", "::1"), "[::1]"),
        ):
            endpoint = Endpoint("ollama", "bound", 11434, 11500, addresses)
            self.assertEqual(endpoint.url, f"http://{host}:11500", addresses)

    def test_nowhere(self) -> None:
        """There is none while there is no port."""
        self.assertIsNone(Endpoint("ollama", "failed", 11434).url)

"""Tests of the choice of an engine's port."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.engines.ports import first_free, reserved

PORTS = st.integers(1, 65535)


class PortsTests(SynchronousTestCase):
    def test_reserved(self) -> None:
        """Both standard ports, the control API, the peer surfaces, and what is chosen (EN-43)."""
        ours = {1234, 11434, 14300, 14318, 14319, 14320, 14321, 14322, 14323}
        self.assertEqual(reserved(), ours)
        self.assertEqual(reserved([8081, 1234]), ours | {8081})

    def test_first_free(self) -> None:
        """The first that is neither reserved nor taken."""
        self.assertEqual(first_free(8081, (), lambda port: True), 8081)
        self.assertEqual(first_free(8081, (8081,), lambda port: port != 8082), 8083)

    def test_sixty_four_are_tried(self) -> None:
        """Base … base + 63, and no port over 65535."""
        self.assertEqual(first_free(8081, (), lambda port: port == 8144), 8144)
        self.assertIsNone(first_free(8081, (), lambda port: port == 8145))
        self.assertIsNone(first_free(65530, range(65530, 65536), lambda port: True))

    @given(PORTS, st.sets(PORTS), st.sets(PORTS))
    def test_never_a_reserved_one(self, base: int, chosen: set[int], taken: set[int]) -> None:
        """No plan uses a reserved port (EN-43)."""
        port = first_free(base, reserved(chosen), lambda each: each not in taken)
        if port is not None:
            self.assertNotIn(port, reserved(chosen) | taken)
            self.assertTrue(base <= port < base + 64)

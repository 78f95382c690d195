"""Tests of the choice of a facade's and an engine's port."""

from __future__ import annotations

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.engines.alias import Alias
from pair.engines.ports import Holder, Plan, Wish, first_free, plan, reserved, reserved_in
from pair.settings import load

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

    def test_reserved_in_settings(self) -> None:
        """What the settings give to facades, engines and the control API, and the alias (EN-43)."""
        loaded = load(["proxy.ports.ollama=11440", "ports.control=0", "engines.ollama.port=11500"])
        found = reserved_in(loaded.settings, Alias("local", ("::1",), 11600))
        self.assertEqual(found - reserved(), {0, 11440, 11500, 11600})
        self.assertEqual(reserved_in(load().settings, None), reserved())


STANDARD, BASE = 11434, 11435
HOLDERS: tuple[Holder | None, ...] = (None, *get_args(Holder))

ROWS: tuple[tuple[bool, bool, Holder | None, Plan, Plan], ...] = (
    # chosen, takes over, holder; the plan where a port may stand in, and where none is free
    (False, True, None, Plan("bound", STANDARD), Plan("bound", STANDARD)),
    (False, True, "engine", Plan("bypassed", BASE, "engine"), Plan("failed", None, "engine")),
    (False, True, "foreign", Plan("bypassed", BASE, "foreign"), Plan("failed", None, "foreign")),
    (False, True, "shadowed", Plan("bypassed", BASE, "shadowed"), Plan("bypassed", STANDARD, "shadowed")),
    (False, False, None, Plan("bypassed", BASE, "setting"), Plan("failed", None, "setting")),
    (False, False, "engine", Plan("bypassed", BASE, "setting"), Plan("failed", None, "setting")),
    (False, False, "foreign", Plan("bypassed", BASE, "setting"), Plan("failed", None, "setting")),
    (False, False, "shadowed", Plan("bypassed", BASE, "setting"), Plan("failed", None, "setting")),
    (True, True, None, Plan("bound", STANDARD), Plan("bound", STANDARD)),
    (True, True, "engine", Plan("failed", None, "engine"), Plan("failed", None, "engine")),
    (True, True, "foreign", Plan("failed", None, "foreign"), Plan("failed", None, "foreign")),
    (True, True, "shadowed", Plan("bypassed", STANDARD, "shadowed"), Plan("bypassed", STANDARD, "shadowed")),
    (True, False, None, Plan("bound", STANDARD), Plan("bound", STANDARD)),
    (True, False, "engine", Plan("failed", None, "engine"), Plan("failed", None, "engine")),
    (True, False, "foreign", Plan("failed", None, "foreign"), Plan("failed", None, "foreign")),
    (True, False, "shadowed", Plan("bypassed", STANDARD, "shadowed"), Plan("bypassed", STANDARD, "shadowed")),
)


class PlanTests(SynchronousTestCase):
    """EN-42, for what does not move an engine."""

    def test_table(self) -> None:
        """Each row, for both facades: nobody, an engine, a program, a shadow; chosen or not, taken over or not."""
        for standard, base in ((11434, 11435), (1234, 1235)):
            ports = {None: None, STANDARD: standard, BASE: base}
            for chosen, takes_over, holder, some, none in ROWS:
                wish = Wish(standard, base, chosen=chosen, takes_over=takes_over)
                for expected, free in ((some, range(65536)), (none, range(0))):
                    found = plan(wish, holder, reserved(), free.__contains__)
                    self.assertEqual(
                        found, Plan(expected.state, ports[expected.port], expected.reason), (wish, holder)
                    )

    def test_table_is_whole(self) -> None:
        """There is no other case."""
        cases = {(chosen, takes_over, holder) for chosen, takes_over, holder, *_ in ROWS}
        every = {(chosen, over, holder) for chosen in (True, False) for over in (True, False) for holder in HOLDERS}
        self.assertEqual((cases, len(ROWS)), (every, len(every)))

    @given(PORTS, PORTS, st.booleans(), st.booleans(), st.sampled_from(HOLDERS), st.sets(PORTS), st.sets(PORTS))
    def test_any_case(
        self,
        port: int,
        base: int,
        chosen: bool,
        takes_over: bool,
        holder: Holder | None,
        kept: set[int],
        taken: set[int],
    ) -> None:
        """A plan is never without an answer; it uses no reserved port, and none but a chosen one that is chosen."""
        wish = Wish(port, base, chosen=chosen, takes_over=takes_over)
        found = plan(wish, holder, reserved(kept), lambda each: each not in taken)
        self.assertEqual(found.state == "failed", found.port is None)
        self.assertEqual(found.state == "bound", found.reason is None)
        if found.port not in (None, port):
            self.assertNotIn(found.port, reserved(kept) | taken)
            self.assertFalse(chosen)

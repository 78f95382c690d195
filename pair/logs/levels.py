"""Which levels are written, by namespace (OP-28). No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.logger import LogLevel

if TYPE_CHECKING:
    from collections.abc import Mapping

RANKS = {LogLevel.debug: 0, LogLevel.info: 1, LogLevel.warn: 2, LogLevel.error: 3, LogLevel.critical: 4}
"""The levels of Twisted in their order."""

_NAMES = {level.name: rank for level, rank in RANKS.items()}

_QUIET = {"twisted": "warn", "log_legacy": "warn"}
"""Prefixes that are not ours and speak too much at info."""


class Gate:
    """The least rank that one namespace writes; all its loggers share it, so that a change reaches them at once."""

    __slots__ = ("least",)

    def __init__(self, least: int) -> None:
        self.least = least


class Levels:
    """The level of each namespace, by its longest known prefix. Until :meth:`set` is called everything passes."""

    def __init__(self) -> None:
        self._default = 0
        self._prefixes: Mapping[str, int] = {}
        self._gates: dict[str, Gate] = {}

    def set(self, level: str, levels: Mapping[str, str]) -> None:
        """Take ``level`` for all but those below the prefixes in ``levels``; it holds for the next event."""
        self._default = _NAMES[level]
        self._prefixes = {prefix: _NAMES[name] for prefix, name in {**_QUIET, **levels}.items()}
        for namespace, gate in list(self._gates.items()):
            gate.least = self._least(namespace)

    def gate(self, namespace: str) -> Gate:
        """The gate of ``namespace``, always the same one."""
        gate = self._gates.get(namespace)
        if gate is None:
            gate = self._gates[namespace] = Gate(self._least(namespace))
        return gate

    def _least(self, namespace: str) -> int:
        prefix = namespace
        while prefix:
            if prefix in self._prefixes:
                return self._prefixes[prefix]
            prefix = prefix.rpartition(".")[0]
        return self._default


LEVELS = Levels()
"""The levels of this process, as the log itself is one for the process."""

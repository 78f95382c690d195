"""One node: the ground is opened, then the parts are built for the identity that was found there, and started."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from zope.interface import implementer

from pair.choices import Choices
from pair.cluster.identity import load as load_identity
from pair.engines.checks import check_engines
from pair.ground import Ground
from pair.logs import Logger
from pair.parts import Parts
from pair.statedir import StateDirectory
from pair.supervision.process import INode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pair.included import Extensions
    from pair.settings import Loaded

log = Logger()


def build_node(loaded: Loaded, extensions: Extensions, directory: Path, reactor: Any) -> Node:
    """The node of this process; nothing is opened before its start.

    Args:
        loaded: the settings from options, environment and file.
        extensions: the kinds and policies by which they were checked.
        directory: of all state.
        reactor: the reactor.

    Raises:
        SettingsError: An engine's settings ask for what its kind does not have.
    """
    check_engines(loaded, extensions.kinds.members)
    return Node(loaded, extensions, StateDirectory(directory), reactor)


@implementer(INode)
class Node(Service):
    """Opens the ground everything stands on, then builds and starts the rest.

    Args:
        loaded: the settings.
        extensions: the kinds and policies that there are.
        directory: of all state.
        reactor: the reactor.
        say: writes a line for the person who started it.
    """

    def __init__(
        self,
        loaded: Loaded,
        extensions: Extensions,
        directory: StateDirectory,
        reactor: Any,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._loaded = loaded
        self._extensions = extensions
        self._reactor = reactor
        self._say = say or _say
        self._ground = Ground(reactor, loaded.settings, directory)
        self._parts: Parts | None = None
        self._starting: Deferred[None] | None = None

    def startService(self) -> Deferred[None]:
        """Start all parts in order; fires when the node is ready, fails when it cannot be (OP-3)."""
        super().startService()
        self._starting = Deferred.fromCoroutine(self._start())
        return self._starting

    def stopService(self) -> Deferred[None]:
        """Stop all parts in reverse; fires when nothing is left of them."""
        super().stopService()
        if self._starting is not None:
            self._starting.cancel()
        return Deferred.fromCoroutine(self._stop())

    def reopen_logs(self) -> None:
        """See :class:`pair.supervision.process.INode`."""
        self._ground.logs.reopen()

    async def _start(self) -> None:
        await self._ground.startService()
        ground = self._ground
        identity = await load_identity(ground.directory, ground.store, self._reactor.seconds())
        choices = Choices(ground.store, self._loaded, self._reactor)
        choices.load()
        self._parts = Parts(self._reactor, self._extensions, choices, identity, ground, self._say)
        await self._parts.services.startService()
        self._parts.announce()

    async def _stop(self) -> None:
        if self._parts is not None:
            self._parts.stopping()
            await self._parts.services.stopService()
            log.info("PAIR has stopped.")
        await self._ground.stopService()


def _say(line: str) -> None:
    """Write ``line`` on the true standard output, in whose place twistd has put its log."""
    if sys.__stdout__ is not None:
        sys.__stdout__.write(f"{line}\n")
        sys.__stdout__.flush()

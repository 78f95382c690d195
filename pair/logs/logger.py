"""The logger of all our modules: Twisted's, but silent before it costs anything (OP-28)."""

from __future__ import annotations

from twisted.logger import ILogObserver, LogLevel
from twisted.logger import Logger as TwistedLogger

from pair.logs.levels import LEVELS, RANKS, Levels


class Logger(TwistedLogger):
    """A ``twisted.logger.Logger`` that asks its namespace's level before it makes an event.

    Made at module level it has the module's name as its namespace.
    """

    def __init__(
        self,
        namespace: str | None = None,
        source: object | None = None,
        observer: ILogObserver | None = None,
        levels: Levels = LEVELS,
    ) -> None:
        # Twisted looks two frames up for the module's name: this one would be in the way.
        super().__init__(self._namespaceFromCallingContext() if namespace is None else namespace, source, observer)
        self._gate = levels.gate(self.namespace)

    @property
    def debugging(self) -> bool:
        """Whether lines at debug are written; asked where it would cost something to gather their fields."""
        return self._gate.least == 0

    def emit(self, level: LogLevel, format: str | None = None, **kwargs: object) -> None:
        """Emit an event, unless the namespace's level is above ``level``."""
        if RANKS[level] >= self._gate.least:
            super().emit(level, format, **kwargs)

    def debug(self, format: str | None = None, **kwargs: object) -> None:
        """Emit an event at level debug. Suppressed, as it mostly is, it costs well below a microsecond."""
        if self._gate.least == 0:
            super().emit(LogLevel.debug, format, **kwargs)

"""Whether the embedded engine is to run (EN-108). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pair.records.engines import Desired

YIELD_SECONDS = 60.0
"""How long another engine must have run before ours makes way for it."""

Setting = Literal["auto", "on", "off"]


class Standby:
    """Follows the setting ``embedded``; instants are in seconds of one clock.

    With ``auto`` it runs unless another engine ran when we first looked. Once
    it has made way it does not come back before the next start of PAIR: an
    engine that was there is likely to return.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._yielded: bool | None = None
        self._others_since: float | None = None

    def desired(self, others: bool, now: float) -> Desired:
        """What is wanted now.

        Args:
            others: whether another engine runs that can be used.
            now: the instant.
        """
        if self._setting != "auto":
            return self._setting
        if self._yielded is None:
            self._yielded = others
        if not others:
            self._others_since = None
        elif self._others_since is None:
            self._others_since = now
        elif now - self._others_since >= YIELD_SECONDS:
            self._yielded = True
        return "off" if self._yielded else "on"

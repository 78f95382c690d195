"""What is wrong with settings, in words for the one who wrote them (OP-9). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence


class Problem(Struct, frozen=True, kw_only=True):
    """One fault: where it stands, which key, the value as given (never a credential), and what is allowed."""

    where: str
    message: str
    key: str = ""
    value: str | None = None
    allowed: str = ""
    nearest: str | None = None

    def __str__(self) -> str:
        place = f"{self.where}: {self.key}" if self.key else self.where
        given = "" if self.value is None else f" = {self.value}"
        text = f"{place}{given}: {self.message}"
        if self.allowed:
            text += f"; allowed: {self.allowed}"
        if self.nearest:
            text += f"; did you mean {self.nearest}?"
        return text


class SettingsError(Exception):
    """The settings are invalid (exit 78). ``problems`` has all that was found, in the order of the sources."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(tuple(problems))
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)

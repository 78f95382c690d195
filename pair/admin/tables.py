"""What all tables for a person are made of. Pure: values in, something for rich out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from pair.admin.words import NOTHING, word

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_GAP = 2
_NARROWEST = 16
"""Characters to which the last column of a table is folded at the most."""

_STYLES = {
    **dict.fromkeys(
        ("online", "ready", "bound", "running", "ok", "completed", "up", "loaded", "valid", "paired"), "green"
    ),
    **dict.fromkeys(("bypassed", "moved", "pending", "starting", "stopping", "busy", "degraded", "queued"), "yellow"),
    **dict.fromkeys(("suspect", "backoff", "occupied", "needs_credential", "warning", "cancelled"), "yellow"),
    **dict.fromkeys(("waiting", "confirming"), "yellow"),
    **dict.fromkeys(("offline", "not ready", "failed", "unhealthy", "error", "invalid", "voided"), "red"),
    **dict.fromkeys(("absent", "stopped", "off", "unknown", "on disk", "info", "declined", "expired", NOTHING), "dim"),
}


def state(value: Any) -> Text:
    """A state in its colour; the word itself says it too."""
    text = word(value)
    return Text(text, style=_STYLES.get(text, ""))


class Fitted:
    """A table that leaves out columns where the terminal is too narrow, those named in ``spare`` one after the other.

    The others are never cut, and rather wider than the terminal: half of an id is of no use.
    """

    def __init__(self, columns: dict[str, list[Text]], spare: Sequence[str]) -> None:
        self._columns = columns
        self._spare = spare

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Called by rich."""
        shown = dict(self._columns)
        for title in self._spare:
            if _least(shown) > options.max_width:
                del shown[title]
        yield from console.render(_drawn(shown), options.update_width(max(options.max_width, _least(shown))))


def table(
    titles: Iterable[str], rows: Iterable[Iterable[str | Text]], empty: str, spare: Sequence[str] = ()
) -> RenderableType:
    """``rows`` under ``titles``, the last column wrapped if need be; ``empty`` where there is none.

    Args:
        titles: Of the columns.
        rows: A cell for each of them.
        empty: What there is to say where there is no row.
        spare: Those of ``titles`` that can be done without, the least needed first.
    """
    cells = [[Text(each) if isinstance(each, str) else each for each in row] for row in rows]
    if not cells:
        return Text(empty, style="dim")
    columns = {title: list(column) for title, column in zip(titles, zip(*cells, strict=True), strict=True)}
    return Fitted(columns, [title for title in spare if title in columns])


def section(title: str, content: RenderableType) -> RenderableType:
    """``content`` under a title."""
    return Group("", Text(title, style="bold cyan"), content)


def facts(found: Iterable[tuple[str, str | Text]]) -> RenderableType:
    """What is to be said of one thing, a line for each."""
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    drawn.add_column(style="dim", no_wrap=True)
    drawn.add_column(overflow="fold")
    for name, value in found:
        drawn.add_row(name, Text(value) if isinstance(value, str) else value)
    return drawn


def _widths(columns: dict[str, list[Text]]) -> list[int]:
    return [max(len(title), *(each.cell_len for each in cells)) for title, cells in columns.items()]


def _least(columns: dict[str, list[Text]]) -> int:
    *first, last = _widths(columns)
    return sum(first) + len(first) * _GAP + min(last, _NARROWEST)


def _drawn(columns: dict[str, list[Text]]) -> Table:
    drawn = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    *first, last = columns
    for title in first:
        drawn.add_column(title, no_wrap=True)
    drawn.add_column(last, overflow="fold")
    for row in zip(*columns.values(), strict=True):
        drawn.add_row(*row)
    return drawn

"""Figures and names as words for a person. Pure; a name of others loses what could play tricks on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pair.privacy import clean_text

if TYPE_CHECKING:
    from collections.abc import Mapping

NOTHING = "–"
"""Stands for what is not known or not there."""

EXCLUDED = {
    "offline": "its node cannot be reached",
    "not_trusted": "its node is no member of this cluster",
    "incompatible": "its node runs a version that does not fit",
    "drained": "its node is drained",
    "label_rule": "a routing rule keeps the request out",
    "route_unsupported": "it does not speak this path",
    "engine_stopped": "it does not run",
    "model_not_advertised": "it does not have the model",
    "not_loaded": "it does not have the model in memory",
    "model_stale": "it just said that it no longer has the model",
    "tried": "it was tried",
}
"""Why an engine may not serve, by code (RT-15)."""

REFUSED = {
    "route_unsupported": "no engine that has the model speaks this path",
    "owners_excluded": "the engines that have the model are drained, or a routing rule keeps the request out",
    "model_not_loaded": "no engine has the model in memory",
    "engine_stopped": "the engine that has the model does not run",
    "owners_offline": "the nodes that have the model cannot be reached",
    "model_unknown": "no engine has a model of this name",
    "no_engine": "no engine that runs serves this path",
}
"""Why nobody may, by code (RT-21)."""

HEADS = {
    "selection": "The node that is selected for this facade comes first; to undo that: pair-admin route auto.",
    "selection_ineligible": "The node that is selected for this facade cannot serve this request.",
}
"""What became of the node that a person selected (RT-27)."""


RESULTS = {
    "ok": "it answers",
    "never": "it was not asked yet",
    "timeout": "it does not answer in time",
    "refused": "nothing listens there",
    "unreachable": "there is no way to it",
    "unresolvable": "its name does not resolve",
    "not_pair": "what answers there is not PAIR",
}
"""What came of asking at an address, by code (DS-73)."""


def word(value: Any) -> str:
    """``value`` as one line of text."""
    return NOTHING if value in (None, "") else clean_text(str(value))


def reason(texts: Mapping[str, str], code: Any) -> str:
    """What ``code`` means, with the code itself for whoever looks it up; one of a newer service stands alone."""
    return f"{texts[code]} ({code})" if code in texts else word(code)


def together(between: str, *parts: str) -> str:
    """``parts`` as one text; one dash where none of them is known."""
    return NOTHING if all(each == NOTHING for each in parts) else between.join(parts)


def note(value: str | None) -> str:
    """A remark, as long as it is; where there is none there is nothing to be missed."""
    return clean_text(value or "", 1000)


def short(node: str | None) -> str:
    """The first part of a UUID."""
    return word(node and node.partition("-")[0])


def share(percent: float | None) -> str:
    """A part of a hundred."""
    return NOTHING if percent is None else f"{percent:.0f} %"


def size(octets: int | None) -> str:
    """``octets`` in the unit that gives the shortest figure."""
    if octets is None:
        return NOTHING
    amount = float(octets)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit in ("B", "KiB") else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def span(milliseconds: float | None) -> str:
    """A duration, in one unit or two."""
    if milliseconds is None:
        return NOTHING
    if milliseconds < 1000:
        return f"{max(0, milliseconds):.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def ago(at: int | None, now: int) -> str:
    """How long ago ``at`` was, both in epoch milliseconds."""
    if at is None:
        return NOTHING
    return "now" if now - at < 1000 else f"{span(now - at)} ago"

"""The kinds of engine and the routing policies that there are: ours, and those that others bring (EN-1, RT-57).

Ours are never looked for, so that listing ``twistd``'s commands imports
nothing of them. One of others that is no good costs nobody else anything.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct
from twisted.plugin import getPlugins
from zope.interface.exceptions import Invalid
from zope.interface.verify import verifyObject

import pair.plugins
from pair.privacy import clean_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from zope.interface import Interface

T = TypeVar("T")

_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
_LIMIT = 64


class Extended(Struct, Generic[T], frozen=True):
    """All of one sort, ours first; ``refused`` names those of others that cannot be used."""

    members: tuple[T, ...]
    refused: tuple[str, ...] = ()


def extended(
    ours: Sequence[T],
    interface: type[Interface],
    plugins: Callable[[Any, Any], Iterable[Any]] = getPlugins,
) -> Extended[T]:
    """``ours`` and the plugins of ``interface``, by name.

    One is refused that lacks something of the interface, whose name is not of
    the form ``[a-z][a-z0-9-]{0,31}``, or is taken already.

    Args:
        ours: those that come with PAIR.
        interface: what they provide; all have a ``name``.
        plugins: finds them; as :func:`twisted.plugin.getPlugins`.
    """
    members = list(ours)
    names = {each.name for each in members}  # type: ignore[attr-defined]
    refused = []
    for plugin in plugins(interface, pair.plugins):
        name = getattr(plugin, "name", None)
        if isinstance(name, str) and _NAME.fullmatch(name) and name not in names and _provides(interface, plugin):
            members.append(plugin)
            names.add(name)
        else:
            refused.append(clean_text(name, _LIMIT) if isinstance(name, str) and name else type(plugin).__name__)
    return Extended(tuple(members), tuple(refused))


def _provides(interface: type[Interface], plugin: object) -> bool:
    try:
        return bool(verifyObject(interface, plugin))
    except Invalid:
        return False

"""Which node a person means (CL-4), and what a person is told of which node it is. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pair.admin.failures import Failed
from pair.admin.words import short, word
from pair.privacy import clean_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Row = Mapping[str, Any]

_NAME_MAX = 32
"""Characters of a name in a column."""


class Names:
    """How nodes are called: by their names, and where several have one, or none is known, by how their UUIDs begin.

    Args:
        nodes: As ``GET /nodes`` has them.
    """

    def __init__(self, nodes: Iterable[Row] = ()) -> None:
        known = {str(each["uuid"]): each for each in nodes if each["uuid"] is not None}
        names = {node: clean_text(str(each["name"]), _NAME_MAX) for node, each in known.items()}
        times = Counter(names.values())
        self._names = {node: name for node, name in names.items() if name and times[name] == 1}
        self._mine = frozenset(node for node, each in known.items() if each["self"])
        self._offline = frozenset(node for node, each in known.items() if each["presence"] == "offline")

    def of(self, node: str | None) -> str:
        """What the node of that UUID is called."""
        return self._names.get(node or "") or short(node)

    def is_other(self, node: str) -> bool:
        """Whether it is known to be another node than this one."""
        return bool(self._mine) and node not in self._mine

    def is_offline(self, node: str) -> bool:
        """Whether what is known of it is only what it told before it was gone."""
        return node in self._offline


def uuid_of(text: str) -> str | None:
    """The UUID that ``text`` is, in any case, with or without hyphens or ``urn:uuid:``; None where it is none."""
    try:
        return str(UUID(text.strip()))
    except ValueError:
        return None


def means(text: str, node: Row) -> bool:
    """Whether ``text`` is the name of ``node``, or begins its UUID."""
    start = text.lower().removeprefix("urn:uuid:").replace("-", "")
    return text == node.get("name") or (start != "" and str(node["node"]).replace("-", "").startswith(start))


def find(text: str, nodes: Iterable[Row]) -> str | None:
    """The UUID of the one of ``nodes`` that ``text`` means; None where it means none.

    Raises:
        Failed: It means several.
    """
    found = {str(each["node"]): word(each.get("name")) for each in nodes if means(text, each)}
    if len(found) > 1:
        several = ", ".join(f"{short(node)} ({name})" for node, name in sorted(found.items()))
        raise Failed("ambiguous", f"There are several such nodes: {several}. Give more of the UUID.")
    return next(iter(found), None)


def entry_of(text: str, nodes: Sequence[Row]) -> Row:
    """The one of ``nodes``, as ``GET /nodes`` has them, that ``text`` means.

    It is a UUID or its beginning, a name, ``self``, or an address by which somebody gave the node.

    Raises:
        Failed: It means none, or several.
    """
    if text == "self":
        return next(each for each in nodes if each["self"])
    whole = uuid_of(text) or text
    known = [each for each in nodes if each["key"] == whole]
    known = known or [each for each in nodes if any(text in names_of(given) for given in each["manual"])]
    key = known[0]["key"] if known else find(text, ({"node": each["key"], "name": each["name"]} for each in nodes))
    for each in nodes:
        if each["key"] == key:
            return each
    raise _no_such_node()


def place_of(given: Row) -> str:
    """The address of a node that was given by it: ``host:port``, as the API writes it too."""
    host = word(given["address"])
    return f"[{host}]:{given['port']}" if ":" in host else f"{host}:{given['port']}"


def names_of(given: Row) -> tuple[str, str, str]:
    """What such an address may be called: its id, or itself, with or without port."""
    return str(given["id"]), str(given["address"]), place_of(given)


def named(nodes: Iterable[Row]) -> list[Row]:
    """Those of ``nodes``, as ``GET /nodes`` has them, whose UUIDs are known, as :func:`find` takes them."""
    return [{"node": each["uuid"], "name": each["name"]} for each in nodes if each["uuid"] is not None]


def node_of(text: str, nodes: Iterable[Row], others: Iterable[Row] = ()) -> str:
    """The UUID that ``text`` is, or that of the node it means: one of ``nodes``, or else one of ``others``.

    Raises:
        Failed: It means none, or several.
    """
    node = uuid_of(text) or find(text, nodes) or find(text, others)
    if node is None:
        raise _no_such_node()
    return node


def _no_such_node() -> Failed:
    return Failed(
        "no_such_node",
        "No node here has that name, or a UUID that begins so. Which there are: pair-admin node list",
    )

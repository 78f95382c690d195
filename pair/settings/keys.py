"""The table of all keys, made once from the structs; and the two texts made from it. Pure."""

from __future__ import annotations

import difflib
import math
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from pair.settings.grammar import size, size_text
from pair.settings.structs import EngineSettings, Key, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

ANY_ENGINE = "<id>"
"""Stands for the id of an engine in the path of a key."""


class Row(Struct, frozen=True):
    """One key: where it stands, and what it may hold."""

    path: str
    type: Any
    default: Any
    key: Key
    allowed: str

    @property
    def wants_text(self) -> bool:
        """Whether a text is taken as it is, whatever else it might mean."""
        return self.type is str or (get_origin(self.type) is Annotated and get_args(self.type)[0] is str)

    def read(self, value: object) -> Any:
        """``value``, as TOML or a person gave it, in the key's own type.

        Raises:
            ValueError: It is not allowed. The message, if any, says more than ``allowed`` does.
        """
        if self.key.size and isinstance(value, str):
            value = size(value)
        if self.key.none_or is not None:
            if value == "none":
                value = 0.0
            if isinstance(value, (int, float)) and 0 < value < self.key.none_or:
                raise ValueError
        try:
            read = msgspec.convert(value, self.type)
        except msgspec.ValidationError:
            raise ValueError from None
        if isinstance(read, float) and not math.isfinite(read):
            raise ValueError
        if isinstance(read, tuple) and any(each in read[:index] for index, each in enumerate(read)):
            raise ValueError("nothing may stand in it twice")
        if self.key.each is not None:
            for text in read if isinstance(read, tuple) else (read,):
                self.key.each(text)
        return read


def _parts(annotated: Any) -> tuple[Any, list[Any]]:
    """The bare type of a field, without ``| None``, and all that its annotations say."""
    notes: list[Any] = []
    bare = annotated
    while True:
        if get_origin(bare) is Annotated:
            bare, *more = get_args(bare)
            notes += more
        elif get_origin(bare) is Union and NoneType in get_args(bare) and len(get_args(bare)) == 2:
            bare = next(each for each in get_args(bare) if each is not NoneType)
        else:
            return bare, notes


def _alternatives(values: tuple[Any, ...]) -> str:
    *first, last = [f'"{value}"' for value in values]
    return f"{', '.join(first)} or {last}" if first else last


def _words(bare: Any, key: Key, meta: Meta) -> str:
    """What a key may hold, in words."""
    if key.allowed:
        return key.allowed
    if key.none_or is not None:
        return f'0 or "none", or seconds of at least {key.none_or:g}'
    if get_origin(bare) is Literal:
        return _alternatives(get_args(bare))
    if get_origin(bare) is tuple:
        inner = get_args(bare)[0]
        return f"a list of {_alternatives(get_args(inner)) if get_origin(inner) is Literal else 'texts'}"
    if bare is bool:
        return "true or false"
    if bare in (int, float):

        def show(number: float | None) -> str:
            return size_text(int(number or 0)) if key.size else f"{number:.10g}"

        noun = "a size" if key.size else "an integer" if bare is int else "seconds"
        bounds = f"from {show(meta.ge)} to {show(meta.le)}" if meta.le is not None else f"of at least {show(meta.ge)}"
        return f"{noun} {bounds}"
    return "text"


def _rows(struct: type[Struct], prefix: str) -> Iterator[Row]:
    for each in msgspec.structs.fields(struct):
        path = f"{prefix}{each.name}"
        bare, notes = _parts(each.type)
        key = next((note for note in notes if isinstance(note, Key)), None)
        if key is not None:
            meta = next((note for note in notes if isinstance(note, Meta)), Meta())
            default = each.default if each.default is not msgspec.NODEFAULT else each.default_factory()
            yield Row(path, _strict(each.type), default, key, _words(bare, key, meta))
        elif isinstance(bare, type) and issubclass(bare, Struct):
            yield from _rows(bare, f"{path}.")
        else:
            yield from _rows(EngineSettings, f"{path}.{ANY_ENGINE}.")


def _strict(annotated: Any) -> Any:
    """The type of a value that is given: not None."""
    bare, notes = _parts(annotated)
    metas = [note for note in notes if isinstance(note, Meta)]
    return Annotated[bare, metas[0]] if metas else bare


ROWS: dict[str, Row] = {row.path: row for row in _rows(Settings, "")}
"""All keys by path; those of an engine once, with ``<id>`` for the engine's id."""

_SECTIONS = frozenset(path[:end] for path in ROWS for end, mark in enumerate(path) if mark == ".")


def general(path: str) -> str:
    """The path under which the table has a key: that of an engine with ``<id>``."""
    first, _, rest = path.partition(".")
    engine, dot, name = rest.partition(".")
    return f"{first}.{ANY_ENGINE}{dot}{name}" if first == "engines" and engine else path


def is_section(path: str) -> bool:
    """Whether ``path`` names a table of keys and not a key."""
    return general(path) in _SECTIONS


def nearest(path: str) -> str | None:
    """The known key that looks most like ``path``, if one does."""
    wanted = general(path)
    found = difflib.get_close_matches(
        wanted, [*ROWS, *(each for each in _SECTIONS if ANY_ENGINE not in each)], n=1, cutoff=0.7
    )
    if not found:
        last = wanted.rpartition(".")[2]
        found = [each for each in ROWS if each.rpartition(".")[2] == last][:1]
    return found[0].replace(ANY_ENGINE, path.split(".")[1] if wanted != path else ANY_ENGINE) if found else None


class Description(Struct, frozen=True):
    """One key for people: a row of the table in the documentation."""

    key: str
    default: str
    allowed: str
    text: str


_MACHINES_OWN = {"node.name": "the name of this machine", "node.data_dir": "the user's data directory for pair"}


def describe() -> list[Description]:
    """All keys for people, in the order in which the structs have them."""
    return [Description(row.path, _default_text(row), row.allowed, row.key.text) for row in ROWS.values()]


def _default_text(row: Row) -> str:
    if row.path in _MACHINES_OWN:
        return _MACHINES_OWN[row.path]
    return "none" if row.default is None else _toml(row.default, row.key.size)


def _toml(value: object, as_size: bool = False) -> str:
    if as_size and isinstance(value, int):
        text = size_text(value)
        return text if text.isdigit() else f'"{text}"'
    if isinstance(value, float):
        return f"{value:g}"
    return msgspec.json.encode(value).decode().replace('","', '", "')


_HEAD = """\
# Settings of PAIR. It is read at start only.
# What stands here is locked: it cannot be changed while the node runs (so every key is off; take the # away).
"""


def example() -> str:
    """A ``pair.toml`` with every key, its comment and its default; as given it sets nothing."""
    lines = [_HEAD]
    section = None
    # Keys without a section must come first in TOML.
    for row in sorted(ROWS.values(), key=lambda row: "." in row.path):
        table, _, name = row.path.rpartition(".")
        if table != section:
            section = table
            if table:
                shown = table.replace(ANY_ENGINE, "ollama")
                lines.append(f"\n[{shown}]" if ANY_ENGINE not in table else f"\n# For each engine.\n[{shown}]")
        lines.append(f"# {row.key.text} Allowed: {row.allowed}.")
        lines.append(
            f"# {name} = (not set)" if row.default is None else f"#{name} = {_toml(row.default, row.key.size)}"
        )
    return "\n".join(lines) + "\n"

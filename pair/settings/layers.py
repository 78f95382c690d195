"""Settings from their sources, in order of precedence, with every problem found told at once (OP-7, OP-9).

Pure: texts and mappings in, values out.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from pair.privacy import clean_text
from pair.settings.checks import KINDS, OTHER, POLICIES, Finding, check
from pair.settings.keys import ANY_ENGINE, ROWS, Row, general, is_section, nearest
from pair.settings.problems import Problem, SettingsError
from pair.settings.structs import EngineSettings, Settings

S = TypeVar("S", bound=Struct)

SourceName = Literal["option", "environment", "file", "stored", "default"]

_PREFIX = "PAIR_SET__"
_SHORT = {"PAIR_LOG_LEVEL": "log.level"}
_SHOWN = 60
_NOT_UTF8 = re.compile("[\ud800-\udfff]")
"""What Python makes of bytes in arguments and in the environment that are not UTF-8."""


class SettingsFile(Struct, frozen=True):
    """The text of a ``pair.toml``, and the path by which messages name it."""

    path: str
    text: str


class Source(Struct, frozen=True):
    """Where the value of a key comes from. ``where`` names the file, the variable or the option."""

    name: SourceName
    where: str = ""

    @property
    def locks(self) -> bool:
        """Whether the key cannot be changed while the node runs (OP-7)."""
        return self.name in ("option", "environment", "file")


DEFAULT = Source("default")
STORED = Source("stored", "a choice made while running")


class Loaded(Struct, frozen=True):
    """The settings in effect, and the source of each key that is not at its default."""

    settings: Settings
    sources: Mapping[str, Source]

    def value(self, key: str) -> Any:
        """The value of ``key``, such as ``engines.ollama.mode``."""
        value: Any = self.settings
        for name in key.split("."):
            value = value.get(name, EngineSettings()) if isinstance(value, dict) else getattr(value, name)
        return value

    def source(self, key: str) -> Source:
        """Where the value of ``key`` comes from."""
        return self.sources.get(key, DEFAULT)

    def lock(self, key: str) -> Source | None:
        """What fixes ``key`` so that it cannot be changed at run time; None where nothing does."""
        source = self.source(key)
        return source if source.locks else None

    def with_stored(self, stored: Mapping[str, object]) -> Loaded:
        """These settings with choices made at run time, by key, where nothing locks the key (OP-7).

        A choice that is unknown or no longer allowed has no effect: its owner
        is a newer version, and it is kept for that.
        """
        read = {path: _read(_Given(STORED, path, value)) for path, value in stored.items() if not self.lock(path)}
        values = {path: value for path, value in read.items() if not isinstance(value, Problem)}
        sources = {**self.sources, **dict.fromkeys(values, STORED)}
        return Loaded(_filled(self.settings, _tree(values)), sources)


class _Given(Struct, frozen=True):
    """One key as a source gives it. ``text``: it is bare text, that may be meant as TOML."""

    source: Source
    path: str
    value: object
    text: bool = False


def load(
    options: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
    file: SettingsFile | None = None,
    *,
    kinds: Collection[str] = KINDS,
    policies: Collection[str] = POLICIES,
) -> Loaded:
    """The settings that stand at start; choices made while running come by :meth:`Loaded.with_stored`.

    Args:
        options: ``KEY=VALUE``, as after ``--set``; the last of the same key counts.
        environ: The environment; ``PAIR_SET__SECTION__KEY`` and ``PAIR_LOG_LEVEL`` are read (OP-5).
        file: The settings file, if there is one.
        kinds: Names of the engine kinds that are known.
        policies: Names of the routing policies that are known.

    Raises:
        SettingsError: Some of it is wrong. It has all that was found.
    """
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    sources: dict[str, Source] = {}
    bad: set[str] = set()
    # Lowest first: what comes later replaces what came before.
    for given in chain(_from_file(file), _from_environ(environ or {}), _from_options(options)):
        if isinstance(given, Problem):
            problems.append(given)
            continue
        read = _read(given)
        if isinstance(read, Problem):
            problems.append(read)
            bad.add(given.path)
        else:
            values[given.path] = read
            sources[given.path] = given.source
    settings = _filled(Settings(), _tree(values))
    broken = check(settings, kinds, policies)
    problems.extend(_told(finding, sources) for finding in broken if not bad.intersection(finding.keys))
    if problems:
        raise SettingsError(problems)
    return Loaded(settings, sources)


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables in ``environ`` that give settings, each with its key; of two for one key the last counts."""
    short = {name: key for name, key in _SHORT.items() if environ.get(name)}
    names = sorted(name for name in environ if name.startswith(_PREFIX))
    return short | {name: name.removeprefix(_PREFIX).lower().replace("__", ".") for name in names}


def _from_options(options: Iterable[str]) -> Iterator[_Given | Problem]:
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            yield Problem(where="--set", key=clean_text(key, _SHOWN), message="it must have the form KEY=VALUE")
        else:
            yield _Given(Source("option", "--set"), key.strip(), value.strip(), text=True)


def _from_environ(environ: Mapping[str, str]) -> Iterator[_Given]:
    for name, path in variables(environ).items():
        yield _Given(Source("environment", clean_text(name)), path, environ[name], text=True)


def _from_file(file: SettingsFile | None) -> Iterator[_Given | Problem]:
    if file is None:
        return
    try:
        tree = tomllib.loads(file.text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        detail = clean_text(str(error)) if isinstance(error, tomllib.TOMLDecodeError) else "it is nested too deeply"
        yield Problem(where=file.path, message=f"it is not TOML: {detail}")
        return
    source = Source("file", file.path)
    tables = [("", tree)]
    while tables:
        prefix, table = tables.pop(0)
        for name, value in table.items():
            path = f"{prefix}{name}"
            if "." in name:  # a quoted name, which would pass for a path
                yield Problem(where=file.path, key=clean_text(path, 2 * _SHOWN), message="there is no such key")
            elif isinstance(value, dict) and is_section(path):
                tables.append((f"{path}.", value))
            else:
                yield _Given(source, path, value)


def _read(given: _Given) -> Any:
    """The value in the type of its key, or what is wrong with it."""
    row = ROWS.get(general(given.path))
    if row is None or ANY_ENGINE in given.path:
        return _unknown(given)
    try:
        return row.read(_meant(given, row) if given.text else given.value)
    except ValueError as error:
        return Problem(
            where=given.source.where,
            key=clean_text(given.path, 2 * _SHOWN),
            value=_shown(given.value, row),
            message=str(error) or "it is not allowed",
            allowed=row.allowed,
        )


def _told(finding: Finding, sources: Mapping[str, Source]) -> Problem:
    """A broken rule, told of the first of its keys that anyone set (the defaults break none), naming the other."""
    key, source = next(
        (key, source)
        for key in finding.keys
        for path, source in sources.items()
        if path == key or path.startswith(f"{key}.")
    )
    other = next((each for each in finding.keys if each != key), "")
    message = clean_text(finding.message.replace(OTHER, other), 4 * _SHOWN)
    return Problem(where=source.where, key=clean_text(key, 2 * _SHOWN), message=message)


def _unknown(given: _Given) -> Problem:
    # The value is not shown: an unknown key may well be someone's idea of where a credential goes.
    path = clean_text(given.path, 2 * _SHOWN)
    if is_section(given.path):
        return Problem(where=given.source.where, key=path, message="it is a section, with keys of its own")
    near = nearest(path)
    return Problem(where=given.source.where, key=path, message="there is no such key", nearest=near)


def _meant(given: _Given, row: Row) -> object:
    """The TOML value in a bare text, or the text itself where it is none or a text is wanted.

    Raises:
        ValueError: It is not UTF-8.
    """
    text = str(given.value)
    if _NOT_UTF8.search(text):
        raise ValueError("it is not UTF-8")
    try:
        table = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    value = table.get("value") if len(table) == 1 else text
    return text if row.wants_text and not isinstance(value, str) else value


def _shown(value: object, row: Row) -> str | None:
    """The value as given, cut; None where it may hold a credential."""
    text = str(value) if isinstance(value, (str, float)) else msgspec.json.encode(value).decode()
    return None if row.key.hidden or "@" in text else clean_text(text, _SHOWN)


def _tree(values: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` by path as nested tables."""
    tree: dict[str, Any] = {}
    for path, value in values.items():
        *sections, name = path.split(".")
        table = tree
        for section in sections:
            table = table.setdefault(section, {})
        table[name] = value
    return tree


def _filled(struct: S, tree: Mapping[str, Any]) -> S:
    """``struct`` with the values of ``tree`` in place of its own."""
    changes: dict[str, Any] = {}
    for name, value in tree.items():
        present = getattr(struct, name)
        if isinstance(present, Struct):
            changes[name] = _filled(present, value)
        elif name == "engines":
            engines = {engine: _filled(present.get(engine, EngineSettings()), keys) for engine, keys in value.items()}
            changes[name] = {**present, **engines}
        else:
            changes[name] = value
    return msgspec.structs.replace(struct, **changes)

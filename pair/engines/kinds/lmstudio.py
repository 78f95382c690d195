"""Kind ``lmstudio``.

From 0.4 on it lists its models with their loaded copies at ``/api/v1/models``,
before that at ``/api/v0/models``. It answers 200 also on paths that it does not
have, so that nothing but the shape of an answer tells the one from the other.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from msgspec import Raw, Struct
from msgspec.structs import replace
from zope.interface import implementer

from pair.engines import locate
from pair.engines.facts import (
    Answer,
    Answers,
    Details,
    EnginePorts,
    EngineTiming,
    Found,
    HostFacts,
    Identity,
    Launch,
    LaunchOptions,
    Listing,
    ProbeRequest,
)
from pair.engines.kinds import rows
from pair.interfaces import IEngineKind
from pair.records.engines import LoadedInstance, Model
from pair.routing.dialects import Dialect, Pattern, routes_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

LACKS_MODEL = Pattern(
    (400, 404),
    r"no models? (is |are )?(currently )?loaded|model is (unloaded|not loaded)|failed to load model"
    r"|model_not_found|model .{1,600} not found",
)
"""Just-in-time loading is off or failed, or there is no such model."""

DIALECT = Dialect(
    kind="lmstudio",
    routes={
        "lmstudio": routes_of(
            "lmstudio",
            "/v1/chat/completions",
            "/v1/completions",
            "/v1/embeddings",
            "/v1/responses",
            "/v1/messages",
            "/api/",
        )
    },
    eligible="on_disk",
    stale=(LACKS_MODEL,),
)

_POINTER = ".lmstudio-home-pointer"
"""File in the user's folder that names LM Studio's."""
_HOMES = (".lmstudio", ".cache/lm-studio")


class _Greeting(Struct):
    lmstudio: bool


class _Newer(Struct):
    models: list[Raw]


class _Older(Struct):
    data: list[Raw]


class _Row(Struct):
    """A row of ``/api/v1/models``."""

    key: str
    type: object = None
    architecture: object = None
    quantization: object = None
    size_bytes: object = None
    params_string: object = None
    loaded_instances: object = None
    max_context_length: object = None
    format: object = None
    capabilities: object = None


class _OlderRow(Struct):
    """A row of ``/api/v0/models``; of ``/v1/models`` it is read for the id alone."""

    id: str
    type: object = None
    arch: object = None
    compatibility_type: object = None
    quantization: object = None
    state: object = None
    max_context_length: object = None
    loaded_context_length: object = None
    capabilities: object = None

    @property
    def loaded(self) -> bool:
        return self.state == "loaded"


@implementer(IEngineKind)
class LMStudio:
    """The server of LM Studio, with its window or without."""

    name = "lmstudio"
    facade = "lmstudio"
    dialect = DIALECT
    control = "command"
    ports = EnginePorts(standard=1234, base=1235)
    timing = EngineTiming(ready=60.0, health=10.0, grace=5.0)
    requests: Mapping[str, ProbeRequest] = {
        "identity": ProbeRequest("GET", "/lmstudio-greeting"),
        "identity_older": ProbeRequest("GET", "/api/v0/models"),
        "identity_slots": ProbeRequest("GET", "/api/v1/models"),
        "health": ProbeRequest("GET", "/v1/models"),
        "list": ProbeRequest("GET", "/api/v1/models"),
        "list_older": ProbeRequest("GET", "/api/v0/models"),
        "list_served": ProbeRequest("GET", "/v1/models"),
    }

    def locate(self, facts: HostFacts) -> Sequence[Found]:
        """The command ``lms``; it comes with LM Studio."""
        pointed = tuple(f"{home}/bin" for home in _pointed(facts))
        folders = {platform: (*pointed, *row) for platform, row in locate.LMS.folders.items()}
        return locate.locate(replace(locate.LMS, folders=folders), facts)

    def configured(self, facts: HostFacts) -> Sequence[int]:
        """The port of the server's own configuration."""
        for home in (*_pointed(facts), *(f"{facts.home}/{each}" for each in _HOMES)):
            told = facts.read_text(f"{home}/.internal/http-server-config.json")
            if told is not None:
                port = rows.count(rows.mapping(rows.decode(told.encode(), object)).get("port")) or 0
                return (port,) if 0 < port < 65536 else ()
        return ()

    def identify(self, answers: Answers) -> Identity | None:
        """It greets, or lists models in the form that only it has."""
        greeting = rows.decoded(answers.get("identity"), _Greeting)
        if greeting is not None and greeting.lmstudio:
            return Identity()
        told = any(isinstance(row.compatibility_type, str) for row in _older(answers, "identity_older"))
        return Identity() if told else None

    def launch(self, found: Found, port: int, options: LaunchOptions) -> Launch:
        """Not as a process of ours.

        Raises:
            ValueError: always.
        """
        raise ValueError("LM Studio is started by its own command")

    def models(self, engine: str, answers: Answers) -> Listing | None:
        """The models, whichever list tells them; a loaded copy is no model of its own (EN-81)."""
        newer = rows.decoded(answers.get("list"), _Newer)
        if newer is not None:
            listing = rows.listing(newer.models, lambda raw: _model(engine, self.facade, raw), loaded_known=True)
        else:
            listing = _older_listing(engine, self.facade, answers)
        return None if listing is None else replace(listing, loaded_only=_loads_nothing(listing.models, answers))

    def describe(self, model: Model) -> ProbeRequest | None:
        """The list tells all."""
        return None

    def details(self, answer: Answer) -> Details:
        """Nothing: see :meth:`describe`."""
        return Details()

    def slots(self, answers: Answers) -> int | None:
        """What the loaded copy that takes most takes at once."""
        newer = rows.decoded(answers.get("identity_slots"), _Newer)
        models = [] if newer is None else [_model("", self.facade, raw) for raw in newer.models]
        told = [copy.parallel or 0 for model in models if model is not None for copy in model.loaded]
        return max(told, default=0) or None


def _pointed(facts: HostFacts) -> tuple[str, ...]:
    """The folder of LM Studio that the pointer names, if it names one."""
    text = facts.read_text(f"{facts.home}/{_POINTER}") if facts.home else None
    home = (text or "").strip()
    return (home,) if home and (posixpath.isabs(home) or facts.platform == "win32") else ()


def _older(answers: Answers, purpose: str) -> Iterator[_OlderRow]:
    envelope = rows.decoded(answers.get(purpose), _Older)
    for raw in envelope.data if envelope is not None else ():
        row = rows.decode(raw, _OlderRow)
        if row is not None:
            yield row


def _loads_nothing(models: Sequence[Model], answers: Answers) -> bool:
    """Whether just-in-time loading is off: then the OpenAI list has loaded models only."""
    if rows.decoded(answers.get("list_served"), _Older) is None:
        return False
    served = {row.id for row in _older(answers, "list_served")}
    resting = [each.id for each in models if not each.loaded]
    return bool(resting) and served.isdisjoint(resting)


def _model(engine: str, facade: str, raw: Raw) -> Model | None:
    row = rows.decode(raw, _Row)
    if row is None:
        return None
    embeds = row.type == "embedding"
    can = rows.mapping(row.capabilities)
    words = {"embedding"} if embeds else {"chat", "completion"}
    words |= {
        word
        for word, said in (("vision", "vision"), ("tools", "trained_for_tool_use"), ("thinking", "reasoning"))
        if can.get(said)
    }
    copies = row.loaded_instances if isinstance(row.loaded_instances, list) else []
    return Model(
        id=row.key,
        engine=engine,
        facade=facade,
        size_bytes=rows.count(row.size_bytes),
        family=rows.text(row.architecture),
        parameters=rows.parameters(row.params_string),
        quantization=rows.text(rows.mapping(row.quantization).get("name")),
        format=rows.text(row.format),
        context_max=rows.count(row.max_context_length),
        capabilities=rows.capabilities(words),
        loaded=tuple(copy for each in copies if (copy := _instance(rows.mapping(each))) is not None),
        listed=rows.listed(raw),
    )


def _instance(told: dict[str, object]) -> LoadedInstance | None:
    id = rows.text(told.get("id"))
    if id is None or not rows.fits(id):
        return None
    config = rows.mapping(told.get("config"))
    return LoadedInstance(
        instance=id,
        context_length=rows.count(config.get("context_length")),
        parallel=rows.count(config.get("parallel")) or None,
    )


def _older_listing(engine: str, facade: str, answers: Answers) -> Listing | None:
    envelope = rows.decoded(answers.get("list_older"), _Older)
    if envelope is None:
        return None
    copies: dict[str, list[LoadedInstance]] = {}
    ids = {row.id for row in _older(answers, "list_older")}
    for row in _older(answers, "list_older"):
        if row.loaded and rows.fits(row.id):
            copy = LoadedInstance(instance=row.id, context_length=rows.count(row.loaded_context_length))
            copies.setdefault(_key(row.id, ids), []).append(copy)

    def read(raw: Raw) -> Model | None:
        row = rows.decode(raw, _OlderRow)
        # Without a state it is the list of another server.
        if row is None or not isinstance(row.state, str) or _key(row.id, ids) != row.id:
            return None
        return _older_model(engine, facade, row, raw, tuple(copies.get(row.id, ())))

    return rows.listing(envelope.data, read, loaded_known=True)


def _key(id: str, ids: set[str]) -> str:
    """The model of which ``id`` is a loaded copy (``key:2``), or ``id`` itself."""
    key, colon, number = id.rpartition(":")
    return key if colon and number.isdecimal() and key in ids else id


def _older_model(engine: str, facade: str, row: _OlderRow, raw: Raw, loaded: tuple[LoadedInstance, ...]) -> Model:
    words = {"embedding"} if row.type == "embeddings" else {"chat", "completion"}
    if row.type == "vlm":
        words.add("vision")
    if "tool_use" in rows.texts(row.capabilities):
        words.add("tools")
    return Model(
        id=row.id,
        engine=engine,
        facade=facade,
        family=rows.text(row.arch),
        quantization=rows.text(row.quantization),
        format=rows.text(row.compatibility_type),
        context_max=rows.count(row.max_context_length),
        capabilities=rows.capabilities(words),
        loaded=loaded,
        listed=rows.listed(raw),
    )

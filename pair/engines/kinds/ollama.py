"""Kind ``ollama``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, Struct
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
from pair.routing import names
from pair.routing.dialects import Dialect, Pattern, routes_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DIALECT = Dialect(
    kind="ollama",
    routes={"ollama": routes_of("ollama", "/")},
    naming="ollama",
    eligible="on_disk",
    stale=(Pattern((404,), "model .{1,600} not found"),),
    idle=60.0,
)


class _Version(Struct):
    version: str


class _List(Struct):
    models: list[Raw]


class _Shown(Struct):
    capabilities: object = None
    model_info: object = None


class _Row(Struct):
    """A row of ``/api/tags`` or ``/api/ps``."""

    model: object = None
    name: object = None
    modified_at: object = None
    size: object = None
    digest: object = None
    details: object = None
    capabilities: object = None
    size_vram: object = None
    context_length: object = None
    expires_at: object = None

    @property
    def id(self) -> str | None:
        return rows.text(self.model) or rows.text(self.name)


@implementer(IEngineKind)
class Ollama:
    """An Ollama server."""

    name = "ollama"
    facade = "ollama"
    dialect = DIALECT
    control = "process"
    ports = EnginePorts(standard=11434, base=11435)
    timing = EngineTiming(ready=600.0, health=5.0, grace=5.0)
    requests: Mapping[str, ProbeRequest] = {
        "identity": ProbeRequest("GET", "/api/version"),
        "identity_tags": ProbeRequest("GET", "/api/tags"),
        "health": ProbeRequest("GET", "/api/version"),
        "list": ProbeRequest("GET", "/api/tags"),
        "loaded": ProbeRequest("GET", "/api/ps"),
    }

    def locate(self, facts: HostFacts) -> Sequence[Found]:
        """See :class:`~pair.interfaces.IEngineKind`."""
        return locate.locate(locate.OLLAMA, facts)

    def configured(self, facts: HostFacts) -> Sequence[int]:
        """It has no file that tells."""
        return ()

    def identify(self, answers: Answers) -> Identity | None:
        """It tells its version, and it lists models in its own form."""
        told = rows.decoded(answers.get("identity"), _Version)
        if told is None or rows.decoded(answers.get("identity_tags"), _List) is None:
            return None
        return Identity(version=told.version)

    def launch(self, found: Found, port: int, options: LaunchOptions) -> Launch:
        """``ollama serve`` on loopback."""
        env = {"OLLAMA_HOST": f"127.0.0.1:{port}"}
        if options.slots is not None:
            env["OLLAMA_NUM_PARALLEL"] = str(options.slots)
        if options.context is not None:
            env["OLLAMA_CONTEXT_LENGTH"] = str(options.context)
        return Launch((found.path, "serve"), env)

    def models(self, engine: str, answers: Answers) -> Listing | None:
        """The models on disk, and which of them are in memory."""
        tags = rows.decoded(answers.get("list"), _List)
        if tags is None:
            return None
        loaded = _loaded(answers)
        return rows.listing(
            tags.models,
            lambda raw: _model(engine, self.facade, raw, loaded or {}),
            loaded_known=loaded is not None,
        )

    def describe(self, model: Model) -> ProbeRequest | None:
        """``/api/show``: capabilities and context length, which most versions leave out of their list."""
        if model.capabilities and model.context_max is not None:
            return None
        return ProbeRequest("POST", "/api/show", msgspec.json.encode({"model": model.id}))

    def details(self, answer: Answer) -> Details:
        """The context length stands under the name of the architecture, as in the model's file."""
        shown = rows.decoded(answer, _Shown)
        if shown is None:
            return Details()
        info = rows.mapping(shown.model_info)
        return Details(
            capabilities=rows.capabilities(set(rows.texts(shown.capabilities))),
            context_max=rows.count(info.get(f"{info.get('general.architecture')}.context_length")),
        )

    def slots(self, answers: Answers) -> int | None:
        """Ollama does not say."""
        return None


def _loaded(answers: Answers) -> dict[str, tuple[LoadedInstance, ...]] | None:
    """By the key of the model; None where the answer does not tell."""
    envelope = rows.decoded(answers.get("loaded"), _List)
    if envelope is None:
        return None
    loaded: dict[str, tuple[LoadedInstance, ...]] = {}
    for raw in envelope.models:
        row = rows.decode(raw, _Row)
        if row is None or row.id is None or not rows.fits(row.id):
            continue
        instance = LoadedInstance(
            instance=row.id,
            context_length=rows.count(row.context_length),
            size_bytes=rows.count(row.size),
            gpu_bytes=rows.count(row.size_vram),
            expires_at=rows.instant(row.expires_at),
        )
        loaded[names.key("ollama", row.id)] = (instance,)
    return loaded if loaded or not envelope.models else None


def _model(engine: str, facade: str, raw: Raw, loaded: Mapping[str, tuple[LoadedInstance, ...]]) -> Model | None:
    row = rows.decode(raw, _Row)
    if row is None or row.id is None:
        return None
    details = rows.mapping(row.details)
    digest = rows.text(row.digest)
    return Model(
        id=row.id,
        engine=engine,
        facade=facade,
        size_bytes=rows.count(row.size),
        digest=None if digest is None else f"sha256:{digest.removeprefix('sha256:')}",
        family=rows.text(details.get("family")),
        parameters=rows.parameters(details.get("parameter_size")),
        quantization=rows.text(details.get("quantization_level")),
        format=rows.text(details.get("format")),
        context_max=rows.count(details.get("context_length")),
        capabilities=rows.capabilities(set(rows.texts(row.capabilities))),
        loaded=loaded.get(names.key("ollama", row.id), ()),
        modified_at=rows.instant(row.modified_at),
        listed=rows.listed(raw),
    )

"""Kind ``llamacpp``: llama.cpp's own server, with one model or, in router mode, many."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from pair.routing.dialects import Dialect, Pattern, routes_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LACKS_MODEL = Pattern((400, 404), "model .{0,300}not (found|loaded)")
"""Router mode only: with one model the server answers to any name."""

_ROUTES = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
)

DIALECT = Dialect(
    kind="llamacpp",
    routes={"ollama": routes_of("ollama", *_ROUTES), "lmstudio": routes_of("lmstudio", *_ROUTES, "/v1/rerank")},
    stale=(LACKS_MODEL,),
)

_IN_MEMORY = ("loaded", "sleeping")
"""States of a model in router mode in which a request needs no load."""
_NO_BUILD = "b0-unknown"
"""What a server says that was built outside of a release."""


class _List(Struct):
    data: list[Raw]
    models: object = None


class _Row(Struct):
    id: str
    owned_by: object = None
    meta: object = None
    status: object = None
    architecture: object = None


class _Props(Struct):
    total_slots: object = None
    build_info: object = None


@implementer(IEngineKind)
class LlamaCpp:
    """A ``llama-server``, ours or one that runs already."""

    name = "llamacpp"
    facade = "lmstudio"
    dialect = DIALECT
    control = "process"
    ports = EnginePorts(standard=None, base=8081, probe=(8080,))
    timing = EngineTiming(ready=120.0, health=5.0, grace=5.0)
    requests: Mapping[str, ProbeRequest] = {
        "identity": ProbeRequest("GET", "/v1/models"),
        "identity_props": ProbeRequest("GET", "/props"),
        "health": ProbeRequest("GET", "/health"),
        "list": ProbeRequest("GET", "/v1/models"),
        "loaded": ProbeRequest("GET", "/health"),
    }

    def locate(self, facts: HostFacts) -> Sequence[Found]:
        """See :class:`~pair.interfaces.IEngineKind`."""
        return locate.locate(locate.LLAMA_SERVER, facts)

    def configured(self, facts: HostFacts) -> Sequence[int]:
        """It has no file that tells."""
        return ()

    def identify(self, answers: Answers) -> Identity | None:
        """By its ``Server`` field, or by a list whose models it owns."""
        headed = any(each.fields.get("server") == "llama.cpp" for each in answers.values())
        if not headed and not any(row.owned_by == "llamacpp" for row in _rows(answers, "identity")):
            return None
        props = rows.decoded(answers.get("identity_props"), _Props) or _Props()
        build = rows.text(props.build_info)
        return Identity(version=None if build == _NO_BUILD else build)

    def launch(self, found: Found, port: int, options: LaunchOptions) -> Launch:
        """``llama-server`` on loopback; without a model it starts in router mode."""
        return server_command(found.path, port, options)

    def models(self, engine: str, answers: Answers) -> Listing | None:
        """The list; a server that is not in router mode has its one model in memory unless it says 503."""
        envelope = rows.decoded(answers.get("list"), _List)
        if envelope is None:
            return None
        health = answers.get("loaded")
        known = health is not None and health.status in (200, 503)
        ready = health is not None and health.status == 200
        said = _capabilities(envelope.models)
        return rows.listing(
            envelope.data, lambda raw: _model(engine, self.facade, raw, ready, said), loaded_known=known
        )

    def describe(self, model: Model) -> ProbeRequest | None:
        """The list tells all."""
        return None

    def details(self, answer: Answer) -> Details:
        """Nothing: see :meth:`describe`."""
        return Details()

    def slots(self, answers: Answers) -> int | None:
        """``total_slots`` of ``/props``; in router mode there is none."""
        props = rows.decoded(answers.get("identity_props"), _Props)
        return None if props is None else rows.count(props.total_slots) or None


def server_command(path: str, port: int, options: LaunchOptions) -> Launch:
    """``llama-server`` at 127.0.0.1, kept from the network."""
    argv = [path, "--host", "127.0.0.1", "--port", str(port)]
    for flag, value in (
        ("--model", options.model),
        ("--alias", options.alias),
        ("--ctx-size", options.context),
        ("--parallel", options.slots),
    ):
        if value is not None:
            argv += [flag, str(value)]
    # By variable and not by --offline: a server that is too old to know it starts all the same.
    return Launch(tuple(argv), {"LLAMA_OFFLINE": "1"})


def listed_ids(answers: Answers, purpose: str) -> tuple[str, ...]:
    """The ids in the list that answered ``purpose``."""
    return tuple(row.id for row in _rows(answers, purpose))


def _rows(answers: Answers, purpose: str) -> list[_Row]:
    envelope = rows.decoded(answers.get(purpose), _List)
    read = (rows.decode(each, _Row) for each in envelope.data) if envelope else ()
    return [row for row in read if row is not None]


def _capabilities(models: object) -> dict[str, set[str]]:
    """What the Ollama-like half of the list says of each model; the words are Ollama's, but for ``multimodal``."""
    said: dict[str, set[str]] = {}
    for each in models if isinstance(models, list) else ():
        row = rows.mapping(each)
        name = rows.text(row.get("name"))
        if name is not None:
            said[name] = set(rows.texts(row.get("capabilities")))
    return said


def _model(engine: str, facade: str, raw: Raw, ready: bool, said: Mapping[str, set[str]]) -> Model | None:
    row = rows.decode(raw, _Row)
    if row is None:
        return None
    meta = rows.mapping(row.meta)
    state = rows.text(rows.mapping(row.status).get("value"))
    in_memory = ready if state is None else state in _IN_MEMORY
    words = set(said.get(row.id, ()))
    if "multimodal" in words or "image" in rows.texts(rows.mapping(row.architecture).get("input_modalities")):
        words.add("vision")
    instance = LoadedInstance(instance=row.id, context_length=rows.count(meta.get("n_ctx")))
    return Model(
        id=row.id,
        engine=engine,
        facade=facade,
        size_bytes=rows.count(meta.get("size")),
        parameters=rows.count(meta.get("n_params")),
        quantization=rows.text(meta.get("ftype")),
        format="gguf",
        context_max=rows.count(meta.get("n_ctx_train")),
        capabilities=rows.capabilities(words),
        loaded=(instance,) if in_memory else (),
        listed=rows.listed(raw),
    )

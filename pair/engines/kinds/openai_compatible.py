"""Kind ``openai-compatible``: any server with ``/v1``, given by URL. It is used where it is and never started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Raw, Struct
from zope.interface import implementer

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
from pair.routing.dialects import Dialect, Pattern, routes_of, with_routes

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_ROUTES = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings")

DIALECT = Dialect(
    kind="openai-compatible",
    routes={"ollama": routes_of("ollama", *_ROUTES), "lmstudio": routes_of("lmstudio", *_ROUTES)},
    stale=(Pattern((404,), "model_not_found|model .{1,600}(does not exist|not found)"),),
)


def dialect_for(paths: Collection[str]) -> Dialect:
    """The dialect of one engine whose setting ``routes`` names further ``paths``.

    Raises:
        ValueError: a path that neither facade has.
    """
    return with_routes(DIALECT, paths)


class _List(Struct):
    data: list[Raw]


class _Row(Struct):
    id: str
    max_model_len: object = None
    """vLLM's and SGLang's word for the context length."""


@implementer(IEngineKind)
class OpenAICompatible:
    """A server that speaks OpenAI's API."""

    name = "openai-compatible"
    facade = "lmstudio"
    dialect = DIALECT
    control = "none"
    ports = EnginePorts()
    timing = EngineTiming(ready=None, health=5.0, grace=5.0)
    requests: Mapping[str, ProbeRequest] = {
        "identity": ProbeRequest("GET", "/v1/models"),
        "health": ProbeRequest("GET", "/v1/models"),
        "list": ProbeRequest("GET", "/v1/models"),
    }

    def locate(self, facts: HostFacts) -> Sequence[Found]:
        """Nothing: it is given by URL."""
        return ()

    def configured(self, facts: HostFacts) -> Sequence[int]:
        """It has no file that tells."""
        return ()

    def identify(self, answers: Answers) -> Identity | None:
        """It lists models, each with an id."""
        envelope = rows.decoded(answers.get("identity"), _List)
        if envelope is None or any(rows.decode(each, _Row) is None for each in envelope.data):
            return None
        return Identity()

    def launch(self, found: Found, port: int, options: LaunchOptions) -> Launch:
        """Not possible.

        Raises:
            ValueError: always.
        """
        raise ValueError("an engine given by URL is not started by us")

    def models(self, engine: str, answers: Answers) -> Listing | None:
        """What it lists counts as in memory: such servers have no other place to tell it (RT-8)."""
        envelope = rows.decoded(answers.get("list"), _List)
        if envelope is None:
            return None
        return rows.listing(envelope.data, lambda raw: _model(engine, self.facade, raw), loaded_known=True)

    def describe(self, model: Model) -> ProbeRequest | None:
        """The list tells all."""
        return None

    def details(self, answer: Answer) -> Details:
        """Nothing: see :meth:`describe`."""
        return Details()

    def slots(self, answers: Answers) -> int | None:
        """It does not say."""
        return None


def _model(engine: str, facade: str, raw: Raw) -> Model | None:
    row = rows.decode(raw, _Row)
    if row is None:
        return None
    context = rows.count(row.max_model_len)
    return Model(
        id=row.id,
        engine=engine,
        facade=facade,
        context_max=context,
        loaded=(LoadedInstance(instance=row.id, context_length=context),),
        listed=rows.listed(raw),
    )

"""What the settings of engines may say, as far as it depends on the kinds that there are (RT-8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pair.routing.dialects import with_routes
from pair.settings import Problem, SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pair.interfaces import IEngineKind
    from pair.settings import Loaded


def check_engines(loaded: Loaded, kinds: Iterable[IEngineKind]) -> None:
    """Refuse routes that no facade of the engine's kind has.

    Raises:
        SettingsError: With all that are wrong.
    """
    by_name = {kind.name: kind for kind in kinds}
    problems = []
    for id, engine in loaded.settings.engines.items():
        kind = by_name.get(engine.kind or id)
        try:
            if kind is not None:
                with_routes(kind.dialect, engine.routes)
        except ValueError as error:
            key = f"engines.{id}.routes"
            allowed = "paths of a facade, such as /v1/rerank"
            problems.append(Problem(where=loaded.source(key).where, key=key, message=str(error), allowed=allowed))
    if problems:
        raise SettingsError(problems)

"""What one engine lists, and how far that is known (EN-78 to EN-83). Pure.

It folds what was read into what is shown; who reads, and when, is the
runner's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pair.engines.facts import Listing
    from pair.records.engines import Knowledge, LoadedInstance, Model

DRIFT = 0.05
"""Memory that moves by no more than this is the same (EN-84)."""


class ModelList:
    """The models of one engine.

    Args:
        key: the form in which ids are compared (EN-81).

    Attributes:
        models: how far the list is known.
        loaded: how far it is known which of them are in memory.
        at: when it was last read well, in epoch milliseconds.
        revision: rises with each change of what the engine lists (RT-51).
    """

    def __init__(self, key: Callable[[str], str]) -> None:
        self.models: Knowledge = "unknown"
        self.loaded: Knowledge = "unknown"
        self.at: int | None = None
        self.revision = 0
        self._key = key
        self._last: tuple[Model, ...] = ()
        self._settled: tuple[Model, ...] = ()
        self._hidden: set[str] = set()

    @property
    def hidden(self) -> frozenset[str]:
        """The keys of the models that are not shown for now (EN-80)."""
        return frozenset(self._hidden)

    @property
    def shown(self) -> tuple[Model, ...]:
        """The last good list, without what the data path found missing (EN-80)."""
        if not self._hidden:
            return self._last
        return tuple(each for each in self._last if self._key(each.id) not in self._hidden)

    def remembered(self, models: Sequence[Model], at: int) -> None:
        """What was listed before our start: the engine's models while it is stopped, in memory none of them."""
        self._last = self._settled = tuple(_on_disk(each) for each in models)
        self.models, self.at = "stale", at

    def read(self, listing: Listing, at: int) -> bool:
        """The engine's answers.

        Returns:
            Whether they differ from the last ones by more than ages, expiry times and a drift of memory.
        """
        self._hidden.clear()
        self._last, self.at = listing.models, at
        first = self.models == "unknown"
        self.models, self.loaded = "known", "known" if listing.loaded_known else "unknown"
        if not first and _same_lists(self._settled, listing.models):
            return False
        self._settled = listing.models
        self.revision += 1
        return True

    def failed(self) -> None:
        """The engine could not be asked, or its answer was of no use: what was known is kept (EN-79)."""
        self.models = _stale(self.models)
        self.loaded = _stale(self.loaded)

    def stopped(self) -> None:
        """The engine does not run: nothing is in memory; what it has on disk is as it was."""
        self.models, self.loaded = _stale(self.models), "unknown"
        self._hidden.clear()
        if any(each.loaded for each in self._last):
            self._last = self._settled = tuple(_on_disk(each) for each in self._last)
            self.revision += 1

    def hide(self, model: str) -> None:
        """The engine denied having it: not shown until the list is read again."""
        self._hidden.add(self._key(model))


def _stale(mark: Knowledge) -> Knowledge:
    return "unknown" if mark == "unknown" else "stale"


def _on_disk(model: Model) -> Model:
    return msgspec.structs.replace(model, loaded=()) if model.loaded else model


def _same_lists(old: Sequence[Model], new: Sequence[Model]) -> bool:
    return len(old) == len(new) and all(map(same_model, old, new))


def same_model(old: Model, new: Model) -> bool:
    """Whether they differ by no more than expiry times and a drift of memory (EN-84)."""
    if old == new:
        return True
    if len(old.loaded) != len(new.loaded) or not all(map(_same_instance, old.loaded, new.loaded)):
        return False
    return msgspec.structs.replace(old, loaded=(), listed=None) == msgspec.structs.replace(new, loaded=(), listed=None)


def _same_instance(old: LoadedInstance, new: LoadedInstance) -> bool:
    return _bare(old) == _bare(new) and _near(old.size_bytes, new.size_bytes) and _near(old.gpu_bytes, new.gpu_bytes)


def _bare(instance: LoadedInstance) -> LoadedInstance:
    return msgspec.structs.replace(instance, size_bytes=None, gpu_bytes=None, expires_at=None)


def _near(old: int | None, new: int | None) -> bool:
    if old is None or new is None:
        return old is new
    return abs(new - old) <= DRIFT * max(old, new)

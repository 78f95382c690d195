"""Labels of nodes, and the rules that ask for them (RT-23). Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from pair.settings.grammar import LABEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LABEL = re.compile(LABEL)
# In steps of 10⁹ bytes: a card sold as 24 GB reports a little less than 24 GiB to programs.
_MEMORY_STEPS = (80, 48, 24, 16, 8)


class LabelRule(Protocol):
    """What is asked of a node for the models that match ``model``: a ``[[routing.rule]]`` of the settings."""

    @property
    def model(self) -> str:
        """Pattern over the key of a model; ``*`` and ``?`` are special."""

    @property
    def require(self) -> Sequence[str]:
        """All of these must be present."""

    @property
    def forbid(self) -> Sequence[str]:
        """None of these may be present."""


@lru_cache(maxsize=256)
def parse_labels(text: str) -> frozenset[str]:
    """The labels of an ``X-Pair-Require`` header: a list by comma, empty elements ignored.

    Raises:
        ValueError: one of them is no label.
    """
    labels = frozenset(filter(None, (each.strip(" \t") for each in text.split(","))))
    for label in labels:
        if not _LABEL.search(label):
            raise ValueError("no label: 1 to 63 of a-z 0-9 . _ = -, the first a letter or a digit")
    return labels


def automatic_labels(
    os: str, arch: str, gpus: Iterable[tuple[str, int]] = (), kinds: Iterable[str] = ()
) -> tuple[str, ...]:
    """The labels that a node has by itself.

    Args:
        os: as in ``os=linux``.
        arch: as in ``arch=x86_64``.
        gpus: vendor and memory in bytes of each; the largest one makes the labels.
        kinds: of its engines.
    """
    vendor, size = max(gpus, key=lambda each: (each[1], each[0]), default=("none", 0))
    step = next((each for each in _MEMORY_STEPS if size >= each * 10**9), None)
    return (
        f"os={os}",
        f"arch={arch}",
        f"gpu={vendor}",
        *(() if step is None else (f"vram={step}g",)),
        *(f"engine={kind}" for kind in sorted(set(kinds))),
    )


def node_labels(hand_set: Iterable[str], automatic: Iterable[str]) -> tuple[str, ...]:
    """All labels of a node, in order; a hand-set one of the same key (before ``=``) wins over the automatic."""
    chosen = set(hand_set)
    taken = {label.partition("=")[0] for label in chosen}
    return tuple(sorted(chosen.union(each for each in automatic if each.partition("=")[0] not in taken)))


def demands(
    rules: Sequence[LabelRule], keys: Iterable[str], header: frozenset[str] = frozenset()
) -> tuple[frozenset[str], frozenset[str]]:
    """The labels that a request requires and forbids: of the first rule that matches, and of its header.

    Args:
        rules: in their order in the settings.
        keys: of the model, one for each naming, any of which may match; none
            for a request without a model, which only ``*`` matches.
        header: from :func:`parse_labels`.
    """
    named = tuple(keys) or ("",)
    for rule in rules:
        if any(_glob(rule.model).fullmatch(each) for each in named):
            return frozenset(rule.require) | header, frozenset(rule.forbid)
    return header, frozenset()


@lru_cache(maxsize=256)
def _glob(pattern: str) -> re.Pattern[str]:
    """Only ``*`` and ``?`` are special; a bracket is a character of a name."""
    text = "".join({"*": ".*", "?": "."}.get(each, re.escape(each)) for each in pattern)
    return re.compile(text, re.DOTALL)

"""What a double says: words of a fixed list, chosen by the question alone."""

from __future__ import annotations

import hashlib
import re
from random import Random

WORDS = (
    *(
        "amber",
        "anchor",
        "april",
        "atlas",
        "autumn",
        "bamboo",
        "basin",
        "birch",
        "bronze",
        "candle",
        "canyon",
        "cedar",
    ),
    *(
        "cinder",
        "clover",
        "cobalt",
        "copper",
        "coral",
        "cotton",
        "crystal",
        "delta",
        "ember",
        "falcon",
        "fern",
        "flint",
    ),
    *("forest", "galaxy", "garnet", "glacier", "granite", "harbour", "hazel", "heron", "indigo", "island", "ivory"),
    *("jasper", "juniper", "lagoon", "lantern", "laurel", "lilac", "linen", "maple", "marble", "meadow", "mosaic"),
    *("nickel", "oak", "ocean", "olive", "onyx", "orchid", "pebble", "pepper", "pine", "plume", "quartz", "raven"),
    *(
        "river",
        "saffron",
        "sage",
        "silver",
        "spruce",
        "summit",
        "thistle",
        "topaz",
        "tulip",
        "velvet",
        "willow",
        "zinc",
    ),
)

_LENGTH = re.compile(r"\b(\d{1,6}) words\b")


def number(text: str, below: int) -> int:
    """A number from 0 on, the same for the same text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) % below


def pieces(question: str, most: int | None) -> tuple[list[str], str]:
    """The tokens of the answer to ``question``, and why it ends: ``stop``, or ``length`` where ``most`` cut it.

    It has 8 to 23 words, or N if the question says ``N words``.
    """
    told = _LENGTH.search(question)
    length = int(told[1]) if told else 8 + number(question, 16)
    kept = length if most is None or most < 0 else min(length, most)
    chosen = Random(number(question, 2**63)).choices(WORDS, k=kept)
    return [
        word if not place else f" {word}" for place, word in enumerate(chosen)
    ], "stop" if kept == length else "length"


def vector(text: str, size: int) -> list[float]:
    """The embedding of ``text``: a vector of length 1."""
    drawn = Random(number(text, 2**63))
    raw = [drawn.uniform(-1, 1) for _ in range(size)]
    length = sum(each * each for each in raw) ** 0.5
    return [round(each / length, 6) for each in raw]


def tokens(text: str) -> int:
    """How many tokens a prompt counts as."""
    return max(1, len(text.split()))

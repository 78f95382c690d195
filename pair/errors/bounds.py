"""How much an error entry of another node may hold (JB-70, JB-80). Pure."""

from __future__ import annotations

from msgspec.structs import replace

from pair.privacy import clean_text
from pair.records.errors import ServiceError, Subject

_ID_LIMIT = 256
_TEXT_LIMIT = 1000
_WORD_LIMIT = 256


def within_bounds(entry: ServiceError) -> ServiceError:
    """``entry``, its texts cleaned and cut.

    Raises:
        ValueError: Its id is none, and an id cannot be mended.
    """
    if clean_text(entry.id, _ID_LIMIT) != entry.id:
        raise ValueError("bad id")
    return replace(
        entry,
        message=clean_text(entry.message, _TEXT_LIMIT),
        subject=_subject(entry.subject),
        ref=_word(entry.ref),
    )


def _subject(subject: Subject) -> Subject:
    return Subject(
        component=_word(subject.component),
        engine=_word(subject.engine),
        model=_word(subject.model),
        operation=_word(subject.operation),
        node=_word(subject.node),
        port=subject.port,
    )


def _word(text: str | None) -> str | None:
    return None if text is None else clean_text(text, _WORD_LIMIT)

"""How much a record of a job may hold (JB-36, JB-39). Pure.

Our own records are made within these bounds; one of another node is brought
within them as it arrives, or refused. Thousands are kept, on the disk too, and
nothing says that a node that sends them is in its right mind.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec.structs import replace

from pair.privacy import clean_text
from pair.records.jobs import Attempt, Job, JobError

ATTEMPTS = 8
MESSAGE_LIMIT = 200
WHY_LIMIT = 200
_MODEL_BYTES = 512
_WORD_LIMIT = 64


def word(text: str) -> str:
    """``text`` as a record may hold it, where nothing else is said."""
    return clean_text(text, _WORD_LIMIT)


def model_name(model: str) -> str:
    """``model`` as a record may hold it: its limit counts bytes, as the one of requests does."""
    model = clean_text(model, _MODEL_BYTES)
    data = model.encode()
    if len(data) <= _MODEL_BYTES:
        return model
    return data[: _MODEL_BYTES - len("…".encode())].decode("utf-8", "ignore") + "…"


own_word = lru_cache(maxsize=1024)(word)
own_model_name = lru_cache(maxsize=1024)(model_name)
"""The same for texts of this node: few, that come again and again."""


def within_bounds(job: Job) -> Job:
    """``job`` of another node, its texts cleaned and cut.

    Raises:
        ValueError: It has ended and does not say when; or its id is none, and an id cannot be mended.
    """
    if job.terminal and job.completed_at is None:
        raise ValueError("no end")
    if word(job.id) != job.id:
        raise ValueError("bad id")
    return replace(
        job,
        facade=word(job.facade),
        dialect=word(job.dialect),
        operation=word(job.operation),
        route=word(job.route),
        model=None if job.model is None else model_name(job.model),
        placed_on=_optional(job.placed_on),
        engine=_optional(job.engine),
        attempts=tuple(map(_attempt, job.attempts[-ATTEMPTS:])),
        error=None if job.error is None else _error(job.error),
        requester=_optional(job.requester),
        policy=_optional(job.policy),
        why=None if job.why is None else clean_text(job.why, WHY_LIMIT),
    )


def _optional(text: str | None) -> str | None:
    return None if text is None else word(text)


def _attempt(attempt: Attempt) -> Attempt:
    return replace(attempt, node=word(attempt.node), engine=word(attempt.engine), error=_optional(attempt.error))


def _error(error: JobError) -> JobError:
    return JobError(word(error.code), clean_text(error.message, MESSAGE_LIMIT))

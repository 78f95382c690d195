"""What is made of the errors of engines, as they were seen or are told of (RT-10).

How each kind says that it lacks a model is in ``pair.test.engines.test_kinds``.
"""

from __future__ import annotations

import json
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from pair.engines.kinds import llamacpp, lmstudio, ollama
from pair.routing.dialects import classify

_SAMPLES = Path(__file__).parent.parent / "samples"


class StoredErrorTests(SynchronousTestCase):
    """Each error that is not about a missing model is judged by its status, whatever words it has."""

    def test_each(self) -> None:
        """A prompt that is too long is the caller's, though the answer speaks of a model; memory is the engine's."""
        for dialect, folder, verdicts in (
            (
                ollama.DIALECT,
                "ollama/api-2025-10",
                {
                    "no_such_path": "route_missing",
                    "cannot_chat": "client",
                    "too_large_for_memory": "fault",
                    "queue_full": "busy",
                },
            ),
            (lmstudio.DIALECT, "lmstudio/0.4-2026-02", {"context_too_small": "client"}),
            (
                llamacpp.DIALECT,
                "llamacpp/router-2025-12",
                {"context_exceeded": "client", "no_embeddings": "fault", "loading": "busy", "wrong_key": "client"},
            ),
        ):
            stored = json.loads((_SAMPLES / folder / "errors.json").read_text("utf-8"))["answers"]
            self.assertEqual(stored.keys(), verdicts.keys())
            for name, each in stored.items():
                body = each["body"] if isinstance(each["body"], str) else json.dumps(each["body"])
                self.assertEqual(classify(dialect, each["status"], body.encode()), verdicts[name], f"{folder} {name}")

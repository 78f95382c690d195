"""Engines for tests of real nodes: the doubles of Ollama and LM Studio, each as a program (EN-109 to EN-111)."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Literal

from pair.test.integration.node import ROOT, ask

Kind = Literal["ollama", "lmstudio"]

MODEL = "smollm2:135m"
"""A model that the double of Ollama has."""


class Engine:
    """A double in a process of its own, at a port that the kernel chooses.

    Args:
        kind: whose double.
        arguments: further ones of the program.
    """

    def __init__(self, kind: Kind, *arguments: str) -> None:
        self.kind = kind
        how = ("serve",) if kind == "ollama" else ("--port", "0")
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"pair.test.doubles.{kind}", *how, *arguments],
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "OLLAMA_HOST": "127.0.0.1:0",
                "OLLAMA_NUM_PARALLEL": "64",  # nobody waits for a slot
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("Listening on "), line
        self._url = f"http://{line.split()[-1]}"

    @property
    def url(self) -> str:
        """Where it answers."""
        return self._url

    def settings(self, id: str) -> tuple[str, ...]:
        """The settings by which a node has it as the engine ``id``."""
        return f"engines.{id}.kind={self.kind}", f"engines.{id}.url={self.url}"

    def fault(self, name: str, **fields: object) -> None:
        """It has one more fault. See :class:`pair.test.doubles.faults.Fault`."""
        answer = ask(self.url, "/_double/fault", {"fault": name, **fields})
        assert 200 <= answer.status < 300, answer.body

    def mend(self) -> None:
        """It has no faults any more."""
        answer = ask(self.url, "/_double/fault", method="DELETE")
        assert 200 <= answer.status < 300, answer.body

    def asked(self) -> list[tuple[str, str]]:
        """Method and path of all that it was asked."""
        return [(each["method"], each["path"]) for each in ask(self.url, "/_double/asked").value]

    def kill(self) -> None:
        """End it at once."""
        with self._process:
            self._process.kill()

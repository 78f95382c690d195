"""A module ``pynvml`` that answers what a sample says, and fails as a test tells it to."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml

SAMPLES = Path(__file__).parents[1] / "samples"


class RecordedNvml:
    """Stands in for the module. Its constants and errors are the real one's.

    Attributes:
        devices: the answers of each, by question; ``{"error": name}`` is raised.
        present: the module can be imported.
        init_error: what ``nvmlInit`` raises, None while the driver is well.
        lost: indexes of the devices that are lost until the library is started anew; ``dead``: for ever.
        broken: what every question raises since the driver was loaded anew, until the library is.
        running: how often the library is started.
        starts: how often it was.
    """

    NVMLError = pynvml.NVMLError
    NVML_TEMPERATURE_GPU = pynvml.NVML_TEMPERATURE_GPU
    NVML_ERROR_NOT_SUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED
    NVML_ERROR_UNINITIALIZED = pynvml.NVML_ERROR_UNINITIALIZED
    NVML_ERROR_DRIVER_NOT_LOADED = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    NVML_ERROR_GPU_IS_LOST = pynvml.NVML_ERROR_GPU_IS_LOST
    NVML_ERROR_RESET_REQUIRED = pynvml.NVML_ERROR_RESET_REQUIRED

    def __init__(self, sample: str) -> None:
        told = json.loads((SAMPLES / "nvml" / f"{sample}.json").read_text())
        self.devices: list[dict[str, Any]] = told["devices"]
        self.present = True
        self.init_error: int | None = None
        self.lost: set[int] = set()
        self.dead: set[int] = set()
        self.broken: int | None = None
        self.running = 0
        self.starts = 0
        self._driver = told["driver"]

    def load(self) -> RecordedNvml:
        """What the source imports."""
        if not self.present:
            raise ImportError("pynvml")
        return self

    def nvmlInit(self) -> None:
        if self.init_error is not None:
            raise pynvml.NVMLError(self.init_error)
        self.running += 1
        self.starts += 1
        self.lost = set()
        self.broken = None

    def nvmlShutdown(self) -> None:
        self._check()
        self.running -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        self._check()
        return str(self._driver)

    def nvmlDeviceGetCount(self) -> int:
        self._check()
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        self._check()
        return index

    def __getattr__(self, question: str) -> Any:
        if not question.startswith("nvmlDeviceGet"):
            raise AttributeError(question)

        def ask(handle: int, *more: object) -> object:
            self._check()
            if question not in ("nvmlDeviceGetUUID", "nvmlDeviceGetName") and handle in self.lost | self.dead:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
            answer = self.devices[handle][question]
            if isinstance(answer, dict) and "error" in answer:
                raise pynvml.NVMLError(getattr(pynvml, answer["error"]))
            return SimpleNamespace(**answer) if isinstance(answer, dict) else answer

        return ask

    def _check(self) -> None:
        if not self.running:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
        if self.broken is not None:
            raise pynvml.NVMLError(self.broken)

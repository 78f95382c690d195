"""NVIDIA's GPUs through NVML (DS-86). It blocks: it is for the sampler's thread.

The module ``pynvml`` is imported when it is needed, and asked for its library
again and again where that is not there: a driver may be installed, loaded
anew or taken away while this process runs.
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from zope.interface import implementer

from pair.interfaces import ITelemetrySource
from pair.logs import Logger
from pair.records.telemetry import Gpu, Reading
from pair.telemetry.reduce import listing_due, percent

if TYPE_CHECKING:
    from collections.abc import Callable

log = Logger()


def _pynvml() -> Any:
    return importlib.import_module("pynvml")


class _Device(Struct, frozen=True):
    """One GPU of the last list."""

    index: int
    handle: Any
    id: str
    name: str


@implementer(ITelemetrySource)
class NvmlSource:
    """Each physical GPU, whether or not it is divided (MIG).

    Args:
        monotonic: seconds.
        module: gives ``pynvml``, or raises ImportError.
    """

    name = "nvml"
    period = 0.0

    def __init__(self, monotonic: Callable[[], float], module: Callable[[], Any] = _pynvml) -> None:
        self._monotonic = monotonic
        self._module = module
        self._nvml: Any = None
        self._driver: str | None = None
        self._devices: list[_Device] = []
        self._listed_at: float | None = None
        self._known = False
        self._absence: str | None = None

    def read(self) -> Reading:
        """See :class:`pair.interfaces.ITelemetrySource`.

        Raises:
            pynvml.NVMLError: GPUs that were there do not answer.
        """
        self._list()
        gpus, lost = self._read_all()
        if lost:
            # After a reset or with a driver loaded anew, only a library that is started anew answers.
            log.debug("{count} GPUs are lost to NVML; it is started anew.", count=len(lost))
            self.close()
            self._list()
            gpus, lost = self._read_all()
        if lost and not gpus:
            self.close()
            raise next(iter(lost.values()))
        # The others must not suffer: what is still lost is left out until the next list.
        self._devices = [each for each in self._devices if each.id not in lost]
        return Reading(gpus=tuple(gpus))

    def close(self) -> None:
        """See :class:`pair.interfaces.ITelemetrySource`."""
        nvml, self._nvml = self._nvml, None
        self._devices = []
        self._listed_at = None
        if nvml is not None:
            with suppress(nvml.NVMLError):  # one that is gone already is started anew all the same
                nvml.nvmlShutdown()

    # The list

    def _list(self) -> None:
        now = self._monotonic()
        if not listing_due(self._listed_at, bool(self._devices), now):
            return
        if self._nvml is not None or self._open():
            self._devices = self._found()
            self._known = bool(self._devices)
            if self._known:
                self._absence = None
            else:
                self.close()  # a library that runs does not see what is plugged in later
                self._note_absence("no device")
        self._listed_at = now

    def _open(self) -> bool:
        """Start the library.

        Returns:
            False where there is none, and no GPU of it was ever known.
        """
        try:
            nvml = self._module()
        except ImportError:
            self._note_absence("no module")
            return False
        try:
            nvml.nvmlInit()
            self._nvml = nvml
            self._driver = _text(nvml.nvmlSystemGetDriverVersion())
        except nvml.NVMLError as error:
            self.close()
            if self._known:
                raise
            self._note_absence(f"NVML says {error.value}")
            return False
        return True

    def _found(self) -> list[_Device]:
        """All devices that can be opened.

        Raises:
            pynvml.NVMLError: there are some, and none can. The library is to be started anew.
        """
        nvml, found, refused = self._nvml, [], None
        try:
            for index in range(nvml.nvmlDeviceGetCount()):
                try:
                    handle = nvml.nvmlDeviceGetHandleByIndex(index)
                    id, name = (_text(ask(handle)) for ask in (nvml.nvmlDeviceGetUUID, nvml.nvmlDeviceGetName))
                except nvml.NVMLError as error:
                    refused = error
                else:
                    found.append(_Device(index, handle, id, name))
            if refused is not None and not found:
                raise refused
        except nvml.NVMLError:
            self.close()
            raise
        return found

    def _note_absence(self, why: str) -> None:
        if why != self._absence:
            log.debug("There is no NVIDIA GPU to be seen: {why}.", why=why)
        self._absence = why

    # The figures

    def _read_all(self) -> tuple[list[Gpu], dict[str, Exception]]:
        """The GPUs that answer, and what those raised that do not, by id."""
        gpus: list[Gpu] = []
        lost: dict[str, Exception] = {}
        for device in self._devices:
            try:
                gpus.append(self._read(device))
            except self._nvml.NVMLError as error:
                lost[device.id] = error
        return gpus, lost

    def _read(self, device: _Device) -> Gpu:
        """The figures of one. A value that it refuses is None; it is lost when all are, and not as unsupported."""
        nvml = self._nvml
        gone = {
            nvml.NVML_ERROR_UNINITIALIZED,
            nvml.NVML_ERROR_DRIVER_NOT_LOADED,
            nvml.NVML_ERROR_GPU_IS_LOST,
            nvml.NVML_ERROR_RESET_REQUIRED,
        }
        refused: dict[str, Any] = {}

        def ask(question: str, *more: object) -> Any:
            try:
                return getattr(nvml, question)(device.handle, *more)
            except nvml.NVMLError as error:
                if error.value in gone:
                    raise
                refused[question] = error
                return None

        memory = ask("nvmlDeviceGetMemoryInfo")
        rates = ask("nvmlDeviceGetUtilizationRates")
        heat = ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU)
        power = ask("nvmlDeviceGetPowerUsage")
        faults = [each for each in refused.values() if each.value != nvml.NVML_ERROR_NOT_SUPPORTED]
        if memory is rates is heat is power is None and faults:
            raise faults[0]
        # Machines whose GPU shares the system's memory refuse the question, or say 0, by the driver's version.
        refusal = refused.get("nvmlDeviceGetMemoryInfo")
        unified = memory.total == 0 if memory is not None else refusal not in faults
        own = None if unified else memory
        return Gpu(
            device.id,
            device.index,
            "nvidia",
            device.name,
            self._driver,
            unified=unified,
            vram_total_bytes=None if own is None else own.total,
            vram_used_bytes=None if own is None else own.used,
            vram_free_bytes=None if own is None else own.free,
            utilization_percent=None if rates is None else percent(rates.gpu),
            temperature_c=None if heat is None else float(heat),
            power_w=None if power is None else power / 1000,
        )


def _text(value: str | bytes) -> str:
    """A name of NVML, which older modules give as bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value

"""NVIDIA's GPUs (DS-86)."""

from __future__ import annotations

import contextlib
import sys

import pynvml
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from pair.interfaces import ITelemetrySource
from pair.records.telemetry import Gpu, Reading
from pair.telemetry.nvml import NvmlSource
from pair.test.telemetry.nvml import RecordedNvml


class NvmlTests(SynchronousTestCase):
    def start(self, sample: str) -> RecordedNvml:
        self.clock = Clock()
        self.nvml = RecordedNvml(sample)
        self.source = NvmlSource(self.clock.seconds, self.nvml.load)
        return self.nvml

    def utilizations(self) -> list[float | None]:
        return [each.utilization_percent for each in self.source.read().gpus]

    def test_interface(self) -> None:
        """It is a source."""
        self.start("two-580")
        verifyObject(ITelemetrySource, self.source)

    def test_several(self) -> None:
        """Each physical GPU is one entry with NVML's UUID; a value that is not supported is None, and no other."""
        self.start("two-580")
        self.assertEqual(
            self.source.read(),
            Reading(
                gpus=(
                    Gpu(
                        id="GPU-1b2c3d4e-0a1b-4c2d-8e3f-405162738495",
                        index=0,
                        vendor="nvidia",
                        name="NVIDIA GeForce RTX 4090",
                        driver="580.105.08",
                        vram_total_bytes=25757220864,
                        vram_used_bytes=8123318272,
                        vram_free_bytes=17633902592,
                        utilization_percent=62.0,
                        temperature_c=58.0,
                        power_w=214.5,
                    ),
                    Gpu(
                        id="GPU-9f8e7d6c-5b4a-4938-a271-605f4e3d2c1b",
                        index=1,
                        vendor="nvidia",
                        name="NVIDIA GeForce GTX 1050",
                        driver="580.105.08",
                        vram_total_bytes=2147483648,
                        vram_used_bytes=83361792,
                        vram_free_bytes=2064121856,
                        utilization_percent=0.0,
                        temperature_c=34.0,
                        power_w=None,
                    ),
                )
            ),
        )

    def test_divided(self) -> None:
        """A GPU that is divided (MIG) is one entry; its utilisation, which it does not tell, is None."""
        self.start("mig-580")
        (gpu,) = self.source.read().gpus
        self.assertEqual((gpu.utilization_percent, gpu.temperature_c, gpu.unified), (None, 29.0, False))

    def test_shared_memory(self) -> None:
        """A GPU that refuses to tell of memory, or says that it has none, shares the system's (DS-89)."""
        for sample in ("gb10-580", "gb10-zero"):
            self.start(sample)
            (gpu,) = self.source.read().gpus
            self.assertTrue(gpu.unified)
            self.assertEqual((gpu.vram_total_bytes, gpu.vram_used_bytes, gpu.vram_free_bytes), (None, None, None))

    def test_memory_refused_otherwise(self) -> None:
        """Any other refusal says nothing of shared memory (DS-89)."""
        nvml = self.start("two-580")
        nvml.devices[0]["nvmlDeviceGetMemoryInfo"] = {"error": "NVML_ERROR_NO_PERMISSION"}
        gpu = self.source.read().gpus[0]
        self.assertEqual((gpu.unified, gpu.vram_total_bytes, gpu.utilization_percent), (False, None, 62.0))

    def test_bytes(self) -> None:
        """Older modules give names as bytes."""
        nvml = self.start("two-580")
        nvml.devices[1]["nvmlDeviceGetName"] = b"Tesla K80"
        self.assertEqual(self.source.read().gpus[1].name, "Tesla K80")

    def absent(self) -> None:
        """Nothing is there, which one line says, at debug; after 10 s it is looked for again."""
        with capturedLogs() as events:
            for _ in range(25):
                self.assertEqual(self.source.read(), Reading())
                self.clock.advance(1)
        self.assertEqual([event["log_level"] for event in events], [LogLevel.debug])

    def found(self) -> None:
        self.clock.advance(10)
        self.assertEqual(self.utilizations(), [62.0, 0.0])

    def test_no_module(self) -> None:
        """The module is not there, and is then."""
        nvml = self.start("two-580")
        nvml.present = False
        self.absent()
        nvml.present = True
        self.found()

    def test_no_driver(self) -> None:
        """The library or the driver is not there, and is then."""
        for error in (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED):
            nvml = self.start("two-580")
            nvml.init_error = error
            self.absent()
            nvml.init_error = None
            self.found()

    def test_no_device(self) -> None:
        """There is no device; one that comes later is seen, since the library is not kept running."""
        nvml = self.start("two-580")
        devices, nvml.devices = nvml.devices, []
        self.absent()
        self.assertEqual((nvml.running, nvml.starts), (0, 3))
        nvml.devices = devices
        self.found()

    def test_listed_anew(self) -> None:
        """Once there are GPUs they are listed each 60 s, with the library that runs (DS-85)."""
        nvml = self.start("two-580")
        self.assertEqual(len(self.utilizations()), 2)
        nvml.devices.append({**nvml.devices[0], "nvmlDeviceGetUUID": "GPU-new"})
        self.clock.advance(59)
        self.assertEqual(len(self.utilizations()), 2)
        self.clock.advance(1)
        self.assertEqual(len(self.utilizations()), 3)
        self.assertEqual(nvml.starts, 1)

    def test_reset(self) -> None:
        """A GPU that was reset answers again, in the same reading: the library is started anew."""
        nvml = self.start("two-580")
        self.source.read()
        nvml.lost = {0}
        self.assertEqual(self.utilizations(), [62.0, 0.0])
        self.assertEqual((nvml.running, nvml.starts), (1, 2))

    def test_one_lost(self) -> None:
        """One that stays lost is left out until GPUs are listed again; the others go on, and nothing is restarted."""
        nvml = self.start("two-580")
        self.source.read()
        nvml.dead = {0}
        for _ in range(5):
            self.assertEqual(self.utilizations(), [0.0])
        self.assertEqual(nvml.starts, 2)
        nvml.dead = set()
        self.clock.advance(60)
        self.assertEqual(self.utilizations(), [62.0, 0.0])

    def test_driver_loaded_anew(self) -> None:
        """The driver is taken away: that is a failure, not "no GPU"; with the next one all is as it was."""
        nvml = self.start("two-580")
        self.source.read()
        for error in (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_UNKNOWN):
            nvml.broken, nvml.init_error = error, pynvml.NVML_ERROR_DRIVER_NOT_LOADED
            for _ in range(3):
                self.assertRaises(pynvml.NVMLError, self.source.read)
            nvml.running = 0
            nvml.init_error = None
            self.assertEqual(self.utilizations(), [62.0, 0.0])

    def test_lost_while_listed(self) -> None:
        """A list that fails because the driver was loaded anew is no end: the library is started anew for the next."""
        nvml = self.start("two-580")
        self.source.read()
        self.clock.advance(60)
        nvml.broken = pynvml.NVML_ERROR_UNKNOWN
        self.assertRaises(pynvml.NVMLError, self.source.read)
        self.assertEqual(self.utilizations(), [62.0, 0.0])

    def test_close(self) -> None:
        """It lets go of the library, and takes it up again."""
        nvml = self.start("two-580")
        self.source.read()
        self.source.close()
        self.source.close()
        self.assertEqual(nvml.running, 0)
        self.assertEqual(self.utilizations(), [62.0, 0.0])

    def test_real_module(self) -> None:
        """The real module has what is asked of it, and may be asked on any machine."""
        source = NvmlSource(Clock().seconds)
        with contextlib.suppress(pynvml.NVMLError):  # a machine whose driver is not well
            source.read()
        source.close()
        for name in (
            "nvmlDeviceGetMemoryInfo",
            "nvmlDeviceGetUtilizationRates",
            "nvmlDeviceGetTemperature",
            "nvmlDeviceGetPowerUsage",
        ):
            self.assertTrue(callable(getattr(sys.modules["pynvml"], name)))

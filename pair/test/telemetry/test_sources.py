"""The sources that need no driver: the host, sysfs, ioreg; and which of them a machine has (DS-87, DS-88, DS-90)."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from pair.interfaces import ITelemetrySource
from pair.records.telemetry import Gpu, Reading
from pair.telemetry.amdgpu import SysfsSource
from pair.telemetry.apple import IoregSource
from pair.telemetry.host import HostSource
from pair.telemetry.sources import machine_sources
from pair.test.telemetry.nvml import SAMPLES


class HostTests(SynchronousTestCase):
    def test_reading(self) -> None:
        """It tells of this very machine; used and available memory are the whole (DS-90)."""
        source = HostSource()
        verifyObject(ITelemetrySource, source)
        source.read()
        reading = source.read()
        assert reading.system is not None
        assert reading.cpu is not None
        assert reading.memory is not None
        self.assertEqual(reading.system.system, platform.system().lower())
        self.assertEqual(reading.cpu.threads, os.cpu_count())
        total, used, free = reading.memory.total_bytes, reading.memory.used_bytes, reading.memory.available_bytes
        assert total is not None
        assert used is not None
        assert free is not None
        self.assertEqual(used + free, total)
        self.assertEqual(reading.gpus, ())
        source.close()

    def test_first_utilisation(self) -> None:
        """The first reading cannot know the load, and does not say 0 (DS-77)."""
        source = HostSource()
        first, second = source.read().cpu, source.read().cpu
        assert first is not None
        assert second is not None
        assert second.utilization_percent is not None
        self.assertIsNone(first.utilization_percent)
        self.assertTrue(0 <= second.utilization_percent <= 100)

    def test_no_name(self) -> None:
        """A processor without a name has none."""
        cpu = HostSource(Path(self.mktemp())).read().cpu
        assert cpu is not None
        if platform.system() == "Linux":
            self.assertIsNone(cpu.name)


class SysfsTests(SynchronousTestCase):
    def read(self, tree: str) -> tuple[Gpu, ...]:
        source = SysfsSource(Clock().seconds, SAMPLES / "sysfs" / tree)
        verifyObject(ITelemetrySource, source)
        return source.read().gpus

    def test_radeon(self) -> None:
        """An AMD card with all its values, by its PCI address; beside it Intel's, of which only the name is told."""
        self.assertEqual(
            self.read("radeon"),
            (
                Gpu(id="0000:00:02.0", index=0, vendor="intel", name="Intel GPU a780"),
                Gpu(
                    id="0000:03:00.0",
                    index=0,
                    vendor="amd",
                    name="AMD GPU 744c",
                    vram_total_bytes=25753026560,
                    vram_used_bytes=6442450944,
                    vram_free_bytes=19310575616,
                    utilization_percent=43.0,
                    temperature_c=51.0,
                    power_w=96.0,
                ),
            ),
        )

    def test_apu(self) -> None:
        """At most 1 GiB of its own, and more that is shared: its memory is the system's (DS-89)."""
        (gpu,) = self.read("apu")
        self.assertEqual((gpu.name, gpu.unified, gpu.utilization_percent), ("AMD Radeon 8060S", True, 0.0))
        self.assertEqual((gpu.temperature_c, gpu.power_w), (38.0, 12.045))

    def test_broken(self) -> None:
        """Missing, empty and garbage files are None; what is no GPU of ours is no entry; cards count by number."""
        self.assertEqual(
            self.read("broken"),
            (
                Gpu(id="card0", index=0, vendor="amd"),
                Gpu(id="card10", index=1, vendor="amd", utilization_percent=100.0),
            ),
        )

    def test_no_tree(self) -> None:
        """A machine without such a folder has no GPU."""
        self.assertEqual(self.read("nowhere"), ())

    def test_listed_anew(self) -> None:
        """A card that comes is seen within 10 s while none is known, else within 60 s (DS-85)."""
        clock, root = Clock(), Path(self.mktemp())
        source = SysfsSource(clock.seconds, root)
        seen = [0, 0, 1, 1, 2]
        waits = [9, 1, 59, 1, 0]
        shown = []
        for step, wait in enumerate(waits):
            shown.append(len(source.read().gpus))
            if step in (0, 2):
                shutil.copytree(SAMPLES / "sysfs" / "apu" / "card0", root / f"card{step}")
            clock.advance(wait)
        self.assertEqual(shown, seen)

    def test_card_taken_away(self) -> None:
        """Until the next list it stays, without values."""
        root = Path(self.mktemp())
        shutil.copytree(SAMPLES / "sysfs" / "apu", root)
        source = SysfsSource(Clock().seconds, root)
        source.read()
        shutil.rmtree(root / "card0")
        self.assertEqual(source.read(), Reading(gpus=(Gpu(id="card0", index=0, vendor="amd"),)))
        source.close()


class IoregTests(SynchronousTestCase):
    def test_silicon(self) -> None:
        """Apple's own GPU shares the system's memory (DS-88, DS-89)."""
        source = IoregSource(True, (SAMPLES / "ioreg" / "m2.plist").read_bytes)
        verifyObject(ITelemetrySource, source)
        self.assertEqual(
            source.read().gpus,
            (Gpu(id="apple-0", index=0, vendor="apple", name="Apple M2", unified=True, utilization_percent=37.0),),
        )
        self.assertEqual(source.period, 2.0)
        source.close()

    def test_failure(self) -> None:
        """No answer, and one that is no property list, are failures of the source (DS-85)."""

        def missing() -> bytes:
            raise FileNotFoundError

        self.assertRaises(OSError, IoregSource(True, missing).read)
        self.assertRaises(ValueError, IoregSource(True, lambda: b"<plist>").read)


class MachineTests(SynchronousTestCase):
    def test_sources(self) -> None:
        """Which there are depends on the system; with telemetry.gpu off no driver is asked."""
        for system, names in (
            ("linux", ["host", "nvml", "sysfs"]),
            ("darwin", ["host", "ioreg"]),
            ("win32", ["host", "nvml"]),
        ):
            self.assertEqual([each.name for each in machine_sources(True, system)], names)
            self.assertEqual([each.name for each in machine_sources(False, system)], ["host"])

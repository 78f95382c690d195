"""What is made of what sources say, and of what nodes say (DS-77 to DS-80, DS-85, DS-89, DS-95)."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from pair.records.telemetry import (
    CompactInfo,
    Cpu,
    Gpu,
    Hardware,
    Load,
    Memory,
    NodeInfo,
    ProtocolRange,
    Reading,
    System,
)
from pair.telemetry.reduce import (
    Kept,
    accelerators,
    compact,
    cpu_name,
    decode,
    decode_compact,
    encode,
    hardware,
    listing_due,
    load,
    memory,
    percent,
    retry_wait,
    with_hardware,
    with_memory,
)

HOST = "3f0c9a52-8a1d-4a7e-9c55-0d7e1f2a3b4c"
CLUSTER = "b7d0f6f0-13c4-4b6e-8f0a-6a5b4c3d2e1f"
NVIDIA = Gpu(id="GPU-1", index=0, vendor="nvidia", vram_total_bytes=100, utilization_percent=62.0)
APU = Gpu(id="0000:c4:00.0", index=0, vendor="amd", utilization_percent=5.0)
MEMORY = Memory(1000, 300, 700)
NOTHING = Hardware()
INFO = NodeInfo(
    host_uuid=HOST,
    instance="9f3a6c0d51e2b774",
    name="spark",
    version="0.3.0",
    protocol=ProtocolRange(1, 1),
    cluster_uuid=CLUSTER,
    services={"ni": 14318, "cl": 14321},
    ips=("192.168.1.20",),
)


class WaitTests(SynchronousTestCase):
    def test_retries(self) -> None:
        """A source is tried again after 1, 2, 4, … 60 s, for ever (DS-85)."""
        self.assertEqual([retry_wait(each) for each in range(1, 9)], [1, 2, 4, 8, 16, 32, 60, 60])
        self.assertEqual(retry_wait(10**9), 60)

    def test_lists(self) -> None:
        """GPUs are listed anew each 60 s, each 10 s while none is known (DS-85)."""
        self.assertTrue(listing_due(None, True, 0))
        self.assertEqual([listing_due(5, True, now) for now in (64.9, 65)], [False, True])
        self.assertEqual([listing_due(5, False, now) for now in (14.9, 15)], [False, True])


class KeptTests(SynchronousTestCase):
    def test_renewed(self) -> None:
        """What a source gave is kept, its GPUs with their time; then it is due again by its period."""
        kept = Kept().failed(7).renewed(Reading(gpus=(NVIDIA,)), 10.0, 123, 2.0)
        self.assertEqual(kept.reading.gpus, (replace(NVIDIA, sampled_at=123),))
        self.assertEqual((kept.at, kept.failures), (10.0, 0))
        self.assertTrue(11.8 < kept.due < 12.0)

    def test_failed(self) -> None:
        """One that fails keeps its last values with their time (DS-85)."""
        kept = Kept().renewed(Reading(gpus=(NVIDIA,)), 10.0, 123, 0.0)
        later = kept.failed(11).failed(12)
        self.assertEqual((later.reading, later.at, later.failures), (kept.reading, 10.0, 2))
        self.assertTrue(13.8 < later.due <= 14.0)


class HardwareTests(SynchronousTestCase):
    def put(
        self, *sources: Kept, before: Hardware = NOTHING, unified: tuple[str, ...] = (), now: float = 0.0
    ) -> Hardware:
        return hardware(sources, unified, before, now)

    def test_nothing_yet(self) -> None:
        """Before the first reading all is unknown (DS-77)."""
        self.assertEqual(self.put(Kept(), Kept()), Hardware())

    def test_sources_together(self) -> None:
        """Each source gives its part; the busiest GPU stands for all (DS-79)."""
        host = Kept(Reading(System("linux"), Cpu(cores=4), MEMORY), 1.0)
        found = self.put(host, Kept(Reading(gpus=(NVIDIA,)), 2.0), Kept(Reading(gpus=(APU,)), 3.0), now=4.0)
        self.assertEqual((found.system, found.cpu, found.memory), (System("linux"), Cpu(cores=4), MEMORY))
        self.assertEqual(found.gpus, (NVIDIA, APU))
        self.assertEqual((found.utilization_percent, found.usable_at), (62.0, 3.0))

    def test_idle_is_usable(self) -> None:
        """A utilisation of 0 is a usable sample; none is not (DS-78)."""
        idle, silent = (replace(NVIDIA, utilization_percent=each) for each in (0.0, None))
        self.assertEqual(self.put(Kept(Reading(gpus=(silent, idle)), 1.0), now=1).utilization_percent, 0.0)
        nothing = self.put(Kept(Reading(gpus=(silent,)), 1.0), now=1)
        self.assertEqual((nothing.utilization_percent, nothing.usable_at), (None, None))

    def test_old_values_are_no_load(self) -> None:
        """The values that a failing source keeps are shown, and after 10 s are no load any more (DS-79, DS-85)."""
        nvml, sysfs = Kept(Reading(gpus=(NVIDIA,)), 1.0), Kept(Reading(gpus=(APU,)), 12.0)
        self.assertEqual(self.put(nvml, sysfs, now=11.0).utilization_percent, 62.0)
        later = self.put(nvml, sysfs, now=11.1)
        self.assertEqual((later.gpus, later.utilization_percent), ((NVIDIA, APU), 5.0))
        alone = self.put(nvml, before=replace(later, usable_at=1.0), now=50.0)
        self.assertEqual((alone.gpus, alone.utilization_percent, alone.usable_at), ((NVIDIA,), None, 1.0))

    def test_load(self) -> None:
        """A sample is valid for 10 s; its age is told for ever, and None while there never was one (DS-78)."""
        self.assertEqual(load(Hardware(), 5), Load(None, False, None))
        sampled = Hardware(utilization_percent=62.0, usable_at=5.0)
        self.assertEqual(load(sampled, 5.31), Load(62.0, True, 310))
        self.assertEqual(load(sampled, 15.0), Load(62.0, True, 10000))
        self.assertEqual(load(sampled, 15.1), Load(62.0, False, 10100))

    def test_unified(self) -> None:
        """Shared memory is the system's: total, not available, available (DS-89)."""
        shared = replace(NVIDIA, unified=True, vram_total_bytes=1000, vram_used_bytes=300, vram_free_bytes=700)
        self.assertEqual(with_memory(NVIDIA, MEMORY), NVIDIA)
        self.assertEqual(with_memory(replace(NVIDIA, unified=True, vram_total_bytes=None), MEMORY), shared)
        self.assertEqual(with_memory(NVIDIA, MEMORY, unified=True), shared)
        self.assertEqual(with_memory(NVIDIA, Memory(), unified=True).vram_total_bytes, None)

    def test_unified_by_the_operator(self) -> None:
        """So it is for GPUs that the operator names (DS-89)."""
        sources = Kept(Reading(memory=MEMORY), 1.0), Kept(Reading(gpus=(NVIDIA, APU)), 1.0)
        found = self.put(*sources, unified=("GPU-1", "GPU-unknown"), now=1.0)
        self.assertEqual([each.vram_total_bytes for each in found.gpus], [1000, None])


class ParseTests(SynchronousTestCase):
    def test_percent(self) -> None:
        """Above 100 is 100; what is negative, not finite or no number is unknown (DS-95)."""
        for value, share in ((0, 0.0), (62.5, 62.5), (100, 100.0), (140, 100.0), (10**400, 100.0)):
            self.assertEqual(percent(value), share)
        for bad in (None, True, "50", -1, float("nan"), float("inf"), [1]):
            self.assertIsNone(percent(bad))

    def test_memory(self) -> None:
        """What is not available is used, and never less than nothing (DS-90)."""
        self.assertEqual(memory(1000, 700), MEMORY)
        self.assertEqual(memory(1000, 1200), Memory(1000, 0, 1200))

    def test_cpu_name(self) -> None:
        """The first name of Linux's list; ARM machines have none."""
        self.assertEqual(cpu_name("processor\t: 0\nmodel name\t: AMD Ryzen 9 \nmodel name\t: x\n"), "AMD Ryzen 9")
        self.assertIsNone(cpu_name("processor\t: 0\nBogoMIPS\t: 2000.00\n"))

    def test_accelerators(self) -> None:
        """A Mac with another's GPU: name and vendor, and what it tells; of memory nothing (DS-88)."""

        def plist(*models: str) -> bytes:
            rows = "".join(f"<dict><key>model</key>{model}</dict>" for model in models)
            return f'<plist version="1.0"><array>{rows}</array></plist>'.encode()

        found = accelerators(
            plist("<string>AMD Radeon Pro 5500M</string>", "<data>SW50ZWwgVUhEAA==</data>", "<true/>"), False
        )
        self.assertEqual(
            [(each.id, each.vendor, each.name, each.unified, each.utilization_percent) for each in found],
            [
                ("amd-0", "amd", "AMD Radeon Pro 5500M", False, None),
                ("intel-1", "intel", "Intel UHD", False, None),
                ("unknown-2", "unknown", None, False, None),
            ],
        )

    def test_no_accelerators(self) -> None:
        """No GPU is no answer at all; anything but a list of dictionaries is none."""
        self.assertEqual(accelerators(b"\n", True), ())
        self.assertEqual(accelerators(b'<plist version="1.0"><array><true/></array></plist>', True), ())
        for bad in (b"ioreg: error", b'<plist version="1.0"><dict/></plist>', b"<plist><array>", b"\xff\xfe<"):
            self.assertRaises(ValueError, accelerators, bad, True)

    @given(st.binary(max_size=60))
    def test_any_accelerators(self, data: bytes) -> None:
        """Whatever ioreg writes, it is GPUs or a ValueError."""
        with contextlib.suppress(ValueError):
            accelerators(data, True)


class EncodingTests(SynchronousTestCase):
    def full(self) -> NodeInfo:
        gpu = Gpu(
            id="GPU-1b2c",
            index=0,
            vendor="nvidia",
            name="RTX 4090",
            driver="580.1",
            vram_total_bytes=25757220864,
            vram_used_bytes=8123318272,
            vram_free_bytes=17633902592,
            utilization_percent=62.0,
            temperature_c=58.0,
            power_w=214.5,
            sampled_at=1764460799813,
        )
        found = Hardware(
            System("linux", "6.8.0", "x86_64"),
            Cpu("AMD", 16, 32, 12.5),
            Memory(134217728000, 41231686041, 92986041959),
            (gpu,),
            62.0,
            100.0,
        )
        return with_hardware(INFO, found, 100.31)

    def test_full(self) -> None:
        """The full body is that of the discovery page, field by field and in its order."""
        self.assertEqual(
            json.loads(encode(self.full()), object_pairs_hook=list),
            json.loads(
                f"""
                {{"v":1,"hostUuid":"{HOST}","instance":"9f3a6c0d51e2b774","name":"spark","version":"0.3.0",
                 "protocol":{{"min":1,"max":1}},"capabilities":[],
                 "clusterUuid":"{CLUSTER}","services":{{"ni":14318,"cl":14321}},"ips":["192.168.1.20"],
                 "telemetryValid":true,"sampleAgeMs":310,"gpuUtilizationPercent":62,
                 "os":{{"system":"linux","release":"6.8.0","arch":"x86_64"}},
                 "cpu":{{"name":"AMD","cores":16,"threads":32,"utilizationPercent":12.5}},
                 "memory":{{"totalBytes":134217728000,"usedBytes":41231686041,"availableBytes":92986041959}},
                 "gpus":[{{"id":"GPU-1b2c","index":0,"vendor":"nvidia","name":"RTX 4090","driver":"580.1",
                   "unified":false,"vramTotalBytes":25757220864,"vramUsedBytes":8123318272,
                   "vramFreeBytes":17633902592,"utilizationPercent":62,"temperatureC":58,"powerW":214.5,
                   "sampledAt":1764460799813}}]}}
                """,
                object_pairs_hook=list,
            ),
        )

    def test_unknown_is_null(self) -> None:
        """Every field is there, the unknown ones as null, and no GPU as an empty list (DS-77)."""
        body = json.loads(encode(with_hardware(replace(INFO, cluster_uuid=None), Hardware(gpus=(APU,)), 0)))
        self.assertEqual(set(body), set(json.loads(encode(self.full()))))
        self.assertEqual(body["cpu"], {"name": None, "cores": None, "threads": None, "utilizationPercent": None})
        self.assertEqual(
            [body[each] for each in ("clusterUuid", "sampleAgeMs", "telemetryValid")], [None, None, False]
        )
        self.assertEqual({body["gpus"][0][each] for each in ("name", "driver", "temperatureC", "powerW")}, {None})
        self.assertEqual(json.loads(encode(with_hardware(INFO, Hardware(), 0)))["gpus"], [])

    def test_withheld(self) -> None:
        """A body without hardware has null or nothing in its place, and no valid telemetry (DS-81)."""
        body = json.loads(encode(NodeInfo(host_uuid=HOST, cluster_uuid=None)))
        told = {"v": 1, "hostUuid": HOST, "telemetryValid": False}
        self.assertEqual({name: value for name, value in body.items() if value not in (None, [])}, told)

    def test_compact(self) -> None:
        """The compact view has these fields, in this order (DS-80)."""
        self.assertEqual(
            encode(compact(self.full())).decode(),
            f'{{"v":1,"hostUuid":"{HOST}","instance":"9f3a6c0d51e2b774","protocol":{{"min":1,"max":1}},'
            f'"clusterUuid":"{CLUSTER}","telemetryValid":true,"sampleAgeMs":310,"gpuUtilizationPercent":62.0}}',
        )

    def test_round_trip(self) -> None:
        """What was encoded is decoded as it was; the compact part of both bodies is the same."""
        for info in (self.full(), INFO, replace(INFO, cluster_uuid=None), NodeInfo(host_uuid=HOST)):
            self.assertEqual(decode(encode(info)), info)
            self.assertEqual(decode_compact(encode(info)), compact(info))
            self.assertEqual(decode_compact(encode(compact(info))), compact(info))
        self.assertEqual(self.full().load, Load(62.0, True, 310))
        self.assertEqual(compact(self.full()).load, self.full().load)


def body(**fields: Any) -> bytes:
    told = {"v": 1, "hostUuid": HOST, "telemetryValid": True, "sampleAgeMs": 5, "gpuUtilizationPercent": 50}
    return json.dumps({**told, **fields}).encode()


def told(**fields: Any) -> NodeInfo:
    info = decode(body(**fields))
    assert info is not None
    return info


FIELDS = sorted(json.loads(encode(INFO)))
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.text(),
    lambda deeper: st.lists(deeper) | st.dictionaries(st.text(), deeper),
)


class DecodingTests(SynchronousTestCase):
    def test_not_pair(self) -> None:
        """What is no node-info is None (DS-73)."""
        for bad in (b"", b"hello", b"[]", b"null", b"{}", b'{"v":1}', b"\xff", b"[" * 100000, b'{"a":' * 100000):
            self.assertIsNone(decode(bad))
            self.assertIsNone(decode_compact(bad))
        for fields in ({"hostUuid": "spark"}, {"hostUuid": None}, {"v": "1"}, {"v": 0}, {"v": None}):
            self.assertIsNone(decode(body(**fields)))
        self.assertIsNone(decode(body().replace(b"50", b"NaN")))

    @given(st.binary(max_size=200))
    def test_any_bytes(self, data: bytes) -> None:
        """Any bytes decode without an exception."""
        decode(data)

    @given(st.dictionaries(st.sampled_from(FIELDS), VALUES))
    def test_any_fields(self, fields: dict[str, Any]) -> None:
        """Any values in the fields decode without an exception, and what is decoded can be encoded."""
        info = decode(body(**fields))
        if info is not None:
            self.assertEqual(decode(encode(info)), info)

    def test_utilisation(self) -> None:
        """A value that is no finite number, is negative or missing is invalid; above 100 is 100 (DS-95)."""
        self.assertEqual(told().load, Load(50.0, True, 5))
        self.assertEqual(told(gpuUtilizationPercent=140).load, Load(100.0, True, 5))
        wrong: tuple[object, ...] = (True, "50", -1, -0.5, None, {})
        for bad in wrong:
            self.assertEqual(told(gpuUtilizationPercent=bad).load, Load(None, False, 5))
        endless = decode(body().replace(b"50", b"1e999"))
        if endless is not None:
            self.assertFalse(endless.telemetry_valid)

    def test_validity(self) -> None:
        """Without a valid age, or where the node does not vouch for it, a sample is not valid (DS-95)."""
        for bad in (None, -1, 1.5, "5", True, 1 << 60):
            self.assertEqual(told(sampleAgeMs=bad).load, Load(50.0, False, None))
        for bad in (None, False, 1, "true"):
            self.assertEqual(told(telemetryValid=bad).load, Load(50.0, False, 5))

    def test_cluster(self) -> None:
        """Null is "in no cluster"; left out or malformed is no news (DS-45)."""
        self.assertEqual(told(clusterUuid=CLUSTER).cluster_uuid, CLUSTER)
        self.assertIsNone(told(clusterUuid=None).cluster_uuid)
        for info in (told(), told(clusterUuid="x"), told(clusterUuid=5)):
            self.assertIs(info.cluster_uuid, UNSET)

    def test_each_field_alone(self) -> None:
        """A malformed part is unknown, and spoils no other."""
        good = {"id": "GPU-1", "index": 0, "vendor": "nvidia"}
        info = told(
            cpu={"cores": "many"},
            memory={"totalBytes": 5, "usedBytes": None, "availableBytes": 5, "more": 1},
            os=[],
            gpus=[good, {}, 7, {**good, "powerW": -1}, {**good, "id": "GPU-2", "utilizationPercent": 100}],
            services={"ni": 14318, "cl": 0, "ol": "11434", "wl": 65536},
            ips="192.168.1.20",
            protocol={"min": 1},
        )
        self.assertEqual((info.cpu, info.os, info.protocol, info.ips), (None, None, None, ()))
        self.assertEqual(info.memory, Memory(5, None, 5))
        self.assertEqual([each.id for each in info.gpus], ["GPU-1", "GPU-2"])
        self.assertEqual(info.services, {"ni": 14318})

    def test_texts(self) -> None:
        """Names from others are cleaned, and cut to 63 characters (DS-14); lists are cut too."""
        info = told(
            name="a\x1b[2J\u202eb",
            version="x" * 100,
            os={"system": "li\x00nux", "release": None},
            gpus=[{"id": "GPU-1", "index": 0, "vendor": "n\nvidia", "name": "y" * 100}] * 500,
            ips=["10.0.0.1\r\n"] * 500,
        )
        self.assertEqual(info.name, "a[2Jb")
        self.assertEqual(len(info.version or ""), 63)
        self.assertEqual(info.os, System("linux"))
        self.assertEqual((info.gpus[0].vendor, len(info.gpus[0].name or "")), ("nvidia", 63))
        self.assertEqual((len(info.gpus), info.ips), (64, ("10.0.0.1",) * 64))

    def test_upper_case(self) -> None:
        """A UUID in capitals is the same node (DS-5)."""
        self.assertEqual(told(hostUuid=HOST.upper()).host_uuid, HOST)
        self.assertIsInstance(decode_compact(body()), CompactInfo)

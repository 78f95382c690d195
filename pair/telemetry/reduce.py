"""From what sources say to what a node tells of itself, and back (discovery page, section 13). Pure.

It reads no file, no clock and no device: texts, answers and instants are
arguments. What comes from another node is taken apart field by field; a field
that is malformed counts as unknown and spoils no other.
"""

from __future__ import annotations

import math
import plistlib
import re
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET, MsgspecError, Raw, Struct, UnsetType
from msgspec.structs import replace

from pair.privacy import clean_text
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

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

T = TypeVar("T")
P = TypeVar("P", bound=Struct | None)

FRESH = 10.0
"""Seconds for which a sample of a GPU says something (DS-78)."""

_LONGEST_WAIT = 60.0
_EARLY = 0.1
"""Seconds that a source may be read before its period is over: ticks are not that exact."""

_KNOWN_RELIST = 60.0
_UNKNOWN_RELIST = 10.0


# Time


def retry_wait(failures: int) -> float:
    """Seconds until a source is tried again after ``failures`` in a row: 1, 2, 4, … 60 (DS-85)."""
    return min(2.0 ** min(failures - 1, 10), _LONGEST_WAIT)


def listing_due(listed_at: float | None, known: bool, now: float) -> bool:
    """Whether GPUs are to be listed: anew each 60 s, each 10 s while none is known (DS-85)."""
    return listed_at is None or now - listed_at >= (_KNOWN_RELIST if known else _UNKNOWN_RELIST)


# The last values of each source


class Kept(Struct, frozen=True):
    """The last values of one source; ``at`` and ``due`` in monotonic seconds, ``at`` None before the first."""

    reading: Reading = Reading()
    at: float | None = None
    failures: int = 0
    due: float = -math.inf

    def renewed(self, reading: Reading, at: float, epoch_ms: int, period: float) -> Kept:
        """It answered, at the instant given by both clocks; it may be asked again in ``period`` seconds."""
        gpus = tuple(replace(each, sampled_at=epoch_ms) for each in reading.gpus)
        return Kept(replace(reading, gpus=gpus), at, 0, at + period - _EARLY)

    def failed(self, at: float) -> Kept:
        """It did not: its values stay as old as they are (DS-85)."""
        failures = self.failures + 1
        return replace(self, failures=failures, due=at + retry_wait(failures) - _EARLY)


def hardware(sources: Sequence[Kept], unified: Collection[str], before: Hardware, now: float) -> Hardware:
    """What is known of this machine.

    The busiest GPU is looked for among those whose figures are fresh: a
    source that fails keeps its last values, and they must not pass for load.

    Args:
        sources: each knows something of its own; for equal things the first one counts.
        unified: ids of GPUs that share the system's memory, whatever they say (DS-89).
        before: what was known until now; of it the instant of the last usable sample remains.
        now: monotonic seconds.
    """
    readings = [each.reading for each in sources]
    memory = next((each.memory for each in readings if each.memory is not None), Memory())
    busy = [
        (each.at, gpu.utilization_percent)
        for each in sources
        for gpu in each.reading.gpus
        if each.at is not None and gpu.utilization_percent is not None and now - each.at <= FRESH
    ]
    return Hardware(
        system=next((each.system for each in readings if each.system is not None), System()),
        cpu=next((each.cpu for each in readings if each.cpu is not None), Cpu()),
        memory=memory,
        gpus=tuple(with_memory(gpu, memory, gpu.id in unified) for each in readings for gpu in each.gpus),
        utilization_percent=max((percent for _, percent in busy), default=None),
        usable_at=max((at for at, _ in busy), default=before.usable_at),
    )


def with_memory(gpu: Gpu, memory: Memory, unified: bool = False) -> Gpu:
    """``gpu``, with the system's memory as its own where it shares that (DS-89)."""
    if not (unified or gpu.unified):
        return gpu
    return replace(
        gpu,
        unified=True,
        vram_total_bytes=memory.total_bytes,
        vram_used_bytes=memory.used_bytes,
        vram_free_bytes=memory.available_bytes,
    )


def load(hardware: Hardware, now: float) -> Load:
    """How busy its GPUs are, as it is to be told at ``now``, in monotonic seconds (DS-78, DS-79)."""
    if hardware.usable_at is None:
        return Load()
    age = max(now - hardware.usable_at, 0.0)
    return Load(hardware.utilization_percent, age <= FRESH, round(age * 1000))


# What sources say


def percent(value: object) -> float | None:
    """A share of 100 as others give it: above is 100; negative, not finite or no number is unknown (DS-95)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        return None
    return float(min(value, 100))


def memory(total: int, available: int) -> Memory:
    """The system's memory: what is not available is used."""
    return Memory(total, max(total - available, 0), available)


def cpu_name(cpuinfo: str) -> str | None:
    """The processor's name in a ``/proc/cpuinfo``; many that are not x86 have none."""
    match = re.search(r"^model name\s*:\s*(\S.*)$", cpuinfo, re.MULTILINE)
    return match[1].strip() if match else None


PCI_VENDORS = {0x1002: ("amd", "AMD"), 0x8086: ("intel", "Intel")}
"""The vendors of cards that are found in sysfs, by PCI id. Those of NVIDIA are NVML's to tell of."""

SYSFS_FILES = (
    "uevent",
    "device",
    "product_name",
    "gpu_busy_percent",
    "mem_info_vram_total",
    "mem_info_vram_used",
    "mem_info_gtt_total",
    "temp1_input",
    "power1_average",
)
"""The files that :func:`card` makes a GPU of; the last two are those of ``hwmon*``."""

_SMALL_VRAM = 1 << 30


def pci_vendor(text: str | None) -> int | None:
    """The number in a ``vendor`` file of sysfs, such as ``0x1002``."""
    match = re.fullmatch(r"0x([0-9a-fA-F]{4})", (text or "").strip())
    return int(match[1], 16) if match else None


def card(folder: str, index: int, vendor: int, files: Mapping[str, str | None]) -> Gpu:
    """A card of sysfs (DS-87). Of one that is not AMD's only name and vendor are told (DS-88).

    Args:
        folder: its name in sysfs, the id where its PCI address is not told.
        index: how many of its vendor are before it.
        vendor: one of :data:`PCI_VENDORS`.
        files: the text of each of :data:`SYSFS_FILES`, None where it cannot be read.
    """
    vendor_id, vendor_name = PCI_VENDORS[vendor]
    slot = re.search(r"^PCI_SLOT_NAME=([0-9a-fA-F:.]+)$", files["uevent"] or "", re.MULTILINE)
    device = re.fullmatch(r"0x([0-9a-fA-F]{4})", (files["device"] or "").strip())
    name = (files["product_name"] or "").strip()
    if not name and device:
        name = f"{vendor_name} GPU {device[1]}"
    gpu = Gpu(slot[1] if slot else folder, index, vendor_id, name or None)
    if vendor_id != "amd":
        return gpu
    total, used, shared = (
        _whole(files[each]) for each in ("mem_info_vram_total", "mem_info_vram_used", "mem_info_gtt_total")
    )
    heat, power = _whole(files["temp1_input"], signed=True), _whole(files["power1_average"])
    return replace(
        gpu,
        unified=total is not None and shared is not None and total <= _SMALL_VRAM and shared > total,
        vram_total_bytes=total,
        vram_used_bytes=used,
        vram_free_bytes=None if total is None or used is None else max(total - used, 0),
        utilization_percent=percent(_whole(files["gpu_busy_percent"])),
        temperature_c=None if heat is None else heat / 1000,
        power_w=None if power is None else power / 1_000_000,
    )


def _whole(text: str | None, signed: bool = False) -> int | None:
    match = re.fullmatch(r"-?[0-9]{1,18}", (text or "").strip())
    return int(match[0]) if match and (signed or match[0][0] != "-") else None


def accelerators(plist: bytes, silicon: bool) -> tuple[Gpu, ...]:
    """The GPUs in the answer of ``ioreg -a -r -d 1 -c IOAccelerator`` (DS-88).

    Args:
        plist: what it wrote; nothing at all where there is no GPU.
        silicon: whether the machine is one with Apple's own processor, whose memory is shared (DS-89).

    Raises:
        ValueError: it is no property list of accelerators.
    """
    if not plist.strip():
        return ()
    try:
        entries = plistlib.loads(plist)
    except Exception as error:  # of malformed XML it raises what its parser happens to
        raise ValueError("no property list") from error
    if not isinstance(entries, list):
        raise ValueError("no list of accelerators")
    return tuple(_accelerator(index, entry, silicon) for index, entry in enumerate(entries) if isinstance(entry, dict))


def _accelerator(index: int, entry: Mapping[str, Any], silicon: bool) -> Gpu:
    model = entry.get("model")
    if isinstance(model, bytes):  # a device tree property, which ends in NUL
        model = model.rstrip(b"\0").decode(errors="replace")
    name = model if isinstance(model, str) and model else None
    text = (name or "").lower()
    vendor = "apple" if silicon else next((each for each in ("amd", "intel", "nvidia") if each in text), "unknown")
    statistics = entry.get("PerformanceStatistics")
    busy = percent(statistics.get("Device Utilization %")) if isinstance(statistics, dict) else None
    return Gpu(f"{vendor}-{index}", index, vendor, name, unified=silicon, utilization_percent=busy)


# Node-info


def with_hardware(info: NodeInfo, hardware: Hardware, now: float) -> NodeInfo:
    """The full body: ``info``, which says who the node is, and its telemetry as of ``now`` (DS-77, DS-78)."""
    told = load(hardware, now)
    return replace(
        info,
        telemetry_valid=told.valid,
        sample_age_ms=told.sample_age_ms,
        gpu_utilization_percent=told.utilization_percent,
        os=hardware.system,
        cpu=hardware.cpu,
        memory=hardware.memory,
        gpus=hardware.gpus,
    )


def compact(info: NodeInfo) -> CompactInfo:
    """What ``?view=compact`` tells of ``info`` (DS-80)."""
    return CompactInfo(**{name: getattr(info, name) for name in CompactInfo.__struct_fields__})


def encode(info: NodeInfo | CompactInfo) -> bytes:
    """The body of an answer."""
    return msgspec.json.encode(info)


_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAME = 63
"""Characters of a name from another node (DS-14)."""

_MANY = 64
"""Entries of a list from another node; no machine has so many GPUs or addresses."""

_AGES = 1 << 53
"""Beyond the ages that are believed, in milliseconds."""


def decode(body: bytes) -> NodeInfo | None:
    """What a node says of itself; None where that is no node-info (DS-73).

    Texts are cleaned and cut (DS-14). A sample without a valid value or age
    is not valid, whatever the node says (DS-95).
    """
    fields = _part(Raw(body), dict[str, Raw])
    told = None if fields is None else _compacted(fields)
    if fields is None or told is None:
        return None
    gpus = [_part(each, Gpu) for each in _field(fields, "gpus", list[Raw]) or []]
    return NodeInfo(
        **{name: getattr(told, name) for name in CompactInfo.__struct_fields__},
        name=_text(fields, "name"),
        version=_text(fields, "version"),
        capabilities=_texts(fields, "capabilities"),
        services=_services(_field(fields, "services", dict[str, Raw])),
        ips=_texts(fields, "ips"),
        os=_cleaned(_field(fields, "os", System)),
        cpu=_cleaned(_field(fields, "cpu", Cpu)),
        memory=_field(fields, "memory", Memory),
        gpus=tuple(_cleaned(each) for each in gpus[:_MANY] if each is not None),
    )


def decode_compact(body: bytes) -> CompactInfo | None:
    """The part of :func:`decode` that the compact view has; a full body will do too."""
    fields = _part(Raw(body), dict[str, Raw])
    return None if fields is None else _compacted(fields)


def _compacted(fields: Mapping[str, Raw]) -> CompactInfo | None:
    version = _field(fields, "v", int)
    uuid = (_field(fields, "hostUuid", str) or "").lower()
    if version is None or version < 1 or not _UUID.fullmatch(uuid):
        return None
    busy = percent(_field(fields, "gpuUtilizationPercent", float))
    age = _field(fields, "sampleAgeMs", int)
    if age is not None and not 0 <= age < _AGES:
        age = None
    return CompactInfo(
        v=version,
        host_uuid=uuid,
        instance=_text(fields, "instance"),
        protocol=_field(fields, "protocol", ProtocolRange),
        cluster_uuid=_cluster(fields),
        telemetry_valid=_field(fields, "telemetryValid", bool) is True and busy is not None and age is not None,
        sample_age_ms=age,
        gpu_utilization_percent=busy,
    )


def _cluster(fields: Mapping[str, Raw]) -> str | UnsetType | None:
    """The cluster that it says it is in; None: in none; UNSET: nothing that can be read (DS-45)."""
    if "clusterUuid" in fields and bytes(fields["clusterUuid"]).strip() == b"null":
        return None
    cluster = _field(fields, "clusterUuid", str)
    return cluster if cluster is not None and _UUID.fullmatch(cluster) else UNSET


def _services(fields: Mapping[str, Raw] | None) -> dict[str, int] | None:
    if fields is None:
        return None
    ports = ((clean_text(name, _NAME), _part(raw, int)) for name, raw in list(fields.items())[:_MANY])
    return {name: port for name, port in ports if port is not None and 0 < port < 65536}


def _field(fields: Mapping[str, Raw], name: str, type: type[T]) -> T | None:
    return _part(fields[name], type) if name in fields else None


def _part(raw: Raw, type: type[T]) -> T | None:
    """A value of that type; None for anything else."""
    try:
        return msgspec.json.decode(raw, type=type)
    except (MsgspecError, ValueError, RecursionError):
        return None


def _text(fields: Mapping[str, Raw], name: str) -> str | None:
    text = _field(fields, name, str)
    return None if text is None else clean_text(text, _NAME)


def _texts(fields: Mapping[str, Raw], name: str) -> tuple[str, ...]:
    return tuple(clean_text(each, _NAME) for each in (_field(fields, name, list[str]) or [])[:_MANY])


def _cleaned(part: P) -> P:
    """A struct with its texts cleaned; None stays."""
    if not isinstance(part, Struct):
        return part
    values = ((name, getattr(part, name)) for name in part.__struct_fields__)
    return replace(part, **{name: clean_text(value, _NAME) for name, value in values if isinstance(value, str)})

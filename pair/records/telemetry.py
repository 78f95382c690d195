"""What a machine is, and how busy (discovery page, section 13). None is unknown; it is never written as 0 (DS-77)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

Percent = Annotated[float, Meta(ge=0, le=100)]
Size = Annotated[int, Meta(ge=0, lt=1 << 53)]
"""Up to what every reader of JSON takes as a whole number; so it is with instants."""

Count = Annotated[int, Meta(ge=1, lt=1 << 31)]
Instant = Annotated[int, Meta(ge=0, lt=1 << 53)]


class System(Struct, frozen=True):
    """The operating system, as ``linux``, ``6.8.0`` and ``x86_64``."""

    system: str | None = None
    release: str | None = None
    arch: str | None = None


class Cpu(Struct, frozen=True, rename="camel"):
    """The processors; ``cores`` are physical, ``threads`` what the system schedules on."""

    name: str | None = None
    cores: Count | None = None
    threads: Count | None = None
    utilization_percent: Percent | None = None


class Memory(Struct, frozen=True, rename="camel"):
    """The system's memory. Used is what is not available."""

    total_bytes: Size | None = None
    used_bytes: Size | None = None
    available_bytes: Size | None = None


class Gpu(Struct, frozen=True, rename="camel"):
    """One physical GPU.

    ``id`` is NVML's UUID or the PCI address. ``index`` counts as the vendor's
    own tools do, so two of different vendors may have the same. ``unified``:
    it has no memory of its own, and the figures are the system's (DS-89).
    ``sampled_at`` is of its figures, in epoch milliseconds.
    """

    id: str
    index: Annotated[int, Meta(ge=0, lt=1 << 31)]
    vendor: str
    name: str | None = None
    driver: str | None = None
    unified: bool = False
    vram_total_bytes: Size | None = None
    vram_used_bytes: Size | None = None
    vram_free_bytes: Size | None = None
    utilization_percent: Percent | None = None
    temperature_c: float | None = None
    power_w: Annotated[float, Meta(ge=0)] | None = None
    sampled_at: Instant = 0


class Reading(Struct, frozen=True):
    """What one source gave at one time; of what it does not know, nothing.

    ``sampled_at`` of its GPUs is the sampler's to fill in.
    """

    system: System | None = None
    cpu: Cpu | None = None
    memory: Memory | None = None
    gpus: tuple[Gpu, ...] = ()


class Hardware(Struct, frozen=True):
    """The last values of all sources of this machine.

    ``utilization_percent`` is that of the busiest GPU (DS-79). ``usable_at``
    is when the last usable sample of a GPU was taken, in monotonic seconds;
    None: there never was one (DS-78). ``stale``: a source hangs, and nothing
    here is being renewed (DS-84).
    """

    system: System = System()
    cpu: Cpu = Cpu()
    memory: Memory = Memory()
    gpus: tuple[Gpu, ...] = ()
    utilization_percent: float | None = None
    usable_at: float | None = None
    stale: bool = False


class Load(Struct, frozen=True, rename="camel"):
    """How busy a node's GPUs are. The age is in milliseconds; None with it: there never was a sample (DS-78)."""

    utilization_percent: float | None = None
    valid: bool = False
    sample_age_ms: int | None = None


class CompactTelemetry(Struct, frozen=True, rename="camel"):
    """How busy a node is, as the scheduler is told of it (DS-94).

    ``sample_age_ms`` is as of this telling; None with ``valid`` false: there
    never was a sample. ``received_at`` is in epoch milliseconds.
    """

    uuid: str
    utilization_percent: float | None
    valid: bool
    sample_age_ms: int | None
    received_at: int
    source: Literal["self", "feed", "poll"]


class GpuSample(Struct, frozen=True, rename="camel", gc=False):
    """How busy one GPU was."""

    id: str
    utilization_percent: float | None = None
    vram_used_bytes: int | None = None


class Sample(Struct, frozen=True, rename="camel"):
    """How busy a node was at one time (DS-96); ``at`` is in epoch milliseconds, by this node's clock."""

    at: int
    cpu_percent: float | None = None
    memory_used_bytes: int | None = None
    gpus: tuple[GpuSample, ...] = ()


class ProtocolRange(Struct, frozen=True):
    """The versions of the peer protocol that a node speaks, from and to."""

    min: int
    max: int


class NodeInfo(Struct, frozen=True, rename="camel", kw_only=True):
    """The body of ``/v1/node-info``. What is left at its default is withheld, or not known (DS-81).

    ``cluster_uuid``: None says that the node is in no cluster, UNSET that it
    says nothing of it (DS-45).
    """

    v: int = 1
    host_uuid: str
    instance: str | None = None
    name: str | None = None
    version: str | None = None
    protocol: ProtocolRange | None = None
    capabilities: tuple[str, ...] = ()
    cluster_uuid: str | UnsetType | None = UNSET
    services: dict[str, int] | None = None
    ips: tuple[str, ...] = ()
    telemetry_valid: bool = False
    sample_age_ms: int | None = None
    gpu_utilization_percent: float | None = None
    os: System | None = None
    cpu: Cpu | None = None
    memory: Memory | None = None
    gpus: tuple[Gpu, ...] = ()

    @property
    def load(self) -> Load:
        """What the scheduler takes of it."""
        return Load(self.gpu_utilization_percent, self.telemetry_valid, self.sample_age_ms)


class CompactInfo(Struct, frozen=True, rename="camel", kw_only=True):
    """The body of ``/v1/node-info?view=compact`` (DS-80)."""

    v: int = 1
    host_uuid: str
    instance: str | None = None
    protocol: ProtocolRange | None = None
    cluster_uuid: str | UnsetType | None = UNSET
    telemetry_valid: bool = False
    sample_age_ms: int | None = None
    gpu_utilization_percent: float | None = None

    @property
    def load(self) -> Load:
        """What the scheduler takes of it."""
        return Load(self.gpu_utilization_percent, self.telemetry_valid, self.sample_age_ms)

"""The directory's entries as they stand, and what is told of each change (DS-3, DS-4).

Pure. How an entry is made is in :mod:`~pair.discovery.claims`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from pair.records.nodes import (
    NodeAdded,
    NodeChanged,
    NodeEntry,
    NodeHardware,
    NodeRekeyed,
    NodeRemoved,
    PresenceChanged,
)
from pair.records.telemetry import Cpu, Gpu, Memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pair.records.nodes import NodeEvent


class Entries:
    """All entries, by key; each event has the next revision.

    Attributes:
        revision: That of the last event.
    """

    def __init__(self) -> None:
        self.revision = 0
        self._entries: dict[str, NodeEntry] = {}

    def __iter__(self) -> Iterator[NodeEntry]:
        """In the order of their keys, as a snapshot."""
        return iter([self._entries[key] for key in sorted(self._entries)])

    def get(self, key: str) -> NodeEntry | None:
        """The entry with this key."""
        return self._entries.get(key)

    def update(
        self, fresh: Mapping[str, NodeEntry | None], rekeyed: Iterable[tuple[str, str]] = ()
    ) -> tuple[NodeEvent, ...]:
        """Put what is ``fresh`` in place of what there was.

        Args:
            fresh: Entries by key; None: it is gone.
            rekeyed: Keys before and after, of nodes whose UUID has become
                known. The entry with the key after is among the fresh ones.

        Returns:
            What to tell of it: rekeyings, then removals, then the rest. Of an
            entry in which only times differ, nothing.
        """
        events: list[NodeEvent] = []
        for old_key, new_key in rekeyed:
            old = self._entries.pop(old_key, None)
            if old is not None:
                events.append(NodeRekeyed(self._next(), old_key, new_key))
                self._entries.setdefault(new_key, old)
        for key, entry in fresh.items():
            gone = self._entries.pop(key, None) if entry is None else None
            if gone is not None:
                events.append(NodeRemoved(self._next(), gone))
        for entry in fresh.values():
            if entry is not None:
                events += self._put(entry)
        return tuple(events)

    def _put(self, entry: NodeEntry) -> Iterator[NodeEvent]:
        old = self._entries.get(entry.key)
        if old is not None and _is_same(old, entry):
            self._entries[entry.key] = replace(entry, revision=old.revision)
            return
        entry = self._entries[entry.key] = replace(entry, revision=self._next())
        if old is None:
            yield NodeAdded(entry.revision, entry)
            return
        yield NodeChanged(entry.revision, entry, old)
        if entry.uuid is not None and old.presence != entry.presence:
            yield PresenceChanged(self._next(), entry.uuid, old.presence, entry.presence)

    def _next(self) -> int:
        self.revision += 1
        return self.revision


def _is_same(old: NodeEntry, new: NodeEntry) -> bool:
    """Whether the two differ in nothing but what changes all the time: figures and their ages."""
    return _shape(old.hardware) == _shape(new.hardware) and old == replace(
        new,
        last_heard_at=old.last_heard_at,
        evidence=old.evidence,
        hardware=old.hardware,
        hardware_at=old.hardware_at,
        inventory_at=old.inventory_at,
        revision=old.revision,
    )


def _shape(hardware: NodeHardware | None) -> NodeHardware | None:
    """What of a machine stays the same while it works, its GPUs in one order."""
    if hardware is None:
        return None
    cpu, memory = hardware.cpu, hardware.memory
    return NodeHardware(
        hardware.os,
        None if cpu is None else Cpu(cpu.name, cpu.cores, cpu.threads),
        None if memory is None else Memory(memory.total_bytes),
        tuple(sorted(map(_gpu_shape, hardware.gpus), key=lambda each: (each.id, each.index))),
    )


def _gpu_shape(gpu: Gpu) -> Gpu:
    return Gpu(gpu.id, gpu.index, gpu.vendor, gpu.name, gpu.driver, gpu.unified, gpu.vram_total_bytes)

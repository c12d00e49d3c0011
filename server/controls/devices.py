"""Devices and the allocators' books, for operators and monitors: of the whole host, or of one session on it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from .. import verbs
from ..engine.backend import Backend
from ..verbs import DeviceInfo

if TYPE_CHECKING:
    from ..host import Host


def _chosen(host: Host, device: str) -> list[Backend]:
    return [host.backend(device)] if device else list(host.backends.values())


def memory_summary(host: Host, request: verbs.MemorySummary) -> str:
    """PyTorch's table, one after the other where no device is named."""
    chosen = _chosen(host, request.device)
    return "\n".join([backend.allocator.memory_summary(request.session) for backend in chosen])


def memory_stats(host: Host, request: verbs.MemoryStats) -> dict[str, dict[str, int]]:
    """The statistics of each device."""
    chosen = _chosen(host, request.device)
    return {backend.device.name: backend.allocator.memory_stats(request.session) for backend in chosen}


def memory_snapshot(host: Host, request: verbs.MemorySnapshot) -> dict[str, Any]:
    """Every segment, with all devices in one snapshot."""
    merged: dict[str, Any] = {}
    for backend in _chosen(host, request.device):
        for key, found in backend.allocator.memory_snapshot(request.session).items():
            merged[key] = merged[key] + found if isinstance(found, list) and key in merged else found
    return merged


def devices(host: Host, request: verbs.Devices) -> list[DeviceInfo]:
    """The devices of this worker."""
    return [_describe(backend) for backend in host.backends.values()]


def _describe(backend: Backend) -> DeviceInfo:
    known = backend.properties()
    free, total = backend.memory_info()
    return DeviceInfo(
        device=backend.device.name, name=known["name"], type=backend.device.type, index=backend.device.index,
        total_memory=total, free_memory=free, allocated_memory=backend.allocator.allocated_bytes(),
        reserved_memory=backend.allocator.memory_stats()["reserved_bytes.all.current"],
        capability=known.get("capability"), multiprocessors=known.get("multi_processor_count"), pid=os.getpid(),
    )  # fmt: skip


def counters(host: Host, request: verbs.Counters) -> dict[str, int]:
    """What this worker has done."""
    return {"operations": host.operations, "sessions": len(host.sessions)}

"""Devices and the allocators' books, for operators and monitors: of the whole host, or of one session on it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from server.engine.value import Backend
from server.ipc import requests as verbs
from server.ipc.requests import DeviceInfo

if TYPE_CHECKING:
    from server.worker.host import Host


def _chosen(host: Host, device: str) -> list[Backend]:
    return [host.backend(device)] if device else list(host.backends.values())


def memory_summary(host: Host, request: verbs.MemorySummary) -> str:
    """PyTorch's table, one after the other where no device is named."""
    texts = []
    for backend in _chosen(host, request.device):
        with backend.exclusive_allocator() as allocator:
            texts.append(allocator.memory_summary(request.session))
    return "\n".join(texts)


def memory_stats(host: Host, request: verbs.MemoryStats) -> dict[str, dict[str, int]]:
    """The statistics of each device."""
    found = {}
    for backend in _chosen(host, request.device):
        with backend.exclusive_allocator() as allocator:
            found[backend.device.name] = allocator.memory_stats(request.session)
    return found


def memory_snapshot(host: Host, request: verbs.MemorySnapshot) -> dict[str, Any]:
    """Every segment, with all devices in one snapshot, numbered in their order."""
    chosen = _chosen(host, request.device)
    merged: dict[str, Any] = {"segments": [], "device_traces": []}
    for number, backend in enumerate(chosen):
        with backend.exclusive_allocator() as allocator:
            found = allocator.memory_snapshot(request.session, request.traces)
        for segment in found["segments"]:
            segment["device"] = number
        merged = {**found, **{key: merged[key] + found[key] for key in ("segments", "device_traces")}}
    recording = [backend.allocator.history.rings for backend in chosen]
    return {**merged, "devices": [b.device.name for b in chosen], "records_lines": any(None in r for r in recording)}


def memory_history(host: Host, request: verbs.MemoryHistory) -> None:
    """Switch the operator's history on or off."""
    for backend in _chosen(host, request.device):
        with backend.exclusive_allocator() as allocator:
            allocator.record_memory_history(request.enabled, request.max_entries)


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

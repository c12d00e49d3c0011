"""Devices and the allocators' statistics, for operators and monitors: of the whole host, or of one session on it."""

from __future__ import annotations

import os
from typing import Any

from server.engine.value import Backend
from server.ipc import requests
from server.ipc.requests import DeviceInfo
from server.session.requests import answers
from server.worker.host_state import HostState


def _chosen(host: HostState, device: str) -> list[Backend]:
    return [host.backend(device)] if device else list(host.backends.values())


@answers(requests.MemorySummary)
def memory_summary(host: HostState, request: requests.MemorySummary) -> str:
    """Return PyTorch's table, one after the other where no device is named."""
    texts = []
    for backend in _chosen(host, request.device):
        with backend.exclusive_allocator() as allocator:
            texts.append(allocator.memory_summary(request.session, shown_as=request.shown_as))
    return "\n".join(texts)


@answers(requests.MemoryStats)
def memory_stats(host: HostState, request: requests.MemoryStats) -> dict[str, dict[str, int]]:
    """Return the statistics of each device."""
    stats = {}
    for backend in _chosen(host, request.device):
        with backend.exclusive_allocator() as allocator:
            stats[backend.device.name] = allocator.memory_stats(request.session)
    return stats


@answers(requests.MemorySnapshot)
def memory_snapshot(host: HostState, request: requests.MemorySnapshot) -> dict[str, Any]:
    """Return every segment, with all devices in one snapshot, numbered in their order."""
    chosen = _chosen(host, request.device)
    merged: dict[str, Any] = {"segments": [], "device_traces": []}
    for number, backend in enumerate(chosen):
        with backend.exclusive_allocator() as allocator:
            snapshot = allocator.memory_snapshot(request.session, request.traces)
        for segment in snapshot["segments"]:
            segment["device"] = number
        merged = {**snapshot, **{key: merged[key] + snapshot[key] for key in ("segments", "device_traces")}}
    recording = [backend.allocator.history.rings for backend in chosen]
    return {**merged, "devices": [b.device.name for b in chosen], "records_lines": any(None in r for r in recording)}


@answers(requests.MemoryHistory)
def memory_history(host: HostState, request: requests.MemoryHistory) -> None:
    """Switch the operator's history on or off."""
    for backend in _chosen(host, request.device):
        with backend.exclusive_allocator() as allocator:
            allocator.record_memory_history(request.enabled, request.max_entries)


@answers(requests.Devices)
def devices(host: HostState, request: requests.Devices) -> list[DeviceInfo]:
    """Describe the devices of this worker."""
    return [_describe(backend) for backend in host.backends.values()]


def _describe(backend: Backend) -> DeviceInfo:
    properties = backend.properties()
    free, total = backend.memory_info()
    return DeviceInfo(
        device=backend.device.name, name=properties["name"], type=backend.device.type, index=backend.device.index,
        total_memory=total, free_memory=free, allocated_memory=backend.allocator.allocated_bytes(),
        reserved_memory=backend.allocator.memory_stats()["reserved_bytes.all.current"],
        capability=properties.get("capability"), multiprocessors=properties.get("multi_processor_count"),
        pid=os.getpid(),
    )  # fmt: skip


@answers(requests.Counters)
def counters(host: HostState, request: requests.Counters) -> dict[str, int]:
    """Count the operations executed since the worker started, by tenant."""
    return dict(host.operations)

"""What a scrape of the metrics gathers: from sessions, workers, GPUs and the disk. Keeps nothing."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter, defaultdict
from typing import Final

from server.gateway.dependencies import Gateway
from server.gateway.http.every_worker import all_devices, ask_each
from server.gateway.observability.metrics import Traffic
from server.ipc import requests as verbs
from server.ipc.measures import WorkerState
from server.kernel_cache import kernels_directory
from telegrad_protocol.errors import TelegradError

SCRAPE_SECONDS: Final = 2.0

log = logging.getLogger(__name__)


async def scrape(gateway: Gateway) -> None:
    """Bring the metrics up to date. What does not answer in time is left out."""
    _count_sessions(gateway)
    _look_at_disk(gateway)
    if gateway.certificate is not None:
        gateway.metrics.certificate_expires.set(gateway.certificate.expires)
    gateway.metrics.connections.set(len(gateway.connections.open))
    for status, count in gateway.connections.refused.items():
        gateway.metrics.refused.set(count, str(status))
    await asyncio.gather(_ask_workers(gateway), _ask_gpus(gateway))


def _count_sessions(gateway: Gateway) -> None:
    registry, metrics = gateway.registry, gateway.metrics
    traffic: defaultdict[str, list[Traffic]] = defaultdict(list)
    for tenant, closed in registry.closed_traffic.items():
        traffic[tenant].append(closed)
    by_worker: Counter[str] = Counter()
    metrics.tenant_sessions.clear()
    for session in list(registry.sessions.values()):
        worker = str(registry.worker_of(session).number)
        by_worker[worker] += 1
        traffic[session.tenant].append(session)
        metrics.tenant_sessions.add(1, session.tenant, worker, "connected" if session.is_in_use else "waiting")
    metrics.sessions.set(by_worker.total())
    metrics.set_traffic(traffic)
    metrics.keep_workers({str(worker.number) for worker in registry.workers})
    for one in registry.workers:
        metrics.worker_sessions.set(by_worker[str(one.number)], str(one.number))
        metrics.worker_restarts.set(one.restarts, str(one.number))


async def _ask_workers(gateway: Gateway) -> None:
    workers, metrics = gateway.registry.workers, gateway.metrics
    names = {(device.worker.number, device.session_name): device.name for device in all_devices(workers)}
    operations, memory, states = await asyncio.gather(
        ask_each(workers, verbs.Counters(), dict[str, int], SCRAPE_SECONDS),
        ask_each(workers, verbs.MemoryStats(), dict[str, dict[str, float]], SCRAPE_SECONDS),
        ask_each(workers, verbs.Measurements(), WorkerState, SCRAPE_SECONDS),
    )
    metrics.memory.clear()
    for worker, answers in zip(workers, zip(operations, memory, states), strict=True):
        label = str(worker.number)
        failure = next((answer for answer in answers if isinstance(answer, TelegradError)), None)
        metrics.worker_up.set(failure is None, label)
        if failure is not None:
            metrics.forget_load(label)
            log.warning("worker not scraped", extra={"worker": worker.number, "reason": failure.message})
            continue
        counted, stats, state = answers
        metrics.set_operations(label, counted)
        metrics.set_state(label, state)
        for device, values in stats.items():
            metrics.set_memory(label, names.get((worker.number, device), device), values)


async def _ask_gpus(gateway: Gateway) -> None:
    figures = await gateway.gpus.figures()
    for metric in gateway.metrics.gpus.values():
        metric.clear()
    for device, told in figures.items():
        for figure in told:
            gateway.metrics.gpus[figure.name].set(figure.value, device, *figure.labels)


def _look_at_disk(gateway: Gateway) -> None:
    path = kernels_directory(gateway.settings.kernel_cache)
    there = next((folder for folder in (path, *path.parents) if folder.is_dir()), None)
    if there is None:
        return
    disk = os.statvfs(there)
    gateway.metrics.disk_free.set(disk.f_bavail * disk.f_frsize)
    gateway.metrics.disk_size.set(disk.f_blocks * disk.f_frsize)

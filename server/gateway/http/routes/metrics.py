"""Metrics for Prometheus: what the gateway counts, and what the workers know at each scrape."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Final

from fastapi import APIRouter, Response
from starlette.responses import PlainTextResponse

from server.gateway.dependencies import AdminHere, Gateway, GatewayHere
from server.gateway.http.every_worker import all_devices, ask_each
from server.gateway.metrics import CONTENT_TYPE
from server.ipc import requests as verbs
from telegrad_protocol.errors import TelegradError

router = APIRouter(tags=["devices and memory"])
log = logging.getLogger(__name__)

SCRAPE_SECONDS: Final = 2.0


@router.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse)
async def prometheus(gateway: GatewayHere, admin: AdminHere) -> Response:
    """Workers are asked at each scrape. Of one that does not answer in time, `telegrad_worker_up` is 0.

    Its counters stay as they were, and its memory is left out.
    """
    registry, metrics = gateway.registry, gateway.metrics
    sessions = list(registry.sessions.values())
    metrics.sessions.set(len(sessions))
    metrics.set_traffic([registry, *sessions])
    by_worker = Counter(registry.worker_of(session).number for session in sessions)
    metrics.keep_workers({str(worker.number) for worker in registry.workers})
    for worker in registry.workers:
        metrics.worker_sessions.set(by_worker[worker.number], str(worker.number))
        metrics.worker_restarts.set(worker.restarts, str(worker.number))
    await _scrape(gateway)
    return Response(metrics.render(), media_type=CONTENT_TYPE)


async def _scrape(gateway: Gateway) -> None:
    workers, metrics = gateway.registry.workers, gateway.metrics
    names = {(device.worker.number, device.session_name): device.name for device in all_devices(workers)}
    counters, memory = await asyncio.gather(
        ask_each(workers, verbs.Counters(), dict[str, int], SCRAPE_SECONDS),
        ask_each(workers, verbs.MemoryStats(), dict[str, dict[str, float]], SCRAPE_SECONDS),
    )
    metrics.memory.clear()
    for worker, counted, stats in zip(workers, counters, memory, strict=True):
        label = str(worker.number)
        failure = next((answer for answer in (counted, stats) if isinstance(answer, TelegradError)), None)
        metrics.worker_up.set(failure is None, label)
        if failure is not None:
            log.warning("worker not scraped", extra={"worker": worker.number, "reason": failure.message})
            continue
        metrics.operations.set(counted.get("operations", 0), label)
        for device, values in stats.items():
            metrics.set_memory(label, names.get((worker.number, device), device), values)

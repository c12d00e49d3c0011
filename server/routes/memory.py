"""What operators look at: devices, the allocators' books, and metrics."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query, Response
from starlette.responses import PlainTextResponse

from telegrad_protocol.errors import TelegradError

from .. import metrics, models, verbs
from ..gateway import Gateway, GatewayHere
from ..problems import Problem

router = APIRouter(tags=["devices and memory"], responses={404: {"model": Problem}, 503: {"model": Problem}})
log = logging.getLogger(__name__)

SCRAPE_SECONDS: Final = 2.0

DeviceName = Annotated[str, Query(description="such as `cuda:0`; all devices where empty")]
SessionId = Annotated[str | None, Query(description="id of a session; all of them where absent")]


@router.get("/v1/devices", summary="List the devices", response_model=list[models.Device])
async def devices(gateway: GatewayHere) -> Any:
    """The devices that sessions of this server can use."""
    infos = await gateway.ask(verbs.Devices(), list[verbs.DeviceInfo])
    return [msgspec.structs.asdict(info) for info in infos]


@router.get("/memory_summary", summary="Show the allocators' table", response_class=PlainTextResponse)
async def memory_summary(gateway: GatewayHere, device: DeviceName = "", session: SessionId = None) -> str:
    """The text of `torch.cuda.memory_summary`, by device, or for one session."""
    text: str = await gateway.ask(verbs.MemorySummary(device, _number(gateway, session)), str)
    return text


@router.get("/memory_stats", summary="Show the allocators' statistics")
async def memory_stats(
    gateway: GatewayHere, device: DeviceName = "", session: SessionId = None
) -> dict[str, dict[str, int | float]]:
    """By device, the names and meanings of `torch.cuda.memory_stats`."""
    return await _stats(gateway, verbs.MemoryStats(device, _number(gateway, session)))


@router.get("/memory_snapshot", summary="Show every segment and block")
async def memory_snapshot(gateway: GatewayHere, device: DeviceName = "", session: SessionId = None) -> dict[str, Any]:
    """The format of `torch.cuda.memory._snapshot()`, which PyTorch's memory viewer reads."""
    number = _number(gateway, session)
    snapshot: dict[str, Any] = await gateway.ask(verbs.MemorySnapshot(device, number), dict[str, Any])
    return snapshot


@router.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse)
async def prometheus(gateway: GatewayHere) -> Response:
    """What the workers know is asked for at each scrape; it stays as it was where they do not answer in time."""
    registry = gateway.registry
    gateway.metrics.sessions.set(len(registry.sessions))
    gateway.metrics.set_traffic([registry, *registry.sessions.values()])
    gateway.metrics.worker_restarts.set(registry.supervisor.restarts)
    try:
        async with asyncio.timeout(SCRAPE_SECONDS):
            gateway.metrics.set_memory(await _stats(gateway, verbs.MemoryStats()))
            counters = await gateway.ask(verbs.Counters(), dict[str, int])
            gateway.metrics.operations.set(counters["operations"])
    except (TelegradError, TimeoutError, KeyError) as error:
        log.warning("worker not scraped", extra={"reason": str(error) or type(error).__name__})
    return Response(gateway.metrics.render(), media_type=metrics.CONTENT_TYPE)


async def _stats(gateway: Gateway, request: verbs.MemoryStats) -> dict[str, dict[str, int | float]]:
    stats: dict[str, dict[str, int | float]] = await gateway.ask(request, dict[str, dict[str, int | float]])
    return stats


def _number(gateway: Gateway, session: str | None) -> int | None:
    return None if session is None else gateway.registry.get(session).number

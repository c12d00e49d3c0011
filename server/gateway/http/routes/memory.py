"""What operators look at: devices, the allocators' books, and metrics."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated, Any, Final, Literal

import msgspec
from fastapi import APIRouter, Query, Response
from starlette.responses import PlainTextResponse

from server.gateway import metrics
from server.gateway.dependencies import Gateway, GatewayHere, SessionHere
from server.gateway.http import models
from server.gateway.http.snapshot_pickle import viewer_file
from server.gateway.problems import Problem
from server.ipc import requests as verbs
from telegrad_protocol.errors import TelegradError

router = APIRouter(tags=["devices and memory"], responses={404: {"model": Problem}, 503: {"model": Problem}})
of_session = APIRouter(
    prefix="/v1/sessions/{session_id}", tags=["devices and memory"],
    responses={403: {"model": Problem}, 404: {"model": Problem}},
)  # fmt: skip
log = logging.getLogger(__name__)

SCRAPE_SECONDS: Final = 2.0

DeviceName = Annotated[str, Query(description="such as `cuda:0`; all devices where empty")]
SessionId = Annotated[str | None, Query(description="id of a session; all of them where absent")]
Traces = Annotated[bool, Query(description="whether the recorded trace comes along")]
SnapshotFormat = Annotated[
    Literal["json", "pickle"], Query(description="`pickle` is the file that pytorch.org/memory_viz opens")
]


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


@router.get("/memory_snapshot", summary="Show every segment and block", response_model=None)
async def memory_snapshot(
    gateway: GatewayHere, device: DeviceName = "", session: SessionId = None, traces: Traces = True,
    format: SnapshotFormat = "json",
) -> Response | dict[str, Any]:  # fmt: skip
    """The format of `torch.cuda.memory._snapshot()`, which PyTorch's memory viewer reads as a pickle.

    Beyond it: `devices`, their names in the order in which segments and traces number them; `sessions`, the ids of the
    open sessions by the number that blocks and entries have as `owner`.
    """
    snapshot = await _snapshot(gateway, verbs.MemorySnapshot(device, _number(gateway, session), traces))
    if session is None:
        snapshot["sessions"] = {str(opened.number): opened.id for opened in gateway.registry.sessions.values()}
    return viewer_file(snapshot) if format == "pickle" else snapshot


@router.post("/memory_history", status_code=204, summary="Note the lines that allocate")
async def memory_history(gateway: GatewayHere, history: models.MemoryHistory) -> None:
    """`all`: every allocation and free with its line, for the snapshot's trace. `state`: the lines of what is in use.

    While it is on, every allocation costs some microseconds more.
    """
    await gateway.ask(verbs.MemoryHistory(history.enabled, history.max_entries, history.device), None)


@of_session.get("/memory_summary", summary="Show the session's table", response_class=PlainTextResponse)
async def session_summary(gateway: GatewayHere, session: SessionHere, device: DeviceName = "") -> str:
    """The text of `torch.cuda.memory_summary` for one session."""
    text: str = await gateway.ask(verbs.MemorySummary(device, session.number), str)
    return text


@of_session.get("/memory_stats", summary="Show the session's statistics")
async def session_stats(
    gateway: GatewayHere, session: SessionHere, device: DeviceName = ""
) -> dict[str, dict[str, int | float]]:
    """By device, what the session holds, under the names of `torch.cuda.memory_stats`."""
    return await _stats(gateway, verbs.MemoryStats(device, session.number))


@of_session.get("/memory_snapshot", summary="Show the session's blocks", response_model=None)
async def session_snapshot(
    gateway: GatewayHere, session: SessionHere, device: DeviceName = "", traces: Traces = True,
    format: SnapshotFormat = "json",
) -> Response | dict[str, Any]:  # fmt: skip
    """As `/memory_snapshot`, but of other sessions only where their blocks lie."""
    snapshot = await _snapshot(gateway, verbs.MemorySnapshot(device, session.number, traces))
    return viewer_file(snapshot) if format == "pickle" else snapshot


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


async def _snapshot(gateway: Gateway, request: verbs.MemorySnapshot) -> dict[str, Any]:
    snapshot: dict[str, Any] = await gateway.ask(request, dict[str, Any])
    return snapshot


async def _stats(gateway: Gateway, request: verbs.MemoryStats) -> dict[str, dict[str, int | float]]:
    stats: dict[str, dict[str, int | float]] = await gateway.ask(request, dict[str, dict[str, int | float]])
    return stats


def _number(gateway: Gateway, session: str | None) -> int | None:
    return None if session is None else gateway.registry.get(session).number

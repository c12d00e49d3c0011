"""The allocators' books, for operators over all workers, and for one session."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from fastapi import APIRouter, Query, Request, Response
from starlette.responses import PlainTextResponse

from server.gateway.dependencies import AdminHere, Gateway, GatewayHere, SessionHere, SessionLike, ask_worker
from server.gateway.http import models
from server.gateway.http.every_worker import Answers, ask_about, chosen_devices
from server.gateway.http.snapshot_pickle import viewer_file
from server.gateway.problems import Problem
from server.gateway.tenancy.audit import audit
from server.ipc import requests as verbs

router = APIRouter(
    tags=["devices and memory"],
    responses={code: {"model": Problem} for code in (403, 404, 410, 503)},
)  # fmt: skip
of_session = APIRouter(
    prefix="/v1/sessions/{session_id}", tags=["devices and memory"],
    responses={403: {"model": Problem}, 404: {"model": Problem}},
)  # fmt: skip
SNAPSHOT_SECONDS: Final = 60.0
"""A worker with a long trace takes so long to tell it."""

DeviceName = Annotated[
    str, Query(description="such as `cuda:2`, `cuda` for all GPUs, `worker1/cpu`; all devices where empty")
]
SessionDevice = Annotated[str, Query(description="such as `cuda:0`, as the session names it; all devices where empty")]
SessionId = Annotated[str | None, Query(description="id of a session; all of them where absent")]
Traces = Annotated[bool, Query(description="whether the recorded trace comes along")]
SnapshotFormat = Annotated[
    Literal["json", "pickle"], Query(description="`pickle` is the file that pytorch.org/memory_viz opens")
]


@router.get("/memory_summary", summary="Show the allocators' table", response_class=PlainTextResponse)
async def memory_summary(
    gateway: GatewayHere, admin: AdminHere, response: Response, device: DeviceName = "", session: SessionId = None
) -> Any:
    """The text of `torch.cuda.memory_summary`, by device, or for one session. It says which workers do not answer."""
    of = _named(gateway, session)
    number = None if of is None else of.number
    answers: Answers[str] = await ask_about(
        chosen_devices(gateway, device, of),
        lambda one: verbs.MemorySummary(one.session_name, number, one.unique_name), str,
    )  # fmt: skip
    answers.note_missing(response)
    return "\n".join([*(text for _, text in answers.by_device), *answers.missing.values()])


@router.get("/memory_stats", summary="Show the allocators' statistics")
async def memory_stats(
    gateway: GatewayHere, admin: AdminHere, response: Response, device: DeviceName = "", session: SessionId = None
) -> dict[str, dict[str, int | float]]:
    """By device, the names and meanings of `torch.cuda.memory_stats`.

    The header `Telegrad-Missing-Workers` has the numbers of workers that do not answer.
    """
    of = _named(gateway, session)
    number = None if of is None else of.number
    answers: Answers[dict[str, dict[str, int | float]]] = await ask_about(
        chosen_devices(gateway, device, of), lambda one: verbs.MemoryStats(one.session_name, number),
        dict[str, dict[str, int | float]],
    )  # fmt: skip
    answers.note_missing(response)
    return {one.unique_name: stats[one.session_name] for one, stats in answers.by_device}


@router.get("/memory_snapshot", summary="Show every segment and block", response_model=None)
async def memory_snapshot(
    gateway: GatewayHere, admin: AdminHere, response: Response, device: DeviceName = "", session: SessionId = None,
    traces: Traces = True, format: SnapshotFormat = "json",
) -> Response | dict[str, Any]:  # fmt: skip
    """The format of `torch.cuda.memory._snapshot()`, which PyTorch's memory viewer reads as a pickle.

    Beyond it: `devices`, their names in the order in which segments and traces number them; `sessions`, the ids of the
    open sessions by the number that blocks and entries have as `owner`. The header `Telegrad-Missing-Workers` has the
    numbers of workers that do not answer.
    """
    of = _named(gateway, session)
    number = None if of is None else of.number
    answers: Answers[dict[str, Any]] = await ask_about(
        chosen_devices(gateway, device, of), lambda one: verbs.MemorySnapshot(one.session_name, number, traces),
        dict[str, Any], SNAPSHOT_SECONDS,
    )  # fmt: skip
    snapshot = _merged(answers)
    if of is None:
        snapshot["sessions"] = {str(opened.number): opened.id for opened in gateway.registry.sessions.values()}
    if format == "pickle":
        response = viewer_file(snapshot)
        answers.note_missing(response)
        return response
    answers.note_missing(response)
    return snapshot


def _merged(answers: Answers[dict[str, Any]]) -> dict[str, Any]:
    """One snapshot of all devices, numbered in their order."""
    merged: dict[str, Any] = {"segments": [], "device_traces": []}
    for number, (_, snapshot) in enumerate(answers.by_device):
        for segment in snapshot["segments"]:
            segment["device"] = number
        merged = {**snapshot, **{key: merged[key] + snapshot[key] for key in ("segments", "device_traces")}}
    records = any(snapshot.get("records_lines", False) for _, snapshot in answers.by_device)
    return {**merged, "devices": [one.unique_name for one, _ in answers.by_device], "records_lines": records}


@router.post("/memory_history", status_code=204, summary="Note the lines that allocate")
async def memory_history(
    gateway: GatewayHere, admin: AdminHere, request: Request, response: Response, history: models.MemoryHistory
) -> None:
    """`all`: every allocation and free with its line, for the snapshot's trace. `state`: the lines of what is in use.

    While it is on, every allocation costs some microseconds more. A worker that is started anew keeps none.
    """
    audit(request.scope, "memory history", enabled=history.enabled, device=history.device)
    answers: Answers[None] = await ask_about(
        chosen_devices(gateway, history.device, None),
        lambda one: verbs.MemoryHistory(history.enabled, history.max_entries, one.session_name), None,
    )  # fmt: skip
    answers.note_missing(response)


@of_session.get("/memory_summary", summary="Show the session's table", response_class=PlainTextResponse)
async def session_summary(gateway: GatewayHere, session: SessionHere, device: SessionDevice = "") -> str:
    """The text of `torch.cuda.memory_summary` for one session."""
    text: str = await _ask_its_worker(gateway, session, verbs.MemorySummary(device, session.number), str)
    return text


@of_session.get("/memory_stats", summary="Show the session's statistics")
async def session_stats(
    gateway: GatewayHere, session: SessionHere, device: SessionDevice = ""
) -> dict[str, dict[str, int | float]]:
    """By device, what the session holds, under the names of `torch.cuda.memory_stats`."""
    stats: dict[str, dict[str, int | float]] = await _ask_its_worker(
        gateway, session, verbs.MemoryStats(device, session.number), dict[str, dict[str, int | float]]
    )
    return stats


@of_session.get("/memory_snapshot", summary="Show the session's blocks", response_model=None)
async def session_snapshot(
    gateway: GatewayHere, session: SessionHere, device: SessionDevice = "", traces: Traces = True,
    format: SnapshotFormat = "json",
) -> Response | dict[str, Any]:  # fmt: skip
    """As `/memory_snapshot`, but of other sessions only where their blocks lie. Devices are named as in the session."""
    snapshot: dict[str, Any] = await _ask_its_worker(
        gateway, session, verbs.MemorySnapshot(device, session.number, traces), dict[str, Any]
    )
    return viewer_file(snapshot) if format == "pickle" else snapshot


async def _ask_its_worker(gateway: Gateway, session: SessionLike, request: msgspec.Struct, answer: Any) -> Any:
    return await ask_worker(gateway.registry.worker_of(session), request, answer)


def _named(gateway: Gateway, session: str | None) -> SessionLike | None:
    return None if session is None else gateway.registry.get(session)

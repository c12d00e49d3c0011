"""What a session executes, as a trace that people and tools look at."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response

from server.gateway.dependencies import GatewayHere, OwnSessionHere
from server.gateway.problems import Problem
from server.ipc.requests import ReadTrace, WatchTrace
from telegrad_protocol.tracing import chrome, recording
from telegrad_protocol.tracing.timeline import Timeline

of_session = APIRouter(
    prefix="/v1/sessions/{session_id}", tags=["profiles"],
    responses={403: {"model": Problem}, 404: {"model": Problem}},
)  # fmt: skip
MOST_EVENTS: Final = 1 << 15

Last = Annotated[int, Query(ge=1, le=MOST_EVENTS, description="how many of the latest events, beside the GPU's work")]


@of_session.put("/trace", status_code=204, summary="Begin to watch the session")
async def watch(gateway: GatewayHere, session: OwnSessionHere) -> None:
    """Note the latest of what the session executes, in memory that is charged to it, about a microsecond each.

    A program that profiles itself is left alone, and ends this when it begins to.
    """
    await gateway.ask(WatchTrace(True), None, session)


@of_session.delete("/trace", status_code=204, summary="End watching the session")
async def leave(gateway: GatewayHere, session: OwnSessionHere) -> None:
    """Note nothing any more; nothing happens where the session is not watched."""
    await gateway.ask(WatchTrace(False), None, session)


@of_session.get(
    "/trace", summary="Read what the session has executed", responses={422: {"model": Problem}}, response_model=None
)
async def trace(gateway: GatewayHere, session: OwnSessionHere, last: Last = 4096) -> Response:
    """The latest events of a session that is watched, or that profiles itself, in Chrome's trace format.

    Perfetto opens it. Times are microseconds of the worker's monotonic clock.
    """
    data: bytes = await gateway.ask(ReadTrace(last), bytes, session)
    return Response(await asyncio.to_thread(_document, data), media_type="application/json")


def _document(data: bytes) -> bytes:
    timeline = Timeline(recording.decode(data))
    events: list[Any] = chrome.events_of(timeline, with_shapes=False)
    for at, nbytes in timeline.frames:
        process = timeline.recorded.process
        events.append(chrome.complete("wire", "frame arrives", process, 1, at, at, {"bytes": nbytes}))
    base = time.time_ns() - time.monotonic_ns()
    return json.dumps(chrome.document(events, timeline, base, {})).encode()

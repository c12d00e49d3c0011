"""The WebSocket of a session's stream: admits a connection like any other endpoint, and hands it to the session."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, WebSocket

from server.gateway.auth import SESSION_KEY_HEADER, TENANT, check_attachment, check_session_key, check_tenant
from server.gateway.dependencies import Gateway
from server.gateway.problems import Refused, problem_response
from server.gateway.stream import EXTENSION, SessionRelay
from telegrad_protocol.errors import InternalError, TelegradError

SHOWS_TOKEN = False
router = APIRouter()


@router.websocket("/v1/sessions/{session_id}/stream")
async def stream(
    websocket: WebSocket, session_id: str, received: Annotated[int, Query(ge=0)] = 0,
    attachment: Annotated[int, Query(ge=1)] = 1,
) -> None:  # fmt: skip
    """Carry the frames of a session; ``received`` is the number of the last frame that the client has.

    ``attachment`` is that of the client's ``Hello``.
    """
    gateway: Gateway = websocket.app.state.gateway
    try:
        session: SessionRelay = gateway.registry.get(session_id)
        check_tenant(session, websocket.scope[TENANT])
        check_session_key(session, websocket.headers.get(SESSION_KEY_HEADER))
        check_attachment(session, attachment)
        protocol = websocket.scope["extensions"].get(EXTENSION)
        if protocol is None:
            raise InternalError("the server must run with ws=server.gateway.stream.StreamProtocol")
    except Refused as refusal:
        await _deny(websocket, refusal.error, refusal.status_code)
    except TelegradError as error:
        await _deny(websocket, error)
    else:
        await websocket.accept()
        gateway.observer.connected(session)
        gateway.observer.tracing.session_connected(session.id, websocket.scope)
        await protocol.serve(session, received)


async def _deny(websocket: WebSocket, error: TelegradError, status: int | None = None) -> None:
    await websocket.send_denial_response(problem_response(websocket.url.path, error, status))

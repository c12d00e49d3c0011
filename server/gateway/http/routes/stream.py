"""The WebSocket of a session's stream: admits a connection like any other endpoint, and hands it to the session."""

from __future__ import annotations

import contextlib
from typing import Annotated

from fastapi import APIRouter, Query, WebSocket

from server.gateway.auth import SESSION_KEY_HEADER, TENANT, check_attachment, check_session_key, check_tenant
from server.gateway.dependencies import Gateway
from server.gateway.problems import Refused, problem_response
from server.gateway.stream import EXTENSION, SessionRelay, StreamProtocol
from server.gateway.unix_socket import peer_of
from telegrad_protocol.errors import InternalError, NotSupportedError, TelegradError

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
    admitted = await _admit(websocket, session_id, attachment)
    if admitted is not None:
        await websocket.accept()
        session, protocol = admitted
        observer = websocket.app.state.gateway.observer
        observer.connected(session)
        observer.tracing.session_connected(session.id, websocket.scope)
        await protocol.serve(session, received)


@router.websocket("/v1/sessions/{session_id}/direct")
async def direct(
    websocket: WebSocket, session_id: str, received: Annotated[int, Query(ge=0, lt=1 << 63)] = 0,
    attachment: Annotated[int, Query(ge=1)] = 1,
) -> None:  # fmt: skip
    """Give a connection over a Unix socket to the session's worker, as the session's direct channel.

    What follows the answer is the worker's, and no WebSocket.
    """
    admitted = await _admit(websocket, session_id, attachment)
    if admitted is None:
        return
    session, protocol = admitted
    if peer_of(protocol.transport) is None:
        await _deny(websocket, NotSupportedError("direct channels are for clients that connect by a Unix socket"))
        return
    gateway: Gateway = websocket.app.state.gateway
    await websocket.accept()
    sock = await protocol.take_socket()
    with sock, contextlib.suppress(TelegradError):  # the client learns from its socket that this did not do
        await gateway.registry.go_direct(session, sock, received, int(gateway.settings.max_frame_bytes))


async def _admit(websocket: WebSocket, session_id: str, attachment: int) -> tuple[SessionRelay, StreamProtocol] | None:
    """Return the session and the connection of a client that may use it; others are refused."""
    try:
        session: SessionRelay = websocket.app.state.gateway.registry.get(session_id)
        check_tenant(session, websocket.scope[TENANT])
        check_session_key(session, websocket.headers.get(SESSION_KEY_HEADER))
        check_attachment(session, attachment)
        protocol: StreamProtocol | None = websocket.scope["extensions"].get(EXTENSION)
        if protocol is None:
            raise InternalError("the server must run with ws=server.gateway.stream.StreamProtocol")
    except Refused as refusal:
        await _deny(websocket, refusal.error, refusal.status_code)
    except TelegradError as error:
        await _deny(websocket, error)
    else:
        return session, protocol
    return None


async def _deny(websocket: WebSocket, error: TelegradError, status: int | None = None) -> None:
    await websocket.send_denial_response(problem_response(websocket.url.path, error, status))

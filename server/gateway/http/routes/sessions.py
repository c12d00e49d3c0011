"""Opening and closing sessions."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Body, Response

from server.gateway.dependencies import Gateway, GatewayHere, SessionHere, SessionLike
from server.gateway.http import models
from server.gateway.problems import Problem, Refused, unavailable
from telegrad_protocol.errors import HandshakeError, WorkerCrashedError
from telegrad_protocol.messages import PROTOCOL_VERSION, Hello

router = APIRouter(prefix="/v1/sessions", tags=["sessions"])


@router.post(
    "", status_code=201, summary="Open a session", response_model=models.SessionOpened,
    responses={409: {"model": Problem}, 422: {"model": Problem}, 503: {"model": Problem}},
)  # fmt: skip
async def open_session(
    gateway: GatewayHere, response: Response, client: Annotated[models.OpenSession | None, Body()] = None
) -> Any:
    """A session holds the tensors of one client until it is closed, or until nobody has used it for `lease_seconds`.

    The answer has the lease that was granted: the one asked for, or `TELEGRAD_LEASE_SECONDS`. The session lives on the
    least loaded worker that has what it asks for. While those are being started, the answer waits for a few seconds,
    then it is 503.
    """
    described = client or models.OpenSession()
    _check_room(gateway)
    check_protocol(described)
    lease = gateway.settings.granted_lease(described.lease_seconds)
    gateway.opening += 1
    try:
        session: SessionLike = await gateway.registry.open(_options(gateway, described), lease, described.gpus)
    except WorkerCrashedError as error:
        raise Refused(503, error, {"Retry-After": "1"}) from error
    finally:
        gateway.opening -= 1
    await _check_table(gateway, session, described)
    gateway.metrics.sessions_opened.inc()
    response.headers["Location"] = f"/v1/sessions/{session.id}"
    return msgspec.to_builtins(session.hello)


@router.delete(
    "/{session_id}", status_code=204, summary="Close a session",
    responses={403: {"model": Problem}, 404: {"model": Problem}},
)  # fmt: skip
async def close_session(gateway: GatewayHere, session: SessionHere) -> None:
    """Free everything that the session holds."""
    await gateway.registry.close(session)


def _options(gateway: Gateway, client: models.OpenSession) -> dict[str, Any]:
    """What the worker is told of a client; its quota is the operator's to set."""
    quota = gateway.settings.session_quota_bytes
    described = client.model_dump(exclude_none=True, exclude={"gpus"})
    return {**described, "quota_bytes": None if quota is None else int(quota)}


def _check_room(gateway: Gateway) -> None:
    if gateway.draining:
        unavailable("the server is shutting down and opens no sessions", retry_after=None)
    if len(gateway.registry.sessions) + gateway.opening >= gateway.settings.max_sessions:
        unavailable(f"{gateway.settings.max_sessions} sessions are open, which is the limit (TELEGRAD_MAX_SESSIONS)")


def check_protocol(client: models.OpenSession) -> None:
    """Refuse a client of another protocol."""
    if client.protocol not in (None, PROTOCOL_VERSION):
        raise HandshakeError(
            f"the server speaks protocol {PROTOCOL_VERSION}, the client {client.protocol}: install equal versions"
        )


async def _check_table(gateway: Gateway, session: SessionLike, client: models.OpenSession) -> None:
    hello: Hello = session.hello
    if client.table_hash in (None, hello.table_hash):
        return
    await gateway.registry.close(session)
    raise HandshakeError(
        f"the operation tables of server {hello.server_version} and client differ: install equal versions"
    )

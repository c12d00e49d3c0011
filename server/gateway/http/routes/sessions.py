"""Opening and closing sessions."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Body, Header, Request, Response

from server.gateway.auth import OWNER_HEADER, SESSION_KEY_HEADER, digest_of, is_owned
from server.gateway.custom_kernels import needs_own_worker
from server.gateway.dependencies import Gateway, GatewayHere, OwnerHere, OwnSessionHere, SessionLike, TenantHere
from server.gateway.http import models
from server.gateway.http.every_worker import ask_each
from server.gateway.http.opening import check_room, sessions_of, worker_options
from server.gateway.placement import Demand
from server.gateway.problems import Problem, Refused
from server.gateway.tenancy.audit import audit
from server.gateway.tenancy.tenants import Tenant
from server.ipc import requests as verbs
from telegrad_protocol.errors import (
    ArgumentError,
    CommunicationError,
    DeviceError,
    HandshakeError,
    SessionLostError,
    TelegradError,
    WorkerCrashedError,
)
from telegrad_protocol.messages import PROTOCOL_VERSION, Hello

router = APIRouter(prefix="/v1/sessions", tags=["sessions"])
ALLOCATED: Final = "allocated_bytes.all.current"
LIST_SECONDS: Final = 2.0
"""A list waits so long for a worker that does not answer."""


@router.post(
    "", status_code=201, summary="Open a session", response_model=models.SessionOpened,
    responses={409: {"model": Problem}, 422: {"model": Problem}, 503: {"model": Problem}},
)  # fmt: skip
async def open_session(
    gateway: GatewayHere, tenant: TenantHere, request: Request, response: Response, owner: OwnerHere,
    client: Annotated[models.OpenSession | None, Body()] = None,
) -> Any:  # fmt: skip
    """A session holds the tensors of one client until it is closed, or until nobody has used it for `lease_seconds`.

    The answer has the lease that was granted: the one asked for, or `TELEGRAD_LEASE_SECONDS`. The session lives on the
    least loaded worker that has what it asks for. While those are being started, the answer waits for a few seconds,
    then it is 503.

    With `own_worker` no other session lives on its worker, whose process ends with the session. Where as many of them
    run as `TELEGRAD_MAX_WORKERS` allows, the answer is 503, too.
    """
    described = client or models.OpenSession()
    _check_owner(owner)
    check_room(gateway, tenant)
    _check_gpus(described, tenant)
    check_protocol(described)
    lease = gateway.settings.granted_lease(described.lease_seconds)
    gateway.opening[tenant.name] += 1
    try:
        allowed = tenant.kernels or gateway.settings.allow_kernels
        own_worker = described.own_worker or needs_own_worker(allowed, gateway.settings.isolation, described.kernels)
        demand = Demand(described.gpus, tenant.name, own_worker)
        session: SessionLike = await gateway.registry.open(worker_options(gateway, tenant, described), lease, demand)
    except WorkerCrashedError as error:
        raise Refused(503, error, {"Retry-After": "1"}, rejection="placement") from error
    except CommunicationError as error:
        raise Refused(503, error, {"Retry-After": "5"}, rejection="placement") from error
    finally:
        gateway.opening[tenant.name] -= 1
    session.owner, session.tenant = digest_of(owner), tenant.name
    await _check_table(gateway, session, described)
    gateway.metrics.sessions_opened.inc()
    audit(request.scope, "session opened", session=session.id, worker=session.hello.worker)
    about = {"tenant": tenant.name, "worker": session.hello.worker}
    gateway.observer.tracing.session_opened(session.id, about, request.scope)
    response.headers["Location"] = f"/v1/sessions/{session.id}"
    return msgspec.to_builtins(session.hello)


@router.delete(
    "/{session_id}", status_code=204, summary="Close a session",
    responses={403: {"model": Problem}, 404: {"model": Problem}},
)  # fmt: skip
async def close_session(
    gateway: GatewayHere, request: Request, session: OwnSessionHere,
    key: Annotated[str | None, Header(alias=SESSION_KEY_HEADER)] = None,
) -> None:  # fmt: skip
    """Free everything that the session holds."""
    audit(request.scope, "session is ended", session=session.id)
    await gateway.registry.close(session, None if key else SessionLostError("its owner has ended the session"))


@router.get("", summary="List one's own sessions", response_model=list[models.OwnSession])
async def list_sessions(gateway: GatewayHere, tenant: TenantHere, owner: OwnerHere) -> Any:
    """The open sessions that were opened with the same `Telegrad-Owner`, the oldest first; none without one."""
    own = [session for session in sessions_of(gateway, tenant) if is_owned(session, owner)]
    return await asyncio.gather(*(_describe(gateway, session) for session in own))


async def _describe(gateway: Gateway, session: SessionLike) -> models.OwnSession:
    request, worker = verbs.MemoryStats(session=session.number), gateway.registry.worker_of(session)
    (stats,) = await ask_each([worker], request, dict[str, dict[str, int | float]], LIST_SECONDS)
    known = {} if isinstance(stats, TelegradError) else stats
    now, client = time.monotonic(), session.client
    return models.OwnSession(
        session=session.id, opened=session.opened, idle_seconds=max(0.0, now - session.last_work),
        lease_seconds=session.hello.lease_seconds,
        lease_left_seconds=max(0.0, session.hello.lease_seconds - (now - session.last_sign)),
        in_use=session.is_in_use, worker=session.hello.worker, devices=list(session.hello.devices),
        node_devices=list(session.hello.node_devices),
        allocated_bytes={device: int(values[ALLOCATED]) for device, values in known.items()},
        client={name: client[name] for name in ("client", "host", "user", "pid", "python") if name in client},
    )  # fmt: skip


def _check_owner(owner: str | None) -> None:
    if owner is not None and not 16 <= len(owner) <= 200:
        raise ArgumentError(f"{OWNER_HEADER}: expected a secret of 16 to 200 characters")


def _check_gpus(client: models.OpenSession, tenant: Tenant) -> None:
    if tenant.gpus is not None and (client.gpus or 0) > tenant.gpus:
        raise DeviceError(
            f"connect: a session of the tenant {tenant.name} gets at most {tenant.gpus} GPUs, not {client.gpus}"
        )


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

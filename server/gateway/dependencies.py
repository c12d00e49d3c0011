"""What every endpoint works with: settings, sessions, metrics, and a typed way to ask a worker something.

Endpoints reach it through ``GatewayHere``, session-scoped ones their session through ``SessionHere``, which checks the
session's key. Knows neither frames nor tensors.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

import msgspec
from fastapi import Depends, Path, Security
from fastapi.security import APIKeyHeader, HTTPBearer
from starlette.requests import HTTPConnection

from server.ipc.requests import DeviceInfo, to_args
from telegrad_protocol.errors import InternalError, SessionDetachedError, TelegradError
from telegrad_protocol.messages import Attach, Detach, Hello
from telegrad_protocol.queries import request_name

from .auth import (
    OWNER_HEADER,
    SESSION_KEY_HEADER,
    TENANT,
    check_admin,
    check_key_or_owner,
    check_session_key,
    check_tenant,
)
from .device_groups import DeviceGroup
from .door.certificate import Certificate
from .door.connections import Connections
from .observability.gpus import Gpus
from .observability.metrics import Metrics, Traffic
from .observability.observer import Observer
from .observability.tracing import Tracing
from .placement import Demand
from .settings import Settings
from .tenancy.request_memory import MEMORY, RequestMemory
from .tenancy.tenants import Tenant, Tenants
from .workers.supervisor import State, Use


class SessionLike(Protocol):
    """What endpoints want of an open session."""

    number: int
    id: str
    key: str
    hello: Hello
    client: Mapping[str, Any]
    tenant: str
    owner: bytes
    left: SessionDetachedError
    opened: float
    last_sign: float
    last_work: float

    @property
    def is_in_use(self) -> bool:
        """Whether a client is connected that has been heard of lately."""

    def change_client(self, lease: float | None, instruction: Detach | Attach, left: SessionDetachedError) -> None:
        """Refuse the client that has the session; ``left`` is what it is told, ``instruction`` what the worker is."""


class WorkerLike(Protocol):
    """What endpoints want of a worker, whatever process it runs in at the time."""

    number: int
    group: DeviceGroup
    restarts: int
    use: Use

    @property
    def state(self) -> State:
        """Return what the worker does."""

    async def request(self, verb: str, args: list[Any]) -> Any:
        """Put a control request to the whole worker; ``WorkerCrashedError`` while it does not serve."""


class RegistryLike(Protocol):
    """What endpoints want of the registry: all sessions, and what closed sessions have counted."""

    @property
    def closed_traffic(self) -> Mapping[str, Traffic]:
        """Return, by tenant, what its closed sessions have counted."""

    @property
    def workers(self) -> Sequence[WorkerLike]:
        """Return the workers, by number."""

    def worker_of(self, session: Any) -> WorkerLike:
        """Return the worker of a session."""

    @property
    def sessions(self) -> Mapping[str, Any]:
        """Return the open sessions by id; each counts its own traffic."""

    async def start(self) -> None:
        """Start the workers."""

    async def stop(self) -> None:
        """Close every session and stop the workers."""

    def kill(self) -> None:
        """End all workers at once; ``stop`` has to follow."""

    async def open(self, client: dict[str, Any], lease: float, demand: Demand) -> Any:
        """Open a session for a client that describes itself, on a worker that fits its demand.

        It outlives its connection by ``lease`` seconds.
        """

    async def close(self, session: Any, error: TelegradError | None = None) -> None:
        """End a session and free what it holds; ``error`` is what its client is told."""

    def get(self, id: str) -> Any:
        """Return the session of this id; raise ``UnknownIdError`` or ``SessionLostError``."""

    async def go_direct(self, session: Any, sock: socket.socket, received: int, max_bytes: int) -> None:
        """Give a socket of the client to the session's worker, which talks over it past the gateway."""

    async def request(self, session: Any, verb: str, args: list[Any]) -> Any:
        """Put a control request about ``session`` to its worker."""


@dataclass
class Gateway:
    """The state of one server."""

    settings: Settings
    registry: RegistryLike
    tenants: Tenants
    observer: Observer = field(default_factory=lambda: Observer(Metrics(), Tracing()))
    gpus: Gpus = field(default_factory=lambda: Gpus([]))
    described: dict[DeviceGroup, list[DeviceInfo]] = field(default_factory=dict)
    """How workers described their devices when they were asked last."""
    opening: Counter[str] = field(default_factory=Counter)
    """By tenant, the sessions that are being opened."""
    connections: Connections = field(init=False)
    certificate: Certificate | None = field(init=False)
    """What connections are encrypted with; None where they are not."""
    draining: bool = False
    ready: bool = False

    def __post_init__(self) -> None:
        settings = self.settings
        self.connections = Connections(settings.max_connections, settings.max_connections_per_address)
        self.certificate = Certificate(settings.tls_cert, settings.tls_key) if settings.tls_cert else None

    @property
    def metrics(self) -> Metrics:
        """What ``/metrics`` shows."""
        return self.observer.metrics

    async def ask(self, request: msgspec.Struct, answer: Any, session: SessionLike) -> Any:
        """Put ``request`` about a session to its worker; the answer as type ``answer``."""
        verb = request_name(type(request))
        return _converted(verb, await self.registry.request(session, verb, to_args(request)), answer)


async def ask_worker(worker: WorkerLike, request: msgspec.Struct, answer: Any) -> Any:
    """Put ``request`` to a whole worker; the answer as type ``answer``."""
    verb = request_name(type(request))
    return _converted(verb, await worker.request(verb, to_args(request)), answer)


def _converted(verb: str, value: Any, answer: Any) -> Any:
    try:
        return msgspec.convert(value, answer)
    except msgspec.ValidationError as error:
        raise InternalError(f"{verb}: the worker's answer is malformed: {error}") from error


def gateway_of(connection: HTTPConnection) -> Gateway:
    """The gateway that serves a connection."""
    gateway: Gateway = connection.app.state.gateway
    return gateway


def tenant_of(connection: HTTPConnection) -> Tenant:
    """The tenant whose token a connection has presented."""
    tenant: Tenant = connection.scope[TENANT]
    return tenant


def memory_of(connection: HTTPConnection) -> RequestMemory:
    """The account of what a request holds."""
    memory: RequestMemory = connection.scope[MEMORY]
    return memory


GatewayHere = Annotated[Gateway, Depends(gateway_of)]
MemoryHere = Annotated[RequestMemory, Depends(memory_of)]
TenantHere = Annotated[Tenant, Depends(tenant_of)]


def admin_of(tenant: TenantHere) -> Tenant:
    """The tenant of a request, if it may see what concerns everybody."""
    check_admin(tenant)
    return tenant


AdminHere = Annotated[Tenant, Depends(admin_of)]
bearer = HTTPBearer(auto_error=False, description="the token of a tenant, where the server has any")
_key = APIKeyHeader(name=SESSION_KEY_HEADER, auto_error=False, description="`key` from `POST /v1/sessions`")
SessionId = Annotated[str, Path(max_length=64, description="`session` from `POST /v1/sessions`")]
_owner = APIKeyHeader(
    name=OWNER_HEADER, auto_error=False, description="a secret of the client, 16 characters or more, that owns sessions"
)


def session_of(
    gateway: GatewayHere,
    tenant: TenantHere,
    session_id: SessionId,
    key: Annotated[str | None, Security(_key)],
) -> SessionLike:
    """The session that a request is about, if it holds the session's key."""
    session: SessionLike = gateway.registry.get(session_id)
    check_tenant(session, tenant)
    check_session_key(session, key)
    return session


OwnerHere = Annotated[str | None, Security(_owner)]


def own_session_of(
    gateway: GatewayHere, tenant: TenantHere, session_id: SessionId, key: Annotated[str | None, Security(_key)],
    owner: OwnerHere,
) -> SessionLike:  # fmt: skip
    """The session that a request is about, if it holds the session's key or the secret of its owner."""
    session: SessionLike = gateway.registry.get(session_id)
    check_tenant(session, tenant)
    check_key_or_owner(session, key, owner)
    return session


OwnSessionHere = Annotated[SessionLike, Depends(own_session_of)]
SessionHere = Annotated[SessionLike, Depends(session_of)]

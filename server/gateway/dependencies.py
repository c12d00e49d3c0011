"""What every endpoint works with: settings, sessions, metrics, and a typed way to ask a worker something.

Endpoints reach it through ``GatewayHere``, session-scoped ones their session through ``SessionHere``, which checks the
session's key. Knows neither frames nor tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

import msgspec
from fastapi import Depends, Path, Security
from fastapi.security import APIKeyHeader, HTTPBearer
from starlette.requests import HTTPConnection

from server.ipc.requests import to_args
from telegrad_protocol.errors import InternalError
from telegrad_protocol.messages import Hello
from telegrad_protocol.queries import request_name

from .auth import SESSION_KEY_HEADER, check_session_key
from .metrics import Metrics
from .settings import Settings


class SessionLike(Protocol):
    """What endpoints want of an open session."""

    number: int
    id: str
    key: str
    hello: Hello


class SupervisorLike(Protocol):
    """What endpoints want of the supervisor, which keeps the worker running."""

    restarts: int

    @property
    def worker(self) -> Any:
        """Return the worker; raise ``WorkerCrashedError`` while there is none."""


class RegistryLike(Protocol):
    """What endpoints want of the registry: all sessions, and what closed sessions have counted."""

    frames_received: int
    frames_sent: int
    bytes_received: int
    bytes_sent: int

    @property
    def supervisor(self) -> SupervisorLike:
        """Return the supervisor of the worker."""

    @property
    def sessions(self) -> Mapping[str, Any]:
        """Return the open sessions by id; each counts its own traffic."""

    async def start(self) -> None:
        """Start the worker."""

    async def stop(self) -> None:
        """Close every session and stop the worker."""

    async def open(self, client: dict[str, Any], lease: float) -> Any:
        """Open a session for a client that describes itself; it outlives its connection by ``lease`` seconds."""

    async def close(self, session: Any) -> None:
        """End a session and free what it holds."""

    def get(self, id: str) -> Any:
        """Return the session of this id; raise ``UnknownIdError`` or ``SessionLostError``."""

    async def request(self, session: Any, verb: str, args: list[Any]) -> Any:
        """Put a control request to the worker of ``session``, or to the host where it is None."""


@dataclass
class Gateway:
    """The state of one server."""

    settings: Settings
    registry: RegistryLike
    metrics: Metrics = field(default_factory=Metrics)
    opening: int = 0
    draining: bool = False
    ready: bool = False

    async def ask(self, request: msgspec.Struct, answer: Any, session: SessionLike | None = None) -> Any:
        """Put ``request`` to a worker; its answer as type ``answer``."""
        verb = request_name(type(request))
        value = await self.registry.request(session, verb, to_args(request))
        try:
            return msgspec.convert(value, answer)
        except msgspec.ValidationError as error:
            raise InternalError(f"{verb}: the worker's answer is malformed: {error}") from error


def gateway_of(connection: HTTPConnection) -> Gateway:
    """The gateway that serves a connection."""
    gateway: Gateway = connection.app.state.gateway
    return gateway


GatewayHere = Annotated[Gateway, Depends(gateway_of)]
bearer = HTTPBearer(auto_error=False, description="`TELEGRAD_TOKEN` of the server, where it has one")
_key = APIKeyHeader(name=SESSION_KEY_HEADER, auto_error=False, description="`key` from `POST /v1/sessions`")


def session_of(
    gateway: GatewayHere,
    session_id: Annotated[str, Path(max_length=64, description="`session` from `POST /v1/sessions`")],
    key: Annotated[str | None, Security(_key)],
) -> SessionLike:
    """The session that a request is about, if it holds the session's key."""
    session: SessionLike = gateway.registry.get(session_id)
    check_session_key(session, key)
    return session


SessionHere = Annotated[SessionLike, Depends(session_of)]

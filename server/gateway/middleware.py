"""What happens to every request around its endpoint: the access log, and a limit on bodies held in memory."""

from __future__ import annotations

import logging
import time
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from telegrad_protocol.errors import ProtocolError

from .auth import TENANT
from .problems import Refused, problem_response

_QUIET_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics"})

_access = logging.getLogger("server.access")


class AccessLog:
    """Logs every HTTP request when it is over; what monitors call, at level DEBUG."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, began = 0, time.perf_counter()

        async def note(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, note)
        finally:
            _log_request(scope, status, time.perf_counter() - began)


def _log_request(scope: Scope, status: int, seconds: float) -> None:
    level = logging.DEBUG if scope["path"] in _QUIET_PATHS else logging.INFO
    client = scope.get("client")
    fields = {"method": scope["method"], "path": scope["path"], "status": status, "seconds": round(seconds, 6)}
    tenant = {"tenant": scope[TENANT].name} if TENANT in scope else {}
    _access.log(level, "request", extra=fields | tenant | {"client": client[0] if client else None})


class BodyLimit:
    """Refuses bodies of more than ``limit`` bytes; those of PUT pass, because they are streamed and not held."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self.app = app
        self.limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] == "PUT":
            await self.app(scope, receive, send)
        elif _declared_length(scope) > self.limit:
            await problem_response(scope["path"], self._error(), 413)(scope, receive, send)
        else:
            await self.app(scope, self._counted(receive), send)

    def _counted(self, receive: Receive) -> Receive:
        left = self.limit

        async def count() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise Refused(413, self._error())
            return message

        return count

    def _error(self) -> ProtocolError:
        return ProtocolError(f"the body is larger than {self.limit} bytes (TELEGRAD_MAX_FRAME_BYTES)")


def _declared_length(scope: Scope) -> int:
    length = Headers(scope=scope).get("content-length", "")
    return int(length) if length.isdecimal() else 0

"""What happens to every request around its endpoint: the access log, and headers that browsers heed."""

from __future__ import annotations

import logging
import time
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .auth import TENANT

_QUIET_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics"})

_SECURITY_HEADERS: Final = (
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)

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


class SecurityHeaders:
    """Tells browsers with every answer to load, run and frame nothing of it, unless the answer says what they may."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def add(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(h for h in _SECURITY_HEADERS if h[0] not in given)]
            await send(message)

        await self.app(scope, receive, add)

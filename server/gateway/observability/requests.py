"""Every request: its id, its line in the access log, its time, and the failure that it was answered with."""

from __future__ import annotations

import logging
import re
import secrets
import time
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.gateway.auth import TENANT
from server.gateway.problems import PROBLEM, REQUEST_ID, REQUEST_ID_HEADER, ProblemAnswered
from telegrad_protocol.errors import InternalError

from .observer import Observer
from .tracing import QUIET_PATHS

UNMATCHED: Final = "unmatched"
"""Stands for the route of a request that no endpoint serves."""
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"))
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")

_access = logging.getLogger("server.access")


class RequestLog:
    """Logs and counts every HTTP request when it is over, and every refused handshake of a WebSocket.

    What monitors call is logged at level DEBUG. A request's id is the client's `X-Request-Id`, or a new one; the answer
    has it, too.
    """

    def __init__(self, app: ASGIApp, observer: Observer) -> None:
        self.app, self._observer = app, observer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        status, began = 0, time.perf_counter()
        id = scope[REQUEST_ID] = request_id_of(Headers(scope=scope))
        tracing = self._observer.tracing
        traced = tracing.request_begins(scope)

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (REQUEST_ID_HEADER.encode(), id.encode())]
            await send(message)

        try:
            await self.app(scope, receive, note)
        except Exception as error:  # a problem document is made of it further out
            status = status or 500
            scope.setdefault(PROBLEM, ProblemAnswered(InternalError(f"{type(error).__name__}: {error}"), ""))
            raise
        finally:
            about, route = describe_request(scope, status), route_of(scope)
            self._count(scope, status, route, time.perf_counter() - began, about)
            tracing.request_ends(traced, scope, route, status, about)

    def _count(self, scope: Scope, status: int, route: str, seconds: float, about: dict[str, Any]) -> None:
        problem: ProblemAnswered | None = scope.get(PROBLEM)
        if problem is not None:
            self._observer.refused(about.get("tenant", ""), problem.error.code, problem.rejection)
        elif scope["type"] == "websocket":
            return
        if scope["type"] == "http":
            method = scope["method"] if scope["method"] in _METHODS else "OTHER"
            self._observer.metrics.requests.labels(method, route, str(status)).observe(seconds)
        level = logging.DEBUG if scope["path"] in QUIET_PATHS else logging.INFO
        if level == logging.INFO and status >= 500 and status != 503:
            level = logging.ERROR
        _access.log(level, "request", extra=about | {"seconds": round(seconds, 6)})


def request_id_of(headers: Headers) -> str:
    """The id that a client has given its request, if it can be one, or a new one."""
    given = headers.get(REQUEST_ID_HEADER, "")
    return given if _ID.fullmatch(given) else secrets.token_hex(8)


def route_of(scope: Scope) -> str:
    """The template of the path that a request was routed by, so that no id is in it."""
    return getattr(scope.get("route"), "path", UNMATCHED)


def describe_request(scope: Scope, status: int) -> dict[str, Any]:
    """What the log tells of a request that is over."""
    client = scope.get("client")
    about = {
        "method": scope.get("method", "GET"), "path": scope["path"], "status": status,
        "client": client[0] if client else None, "request_id": scope[REQUEST_ID],
    }  # fmt: skip
    if TENANT in scope:
        about["tenant"] = scope[TENANT].name
    session = (scope.get("path_params") or {}).get("session_id")
    if session is not None:
        about["session"] = session
    problem: ProblemAnswered | None = scope.get(PROBLEM)
    if problem is not None:
        error = problem.error
        told = {"code": error.code, "reason": error.message, "operation": error.operation, "site": error.site}
        about |= {name: text for name, text in told.items() if text}
    return about

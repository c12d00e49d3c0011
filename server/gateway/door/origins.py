"""Which web pages may talk to the server: its own, and those that the operator names.

A browser says where a request comes from (`Origin`, `Sec-Fetch-Site`), and lets any page send simple ones to any
address, also to a server on the user's own machine. Programs that are no browsers say neither.
"""

from __future__ import annotations

from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from server.gateway.problems import problem_response
from telegrad_protocol.errors import AuthenticationError


class OriginGuard:
    """Refuses what a browser sends for the page of another site; links to the server's pages may be followed."""

    def __init__(self, app: ASGIApp, allowed: Collection[str]) -> None:
        self.app = app
        self._allowed = frozenset(allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            headers = Headers(scope=scope)
            if self._is_foreign(headers) and not _is_navigation(scope, headers):
                error = AuthenticationError(
                    f"the request comes from a page of {_shown(headers)}, which may not use this server "
                    "(TELEGRAD_ALLOWED_ORIGINS)"
                )
                await _refuse(error, scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _is_foreign(self, headers: Headers) -> bool:
        origin = headers.get("origin")
        if origin in self._allowed:
            return False
        if origin is not None and origin.partition("://")[2] != headers.get("host", ""):
            return True
        return origin is None and headers.get("sec-fetch-site") in ("cross-site", "same-site")


def _is_navigation(scope: Scope, headers: Headers) -> bool:
    """Whether a person follows a link: the page that has it does not see the answer."""
    return scope.get("method") == "GET" and headers.get("sec-fetch-mode") == "navigate" and "origin" not in headers


def _shown(headers: Headers) -> str:
    return (headers.get("origin") or "another site")[:200]


async def _refuse(error: AuthenticationError, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": error.message[:100]})
        return
    await problem_response(scope["path"], error, 403)(scope, receive, send)

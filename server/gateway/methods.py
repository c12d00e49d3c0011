"""Which methods a path has. HTTP wants every resource that can be read to answer HEAD, too."""

from __future__ import annotations

from typing import Final

from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS: Final = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")


class HeadRequests:
    """Answers HEAD as GET without the body, where an endpoint has no HEAD of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or _has_endpoint(scope, "HEAD"):
            await self.app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        asked = {**scope, "method": "GET"}
        try:
            await self.app(asked, receive, send_head)
        finally:
            scope.update({**asked, "method": "HEAD"})  # route and errors, which the log of requests looks at


def methods_of(scope: Scope) -> list[str]:
    """The methods of the path that a request names, over all of its endpoints."""
    declared = [method for method in METHODS if _has_endpoint(scope, method)]
    return sorted({*declared, "HEAD"}) if "GET" in declared else declared


def _has_endpoint(scope: Scope, method: str) -> bool:
    asked = {**scope, "method": method}
    return any(route.matches(asked)[0] is Match.FULL for route in scope["app"].routes)

"""Structured logs: one JSON object a line on standard error. Knows nothing of what is logged.

``log.info("session opened", extra={"session": 3})`` becomes ``{"time": ..., "event": "session opened", "session": 3}``.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from datetime import UTC, datetime
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "color_message", "taskName"}
_QUIET_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics"})

_access = logging.getLogger("server.access")


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON, its ``extra`` beside the standard members."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "event": record.getMessage(),
        }
        entry.update((name, value) for name, value in vars(record).items() if name not in _STANDARD)
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def configure_logs(level: str) -> None:
    """Send everything that this process logs to standard error as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


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
    _access.log(level, "request", extra=fields | {"client": client[0] if client else None})

"""The audit log: who did what to sessions and to everybody, a line each under the logger ``server.audit``.

Why a session has ended is noted where all sessions end, in the registry, under the same logger.
"""

from __future__ import annotations

import logging
from typing import Any

from starlette.types import Scope

from server.gateway.auth import TENANT
from server.gateway.problems import REQUEST_ID

log = logging.getLogger("server.audit")


def audit(scope: Scope, event: str, **what: Any) -> None:
    """Note what the tenant of a request has done, and from which address."""
    tenant, client = scope.get(TENANT), scope.get("client")
    who = {"tenant": tenant.name if tenant else None, "client": client[0] if client else None}
    who["request_id"] = scope.get(REQUEST_ID)
    log.info(event, extra=who | what)

"""What opening a session takes, for a client or for a program: room for it, and what its worker is told of it."""

from __future__ import annotations

from typing import Any

from server.gateway.custom_kernels import grants_kernels
from server.gateway.dependencies import Gateway, SessionLike
from server.gateway.problems import unavailable
from server.gateway.tenancy.tenants import Tenant

from . import models


def worker_options(gateway: Gateway, tenant: Tenant, client: models.OpenSession) -> dict[str, Any]:
    """What the worker is told of a client; its quotas are the operator's to set."""
    quota = tenant.session_memory or gateway.settings.session_quota_bytes
    described = client.model_dump(exclude_none=True, exclude={"gpus", "own_worker"})
    return {
        **described, "quota_bytes": None if quota is None else int(quota), "tenant": tenant.name,
        "tenant_bytes": None if tenant.memory is None else int(tenant.memory),
        "memory_share": gateway.settings.memory_share,
        "tenant_host_bytes": int(tenant.host_memory or gateway.settings.host_quota),
        "operations_ahead": tenant.operations_ahead,
        "kernels": grants_kernels(tenant.kernels or gateway.settings.allow_kernels, client.kernels),
        "host_code": tenant.host_code or gateway.settings.allow_host_code,
    }  # fmt: skip


def sessions_of(gateway: Gateway, tenant: Tenant) -> list[SessionLike]:
    """Return the open sessions of a tenant."""
    return [session for session in gateway.registry.sessions.values() if session.tenant == tenant.name]


def check_room(gateway: Gateway, tenant: Tenant) -> None:
    """Refuse for now where no more sessions may be open, of all tenants or of this one."""
    if gateway.draining:
        unavailable("the server is shutting down and opens no sessions", retry_after=None, rejection="placement")
    if len(gateway.registry.sessions) + gateway.opening.total() >= gateway.settings.max_sessions:
        limit = f"{gateway.settings.max_sessions} sessions are open, which is the limit (TELEGRAD_MAX_SESSIONS)"
        unavailable(limit, rejection="sessions")
    most = tenant.sessions
    if most is not None and len(sessions_of(gateway, tenant)) + gateway.opening[tenant.name] >= most:
        limit = f"the tenant {tenant.name} has {most} sessions open, which is its limit; close one"
        unavailable(limit, rejection="sessions")

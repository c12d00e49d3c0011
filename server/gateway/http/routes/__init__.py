"""The HTTP endpoints, by subject."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from server.gateway.dependencies import bearer

from . import health, memory, operations, pages, sessions, tensors


def http_router() -> APIRouter:
    """All endpoints; the token is checked before routing, it is declared here for the documentation."""
    router = APIRouter()
    router.include_router(health.router)
    router.include_router(pages.router)
    for guarded in (sessions.router, operations.router, tensors.router, memory.router, memory.of_session):
        router.include_router(guarded, dependencies=[Depends(bearer)])
    return router

"""Metrics for Prometheus: what the gateway counts, and what workers and GPUs know at each scrape."""

from __future__ import annotations

from fastapi import APIRouter, Response
from starlette.responses import PlainTextResponse

from server.gateway.dependencies import AdminHere, GatewayHere
from server.gateway.http.scrape import scrape
from server.gateway.observability.metrics import CONTENT_TYPE

router = APIRouter(tags=["devices and memory"])


@router.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse)
async def prometheus(gateway: GatewayHere, admin: AdminHere) -> Response:
    """Workers are asked at each scrape. Of one that does not answer in time, `telegrad_worker_up` is 0.

    Its counters stay as they were, and its memory and its queue are left out. Each metric is explained in
    docs/observability.md.
    """
    await scrape(gateway)
    return Response(gateway.metrics.render(), media_type=CONTENT_TYPE)

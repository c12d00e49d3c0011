"""Whether the server lives and takes sessions: for load balancers and orchestrators, open to everybody."""

from __future__ import annotations

from fastapi import APIRouter

from server.gateway.dependencies import GatewayHere
from server.gateway.http import models
from server.gateway.problems import Problem, unavailable

SHOWS_TOKEN = False
router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Whether the process lives")
async def healthz() -> models.Status:
    """Answers as long as the gateway does, however busy the devices are."""
    return models.Status(status="ok")


@router.get("/readyz", summary="Whether new sessions are welcome", responses={503: {"model": Problem}})
async def readyz(gateway: GatewayHere) -> models.Readiness:
    """The state of each worker. 503 while none serves, at the start and after a crash, and while the server drains.

    Where workers are started for sessions and none is kept ready (`TELEGRAD_SPARE_WORKERS=0`), none need run.
    """
    if gateway.draining:
        unavailable("the server is shutting down")
    if not gateway.ready:
        unavailable("the server is starting")
    states = [
        models.WorkerState(
            worker=worker.number,
            devices=list(worker.group.devices),
            state=worker.state,
            restarts=worker.restarts,
            use=worker.use,
        )
        for worker in gateway.registry.workers
    ]
    if states and not any(worker.state == "serving" for worker in states):
        described = ", ".join(
            f"worker {worker.worker} ({', '.join(worker.devices)}) {worker.state}" for worker in states
        )
        unavailable(f"no worker serves: {described}")
    return models.Readiness(status="ready", workers=states)

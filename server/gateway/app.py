"""The gateway application: endpoints, authentication, problem documents and sessions, put together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from fastapi import FastAPI

from server import __version__
from server.allocator.core.options import options_of_environment, parse_options
from telegrad_protocol.errors import ConfigurationError, SessionLostError, TelegradError

from .auth import TokenGuard
from .dependencies import Gateway, RegistryLike
from .door.bodies import BodyLimit
from .door.origins import OriginGuard
from .hardware import device_groups
from .http.described_errors import describe_errors
from .http.programs.service import Programs
from .http.routes import include_endpoints
from .methods import HeadRequests
from .middleware import SecurityHeaders
from .node import Node
from .observability.chosen_tracing import chosen_tracing
from .observability.gpus import Gpus
from .observability.metrics import Metrics
from .observability.observer import Observer
from .observability.requests import RequestLog
from .problems import install_problems
from .sessions import Registry
from .settings import Settings
from .tenancy.request_memory import RequestQuotas
from .tenancy.tenants import SERVER, Tenants

_DESCRIPTION: Final = """
Tensor operations over the network. Open a session with `POST /v1/sessions`, present its key as
`Telegrad-Session-Key`, and run operations on tensors whose ids you choose. Errors are `application/problem+json` with a
stable `code`. The Python client streams operations over a WebSocket instead, which is much faster.
"""

TENANTS_SECONDS: Final = 1.0
"""How often the file of tenants is looked at."""

log = logging.getLogger(__name__)


def create_app(settings: Settings, registry: RegistryLike | None = None) -> FastAPI:
    """A server's application; it starts and stops the ``registry``, which the tests replace."""
    app = FastAPI(
        title="telegrad",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=_lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    _check_allocator_options(settings)
    tenants = Tenants(settings)
    app.state.gateway = gateway = _gateway(settings, tenants, registry)
    app.state.programs = Programs(gateway)
    install_problems(app)
    include_endpoints(app)
    describe_errors(app)
    app.add_middleware(HeadRequests)
    app.add_middleware(BodyLimit, limit=settings.max_frame_bytes, quotas=RequestQuotas(settings.host_quota))
    app.add_middleware(TokenGuard, tenants=tenants)
    app.add_middleware(OriginGuard, allowed=settings.allowed_origins)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(RequestLog, observer=gateway.observer)
    return app


def _check_allocator_options(settings: Settings) -> None:
    """ConfigurationError for options that the workers would refuse one by one, where nobody looks."""
    if settings.alloc_conf:
        parse_options(settings.alloc_conf)
    else:
        options_of_environment()


def _gateway(settings: Settings, tenants: Tenants, registry: RegistryLike | None) -> Gateway:
    observer = Observer(Metrics(), chosen_tracing())
    if registry is not None:
        return Gateway(settings, registry, tenants, observer)
    groups = device_groups(settings.devices)
    if not settings.cpu and not all(group.gpus for group in groups):
        raise ConfigurationError("TELEGRAD_CPU: is 0, but a worker has no other device; name GPUs in TELEGRAD_DEVICES")
    node = Node(
        groups, log_level=settings.log_level, isolation=settings.isolation, max_workers=settings.max_workers,
        spare_workers=settings.spare_workers, limits=settings.limits(groups), events=observer,
    )  # fmt: skip
    return Gateway(settings, Registry(node, observer), tenants, observer, Gpus(groups))


async def _watch_tenants(gateway: Gateway) -> None:
    """Read the file of tenants again when it changes, and end the sessions of tenants that are gone."""
    while True:
        await asyncio.sleep(TENANTS_SECONDS)
        if not gateway.tenants.refresh():
            continue
        names = gateway.tenants.names
        kept = {*names, SERVER.name}
        for session in [s for s in gateway.registry.sessions.values() if s.tenant not in kept]:
            log.warning("session of a tenant that is gone", extra={"session": session.id, "tenant": session.tenant})
            await gateway.registry.close(session, SessionLostError("the operator has removed the session's tenant"))


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    gateway: Gateway = app.state.gateway
    try:
        await gateway.registry.start()
    except TelegradError as error:
        log.error("cannot start", extra={"reason": error.message})
        raise
    gateway.ready = True
    log.info("ready", extra={"workers": [list(worker.group.devices) for worker in gateway.registry.workers]})
    programs: Programs = app.state.programs
    watching = [asyncio.create_task(_watch_tenants(gateway)), asyncio.create_task(programs.watch())]
    try:
        yield
    finally:
        for task in watching:
            task.cancel()
        gateway.ready = False
        await programs.stop()
        await gateway.registry.stop()
        gateway.observer.tracing.stop()
        log.info("stopped")

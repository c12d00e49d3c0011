"""The HTTP endpoints, by subject. Every ``APIRouter`` in a module of this folder is found by being there."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Final

from fastapi import APIRouter, Depends, FastAPI

from server.gateway.dependencies import bearer

_FIRST: Final = ("programs",)
"""Modules whose endpoints are called most often: routes are tried one after the other."""


def include_endpoints(app: FastAPI) -> None:
    """Add all endpoints to an application, each router by itself: FastAPI analyses routers within one twice.

    The token is checked before routing. A module whose endpoints need none, or are no part of the documentation, says
    ``SHOWS_TOKEN = False``; for all others it is declared here.
    """
    names = [entry.name for entry in pkgutil.iter_modules(__path__, __name__ + ".")]
    for name in sorted(names, key=lambda name: name.rpartition(".")[2] not in _FIRST):
        module = importlib.import_module(name)
        declared = [Depends(bearer)] if getattr(module, "SHOWS_TOKEN", True) else []
        for router in vars(module).values():
            if isinstance(router, APIRouter):
                app.include_router(router, dependencies=declared)

"""All programs of a server that were called: each is served from the file that has its name now."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Final

from fastapi import Depends, Request

from server.gateway.dependencies import Gateway
from server.gateway.tenancy.tenants import Tenant
from telegrad_protocol.errors import CommunicationError

from .catalog import Catalog, ProgramFile, described, is_current
from .served import ServedProgram

_LOOK_SECONDS: Final = 5.0
"""How often programs that nobody calls are looked for."""


class Programs:
    """The catalog, and the programs that are served."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.catalog = Catalog(gateway.settings)
        self._served: dict[tuple[str, str], ServedProgram] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    async def get(self, tenant: Tenant, name: str) -> ServedProgram:
        """Return what serves a tenant's program of this name; UnknownIdError where there is none."""
        if self._is_stopped:
            raise CommunicationError("programs: the server is being stopped")
        file = self.catalog.find(tenant, name)
        served = self._served.get((file.owner.name, name))
        if served is not None and served.file.signature == file.signature:
            return served
        description = await self.catalog.description_of(file)
        served = self._served.get((file.owner.name, name))
        if served is None or served.file.signature != file.signature:
            self._end(served)
            served = self._served[file.owner.name, name] = ServedProgram(self._gateway, file, description)
        return served

    async def check(self, tenant: Tenant, name: str, path: str) -> None:
        """Check a file that a tenant has uploaded. ProgramError where it holds no valid program."""
        file = ProgramFile(name, tenant, path, 0, (0, 0, 0))
        description = await asyncio.to_thread(described, path)
        await ServedProgram(self._gateway, file, description).check(path)

    def loaded(self, file: ProgramFile) -> bool:
        """Whether the weights of a file's program are on a worker."""
        served = self._served.get((file.owner.name, file.name))
        return served is not None and served.file.signature == file.signature and served.is_loaded

    def forget(self, tenant: Tenant, name: str) -> None:
        """Serve a tenant's program no longer, once what runs has ended."""
        self._end(self._served.pop((tenant.name, name), None))

    def _end(self, served: ServedProgram | None) -> None:
        if served is not None:
            task = asyncio.get_running_loop().create_task(served.stop())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def watch(self) -> None:
        """Unload the programs that nobody has called for long, until this is cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            oldest = time.monotonic() - self._gateway.settings.program_idle_seconds
            for key, served in list(self._served.items()):
                if served.is_idle and not is_current(served.file):
                    self._end(self._served.pop(key))
                elif served.last_call < oldest and served.is_idle and served.is_loaded:
                    await served.unload()

    async def stop(self) -> None:
        """End all, and serve nothing more."""
        self._is_stopped = True
        for served in self._served.values():
            self._end(served)
        self._served.clear()
        await asyncio.gather(*self._ending, return_exceptions=True)


def programs_of(request: Request) -> Programs:
    """The programs of the server that a request has come to."""
    programs: Programs = request.app.state.programs
    return programs


ProgramsHere = Annotated[Programs, Depends(programs_of)]

"""One program as it is served: in a session of the server's own, on a worker, with its weights loaded once."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable
from typing import Final

import anyio

from server.gateway.dependencies import Gateway, SessionLike
from server.gateway.http import models
from server.gateway.http.opening import check_room, worker_options
from server.gateway.http.tensor_streams import TensorDownload
from server.gateway.placement import Demand
from server.gateway.problems import Refused, unavailable
from server.gateway.tenancy.tenants import SERVER
from server.ipc import program_requests as verbs
from server.ipc.requests import ReadInfo, TensorInfo, UploadBegin, UploadChunk, UploadEnd
from telegrad_protocol.errors import CommunicationError
from telegrad_protocol.exported.description import ProgramDescription
from telegrad_protocol.exported.solving import sizes_of
from telegrad_protocol.messages import CHUNK_BYTES

from .batches import Batcher, Elements, Inputs, batch_symbol
from .catalog import ProgramFile

_LEASE: Final = 1e9
"""Seconds; the session is ended by who serves the program, not for want of a client."""
UPLOADED: Final = "(uploaded)"
"""Stands in metrics for the programs of tenants, who name as many as they like."""

log = logging.getLogger(__name__)


class ServedProgram:
    """A program of a file. Its session is opened with the first request, and again where it was lost."""

    def __init__(self, gateway: Gateway, file: ProgramFile, description: ProgramDescription) -> None:
        self.file, self.description = file, description
        self._gateway = gateway
        self._session: SessionLike | None = None
        self._number = 0
        self._ids = itertools.count(1)
        self._loading = asyncio.Lock()
        settings, metrics = gateway.settings, gateway.metrics
        self.labels = (file.name if file.owner is SERVER else UPLOADED, file.owner.name)
        """The program and its owner, as metrics name them."""
        symbol = batch_symbol(description)
        most = next((one.max for one in description.symbols if one.name == symbol), None)
        self.batch = 1 if symbol is None else min(settings.program_batch, most or settings.program_batch)
        """The most rows that run together; 1 where requests run alone."""
        observe: Callable[[float], None] = metrics.program_batch.labels(*self.labels).observe
        self._batcher = Batcher(self._run, self.batch, settings.program_wait_seconds, observe)
        self.last_call = time.monotonic()

    @property
    def is_loaded(self) -> bool:
        """Whether its weights are on a worker."""
        return self._session is not None and self._session.id in self._gateway.registry.sessions

    @property
    def is_idle(self) -> bool:
        """Whether no request waits or runs."""
        return self._batcher.is_idle

    async def call(self, inputs: Inputs, who: str) -> list[Elements]:
        """Return the outputs for a caller's inputs. ShapeError for shapes that the program does not take.

        Refuses for now where too many of the caller's requests wait. ReplacedError where the file was replaced.
        """
        self.last_call = time.monotonic()
        named = zip(self.description.inputs, inputs, strict=True)
        sizes_of(self.description, {described.name: tensor.shape for described, tensor in named})
        longest = self._gateway.settings.program_queue
        if self._batcher.waiting(who) >= longest:
            unavailable(
                f"{longest} of your requests wait for the program {self.file.name!r}, which is the limit "
                "(TELEGRAD_PROGRAM_QUEUE)", retry_after=1, rejection="limit",
            )  # fmt: skip
        return await self._batcher.submit(inputs, who)

    async def stop(self) -> None:
        """Compute nothing of what waits, and free what the program holds on its worker."""
        await self._batcher.stop()
        await self.unload()

    async def unload(self) -> None:
        """Free what the program holds on its worker."""
        session, self._session = self._session, None
        if session is not None:
            await self._gateway.registry.close(session)

    async def _run(self, inputs: Inputs) -> list[Elements]:
        session = await self._loaded()
        given = [
            await self._given(session, tensor, described.dtype)
            for tensor, described in zip(inputs, self.description.inputs, strict=True)
        ]
        request = verbs.RunProgram(self._number, given)
        made: list[verbs.MadeOutput] = await self._gateway.ask(request, list[verbs.MadeOutput], session)
        return [await self._output(session, one) for one in made]

    async def _loaded(self) -> SessionLike:
        """Return the session that has the program; opens one where there is none, and loads it."""
        async with self._loading:
            if self._session is None or not self.is_loaded:
                self._session = None
                self._session = await self._load()
            return self._session

    async def check(self, path: str) -> None:
        """Have a worker check a file that is to become this program. ProgramError where it holds no valid one."""
        await self._gateway.registry.close(await self._opened(path))

    async def _load(self) -> SessionLike:
        session = await self._opened(self.file.path)
        try:
            while not await self._gateway.ask(verbs.LoadProgram(self._number), bool, session):
                pass
        except BaseException:
            await self._gateway.registry.close(session)
            raise
        log.info("program loaded", extra={"program": self.file.name, "session": session.id})
        return session

    async def _opened(self, path: str) -> SessionLike:
        """Return a new session that has opened a file."""
        gateway, owner = self._gateway, self.file.owner
        if owner is not SERVER:
            check_room(gateway, owner)
        options = worker_options(gateway, owner, models.OpenSession(client=f"program {self.file.name}"))
        gateway.opening[owner.name] += 1
        try:
            session: SessionLike = await gateway.registry.open(options, _LEASE, Demand(None, owner.name))
        except CommunicationError as error:
            raise Refused(503, error, {"Retry-After": "1"}, rejection="placement") from error
        finally:
            gateway.opening[owner.name] -= 1
        try:
            self._number = await gateway.ask(verbs.OpenProgram(path), int, session)
        except BaseException:
            await gateway.registry.close(session)
            raise
        return session

    async def _given(self, session: SessionLike, tensor: Elements, dtype: str) -> verbs.GivenInput:
        """Return an input as the worker takes it: large ones are sent before, in chunks."""
        nbytes, ask = len(tensor.data), self._gateway.ask
        if nbytes <= CHUNK_BYTES:
            return verbs.GivenInput(tensor.shape, bytes(tensor.data))
        id, view = next(self._ids), memoryview(tensor.data)
        upload: int = await ask(UploadBegin(id, dtype, tensor.shape, ""), int, session)
        try:
            for offset in range(0, nbytes, CHUNK_BYTES):
                await ask(UploadChunk(upload, offset, bytes(view[offset : offset + CHUNK_BYTES])), None, session)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await ask(UploadEnd(upload, False), None, session)
            raise
        await ask(UploadEnd(upload, True), TensorInfo, session)
        return verbs.GivenInput(tensor.shape, b"", id)

    async def _output(self, session: SessionLike, made: verbs.MadeOutput) -> Elements:
        if made.read is None:
            return Elements(made.shape, made.data)
        info = ReadInfo(made.read, TensorInfo(0, "", made.shape, (), 0, "", False), made.nbytes)
        download = TensorDownload(self._gateway, session, info)
        try:
            return Elements(made.shape, b"".join([chunk async for chunk in download.chunks()]))
        finally:
            await download.end()

"""Moves the elements of one tensor between an HTTP body and a worker, a chunk at a time, so that memory stays bounded.

Knows formats only by their headers, and never holds more than a chunk and what the network brought.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import anyio
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from server.gateway.dependencies import Gateway, SessionLike
from server.gateway.door.bodies import check_json
from server.gateway.tenancy.request_memory import RequestMemory
from server.ipc.requests import (
    NewTensor,
    ReadBegin,
    ReadChunk,
    ReadEnd,
    ReadInfo,
    RunOp,
    RunOps,
    Step,
    TensorInfo,
    UploadBegin,
    UploadChunk,
    UploadEnd,
)
from telegrad_protocol import dtypes
from telegrad_protocol.errors import ArgumentError
from telegrad_protocol.messages import CHUNK_BYTES

from . import models
from .tensor_files import Header, checked_header

STREAM_BYTES: Final = 4 * CHUNK_BYTES
"""What the stream of a tensor's elements holds: what has come, a chunk of it, and the message that it becomes."""
ELEMENT_BYTES: Final = 100
COMPLEX_BYTES: Final = 800
LIST_BYTES: Final = 150
MODEL_BYTES: Final = 2000
"""What an answer of JSON takes, as measured: an element, a complex one, a list of them, a tensor's description."""
_FIRST_NAP: Final = 0.0002
_LONGEST_NAP: Final = 0.02


class Body:
    """A request's body, read piece by piece."""

    def __init__(self, stream: AsyncIterator[bytes]) -> None:
        self._stream = stream
        self._held = bytearray()

    async def read(self, size: int) -> bytes:
        """Exactly ``size`` bytes; ``ArgumentError`` if the body ends before."""
        while len(self._held) < size:
            piece = await anext(self._stream, None)
            if piece is None:
                raise ArgumentError(f"the body ends {size - len(self._held)} bytes too early")
            self._held += piece
        taken = bytes(memoryview(self._held)[:size])
        del self._held[:size]
        return taken

    async def read_all(self, limit: int, memory: RequestMemory) -> bytes:
        """All that is left, up to ``limit`` bytes, which is charged as it comes; ArgumentError if there is more."""
        async for piece in self._stream:
            memory.charge(len(piece))
            self._held += piece
            if len(self._held) > limit:
                raise ArgumentError(
                    f"the body is larger than {limit} bytes (TELEGRAD_MAX_FRAME_BYTES), send npy or raw"
                )
        taken = bytes(self._held)
        self._held.clear()
        return taken

    async def skip(self, size: int) -> None:
        """Pass over ``size`` bytes."""
        for begin in range(0, size, CHUNK_BYTES):
            await self.read(min(CHUNK_BYTES, size - begin))

    async def expect_end(self) -> None:
        """``ArgumentError`` if anything is left."""
        while not self._held:
            piece = await anext(self._stream, None)
            if piece is None:
                return
            self._held += piece
        raise ArgumentError("the body is longer than the tensor's dtype and shape say")


async def upload(
    gateway: Gateway, session: SessionLike, id: int, header: Header, device: str, body: Body
) -> TensorInfo:
    """Send the elements that follow in ``body``; a tensor is there afterwards, or nothing is."""
    begin = UploadBegin(id, header.dtype, header.shape, device)
    number: int = await gateway.ask(begin, int, session)
    try:
        await body.skip(header.skip)
        for offset in range(0, header.nbytes, CHUNK_BYTES):
            data = await body.read(min(CHUNK_BYTES, header.nbytes - offset))
            await gateway.ask(UploadChunk(number, offset, data), None, session)
        if header.is_last:
            await body.expect_end()
    except BaseException:
        with anyio.CancelScope(shield=True):
            await gateway.ask(UploadEnd(number, False), None, session)
        raise
    gateway.metrics.tensor_bytes.labels("in").inc(header.nbytes)
    info: TensorInfo = await gateway.ask(UploadEnd(number, True), TensorInfo, session)
    if header.is_transposed:
        dims = list(reversed(range(len(header.shape))))
        step = RunOp("permute", [{"tensor": id}, dims], {}, (id,), False)
        info = await _result_of(gateway, session, step)
    return info


async def upload_values(
    gateway: Gateway, session: SessionLike, id: int, dtype: str | None, device: str, body: Body, memory: RequestMemory
) -> TensorInfo:  # fmt: skip
    """Make a tensor of a body of JSON: nested lists of numbers."""
    text = await body.read_all(gateway.settings.max_frame_bytes, memory)
    memory.charge(await asyncio.to_thread(check_json, text))
    step = await asyncio.to_thread(tensor_of_json, text, id, dtype, device)
    return await _result_of(gateway, session, step)


async def _result_of(gateway: Gateway, session: SessionLike, step: Step) -> TensorInfo:
    results: list[list[TensorInfo]] = await gateway.ask(RunOps(0, [step]), list[list[TensorInfo]], session)
    return results[0][0]


def tensor_of_json(text: bytes, id: int, dtype: str | None, device: str) -> NewTensor:
    """Return what makes a tensor of nested lists, a text of JSON."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"tensor: the body is no JSON: {error}") from None
    return new_tensor(values, dtype, id, device)


def new_tensor(values: Any, dtype: str | None, out: int | None, device: str, requires_grad: bool = False) -> NewTensor:
    """Return what makes a tensor of nested lists; ArgumentError where they are too large for one message."""
    from .json_values import encode_values

    data, chosen, shape = encode_values(values, None if dtype is None else dtypes.named(dtype).name)
    checked_header(Header(chosen, shape))
    if len(data) > CHUNK_BYTES:
        raise ArgumentError(
            f"tensor: {chosen}{list(shape)} has more than {CHUNK_BYTES} bytes, send it with PUT tensors, as npy or raw"
        )
    return NewTensor(out, chosen, shape, device, data, requires_grad)


class TensorDownload:
    """The elements of a tensor as they were when the download began."""

    def __init__(self, gateway: Gateway, session: SessionLike, info: ReadInfo) -> None:
        self._gateway, self._session, self.info = gateway, session, info

    @classmethod
    async def begin(cls, gateway: Gateway, session: SessionLike, id: int) -> TensorDownload:
        """Hold the elements of tensor ``id``; ``end`` has to follow."""
        return cls(gateway, session, await gateway.ask(ReadBegin(id), ReadInfo, session))

    async def chunks(self) -> AsyncIterator[bytes]:
        """All elements, in order."""
        for offset in range(0, self.info.nbytes, CHUNK_BYTES):
            data = await self._chunk(ReadChunk(self.info.read, offset, min(CHUNK_BYTES, self.info.nbytes - offset)))
            self._gateway.metrics.tensor_bytes.labels("out").inc(len(data))
            yield data

    async def _chunk(self, request: ReadChunk) -> bytes:
        nap = _FIRST_NAP
        while True:
            data: bytes | None = await self._gateway.ask(request, bytes | None, self._session)
            if data is not None:
                return data
            await asyncio.sleep(nap)
            nap = min(2 * nap, _LONGEST_NAP)

    async def end(self) -> None:
        """Let go of what is held, even if the request was cancelled."""
        with anyio.CancelScope(shield=True):
            await self._gateway.ask(ReadEnd(self.info.read), None, self._session)


class DownloadResponse(StreamingResponse):
    """Streams a download behind a header, and ends it when the client has it or has gone."""

    def __init__(self, download: TensorDownload, header: bytes, media_type: str, headers: Mapping[str, str]) -> None:
        length = {"Content-Length": str(len(header) + download.info.nbytes)}
        super().__init__(self._parts(download, header), media_type=media_type, headers={**headers, **length})
        self._download = download

    @staticmethod
    async def _parts(download: TensorDownload, header: bytes) -> AsyncIterator[bytes]:
        if header:
            yield header
        async for chunk in download.chunks():
            yield chunk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._download.end()


async def read_values(gateway: Gateway, session: SessionLike, id: int, memory: RequestMemory) -> Any:
    """The elements of a small tensor as JSON."""
    from .json_values import decode_values

    download = await TensorDownload.begin(gateway, session, id)
    try:
        info = download.info.tensor
        if download.info.nbytes > CHUNK_BYTES:
            raise ArgumentError(
                f"values: {info.dtype}{list(info.shape)} is larger than {CHUNK_BYTES} bytes, GET tensors/{id} reads it"
            )
        memory.charge(_bytes_of_values(info))
        data = b"".join([chunk async for chunk in download.chunks()])
        return decode_values(data, info.dtype, info.shape)
    finally:
        await download.end()


def _bytes_of_values(info: TensorInfo) -> int:
    """How much memory a tensor's elements take as nested lists and as JSON."""
    lists = sum(math.prod(info.shape[:count]) for count in range(len(info.shape)))
    each = COMPLEX_BYTES if dtypes.BY_NAME[info.dtype].is_complex else ELEMENT_BYTES
    return each * math.prod(info.shape) + LIST_BYTES * lists


async def as_model(
    gateway: Gateway, session: SessionLike, info: TensorInfo, with_values: bool, memory: RequestMemory
) -> models.Tensor:
    """A tensor as HTTP answers it, with its elements if they are wanted."""
    memory.charge(MODEL_BYTES)
    tensor = models.Tensor(
        id=info.id, dtype=info.dtype, shape=list(info.shape), strides=list(info.strides), offset=info.offset,
        device=info.device, requires_grad=info.requires_grad,
    )  # fmt: skip
    if with_values:
        tensor.values = await read_values(gateway, session, info.id, memory)
    return tensor

"""Tensors as files: npy, safetensors or raw bytes, streamed in both directions."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request
from starlette.responses import JSONResponse, Response

from server.gateway.dependencies import Gateway, GatewayHere, MemoryHere, SessionHere, SessionLike
from server.gateway.http import models
from server.gateway.http import tensor_files as payloads
from server.gateway.http.tensor_streams import (
    STREAM_BYTES,
    Body,
    DownloadResponse,
    TensorDownload,
    as_model,
    upload,
    upload_values,
)
from server.gateway.problems import Problem, Refused
from server.ipc.requests import Describe, Free, TensorInfo
from telegrad_protocol import dtypes
from telegrad_protocol.errors import ArgumentError, NotSupportedError

router = APIRouter(
    prefix="/v1/sessions/{session_id}/tensors", tags=["tensors"],
    responses={code: {"model": Problem} for code in (403, 404, 422)},
)  # fmt: skip

Id = Annotated[int, Path(ge=0, le=models.MAX_ID, description="id of the tensor")]
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_FORMATS = {payloads.NPY: _BINARY, payloads.SAFETENSORS: _BINARY, payloads.RAW: _BINARY}


@router.put(
    "/{tensor_id}", status_code=201, summary="Send a tensor", response_model_exclude_unset=True,
    openapi_extra={"requestBody": {"required": True, "content": {**_FORMATS, payloads.JSON: {}}}},
    responses={415: {"model": Problem}, 507: {"model": Problem}},
)  # fmt: skip
async def put_tensor(
    gateway: GatewayHere,
    session: SessionHere,
    tensor_id: Id,
    memory: MemoryHere,
    request: Request,
    content_type: Annotated[str, Header(include_in_schema=False)] = payloads.NPY,
    device: Annotated[str, Query(description="the session's default device where empty")] = "",
    dtype: Annotated[str | None, Query(description="raw bytes and JSON only", examples=["float32"])] = None,
    shape: Annotated[str | None, Query(description="raw bytes only", examples=["2,3"])] = None,
    name: Annotated[str | None, Query(description="safetensors only: which of several tensors")] = None,
) -> models.Tensor:
    """Make the body tensor `tensor_id`, which is replaced if it exists.

    Elements are little-endian, and row-major unless npy says otherwise. A small tensor may be sent as JSON: numbers,
    nested as its shape, of the dtype that `torch.tensor` infers where `?dtype=` is absent.
    """
    body = Body(request.stream())
    if payloads.media_type(content_type) == payloads.JSON:
        made = await upload_values(gateway, session, tensor_id, dtype, device, body, memory)
        return await as_model(gateway, session, made, False, memory)
    memory.charge(STREAM_BYTES)
    reader = payloads.READERS.get(payloads.media_type(content_type))
    if reader is not None:
        header = await reader(body, name)
    elif payloads.media_type(content_type) == payloads.RAW:
        header = _raw_header(dtype, shape)
    else:
        known = ", ".join([*_FORMATS, payloads.JSON])
        raise Refused(415, NotSupportedError(f"tensors: cannot read {content_type}, expected one of {known}"))
    info = await upload(gateway, session, tensor_id, header, device, body)
    return await as_model(gateway, session, info, False, memory)


def _raw_header(dtype: str | None, shape: str | None) -> payloads.Header:
    if dtype is None or shape is None:
        raise ArgumentError("tensors: raw bytes need ?dtype=float32&shape=2,3")
    sizes = [part.strip() for part in shape.split(",") if part.strip()]
    if not all(part.isdecimal() and len(part) < 20 for part in sizes):
        raise ArgumentError(f"tensors: expected a shape such as 2,3, got {shape!r}")
    return payloads.checked_header(payloads.Header(dtypes.named(dtype).name, tuple(map(int, sizes))))


@router.get(
    "/{tensor_id}", summary="Read a tensor", response_class=Response,
    responses={200: {"content": {**_FORMATS, payloads.JSON: {}}}, 406: {"model": Problem}},
)  # fmt: skip
async def get_tensor(
    gateway: GatewayHere, session: SessionHere, tensor_id: Id, memory: MemoryHere,
    accept: Annotated[str, Header()] = "*/*",
) -> Response:  # fmt: skip
    """Answers npy unless `Accept` says otherwise; bfloat16, which npy lacks, as safetensors.

    `application/octet-stream` is the bare elements, `application/json` a small tensor described and with its elements.
    The headers `Telegrad-Dtype` and `Telegrad-Shape` come with every format.
    """
    info = await _describe(gateway, session, tensor_id)
    kind = payloads.negotiate(accept, info.dtype)
    if kind is None:
        raise Refused(406, NotSupportedError(f"tensors: cannot write {accept}, only {', '.join(_FORMATS)}"))
    if kind == payloads.JSON:
        model = await as_model(gateway, session, info, True, memory)
        return JSONResponse(model.model_dump(), headers=_headers(info))
    memory.charge(STREAM_BYTES)
    header = payloads.WRITERS[kind](info.dtype, info.shape)
    return DownloadResponse(await TensorDownload.begin(gateway, session, tensor_id), header, kind, _headers(info))


@router.head("/{tensor_id}", summary="Describe a tensor", response_class=Response)
async def describe_tensor(gateway: GatewayHere, session: SessionHere, tensor_id: Id) -> Response:
    """Dtype, shape and device in headers; the length is that of the bare elements."""
    info = await _describe(gateway, session, tensor_id)
    nbytes = payloads.Header(info.dtype, info.shape).nbytes
    return Response(headers={**_headers(info), "Content-Length": str(nbytes)}, media_type=payloads.RAW)


@router.delete("/{tensor_id}", status_code=204, summary="Free a tensor")
async def free_tensor(gateway: GatewayHere, session: SessionHere, tensor_id: Id) -> None:
    """Forget the tensor; its memory is free once nothing else needs it."""
    await gateway.ask(Free((tensor_id,)), None, session)


async def _describe(gateway: Gateway, session: SessionLike, id: int) -> TensorInfo:
    infos: list[TensorInfo] = await gateway.ask(Describe((id,)), list[TensorInfo], session)
    return infos[0]


def _headers(info: TensorInfo) -> dict[str, str]:
    shape = ",".join(map(str, info.shape))
    return {"Telegrad-Dtype": dtypes.BY_NAME[info.dtype].name, "Telegrad-Shape": shape, "Telegrad-Device": info.device}

"""Exported programs: calling them, and the files that they are in."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path as FilePath
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Header, Path, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from server.gateway.dependencies import TenantHere, gateway_of, tenant_of
from server.gateway.http.programs.batches import ReplacedError
from server.gateway.http.programs.catalog import ProgramFile
from server.gateway.http.programs.service import Programs, ProgramsHere, programs_of
from server.gateway.http.tensor_files import JSON, NPY, SAFETENSORS, media_type
from server.gateway.problems import Problem, Refused
from server.gateway.tenancy.audit import audit
from server.gateway.tenancy.request_memory import MEMORY, RequestMemory
from server.gateway.tenancy.tenants import SERVER
from telegrad_protocol.errors import NotSupportedError
from telegrad_protocol.exported.description import ProgramDescription, TensorType
from telegrad_protocol.exported.sizes import Formula

router = APIRouter(
    prefix="/v1/programs", tags=["programs"],
    responses={code: {"model": Problem} for code in (403, 404, 422)},
)  # fmt: skip

_BINARY: Final = {"schema": {"type": "string", "format": "binary"}}
_EXAMPLE: Final = {"schema": {"type": "object"}, "example": {"inputs": {"x": [[1.0, 2.0]]}}}
Name = Annotated[str, Path(max_length=128, description="of the program: that of its file, without `.safetensors`")]


class ProgramTensor(BaseModel):
    """A tensor that a program takes or returns."""

    name: str
    dtype: str
    shape: list[int | str] = Field(description="sizes that may differ are names, or sums and products of them")


class ProgramSize(BaseModel):
    """A size that may differ between calls."""

    name: str
    min: int
    max: int | None


class Program(BaseModel):
    """An exported program."""

    name: str
    owner: Literal["operator", "tenant"] = Field(description="whose file it is")
    nbytes: int = Field(description="of its file")
    loaded: bool = Field(description="whether its weights are on a worker; they are with the first call")


class DescribedProgram(Program):
    """An exported program, and what it takes and returns."""

    inputs: list[ProgramTensor]
    outputs: list[ProgramTensor]
    sizes: list[ProgramSize]
    operations: int = Field(description="steps of the program")
    parameters: int = Field(description="elements of its parameters")
    batch: int = Field(description="the most rows of several requests that run as one; 1: each request runs alone")


@router.post(
    "/{name}", summary="Call a program", response_class=Response,
    openapi_extra={
        "requestBody": {"required": True, "content": {JSON: _EXAMPLE, NPY: _BINARY, SAFETENSORS: _BINARY}},
    },
    responses={
        200: {"content": {JSON: {}, NPY: _BINARY, SAFETENSORS: _BINARY}}, 406: {"model": Problem},
        415: {"model": Problem},
    },
)  # fmt: skip
async def call_program(name: Name, request: Request) -> Response:
    """Inputs as JSON, `{"inputs": {name: nested lists}}`, as npy for a single one, or as safetensors by their names.

    The answer has the format that `Accept` asks for, by default that of the request: `{"outputs": {name: ...}}`.
    Requests that come together are computed as one where the program's first dimension may differ.
    """
    from server.gateway.http.programs import formats

    # Parameters that the framework would solve for each call cost more than all of this.
    began, headers = time.perf_counter(), request.headers
    tenant, metrics = tenant_of(request), gateway_of(request).metrics
    memory: RequestMemory = request.scope[MEMORY]
    served = await programs_of(request).get(tenant, name)
    outcome = "failed"
    try:
        while True:
            given = media_type(headers.get("content-type", JSON))
            kind = formats.chosen(headers.get("accept", "*/*"), given, served.description.outputs)
            inputs = await formats.decode(served.description, given, await request.body())
            try:
                outputs = await served.call(inputs, tenant.name)
                break
            except ReplacedError:  # what has taken the program's place answers
                served = await programs_of(request).get(tenant, name)
        memory.charge(formats.bytes_held(kind, outputs))
        body = formats.encode(kind, served.description.outputs, outputs)
        outcome = "answered"
    finally:
        metrics.program_requests.labels(*served.labels, outcome).inc()
    metrics.program_seconds.labels(*served.labels).observe(time.perf_counter() - began)
    return Response(body, media_type=kind)


@router.get("", summary="List programs")
async def list_programs(programs: ProgramsHere, tenant: TenantHere) -> list[Program]:
    """All programs that you may call: the operator's, and those that you have uploaded."""
    files = await asyncio.to_thread(programs.catalog.list, tenant)
    return [Program(**_about(programs, file)) for file in files]  # type: ignore[arg-type]


@router.get("/{name}", summary="Describe a program")
async def describe_program(programs: ProgramsHere, tenant: TenantHere, name: Name) -> DescribedProgram:
    """What it takes and returns, by name, with types and shapes."""
    served = await programs.get(tenant, name)
    return _described(programs, served.file, served.description, served.batch)


@router.put(
    "/{name}", status_code=201, summary="Upload a program",
    openapi_extra={"requestBody": {"required": True, "content": {SAFETENSORS: _BINARY}}},
    responses={200: {"model": DescribedProgram, "description": "A program of this name is replaced"},
               413: {"model": Problem}, 415: {"model": Problem}},
)  # fmt: skip
async def put_program(
    programs: ProgramsHere, tenant: TenantHere, name: Name, request: Request, response: Response,
    content_type: Annotated[str, Header(include_in_schema=False)] = SAFETENSORS,
) -> DescribedProgram:  # fmt: skip
    """A file that `telegrad.export.save` has written. It takes the place of your program of this name.

    Where the operator allows it (`TELEGRAD_PROGRAM_UPLOADS`). What it holds on a worker is charged to you.
    """
    if media_type(content_type) not in (SAFETENSORS, "application/octet-stream"):
        raise Refused(415, NotSupportedError(f"programs: expected {SAFETENSORS}, not {content_type!r:.60}"))
    catalog = programs.catalog
    target = catalog.place_for(tenant, name)
    temporary = target.with_name(f".{name}.{secrets.token_hex(8)}.tmp")
    try:
        with catalog.reserving(tenant, name) as reserve:
            await _receive(request, temporary, reserve)
            await programs.check(tenant, name, str(temporary))
            response.status_code = 200 if target.exists() else 201
            os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    audit(request.scope, "program uploaded", program=name)
    served = await programs.get(tenant, name)
    return _described(programs, served.file, served.description, served.batch)


async def _receive(request: Request, path: FilePath, reserve: Callable[[int], None]) -> None:
    """Write the body to a file, for which room is reserved as it says that it is long, or as it comes."""
    announced = int(request.headers.get("content-length", 0))
    reserve(announced)
    received = 0
    with open(path, "xb") as file:
        async for piece in request.stream():
            received += len(piece)
            if received > announced:
                reserve(received - announced)
                announced = received
            await asyncio.to_thread(file.write, piece)


@router.delete("/{name}", status_code=204, summary="Remove an uploaded program")
async def delete_program(programs: ProgramsHere, tenant: TenantHere, name: Name, request: Request) -> None:
    """Remove your program, and free what it holds. What runs is finished."""
    programs.catalog.remove(tenant, name)
    programs.forget(tenant, name)
    audit(request.scope, "program removed", program=name)


def _about(programs: Programs, file: ProgramFile) -> dict[str, object]:
    owner = "operator" if file.owner is SERVER else "tenant"
    return {"name": file.name, "owner": owner, "nbytes": file.nbytes, "loaded": programs.loaded(file)}


def _described(programs: Programs, file: ProgramFile, program: ProgramDescription, batch: int) -> DescribedProgram:
    parameters = [held for held in program.tensors if held.kind == "parameter"]
    return DescribedProgram(
        **_about(programs, file),  # type: ignore[arg-type]
        inputs=[_tensor(item.name, item) for item in program.inputs],
        outputs=[_tensor(item.name, item) for item in program.outputs],
        sizes=[ProgramSize(name=symbol.name, min=symbol.min, max=symbol.max) for symbol in program.symbols],
        operations=len(program.steps), batch=batch, parameters=sum([_count(held) for held in parameters]),
    )  # fmt: skip


def _tensor(name: str, tensor: TensorType) -> ProgramTensor:
    shape = [str(size) if isinstance(size, Formula) else size for size in tensor.shape]
    return ProgramTensor(name=name, dtype=tensor.dtype, shape=shape)


def _count(tensor: TensorType) -> int:
    count = 1
    for size in tensor.at({}):
        count *= size
    return count

"""Running operations and backward from JSON."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter

from server.gateway.dependencies import Gateway, GatewayHere, MemoryHere, SessionHere, SessionLike
from server.gateway.http import models
from server.gateway.http.tensor_streams import as_model, new_tensor
from server.gateway.problems import Problem
from server.gateway.tenancy.request_memory import RequestMemory
from server.ipc import requests as verbs
from server.ipc.requests import RunOp, RunOps, TensorInfo
from telegrad_protocol.errors import ArgumentError

router = APIRouter(
    prefix="/v1/sessions/{session_id}", tags=["operations"],
    responses={code: {"model": Problem} for code in (403, 404, 409, 422, 507)},
)  # fmt: skip


@router.post("/ops", summary="Run operations", response_model_exclude_unset=True)
async def run_ops(
    gateway: GatewayHere, session: SessionHere, memory: MemoryHere, steps: models.Steps
) -> models.OpsAnswer:
    """Run one operation, or a list of them in order.

        [{"op": "tensor", "data": [[1, 2], [3, 4]], "dtype": "float32", "out": 1},
         {"op": "matmul", "args": [{"tensor": 1}, {"tensor": 1}], "out": 2, "values": true}]

    The first that fails ends the request, and the error's `site` says which it was; the results of those before it
    remain.
    """
    # Nested lists take Python's time: in a thread, they leave the loop some.
    prepared = await asyncio.to_thread(lambda: [_prepared(step) for step in steps])
    results: list[models.StepResult] = []
    while len(results) < len(steps):
        begin = len(results)
        end = next((i + 1 for i in range(begin, len(steps)) if steps[i].values), len(steps))
        request = RunOps(begin, prepared[begin:end])
        answered: list[list[TensorInfo]] = await gateway.ask(request, list[list[TensorInfo]], session)
        for step, infos in zip(steps[begin:end], answered, strict=True):
            results.append(await _result(gateway, session, step, infos, memory))
    return models.OpsAnswer(results=results)


async def _result(
    gateway: Gateway, session: SessionLike, step: models.Step, infos: list[TensorInfo], memory: RequestMemory
) -> models.StepResult:
    tensors = [await as_model(gateway, session, info, step.values, memory) for info in infos]
    return models.StepResult(op=step.op, tensors=tensors)


def _prepared(step: models.Step) -> verbs.Step:
    if isinstance(step, models.TensorStep):
        return new_tensor(step.data, step.dtype, step.out, step.device, step.requires_grad)
    args: list[Any] = list(step.args)
    return RunOp(step.op, args, dict(step.kwargs), step.out, step.requires_grad)


@router.post("/backward", summary="Accumulate gradients", response_model_exclude_unset=True)
async def backward(
    gateway: GatewayHere, session: SessionHere, memory: MemoryHere, request: models.BackwardRequest
) -> models.BackwardAnswer:
    """`torch.autograd.backward`: the leaves' gradients are tensors of the session, listed in the answer."""
    accumulated: list[tuple[int, TensorInfo]] = await gateway.ask(
        _backward(request), list[tuple[int, TensorInfo]], session
    )
    return models.BackwardAnswer(
        gradients=[
            models.LeafGradient(leaf=leaf, gradient=await as_model(gateway, session, info, request.values, memory))
            for leaf, info in accumulated
        ]
    )


def _backward(request: models.BackwardRequest) -> verbs.Backward:
    gradients = (None,) * len(request.roots) if request.gradients is None else tuple(request.gradients)
    if len(gradients) != len(request.roots):
        raise ArgumentError(f"backward: {len(request.roots)} roots and {len(gradients)} gradients")
    retain = request.create_graph if request.retain_graph is None else request.retain_graph
    inputs = None if request.inputs is None else tuple(request.inputs)
    return verbs.Backward(request.roots, gradients, inputs, retain, request.create_graph)

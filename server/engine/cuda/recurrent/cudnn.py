"""Stacks of recurrent layers by cuDNN: one call forward, and two for all gradients."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from server.engine import keys
from server.engine.cuda.pointwise.joining import joining
from server.engine.cuda.runtime.launch import pointer
from server.engine.device.cupy_module import cp
from server.engine.operators import Request
from server.engine.ops.layers.rnn_stack import Stack
from server.engine.registry import prepares
from server.engine.value import Launch, Value
from telegrad_protocol import dtypes
from telegrad_protocol.layout import contiguous_strides
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.layers import rnn as ops

from .plans import Plan, handle_on, plan_of


@prepares(ops._flat_weights, keys.CUDA, deferrable=True)
def _prepare_weights(request: Request) -> Launch:
    """One copy per tensor."""
    tensors, order = request.args
    out = request.outs[0]
    starts = dict(zip(order, accumulate([tensors[place].numel for place in order], initial=0), strict=False))
    parts = [
        (out.view(t.shape, contiguous_strides(t.shape), out.offset + starts[place]), t)
        for place, t in enumerate(tensors)
    ]  # fmt: skip
    return joining(request.backend, parts)


def _stack_of(input: Meta, hx: Meta, mode: str, hidden: int, settings: tuple[Any, ...]) -> Stack:
    num_layers, bidirectional, has_biases, batch_sizes, allow_tf32 = settings
    steps = ops.steps_of(input.shape[0], hx.shape[1], batch_sizes)
    return Stack(
        input.dtype, mode, input.shape[1], hidden, hx.shape[2], num_layers, bidirectional, has_biases, steps,
        allow_tf32,
    )  # fmt: skip


def _address(value: Value | None) -> int:
    return 0 if value is None else pointer(value)


def _bytes(backend: Any, nbytes: int) -> Meta:
    """What ``backend.empty`` makes so many bytes of; kept by who needs them again."""
    return Meta.of((max(nbytes, 1),), dtypes.uint8, backend.device)


@prepares(ops._cudnn_rnn, keys.CUDA)
def _prepare(request: Request) -> Launch | None:
    backend = request.backend
    input, hx, cx, weight, mode, hidden, *settings, reserve_bytes = request.args
    stack = _stack_of(input, hx, mode, hidden, tuple(settings))
    plan = plan_of(backend, stack)
    if plan is None or not _fits(plan, weight, reserve_bytes, hx, cx, input):
        return None
    work_meta = _bytes(backend, plan.training_work if reserve_bytes else plan.inference_work)

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        x, h, c, w = args[:4]
        y, last, cells, reserve = outs
        kept = reserve if reserve_bytes else None
        with_cells = (0, 0) if c is None else (pointer(c), pointer(cells))
        work = backend.empty(work_meta)
        plan.forward(
            handle_on(backend), pointer(x), pointer(y), pointer(h), pointer(last), *with_cells, pointer(w),
            pointer(work), _address(kept),
        )  # fmt: skip

    return launch


def _fits(plan: Plan, weight: Meta, reserve_bytes: int, *operands: Meta | None) -> bool:
    """Whether a plan is for these operands, which come from a client."""
    if weight.nbytes != plan.weight_bytes or reserve_bytes not in (0, plan.reserve):
        return False
    return weight.is_contiguous and all(meta is None or meta.is_contiguous for meta in operands)


@prepares(ops._cudnn_rnn_backward, keys.CUDA)
def _prepare_backward(request: Request) -> Launch | None:
    backend = request.backend
    grad, grad_h, grad_c, input, hx, cx, weight, output, reserve, mode, hidden, *settings = request.args
    stack = _stack_of(input, hx, mode, hidden, tuple(settings))
    operands = (grad, grad_h, grad_c, input, hx, cx, output, reserve)
    plan = plan_of(backend, stack)
    if plan is None or not reserve.numel or not _fits(plan, weight, reserve.numel, *operands):
        return None
    work_meta, reserve_meta = _bytes(backend, plan.training_work), _bytes(backend, plan.reserve)

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        dy, dhy, dcy, x, h, c, w, y, kept = args[:9]
        dx, dhx, dcx, dw = outs
        handle, stream = handle_on(backend), backend.stream
        work, reserve = backend.empty(work_meta), backend.empty(reserve_meta)
        # A second pass through the same graph must find what the forward pass has left.
        cp.cuda.runtime.memcpyAsync(pointer(reserve), pointer(kept), plan.reserve, _TO_DEVICE, stream)
        cp.cuda.runtime.memsetAsync(pointer(dw), 0, plan.weight_bytes, stream)
        cells = (0, 0, 0) if c is None else (pointer(c), pointer(dcy), pointer(dcx))
        plan.backward(
            handle, pointer(y), pointer(dy), pointer(dx), pointer(h), pointer(dhy), pointer(dhx), *cells, pointer(w),
            pointer(work), pointer(reserve),
        )  # fmt: skip
        plan.backward_weights(handle, pointer(x), pointer(h), pointer(y), pointer(dw), pointer(work), pointer(reserve))

    return launch


_TO_DEVICE = 3
"""The number of ``cudaMemcpyDeviceToDevice``."""

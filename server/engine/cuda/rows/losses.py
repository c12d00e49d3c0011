"""Cross-entropy and negative log-likelihood: forward and backward read the logits once.

A second, small launch adds up the losses of all samples in a fixed order. Classes out of range are reported as faults,
and otherwise treated like ignored ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from server.engine import keys
from server.engine.checks import Check
from server.engine.cuda.runtime.faults import FAULTS, expect, record_of
from server.engine.cuda.runtime.launch import load
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE, assembled
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.layers import losses as ops

from .losses_text import LOSSES
from .rowwise import ROWS, address, fits_grid, offset_of, row_major, streamed_threads, vector_width, widest

_BLOCK = 256
"""Threads of a block, unless rows decide it."""
_BLOCKS_OF_SUMS = 2112
"""The most blocks that leave partial sums: 16 per multiprocessor of a device with 132."""


class _Sizes:
    """The sizes of logits (outer, classes, inner), and the names of the C types."""

    def __init__(self, input: Meta, target: Meta, weight: Meta | None, ignore_index: int, reduction: str) -> None:
        self.outer = 1 if input.ndim == 1 else input.shape[0]
        self.classes = input.shape[0 if input.ndim == 1 else 1]
        self.inner = 1 if input.ndim == 1 else math.prod(input.shape[2:])
        self.samples = self.outer * self.inner
        self.type, self.index = CTYPES[input.dtype], CTYPES[target.dtype]
        self.wide = "double" if input.dtype is dtypes.float64 else "float"
        self.check = Check("cross_entropy", (f"{self.classes} classes",))
        self.ignored, self.has_weight = ignore_index, weight is not None
        self.per_sample = reduction == "none"

    @property
    def targets(self) -> str:
        """The C++ expression that makes the ``Targets`` structure from kernel parameters."""
        weight = f"(const {self.type}*)weight"
        return f"Targets<{self.type}, {self.index}>{{target, {weight}, classes, ignored, record, tag}}"

    @property
    def declared(self) -> str:
        """The kernel parameters that ``targets`` names."""
        return f"const {self.index}* target, const void* weight, fault_record* record, u64 tag"


def _kernel(threads: int, parameters: str, call: str) -> Any:
    body = f'extern "C" __global__ void __launch_bounds__({threads}) run({parameters}) {{ {call}; }}\n'
    return load(assembled(PRELUDE, ROWS, FAULTS, LOSSES, body), "run")


def _scratch(request: Request, dtype: dtypes.DType, count: int) -> Callable[[], Any]:
    meta = Meta.of((count,), dtype, request.backend.device)
    return lambda: request.backend.empty(meta)


def _finish(loss: Meta, sizes: _Sizes, total: str, mean: bool, count: int) -> Any:
    of = CTYPES[loss.dtype]
    call = f"finish_loss<{of}, {total}, {sizes.wide}, {str(mean).lower()}>(loss, total, partial, count)"
    kernel = _kernel(1024, f"{of}* loss, {total}* total, const {sizes.wide}* partial, i64 count", call)
    return kernel.prepare(1, 1024, "PPP", [("i64", count)])


def _offsets(metas: Any) -> list[int]:
    return [offset_of(meta) for meta in metas]


@prepares(ops._cross_entropy, keys.CUDA)
@row_major
def cross_entropy(request: Request) -> Launch | None:
    input, target, weight, reduction, ignore_index, smoothing, _ = request.args
    sizes = _Sizes(input, target, weight, ignore_index, reduction)
    if not sizes.samples or (sizes.per_sample and request.outs[0].dtype is not input.dtype):
        return None
    fire, partials = _forward(sizes, input, smoothing)
    return _forward_launch(request, sizes, fire, partials, reduction)


def _forward(sizes: _Sizes, input: Meta, smoothing: float) -> tuple[Any, int]:
    """The launch over all logits, and the number of partial sums that it leaves."""
    wide, declared = (
        sizes.wide,
        f"{sizes.type}* loss, {sizes.wide}* log_sum, {sizes.wide}* partial, const {sizes.type}* in",
    )
    smooth = str(smoothing > 0).lower()
    constants: list[Any] = [("i64", sizes.classes), ("i64", sizes.ignored), ("i64", sizes.samples)]
    number = ("double" if wide == "double" else "float", smoothing)
    if sizes.inner > 1:
        block, per_block = _BLOCK, _BLOCK
        call = (
            f"cross_entropy_pixels<{sizes.type}, {sizes.index}, {smooth}>"
            f"(loss, log_sum, partial, in, {sizes.targets}, samples, inner, smoothing)"
        )
        parameters = f"{declared}, {sizes.declared}, i64 classes, i64 ignored, i64 samples, i64 inner, {wide} smoothing"
        constants += [("i64", sizes.inner), number]
    else:
        width = widest(input)
        threads = streamed_threads(sizes.classes, width)
        block, per_block = max(threads, 128), max(128 // threads, 1)
        call = (
            f"cross_entropy_rows<{sizes.type}, {sizes.index}, {threads}, {width}, {smooth}>"
            f"(loss, log_sum, partial, in, {sizes.targets}, samples, smoothing)"
        )
        parameters = f"{declared}, {sizes.declared}, i64 classes, i64 ignored, i64 samples, {wide} smoothing"
        constants += [number]
    grid = min(-(-sizes.samples // per_block), _BLOCKS_OF_SUMS)
    return _kernel(block, parameters, call).prepare(grid, block, "PPPPPPPQ", constants), grid


def _forward_launch(request: Request, sizes: _Sizes, fire: Any, partials: int, reduction: str) -> Launch:
    backend, check, per_sample = request.backend, sizes.check, sizes.per_sample
    (loss, log_sum, total), (x, t, w, *_) = _offsets(request.outs), _offsets(request.args)
    wide = request.outs[1].dtype
    scratch = _scratch(request, wide, 2 * partials)
    finish = None if per_sample else _finish(request.outs[0], sizes, sizes.wide, reduction == "mean", partials)
    one = None if reduction == "mean" else _kernel(1, f"{sizes.wide}* total", "*total = 1").prepare(1, 1, "P")

    def launch(args: Any, outs: Any) -> None:
        record, tag, stream = record_of(backend), expect(check), backend.stream
        loss_at, total_at = address(outs[0], loss), address(outs[2], total)
        partial = 0
        if finish is not None:
            held = scratch()
            partial = held.storage.block.pointer
        fire(
            stream, loss_at if per_sample else 0, address(outs[1], log_sum), partial, address(args[0], x),
            address(args[1], t), address(args[2], w), record.pointer, tag,
        )  # fmt: skip
        if finish is not None:
            finish(stream, loss_at, total_at, partial)
        if one is not None:
            one(stream, total_at)
        if tag:
            record.mark()

    return launch


@prepares(ops._cross_entropy_backward, keys.CUDA, elementwise=True)
@row_major
def cross_entropy_backward(request: Request) -> Launch | None:
    grad, input, target, weight, log_sum, total, reduction, ignore_index, smoothing = request.args
    sizes = _Sizes(input, target, weight, ignore_index, reduction)
    wide = dtypes.float64 if input.dtype is dtypes.float64 else dtypes.float32
    if not input.numel or log_sum.dtype is not wide or total.dtype is not wide:
        return None
    fire = _backward(sizes, CTYPES[grad.dtype], input, smoothing)
    if fire is None:
        return None
    backend, check = request.backend, sizes.check
    g, x, t, w, lse, n, *_ = _offsets(request.args)
    (o,) = _offsets(request.outs)

    def launch(args: Any, outs: Any) -> None:
        record, tag = record_of(backend), expect(check)
        fire(
            backend.stream, address(outs[0], o), address(args[0], g), address(args[1], x), address(args[2], t),
            address(args[3], w), record.pointer, tag, address(args[4], lse), address(args[5], n),
        )  # fmt: skip
        if tag:
            record.mark()

    return launch


def _backward(sizes: _Sizes, grad: str, input: Meta, smoothing: float) -> Any:
    wide, smooth = sizes.wide, str(smoothing > 0).lower()
    parameters = (
        f"{sizes.type}* out, const {grad}* grad, const {sizes.type}* in, {sizes.declared}, const {wide}* log_sum, "
        f"const {wide}* total, i64 classes, i64 ignored, i64 samples, i64 inner, int per_sample, {wide} smoothing"
    )
    types = f"{sizes.type}, {sizes.index}, {grad}"
    passed = f"out, grad, in, {sizes.targets}, log_sum, total, samples"
    if sizes.inner > 1:
        block = per_block = _BLOCK
        call = f"cross_entropy_backward_pixels<{types}, {smooth}>({passed}, inner, per_sample, smoothing)"
    else:
        width = widest(input)
        threads = streamed_threads(sizes.classes, width)
        block, per_block = max(threads, 128), max(128 // threads, 1)
        call = f"cross_entropy_backward_rows<{types}, {threads}, {width}, {smooth}>({passed}, per_sample, smoothing)"
    grid = -(-sizes.samples // per_block)
    numbers: list[Any] = [("i64", n) for n in (sizes.classes, sizes.ignored, sizes.samples, sizes.inner)]
    numbers += [("int", int(sizes.per_sample)), (wide, smoothing)]
    return _kernel(block, parameters, call).prepare(grid, block, "PPPPPPQPP", numbers) if fits_grid(grid) else None


@prepares(ops._nll_loss_forward, keys.CUDA)
@row_major
def nll_loss(request: Request) -> Launch | None:
    input, target, weight, reduction, ignore_index = request.args
    sizes = _Sizes(input, target, weight, ignore_index, reduction)
    if not sizes.samples:
        return None
    check = Check("nll_loss", sizes.check.places)
    parameters = (
        f"{sizes.type}* loss, {sizes.wide}* partial, const {sizes.type}* in, {sizes.declared}, i64 classes, "
        "i64 ignored, i64 samples, i64 inner"
    )
    call = f"nll<{sizes.type}, {sizes.index}>(loss, partial, in, {sizes.targets}, samples, inner)"
    grid = min(-(-sizes.samples // _BLOCK), _BLOCKS_OF_SUMS)
    numbers = [("i64", n) for n in (sizes.classes, ignore_index, sizes.samples, sizes.inner)]
    fire = _kernel(_BLOCK, parameters, call).prepare(grid, _BLOCK, "PPPPPPQ", numbers)
    finish = _finish(request.outs[0], sizes, sizes.type, reduction == "mean", grid)
    wide = dtypes.float64 if input.dtype is dtypes.float64 else dtypes.float32
    scratch, discarded_scratch = _scratch(request, wide, 2 * grid), _scratch(request, input.dtype, 1)
    backend, per_sample = request.backend, sizes.per_sample
    (loss, total), (x, t, w, *_) = _offsets(request.outs), _offsets(request.args)

    def launch(args: Any, outs: Any) -> None:
        record, tag, held, spare = record_of(backend), expect(check), scratch(), discarded_scratch()
        partial, loss_at = held.storage.block.pointer, address(outs[0], loss)
        fire(
            backend.stream, loss_at if per_sample else 0, partial, address(args[0], x), address(args[1], t),
            address(args[2], w), record.pointer, tag,
        )  # fmt: skip
        finish(backend.stream, spare.storage.block.pointer if per_sample else loss_at, address(outs[1], total), partial)
        if tag:
            record.mark()

    return launch


@prepares(ops._nll_loss_backward, keys.CUDA)
@row_major
def nll_loss_backward(request: Request) -> Launch | None:
    grad, target, weight, total, _, reduction, ignore_index = request.args
    out = request.outs[0]
    if not out.numel or total.dtype is not grad.dtype:
        return None
    sizes = _Sizes(out, target, weight, ignore_index, reduction)
    width = vector_width(sizes.inner if sizes.inner > 1 else sizes.classes, (out,))
    parameters = (
        f"{sizes.type}* out, const {sizes.type}* grad, {sizes.declared}, const {sizes.type}* total, i64 classes, "
        "i64 ignored, i64 count, i64 inner, int per_sample, int mean"
    )
    call = (
        f"nll_backward<{sizes.type}, {sizes.index}, {width}, {str(sizes.inner > 1).lower()}>"
        f"(out, grad, {sizes.targets}, total, count, inner, per_sample, mean)"
    )
    grid = -(-out.numel // (_BLOCK * width))
    if not fits_grid(grid):
        return None
    numbers = [("i64", n) for n in (sizes.classes, ignore_index, out.numel, sizes.inner)]
    numbers += [("int", int(sizes.per_sample)), ("int", int(reduction == "mean"))]
    fire = _kernel(_BLOCK, parameters, call).prepare(grid, _BLOCK, "PPPPPQP", numbers)
    backend, check = request.backend, Check("nll_loss", sizes.check.places)
    (o,), (g, t, w, n, *_) = _offsets(request.outs), _offsets(request.args)

    def launch(args: Any, outs: Any) -> None:
        record, tag = record_of(backend), expect(check)
        fire(
            backend.stream, address(outs[0], o), address(args[0], g), address(args[1], t), address(args[2], w),
            record.pointer, tag, address(args[3], n),
        )  # fmt: skip
        if tag:
            record.mark()

    return launch

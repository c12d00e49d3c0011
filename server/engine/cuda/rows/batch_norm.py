"""Batch normalization with the batch's own statistics, forward and backward, for row-major and channels-last tensors.

It takes three launches: partial sums per channel, the statistics from these in a fixed order, and the elements.
Variances are computed around a channel's first element, so that a large mean does not cancel digits.
"""

from __future__ import annotations

import math
from typing import Any

from server.engine import functional as F
from server.engine import keys
from server.engine.cuda.runtime.launch import load
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE, assembled
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch, Value
from telegrad_protocol import dtypes
from telegrad_protocol.memory_format import channels_last_strides
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.layers import normalization as ops

from .batch_norm_text import BATCH_NORM
from .rowwise import ROWS, address, dense, fits_grid, offset_of, vector_width

_THREADS = 256
_BLOCKS = 1056
"""The most blocks that share the elements: eight per multiprocessor of a device with 132."""
_BLOCKS_OF_ELEMENTS = 4224
"""The most blocks that have pixels: each of its threads has several, whose channels it looks up once."""


def _kernel(threads: int, parameters: str, call: str) -> Any:
    body = f'extern "C" __global__ void __launch_bounds__({threads}) run({parameters}) {{ {call}; }}\n'
    return load(assembled(PRELUDE, ROWS, BATCH_NORM, body), "run")


class _Channels:
    """The launch geometry of (N, C, ...): planes of one channel, or pixels with all channels."""

    def __init__(self, input: Meta, out: Meta, *others: Meta) -> None:
        self.channels, self.count = input.shape[1], input.numel // input.shape[1]
        self.inner = math.prod(input.shape[2:]) if out.is_contiguous else 1
        self.images = self.count // self.inner
        self.planes = self.inner > 1
        self.width = vector_width(self.inner if self.planes else self.channels, (input, out, *others))
        self.type, self.wide = CTYPES[input.dtype], "double" if input.dtype is dtypes.float64 else "float"
        self.vectors = input.numel // self.width
        self.across = min(1 << (self.channels // self.width - 1).bit_length(), 32)
        """Threads of a block that have neighbouring channels of a pixel."""
        self.rows = _THREADS // self.across
        if self.planes:
            across, most = self.channels, -(-self.images * (self.inner // self.width) // _THREADS)
        else:
            across, most = -(-self.channels // (self.across * self.width)), -(-self.images // self.rows)
        self.most = max(min(most, _BLOCKS_OF_ELEMENTS // across, 65535), 1)
        self.slices = max(min(_BLOCKS // across, most, 65535), 1)
        self.grid = (across, self.slices)

    @property
    def fits(self) -> bool:
        """Whether the grid is large enough for all elements."""
        return fits_grid(-(-self.vectors // _THREADS)) and fits_grid(self.channels)

    @property
    def scratch(self) -> dtypes.DType:
        """The dtype of the partial sums."""
        return dtypes.float64 if self.wide == "double" else dtypes.float32

    def sums(self, grad: str, back: bool) -> Any:
        """The launch over all elements that leaves partial sums by slice and channel."""
        kinds = f"{str(back).lower()}, {self.type}, {grad}, {self.wide}, {self.width}"
        declared = (
            f"{self.wide}* partial, const {self.type}* in, const {grad}* grad, const {self.wide}* mean, "
            f"const {self.wide}* rstd"
        )
        passed = "partial, in, grad, mean, rstd"
        if self.planes:
            call = f"sum_planes<{kinds}>({passed}, images, channels, inner)"
            kernel = _kernel(_THREADS, f"{declared}, i64 images, i64 channels, i64 inner", call)
            numbers, block = [self.images, self.channels, self.inner], (_THREADS, 1)
        else:
            call = f"sum_pixels<{kinds}, {self.across}>({passed}, pixels, channels)"
            kernel = _kernel(_THREADS, f"{declared}, i64 pixels, i64 channels", call)
            numbers, block = [self.images, self.channels], (self.across, self.rows)
        return kernel.prepare(self.grid, block, "PPPPP", [("i64", n) for n in numbers])

    def by_channel(self, parameters: str, call: str, varying: str, numbers: list[Any]) -> Any:
        """A launch with a block for 32 channels."""
        constants = [("int", self.slices), ("i64", self.channels), *numbers]
        kernel = _kernel(1024, f"{parameters}, int slices, i64 channels", call)
        return kernel.prepare(-(-self.channels // 32), (32, 32), varying, constants)

    def elements(self, name: str, kinds: str, parameters: str, passed: str, varying: str, numbers: list[Any]) -> Any:
        """A launch over all elements of the kernel of this name, for planes or for pixels."""
        if self.planes:
            call = f"{name}_planes<{kinds}, {self.width}>({passed}, vectors, channels, inner)"
            kernel = _kernel(_THREADS, f"{parameters}, i64 vectors, i64 channels, i64 inner", call)
            constants = [*numbers, ("i64", self.vectors), ("i64", self.channels), ("i64", self.inner)]
            return kernel.prepare(-(-self.vectors // _THREADS), _THREADS, varying, constants)
        call = f"{name}_pixels<{kinds}, {self.width}, {self.across}>({passed}, pixels, channels)"
        kernel = _kernel(_THREADS, f"{parameters}, i64 pixels, i64 channels", call)
        grid, block = (self.grid[0], self.most), (self.across, self.rows)
        return kernel.prepare(grid, block, varying, [*numbers, ("i64", self.images), ("i64", self.channels)])


def _like_result(value: Value, out: Meta) -> Value:
    """The value, or a copy of it in the layout of the result."""
    if value.meta.strides == out.strides:
        return value
    copy: Value = dense(value) if out.is_contiguous else F._in_layout(value.alias(), out.strides)
    return copy


def _in_layout_of(meta: Meta, out: Meta) -> Meta:
    return meta if meta.strides == out.strides else meta.like(strides=out.strides)


def _is_supported(out: Meta) -> bool:
    return out.is_contiguous or (out.ndim in (4, 5) and out.strides == channels_last_strides(out.shape))


@prepares(ops._batch_norm, keys.CUDA, deferrable=True)
def batch_norm(request: Request) -> Launch | None:
    input, weight, bias, eps = request.args
    out = request.outs[0]
    given = _in_layout_of(input, out)
    plan = _Channels(given, out)
    if not _is_supported(out) or not plan.fits or any(m is not None and not m.is_contiguous for m in (weight, bias)):
        return None
    wide, name = plan.wide, plan.type
    w_type, b_type = (name if meta is None else CTYPES[meta.dtype] for meta in (weight, bias))
    sums = plan.sums(name, False)
    statistics = _statistics(plan, eps)
    elements = plan.elements(
        "normalize", f"{name}, {w_type}, {b_type}, {wide}",
        f"{name}* out, const {name}* in, const {wide}* mean, const {wide}* rstd, const {w_type}* weight, "
        f"const {b_type}* bias", "out, in, mean, rstd, weight, bias", "PPPPPP", [],
    )  # fmt: skip
    backend = request.backend
    scratch = Meta.of((2 * plan.slices * plan.channels,), plan.scratch, backend.device)
    x, w, b = offset_of(given), offset_of(weight), offset_of(bias)
    o, m, v, r = map(offset_of, request.outs)

    def launch(args: Any, outs: Any) -> None:
        stream, source, held = backend.stream, _like_result(args[0], out), backend.empty(scratch)
        partial, data, mean, rstd = address(held, 0), address(source, x), address(outs[1], m), address(outs[3], r)
        sums(stream, partial, data, 0, 0, 0)
        statistics(stream, mean, address(outs[2], v), rstd, partial, data)
        elements(stream, address(outs[0], o), data, mean, rstd, address(args[1], w), address(args[2], b))

    return launch


def _statistics(plan: _Channels, eps: float) -> Any:
    wide, name = plan.wide, plan.type
    call = f"statistics<{name}, {wide}>(mean, var, rstd, partial, in, slices, channels, inner, count, eps)"
    parameters = (
        f"{wide}* mean, {wide}* var, {wide}* rstd, const {wide}* partial, const {name}* in, int slices, i64 channels, "
        f"i64 inner, {wide} count, {wide} eps"
    )
    numbers = [("int", plan.slices), ("i64", plan.channels), ("i64", plan.inner), (wide, plan.count), (wide, eps)]
    return _kernel(1024, parameters, call).prepare(-(-plan.channels // 32), (32, 32), "PPPPP", numbers)


@prepares(ops._update_running_statistics_, keys.CUDA, deferrable=True)
def update_running_statistics(request: Request) -> Launch | None:
    running, (mean, var), (momentum, factor) = request.args[:2], request.args[2:4], request.args[4:]
    targets = [meta for meta in running if meta is not None]
    if len({meta.dtype for meta in targets}) != 1 or not all(m.is_contiguous for m in (*targets, mean, var)):
        return None
    name, statistic = CTYPES[targets[0].dtype], CTYPES[mean.dtype]
    wide = "double" if dtypes.float64 in (targets[0].dtype, mean.dtype) else "float"
    parameters = (
        f"{name}* running_mean, {name}* running_var, const {statistic}* mean, const {statistic}* var, {wide} keep, "
        f"{wide} momentum, {wide} factor, i64 channels"
    )
    call = f"update_running<{wide}>(running_mean, running_var, mean, var, keep, momentum, factor, channels)"
    kernel = _kernel(_THREADS, parameters, call)
    channels = mean.shape[0]
    numbers = [(wide, 1 - momentum), (wide, momentum), (wide, factor), ("i64", channels)]
    fire = kernel.prepare(-(-channels // _THREADS), _THREADS, "PPPP", numbers)
    backend, offsets = request.backend, [offset_of(meta) for meta in request.args[:4]]

    def launch(args: Any, outs: Any) -> None:
        fire(backend.stream, *[address(args[place], offset) for place, offset in enumerate(offsets)])

    return launch


@prepares(ops._batch_norm_gradients, keys.CUDA, deferrable=True)
def batch_norm_gradients(request: Request) -> Launch | None:
    grad, input, mean, rstd, weight = request.args
    out = request.outs[0]
    if not input.numel or not _is_supported(out):
        return None
    given, given_grad = _in_layout_of(input, out), _in_layout_of(grad, out)
    plan = _Channels(given, out, given_grad)
    vectors = (mean, rstd, *([weight] if weight is not None else []))
    if (
        not plan.fits
        or any(not m.is_contiguous for m in vectors)
        or any(CTYPES[m.dtype] != plan.wide for m in (mean, rstd))
    ):
        return None
    wide, name, g_type = plan.wide, plan.type, CTYPES[grad.dtype]
    w_type, p_type = name if weight is None else CTYPES[weight.dtype], CTYPES[request.outs[1].dtype]
    sums = plan.sums(g_type, True)
    finish = plan.by_channel(
        f"{p_type}* dw, {p_type}* db, {wide}* sums, const {wide}* partial",
        f"parameters<{p_type}, {wide}>(dw, db, sums, partial, slices, channels)", "PPPP", [],
    )  # fmt: skip
    elements = plan.elements(
        "backward", f"{name}, {g_type}, {w_type}, {wide}",
        f"{name}* dx, const {g_type}* grad, const {name}* in, const {wide}* mean, const {wide}* rstd, "
        f"const {w_type}* weight, const {wide}* sums, {wide} count", "dx, grad, in, mean, rstd, weight, sums, count",
        "PPPPPPP", [(wide, plan.count)],
    )  # fmt: skip
    backend = request.backend
    scratch = Meta.of((2 * (plan.slices + 1) * plan.channels,), plan.scratch, backend.device)
    totals_at = 2 * plan.slices * plan.channels * plan.scratch.itemsize
    g, x, m, r, w = (offset_of(meta) for meta in (given_grad, given, mean, rstd, weight))
    o, dw, db = map(offset_of, request.outs)

    def launch(args: Any, outs: Any) -> None:
        stream, held = backend.stream, backend.empty(scratch)
        source, grad_value = _like_result(args[1], out), _like_result(args[0], out)
        partial, data, gradient, mean_at, rstd_at = (
            address(held, 0), address(source, x), address(grad_value, g), address(args[2], m), address(args[3], r),
        )  # fmt: skip
        sums(stream, partial, data, gradient, mean_at, rstd_at)
        finish(stream, address(outs[1], dw), address(outs[2], db), partial + totals_at, partial)
        elements(
            stream, address(outs[0], o), gradient, data, mean_at, rstd_at, address(args[4], w), partial + totals_at
        )

    return launch

"""Layer and RMS normalization over the last dimensions, forward and backward.

Backward reads the gradient and the input once for all three gradients: every block sums the contributions of its rows
to the parameters' gradients, and a second, small launch adds these sums up in a fixed order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from server.engine import keys
from server.engine.cuda.runtime.launch import load
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE, assembled
from server.engine.operators import Request
from server.engine.registry import overwrites, prepares
from server.engine.value import Launch
from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.layers import normalization as ops

from .norm_text import MOMENTS, NORMS
from .rowwise import (
    ROWS,
    address,
    fits_grid,
    held_rows,
    offset_of,
    power_of_two,
    row_major,
    streamed_threads,
    vector_width,
    widest,
)
from .totals import totals

_HELD = 8
"""The elements of a row that a thread of the backward pass holds, beside as many sums per parameter."""
_BLOCKS = 792
"""The most blocks that share the rows in the backward pass: six per multiprocessor of a device with 132."""
_BLOCKS_WITH_SUMS = 660
"""The same with sums besides, whose registers leave room for five."""
_COLUMNS = 128
"""Threads, and so columns, of a block of ``norm_columns``."""


def _kernel(threads: int, parameters: str, call: str) -> Any:
    body = f'extern "C" __global__ void __launch_bounds__({threads}) run({parameters}) {{ {call}; }}\n'
    return load(assembled(PRELUDE, ROWS, MOMENTS, NORMS, body), "run")


def _accumulate_type(meta: Meta) -> str:
    return "double" if meta.dtype is dtypes.float64 else "float"


def have_accumulate_type(input: Meta, *statistics: Meta) -> bool:
    """Whether statistics have the type in which rows of ``input`` are accumulated."""
    return all(CTYPES[meta.dtype] == _accumulate_type(input) for meta in statistics)


def _type(meta: Meta | None, otherwise: str) -> str:
    return otherwise if meta is None else CTYPES[meta.dtype]


@prepares(ops._layer_norm, keys.CUDA, deferrable=True)
@row_major
def layer_norm(request: Request) -> Launch | None:
    input, shape, weight, bias, eps = request.args
    fire = forward_launch(input, request.outs, math.prod(shape), weight, bias, eps, rms=False)
    if fire is None:
        return None
    backend, (o, m, r) = request.backend, map(offset_of, request.outs)
    x, w, b = offset_of(input), offset_of(weight), offset_of(bias)

    def launch(args: Any, outs: Any) -> None:
        weight, bias = args[2], args[3]
        fire(
            backend.stream, outs[0].storage.block.pointer + o, outs[1].storage.block.pointer + m,
            outs[2].storage.block.pointer + r, args[0].storage.block.pointer + x,
            0 if weight is None else weight.storage.block.pointer + w,
            0 if bias is None else bias.storage.block.pointer + b,
        )  # fmt: skip

    return launch


@prepares(ops._rms_norm, keys.CUDA, deferrable=True)
@row_major
def rms_norm(request: Request) -> Launch | None:
    input, shape, weight, eps = request.args
    fire = forward_launch(input, request.outs, math.prod(shape), weight, None, eps, rms=True)
    if fire is None:
        return None
    backend, (o, r), x, w = request.backend, map(offset_of, request.outs), offset_of(input), offset_of(weight)

    def launch(args: Any, outs: Any) -> None:
        fire(backend.stream, address(outs[0], o), 0, address(outs[1], r), address(args[0], x), address(args[2], w), 0)

    return launch


class Beside(NamedTuple):
    """What a kernel reads and writes beside a normalization's own operands and results, where there is something.

    Forward the rows of ``other`` are added first, and the sum goes to ``total``; backward they are added to the input's
    gradient. ``copy`` gets the result in another type, ``sums`` what backward makes, added up over all rows.
    """

    other: Meta | None = None
    total: Meta | None = None
    copy: Meta | None = None
    sums: Meta | None = None

    @property
    def rows(self) -> tuple[Meta | None, ...]:
        """What has a row for each row of the input."""
        return self.other, self.total, self.copy


_NOTHING = Beside()


def _given(pointers: Mapping[str, tuple[str, Meta | None]]) -> str:
    """The arguments of a call: parameters by these names, and zeros of their types where there is no operand."""
    return ", ".join([name if meta is not None else f"({kind}*)0" for name, (kind, meta) in pointers.items()])


def forward_launch(
    input: Meta, outs: Sequence[Meta | None], length: int, weight: Meta | None, bias: Meta | None, eps: float,
    rms: bool, beside: Beside = _NOTHING,
) -> Any:  # fmt: skip
    """The launch for these operands; None if there is none.

    It takes the addresses of the results, of the input, of weight and bias, and those of ``beside`` if that is given.
    """
    if not input.numel or not have_accumulate_type(input, *[out for out in outs[1:] if out is not None]):
        return None
    rows, wide, name = input.numel // length, _accumulate_type(input), CTYPES[input.dtype]
    kinds = f"{name}, {_type(weight, name)}, {_type(bias, name)}, {wide}"
    declared = (
        f"{name}* out, {wide}* mean, {wide}* rstd, const {name}* in, const {_type(weight, name)}* weight, "
        f"const {_type(bias, name)}* bias"
    )
    other, copy = _type(beside.other, name), _type(beside.copy, name)
    flag, varying = str(rms).lower(), "PPPPPP"
    aligned = [meta for meta in (outs[0], input) if meta is not None]
    plan = held_rows(length, aligned, (input,), also=(weight, bias, *beside.rows))
    if plan is not None:
        passed = f"{_given({'out': (name, outs[0])})}, mean, rstd, in, weight, bias, rows, length, eps, " + _given(
            {"other": (f"const {other}", beside.other), "total": (name, beside.total), "copy": (copy, beside.copy)}
        )
        call = f"norm_held<{kinds}, {other}, {copy}, {plan.threads}, {plan.width}, {plan.items}, {flag}>({passed})"
        if beside is not _NOTHING:
            declared, varying = f"{declared}, const {other}* other, {name}* total, {copy}* copy", "PPPPPPPPP"
        kernel = _kernel(plan.block, f"{declared}, i64 rows, int length, {wide} eps", call)
        grid, block, numbers = plan.grid(rows), plan.block, [("i64", rows), ("int", length), (wide, eps)]
    elif beside is _NOTHING:
        width = widest(input)
        block, grid, numbers = streamed_threads(length, width), rows, [("i64", length), (wide, eps)]
        call = f"norm_streamed<{kinds}, {block}, {width}, {flag}>(out, mean, rstd, in, weight, bias, length, eps)"
        kernel = _kernel(block, f"{declared}, i64 length, {wide} eps", call)
    else:
        return None
    return kernel.prepare(grid, block, varying, numbers) if fits_grid(grid) else None


class Backward:
    """The launches that compute the gradients of rows, of parameters, or of both."""

    def __init__(
        self, outs: Sequence[Meta | None], grad: Meta, input: Meta, weight: Meta | None, length: int,
        rms: bool, beside: Beside = _NOTHING,
    ) -> None:  # fmt: skip
        self.beside = beside
        self.grad, self.input, self.weight, self.length, self.rms = grad, input, weight, length, rms
        self.rows = input.numel // length
        self.wide, self.type = _accumulate_type(input), CTYPES[input.dtype]
        self.width = vector_width(length, (grad, input), also=(weight, *outs, *beside.rows))
        self.threads = power_of_two(-(-length // max(_HELD, self.width)))
        self.threads = 32 if 32 < self.threads < 128 else self.threads

    @property
    def holds(self) -> bool:
        """Whether a block's registers can hold a row and the sums for the parameters."""
        return self.threads <= 1024

    @property
    def kinds(self) -> str:
        return f"{self.type}, {CTYPES[self.grad.dtype]}, {_type(self.weight, self.type)}, {self.wide}"

    @property
    def declared(self) -> str:
        return (
            f"const {CTYPES[self.grad.dtype]}* grad, const {self.type}* in, const {self.wide}* mean, "
            f"const {self.wide}* rstd, const {_type(self.weight, self.type)}* weight"
        )

    def held(self, with_rows: bool, with_parameters: bool, dx: Meta | None = None) -> tuple[Any, int]:
        """The launch that reads all operands once, and the number of its blocks.

        It takes the addresses of ``dx``, partial sums and operands, and of what is read and made beside, if anything.
        """
        beside = self.beside
        block = max(self.threads, 128)
        items = -(-self.length // (self.threads * self.width))
        most = _BLOCKS if beside.sums is None else _BLOCKS_WITH_SUMS
        grid = min(-(-self.rows // (block // self.threads)), most * 128 // block if with_parameters else 1 << 30)
        options = (self.rms, with_rows, with_parameters, beside.sums is not None)
        flags = ", ".join(str(flag).lower() for flag in options)
        other, copy = _type(beside.other, self.type), _type(beside.copy, self.type)
        declared, varying, target = self.declared, "PPPPPPP", "dx"
        if beside is not _NOTHING:
            declared, varying = f"{declared}, const {other}* other, {copy}* copy", "PPPPPPPPP"
            target = _given({"dx": (self.type, dx)})
        more = _given({"other": (f"const {other}", beside.other), "copy": (copy, beside.copy)})
        call = (
            f"norm_backward<{self.kinds}, {other}, {copy}, {self.threads}, {self.width}, {items}, {flags}, {block}>"
            f"({target}, partial, grad, in, mean, rstd, weight, rows, length, {more})"
        )
        parameters = f"{self.type}* dx, {self.wide}* partial, {declared}, i64 rows, int length"
        numbers = [("i64", self.rows), ("int", self.length)]
        return _kernel(block, parameters, call).prepare(grid, block, varying, numbers), grid

    def streamed(self) -> Any:
        """The launch that computes the gradients of long rows."""
        width = widest(self.input, self.grad)
        block = streamed_threads(self.length, width)
        call = (
            f"norm_backward_streamed<{self.kinds}, {block}, {width}, {str(self.rms).lower()}>"
            "(dx, grad, in, mean, rstd, weight, length)"
        )
        kernel = _kernel(block, f"{self.type}* dx, {self.declared}, i64 length", call)
        return kernel.prepare(self.rows, block, "PPPPPP", [("i64", self.length)])

    def columns(self) -> tuple[Any, int]:
        """The launch that sums long rows' contributions to the parameters, and the number of its partial sums."""
        across = -(-self.length // _COLUMNS)
        slices = max(min(self.rows, _BLOCKS // across), 1)
        call = (
            f"norm_columns<{self.type}, {CTYPES[self.grad.dtype]}, {self.wide}, {str(self.rms).lower()}>"
            "(partial, grad, in, mean, rstd, rows, length)"
        )
        kernel = _kernel(_COLUMNS, f"{self.wide}* partial, {self.declared}, i64 rows, i64 length", call)
        numbers = [("i64", self.rows), ("i64", self.length)]
        return kernel.prepare((across, slices), _COLUMNS, "PPPPPP", numbers), slices

    def sums(self, metas: Sequence[Meta], partials: int) -> Any:
        """The launch that adds up the partial sums into the gradients of weight and bias, and the sums beside."""
        return totals(metas, self.wide, partials, self.length)

    def scratch(self, partials: int, results: int) -> Meta:
        """The meta of the partial sums of so many results."""
        dtype = dtypes.float64 if self.wide == "double" else dtypes.float32
        return Meta.of((results * partials * self.length,), dtype, self.input.device)


def _gradients(
    request: Request, statistics: tuple[int | None, int], weight: Meta | None, length: int, dx: bool, parameters: int,
    over: bool = False,
) -> Launch | None:  # fmt: skip
    """The launch of the gradients of rows (if ``dx``) and of 0 to 2 parameters.

    ``statistics`` are the positions of mean, None for RMS normalization, and rstd among the arguments. ``over``: the
    gradient of rows may lie where the gradient that is read lies. So it may where threads hold what they have read.
    """
    grad, input = request.args[:2]
    at_mean, at_rstd = statistics
    stats = [request.args[p] for p in statistics if p is not None]
    if not input.numel or not have_accumulate_type(input, *stats):
        return None
    plan = Backward(request.outs, grad, input, weight, length, rms=at_mean is None)
    if not fits_grid(plan.rows) or (over and not plan.holds):
        return None
    whole = plan.holds
    rows: Any = None
    columns, partials = None, 0
    if whole:
        rows, partials = plan.held(dx, parameters > 0)
    else:
        rows = plan.streamed() if dx else None
        columns, partials = plan.columns() if parameters else (None, 0)
    finish = plan.sums(request.outs[-parameters:], partials) if parameters else None
    scratch, backend = plan.scratch(max(partials, 1), max(parameters, 1)), request.backend
    g, x, w = offset_of(grad), offset_of(input), offset_of(weight)
    m = offset_of(request.args[at_mean]) if at_mean is not None else 0
    r, o = offset_of(request.args[at_rstd]), [offset_of(out) for out in request.outs]
    at_weight = at_rstd + 1
    has_weight = weight is not None

    def launch(args: Any, outs: Any) -> None:
        stream = backend.stream
        held = backend.empty(scratch) if finish is not None else None
        partial = address(held, 0)
        operands = (
            address(args[0], g), address(args[1], x), 0 if at_mean is None else address(args[at_mean], m),
            address(args[at_rstd], r), address(args[at_weight], w) if has_weight else 0,
        )  # fmt: skip
        target = address(outs[0], o[0]) if dx else 0
        if whole:
            rows(stream, target, partial, *operands)
        else:
            if rows is not None:
                rows(stream, target, *operands)
            if columns is not None:
                columns(stream, partial, *operands)
        if finish is not None:
            finish(
                stream,
                address(outs[-parameters], o[-parameters]),
                address(outs[-1], o[-1]) if parameters > 1 else 0,
                0,
                partial,
            )

    return launch


@prepares(ops._layer_norm_gradients, keys.CUDA, deferrable=True)
@row_major
def layer_norm_gradients(request: Request) -> Launch | None:
    return _gradients(request, (2, 3), request.args[4], math.prod(request.args[5]), True, 2)


@prepares(ops._rms_norm_gradients, keys.CUDA, deferrable=True)
@row_major
def rms_norm_gradients(request: Request) -> Launch | None:
    return _gradients(request, (None, 2), request.args[3], math.prod(request.args[4]), True, 1)


@overwrites(ops._layer_norm_gradients, keys.CUDA)
@row_major
def layer_norm_gradients_over(request: Request) -> Launch | None:
    return _gradients(request, (2, 3), request.args[4], math.prod(request.args[5]), True, 2, over=True)


@overwrites(ops._rms_norm_gradients, keys.CUDA)
@row_major
def rms_norm_gradients_over(request: Request) -> Launch | None:
    return _gradients(request, (None, 2), request.args[3], math.prod(request.args[4]), True, 1, over=True)


@prepares(ops._layer_norm_backward, keys.CUDA, deferrable=True)
@row_major
def layer_norm_backward(request: Request) -> Launch | None:
    _, input, mean, _, weight = request.args
    if not mean.numel or input.shape[: mean.ndim] != input.shape:
        return None
    length = input.numel // mean.numel
    if weight is not None and weight.numel != length:
        return None
    return _gradients(request, (2, 3), weight, length, True, 0)


@prepares(ops._layer_norm_weight_backward, keys.CUDA, deferrable=True)
@row_major
def layer_norm_weight_backward(request: Request) -> Launch | None:
    return _weight_only(request, math.prod(request.args[4]))


def _weight_only(request: Request, length: int) -> Launch | None:
    """The launch of the weight's gradient alone; the bias's gradient, which comes with it, is discarded."""
    spare = request.outs[0]
    both = _gradients(request._replace(outs=(request.outs[0], spare)), (2, 3), None, length, False, 2)
    if both is None:
        return None
    backend, bias = request.backend, spare.like()

    def launch(args: Any, outs: Any) -> None:
        both(args, (outs[0], backend.empty(bias)))

    return launch

"""The primitives of ``fft`` by cuFFT: up to three dimensions in one plan, batched over all others.

Transformed dimensions are last in memory, except that one dimension anywhere is transformed where it lies as long as
few plans' runs cover it; otherwise the operand is copied. cuFFT overwrites the input of transforms to real numbers.
"""

from __future__ import annotations

import math
from typing import Any

from server.engine import keys
from server.engine.device.cupy_module import cp
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.ops.fourier import fft as ops

from . import plans
from .plans import BACKWARD, C2C, C2R, FORWARD, R2C, Description, Layout

_FEW_RUNS = 8
"""Up to so many runs of a plan transform a dimension that is not the last, where it lies."""


@prepares(ops._fft_c2c, keys.CUDA)
def c2c(request: Request) -> Launch | None:
    if not plans.IS_AVAILABLE or not request.outs[0].numel:
        return None
    backend, _, (_, dim, mode, forward) = request.backend, request.op, request.args
    axes, direction = _wrapped(dim, request.outs[0].ndim), FORWARD if forward else BACKWARD

    def launch(args: Any, outs: Any) -> None:
        out = outs[0].array
        _complex_transform(backend, args[0].array, out, axes, direction)
        _scale(out, mode, axes, out.shape)

    return launch


@prepares(ops._fft_r2c, keys.CUDA)
def r2c(request: Request) -> Launch | None:
    if not plans.IS_AVAILABLE or not request.outs[0].numel:
        return None
    backend, (_, dim, mode, onesided) = request.backend, request.args
    axes = _wrapped(dim, request.outs[0].ndim)
    last = axes[-1]

    def launch(args: Any, outs: Any) -> None:
        source, out = args[0].array, outs[0].array
        length = source.shape[last]
        half = out if onesided else cp.empty((*out.shape[:last], length // 2 + 1, *out.shape[last + 1 :]), out.dtype)
        inner, outer = _parts(axes)
        _transform(backend, source, half, inner, R2C, FORWARD, half.dtype.char)
        for group in outer:
            _complex_transform(backend, half, half, group, FORWARD)
        _scale(half, mode, axes, source.shape)
        if not onesided:
            _fill_symmetric(half, out, axes)

    return launch


@prepares(ops._fft_c2r, keys.CUDA)
def c2r(request: Request) -> Launch | None:
    if not plans.IS_AVAILABLE or not request.outs[0].numel:
        return None
    backend, (_, dim, mode, _) = request.backend, request.args
    axes = _wrapped(dim, request.outs[0].ndim)

    def launch(args: Any, outs: Any) -> None:
        source, out = args[0].array.copy(order="C"), outs[0].array
        inner, outer = _parts(axes)
        for group in outer:
            _complex_transform(backend, source, source, group, BACKWARD)
        _transform(backend, source, out, inner, C2R, BACKWARD, source.dtype.char)
        _scale(out, mode, axes, out.shape)

    return launch


def _wrapped(dim: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    return tuple([d % ndim for d in dim])


def _parts(axes: tuple[int, ...]) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """The last three dimensions, which one plan transforms, and the others in groups of three."""
    others = axes[: -plans.MOST_DIMENSIONS]
    groups = [others[i : i + plans.MOST_DIMENSIONS] for i in range(0, len(others), plans.MOST_DIMENSIONS)]
    return axes[-plans.MOST_DIMENSIONS :], groups


def _complex_transform(backend: Any, source: Any, out: Any, axes: tuple[int, ...], direction: int) -> None:
    for start in range(0, len(axes), plans.MOST_DIMENSIONS):
        group = tuple(sorted(axes[start : start + plans.MOST_DIMENSIONS]))
        _transform(backend, source, out, group, C2C, direction, out.dtype.char)
        source = out


def _transform(
    backend: Any, source: Any, out: Any, axes: tuple[int, ...], which: int, direction: int, complex_char: str
) -> None:
    """Transform up to three axes of ``source``; the last of them is the one of which half is kept."""
    kind = plans.kind_of(which, complex_char)
    if len(axes) == 1 and _transform_in_place(backend, source, out, axes[0], kind, direction):
        return
    order = [*[axis for axis in range(out.ndim) if axis not in axes], *axes]
    moved, target = source.transpose(order), out.transpose(order)
    is_direct = moved.flags.c_contiguous and not moved.data.ptr % out.dtype.itemsize  # as aligned as complex numbers
    packed = moved if is_direct else moved.copy(order="C")
    result = target if target.flags.c_contiguous else cp.empty(target.shape, out.dtype)
    rank = len(axes)
    lengths = max(moved.shape[-rank:], target.shape[-rank:])
    described = Description(
        lengths, Layout(moved.shape[-rank:], 1, math.prod(moved.shape[-rank:])),
        Layout(target.shape[-rank:], 1, math.prod(target.shape[-rank:])), kind, math.prod(moved.shape[:-rank]),
    )  # fmt: skip
    plans.plans_on(backend.index).of(described).run(backend, packed.data.ptr, result.data.ptr, direction)
    if result is not target:
        target[...] = result


def _transform_in_place(backend: Any, source: Any, out: Any, axis: int, kind: int, direction: int) -> bool:
    """Transform one axis of row-major arrays where it lies, if that takes few runs; returns whether it was done."""
    runs = math.prod(out.shape[:axis])
    after = math.prod(out.shape[axis + 1 :])
    if after == 1 or runs > _FEW_RUNS or not (source.flags.c_contiguous and out.flags.c_contiguous):
        return False
    if source.data.ptr % out.dtype.itemsize:
        return False
    given, made = source.shape[axis], out.shape[axis]
    described = Description(
        (max(given, made),), Layout((given,), after, 1), Layout((made,), after, 1), kind, after
    )  # fmt: skip
    plan = plans.plans_on(backend.index).of(described)
    for number in range(runs):
        at_source = source.data.ptr + number * given * after * source.itemsize
        plan.run(backend, at_source, out.data.ptr + number * made * after * out.itemsize, direction)
    return True


def _scale(array: Any, mode: int, axes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    if mode:
        points = math.prod([shape[axis] for axis in axes])
        array *= array.dtype.type(1 / points if mode == 2 else 1 / math.sqrt(points))


def _fill_symmetric(half: Any, out: Any, axes: tuple[int, ...]) -> None:
    """Write a Hermitian signal, of which the first half along the last axis is given."""
    last, length, kept = axes[-1], out.shape[axes[-1]], half.shape[axes[-1]]
    head = (slice(None),) * last
    out[(*head, slice(0, kept))] = half
    if length > kept:
        rest = cp.flip(half[(*head, slice(1, length - kept + 1))], axes)
        out[(*head, slice(kept, length))] = cp.conj(cp.roll(rest, (1,) * len(axes[:-1]), axes[:-1]))

"""Launches of Fourier transforms, which give loops the addresses of the operand and the result.

Where the loops are not compiled yet, and for what they do not take, pocketfft or the generic kernels compute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from server.engine import keys
from server.engine.array_library import host_fourier
from server.engine.array_library.addresses import data_address
from server.engine.array_library.dtypes import NUMPY_DTYPES
from server.engine.array_library.fourier import short_transform
from server.engine.cpu.memory import scratch
from server.engine.operators import Request
from server.engine.ops.fourier import fft as generic_transforms
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.fourier import fft


def _short_launch(request: Request, dim: tuple[int, ...], mode: int, forward: bool) -> Launch | None:
    """A launch of a transform of few numbers; None for others."""
    given, (out,) = request.args[0], request.outs
    types = np.dtype(NUMPY_DTYPES[given.dtype]), np.dtype(NUMPY_DTYPES[out.dtype])
    axes = tuple([d % given.ndim for d in dim])
    is_half = types[0].kind != "c" and request.args[3]  # ``onesided``
    short = short_transform(*types, out.numel, axes, mode, forward, is_half, out.shape[axes[-1]])
    return None if short is None else lambda args, outs: short(args[0].array, outs[0].array)


def _is_sides(meta: Meta) -> bool:
    """Whether the first of two dimensions has neighbours."""
    return meta.ndim == 2 and meta.strides[0] == 1 and meta.strides[1] >= meta.shape[0]


def _transform_launch(
    kernel: Callable[..., None], request: Request, whole: Meta, dim: tuple[int, ...], mode: int, forward: bool
) -> Launch | None:  # fmt: skip
    """A launch of a transform of which ``whole`` is the operand or the result that has all numbers."""
    given, (out,) = request.args[0], request.outs
    short = _short_launch(request, dim, mode, forward)
    if not (out.is_contiguous and out.numel):
        return short
    types = np.dtype(NUMPY_DTYPES[given.dtype]), np.dtype(NUMPY_DTYPES[out.dtype])
    axes, others = tuple([d % whole.ndim for d in dim]), request.args[1:]
    begin, goal = given.offset * given.dtype.itemsize, out.offset * out.dtype.itemsize
    is_full = types[0].kind != types[1].kind == "c" and not request.args[3]
    are_sides = not is_full and axes == (1,) and _is_sides(given) and not given.is_contiguous
    is_direct = are_sides or (given.is_contiguous and not is_full)
    run: Any = None

    def find() -> Any:
        if are_sides:
            return host_fourier.from_sides(*types, whole.shape, given.strides[1] * types[0].itemsize, mode, forward)
        return host_fourier.by_addresses(types[is_full], types[1], whole.shape, axes, mode, forward)

    def launch(args: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        nonlocal run
        if run is None:
            run = find()
        if run and is_direct:
            run(args[0].storage.block.pointer + begin, outs[0].storage.block.pointer + goal)
        elif run:
            dense = np.array(args[0].array, types[is_full], order="C", ndmin=1)
            run(data_address(dense), outs[0].storage.block.pointer + goal)
        elif short is not None:
            short(args, outs)
        else:
            kernel(np, args[0].array, *others, out=outs[0].array)

    return launch


@prepares(fft._fft_c2c, keys.CPU)
def complex_to_complex(request: Request) -> Launch | None:
    input, dim, normalization, forward = request.args
    return _transform_launch(generic_transforms._fft_c2c, request, input, dim, normalization, forward)


@prepares(fft._fft_r2c, keys.CPU)
def real_to_complex(request: Request) -> Launch | None:
    input, dim, normalization, _ = request.args
    return _transform_launch(generic_transforms._fft_r2c, request, input, dim, normalization, True)


@prepares(fft._fft_c2r, keys.CPU)
def complex_to_real(request: Request) -> Launch | None:
    _, dim, normalization, _ = request.args
    return _transform_launch(generic_transforms._fft_c2r, request, request.outs[0], dim, normalization, False)


class _Fitting(NamedTuple):
    """How an operand becomes what is transformed: its shape, the part that is copied, its type, and conjugation."""

    shape: tuple[int, ...]
    kept: tuple[slice, ...]
    dtype: Any
    is_padded: bool
    conjugates: bool

    @classmethod
    def of(cls, given: Meta, axes: tuple[int, ...], lengths: tuple[int, ...], dtype: Any, conjugates: bool) -> _Fitting:
        shape, kept = list(given.shape), [slice(None)] * given.ndim
        for axis, length in zip(axes, lengths, strict=True):
            shape[axis], kept[axis] = length, slice(min(length, given.shape[axis]))
        is_padded = any([length > given.shape[axis] for axis, length in zip(axes, lengths, strict=True)])
        return cls(tuple(shape), tuple(kept), dtype, is_padded, conjugates)

    def dense(self, array: Any) -> Any:
        """A dense array, which the next call overwrites."""
        result = scratch("signals", self.shape, self.dtype.char)
        if self.is_padded:
            result.fill(0)
        target = result[self.kept] if self.is_padded else result
        if self.conjugates:
            np.conjugate(array[self.kept], out=target)
        else:
            target[...] = array[self.kept]
        return result


@prepares(fft._fft_fitted, keys.CPU)
def fitted(request: Request) -> Launch | None:
    """A transform of a dense copy of the operand that has the wanted lengths; real numbers are transformed forward."""
    (given, dim, mode, forward, lengths, half), (out,) = request.args, request.outs
    if not (out.is_contiguous and out.numel):
        return None
    types = np.dtype(NUMPY_DTYPES[given.dtype]), np.dtype(NUMPY_DTYPES[out.dtype])
    is_real, axes = types[0].kind != "c", tuple([d % out.ndim for d in dim])
    to_half, to_real = half and is_real, half and not is_real
    kept = (*lengths[:-1], lengths[-1] // 2 + 1) if to_real else lengths
    fitting = _Fitting.of(given, axes, kept, types[0] if half else types[1], bool(to_real and forward))
    whole = out.shape if not to_half else fitting.shape
    goal, direction, turns = out.offset * out.dtype.itemsize, is_real if half else forward, to_half and not forward
    kinds = fitting.dtype, types[1]
    short = short_transform(*kinds, out.numel, axes, mode, direction, to_half, out.shape[axes[-1]])
    is_direct = given.is_contiguous and turns and fitting.shape == given.shape
    begin, others = given.offset * given.dtype.itemsize, request.args[1:]
    run: Any = None

    def launch(args: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        nonlocal run
        if run is None:
            run = host_fourier.by_addresses(*kinds, whole, axes, mode, direction)
        if run and is_direct:
            run(args[0].storage.block.pointer + begin, outs[0].storage.block.pointer + goal)
        elif run:
            run(data_address(fitting.dense(args[0].array)), outs[0].storage.block.pointer + goal)
        elif short is not None:
            short(fitting.dense(args[0].array), outs[0].array)
        else:
            generic_transforms._fft_fitted(np, args[0].array, *others, out=outs[0].array)
            return
        if turns:
            result = outs[0].array
            np.conjugate(result, result)

    return launch

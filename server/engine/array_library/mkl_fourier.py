"""Fourier transforms by Intel MKL, which takes them along several axes and for a whole batch in one call.

A transform is described once, by lengths, strides and factor, and the descriptors of the last shapes are kept.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numpy as np

from server.engine import blas_threads
from telegrad_protocol.errors import InternalError

from .addresses import data_address
from .host_libraries import mkl

Array = Any
_FORWARD_SCALE, _BACKWARD_SCALE, _NUMBER, _STORAGE, _PLACEMENT = 4, 5, 7, 10, 11
_INPUT_STRIDES, _OUTPUT_STRIDES, _INPUT_DISTANCE, _OUTPUT_DISTANCE = 12, 13, 14, 15
_COMPLEX, _REAL, _COMPLEX_COMPLEX, _NOT_INPLACE = 32, 33, 39, 44
_SCALES = (lambda points: 1.0, lambda points: 1 / math.sqrt(points), lambda points: 1 / points)
"""The factor of a transform by its mode, from the number of points."""
_REMEMBERED = 64


class _Descriptor:
    """A transform that MKL has prepared; freed with this object."""

    def __init__(
        self, is_single: bool, is_real: bool, lengths: tuple[int, ...], strides: tuple[tuple[int, ...], ...],
        count: int, scale: float,
    ) -> None:  # fmt: skip
        self._free = mkl().DftiFreeDescriptor
        self.handle = ctypes.c_void_p()
        create = mkl().DftiCreateDescriptor_s_md if is_single else mkl().DftiCreateDescriptor_d_md
        domain, size = _REAL if is_real else _COMPLEX, ctypes.c_long(len(lengths))
        _check(create(ctypes.byref(self.handle), domain, size, _longs(lengths)))
        for side, (stride_option, distance_option) in zip(strides, _SIDES, strict=True):
            self._set(stride_option, _longs((0, *side[1:])))
            self._set(distance_option, ctypes.c_long(side[0]))
        self._set(_NUMBER, ctypes.c_long(count))
        self._set(_PLACEMENT, ctypes.c_long(_NOT_INPLACE))
        if is_real:
            self._set(_STORAGE, ctypes.c_long(_COMPLEX_COMPLEX))
        for option in (_FORWARD_SCALE, _BACKWARD_SCALE):
            self._set(option, ctypes.c_double(scale))
        _check(mkl().DftiCommitDescriptor(self.handle))

    def _set(self, option: int, value: Any) -> None:
        _check(mkl().DftiSetValue(self.handle, option, value))

    def __del__(self) -> None:
        if self.handle:
            self._free(ctypes.byref(self.handle))


_SIDES = ((_INPUT_STRIDES, _INPUT_DISTANCE), (_OUTPUT_STRIDES, _OUTPUT_DISTANCE))
_described = lru_cache(maxsize=_REMEMBERED)(_Descriptor)


def _longs(numbers: tuple[int, ...]) -> Any:
    return (ctypes.c_long * len(numbers))(*numbers)


def _check(status: int) -> None:
    if status:
        message = mkl().DftiErrorMessage
        message.restype = ctypes.c_char_p
        raise InternalError(f"MKL refuses a Fourier transform: {(message(ctypes.c_long(status)) or b'').decode()}")


@cache
def _all_threads() -> int:
    """How many threads MKL may use, as variables of the environment say."""
    return int(mkl().MKL_Get_Max_Threads())


_known: dict[Any, tuple[Callable[..., int], _Descriptor]] = {}
"""The call for operands of a layout that takes no copies, by all that decides it."""


def transform(
    input: Array, axes: tuple[int, ...], mode: int, forward: bool, out: Array, is_threaded: bool
) -> None:  # fmt: skip
    """Write the transform of ``input``; where one of the two is real, it has the lengths of the whole signal."""
    if not out.size:
        return
    number = int(min(_all_threads(), blas_threads.most))
    threads = mkl().MKL_Set_Num_Threads_Local(number) if is_threaded else None
    try:
        key = (
            axes,
            mode,
            forward,
            out.dtype.char,
            input.dtype.char,
            input.shape,
            input.strides,
            out.shape,
            out.strides,
        )
        known = _known.get(key)
        if known is None:
            _transform_unknown(key, input, axes, mode, forward, out)
        else:
            _check(known[0](known[1].handle, _address(input), _address(out)))
    finally:
        if threads is not None:
            mkl().MKL_Set_Num_Threads_Local(threads)


def _address(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(data_address(array))


def _transform_unknown(
    key: Any, input: Array, axes: tuple[int, ...], mode: int, forward: bool, out: Array
) -> None:  # fmt: skip
    is_real = input.dtype.kind != "c" or out.dtype.kind != "c"
    lengths = tuple([(out if out.dtype.kind != "c" else input).shape[axis] for axis in axes])
    order = (*[d for d in range(input.ndim) if d not in axes], *axes)
    source, source_strides = _batch(input.transpose(order), len(axes))
    target, target_strides = _batch(out.transpose(order), len(axes))
    scale = _SCALES[mode](math.prod(lengths))
    strides = source_strides, target_strides
    descriptor = _described(out.dtype.char in "fF", is_real, lengths, strides, len(target), scale)
    compute = mkl().DftiComputeForward if forward else mkl().DftiComputeBackward
    _check(compute(descriptor.handle, _address(source), _address(target)))
    in_place = np.may_share_memory(target, out)
    if not in_place:
        out.transpose(order)[...] = target.reshape([out.shape[d] for d in order])
    elif np.may_share_memory(source, input):
        if len(_known) >= _REMEMBERED:
            _known.clear()
        _known[key] = compute, descriptor


def _batch(array: Array, count: int) -> tuple[Array, tuple[int, ...]]:
    """The array with one dimension before its last ``count`` ones, a copy if need be, and its strides in elements."""
    first = math.prod(array.shape[: array.ndim - count])
    flat = array.reshape(first, *array.shape[array.ndim - count :])
    if any([stride < 0 or stride % flat.itemsize for stride in flat.strides]):
        flat = flat.copy()
    return flat, tuple([stride // flat.itemsize for stride in flat.strides])

"""Pooling. The generic kernels loop over the positions of the kernel, for all windows of a cache-sized block of planes.

Averages are sums along one dimension after the other. A maximum's index is that of the first largest element, or of the
last NaN, as in PyTorch. A plane is one channel of one sample.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from server.engine import functional as F
from server.engine.device import cancellation
from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS
from server.engine.registry import composite, implements
from telegrad_protocol.ops.layers import pooling as ops

from . import windows
from .windows import Size

_MAX, _MAX_BACKWARD = OPERATORS["_max_pool"], OPERATORS["_max_pool_backward"]
_AVG, _AVG_BACKWARD = OPERATORS["_avg_pool"], OPERATORS["_avg_pool_backward"]
_HOST_BLOCK = 1 << 15
"""Elements of the result of a block of planes on the host: they and their indices stay in cache."""


def _flat_planes(value, dims):
    """The value with its last ``dims`` dimensions flattened into one."""
    return F.reshape(value, (*value.shape[:-dims], math.prod(value.shape[-dims:])))


def _gather_at(value, indices, dims):
    """The elements at the maxima's indices."""
    return F.reshape(F.gather(_flat_planes(value, dims), -1, _flat_planes(indices, dims)), indices.shape)


def _scatter_to(value, indices, shape, dims):
    """Zeros of the given shape, with the elements added at the maxima's indices."""
    lead = shape[:-dims]
    flat = F.zeros((*lead, math.prod(shape[-dims:])), dtype=value.dtype, device=value.device)
    return F.reshape(F.scatter_add(flat, -1, _flat_planes(indices, dims), _flat_planes(value, dims)), shape)


def _blocks(xp: Any, planes: int, length: int) -> Iterator[slice]:
    step = max(_HOST_BLOCK // max(length, 1), 1) if xp is np else max(planes, 1)
    for start in range(0, planes, step):
        if cancellation.requested:
            cancellation.stop()
        yield slice(start, start + step)


def _lowest(dtype: Any) -> Any:
    return -math.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _planes(array: Any, dims: int) -> Any:
    return array.reshape(math.prod(array.shape[:-dims]), *array.shape[-dims:])


class _Windows:
    """Sliding windows over planes of one size."""

    def __init__(self, numbers: tuple[Size, Size, Size, Size], size: Size, count: Size) -> None:
        self.kernel, self.stride, self.padding, self.dilation = numbers
        self.size, self.count = size, count
        spanned = windows.span(self.kernel, self.stride, self.dilation, count)
        self.after = tuple(max(r - n - p, 0) for r, n, p in zip(spanned, size, self.padding, strict=True))

    def pad(self, xp: Any, planes: Any, fill: Any) -> Any:
        """The planes with ``fill`` wherever a window reaches beyond them."""
        return windows.pad(xp, planes, self.padding, self.after, fill)

    def elements_at(self, padded: Any, position: Size) -> Any:
        """The element of every window at one position of the kernel, as a view of the padded planes."""
        return windows.elements_at(padded, position, self.stride, self.dilation, self.count)

    def indices(self, xp: Any, position: Size) -> Any:
        """The row-major indices of these elements in a plane without padding."""
        starts = [k * d - p for k, d, p in zip(position, self.dilation, self.padding, strict=True)]
        rows = zip(starts, self.count, self.stride, strict=True)
        return _row_major_indices(xp, [start + xp.arange(n) * s for start, n, s in rows], self.size)

    def first_indices(self, xp: Any) -> Any:
        """The index of every window's first element that is inside of the plane."""
        lines = []
        for n, s, p, d in zip(self.count, self.stride, self.padding, self.dilation, strict=True):
            start = xp.arange(n) * s - p
            lines.append(xp.where(start < 0, start + -(start // d) * d, start))
        return _row_major_indices(xp, lines, self.size)


def _row_major_indices(xp: Any, lines: list[Any], size: Size) -> Any:
    """Row-major indices of all combinations of one coordinate per dimension."""
    indices: Any = 0
    for line, n in zip(lines, size, strict=True):
        indices = xp.asarray(indices)[..., None] * n + line
    return indices.reshape([len(line) for line in lines]).astype("int64")


def _update_maximum(xp: Any, best: Any, argmax: Any, candidate: Any, index: Any, valid: Any = True) -> None:
    """Replace maxima, and their indices, by valid candidates that are larger or NaN."""
    better = candidate > best
    if candidate.dtype.kind == "f":
        better |= candidate != candidate
    better &= valid
    xp.copyto(best, candidate, where=better)
    xp.copyto(argmax, xp.broadcast_to(index, argmax.shape), where=better)


def _max_pool_input_gradient(grad_output, indices, input_meta, kernel_size, stride, padding, dilation):
    size = input_meta.shape[-len(kernel_size) :]
    return dispatch(_MAX_BACKWARD, (grad_output, indices, size, kernel_size, stride, padding, dilation))


@implements(ops._max_pool, input=_max_pool_input_gradient)
def _max_pool(xp, input, kernel_size, stride, padding, dilation, ceil_mode, *, out):
    output, indices = out
    dims = len(kernel_size)
    sliding = _Windows((kernel_size, stride, padding, dilation), input.shape[-dims:], output.shape[-dims:])
    planes = _planes(input, dims)
    values = xp.full((len(planes), *sliding.count), _lowest(input.dtype), input.dtype)
    argmax = xp.empty(values.shape, "int64")
    argmax[...] = sliding.first_indices(xp)
    for block in _blocks(xp, len(planes), math.prod(sliding.count)):
        padded = sliding.pad(xp, planes[block], _lowest(input.dtype))
        for position in windows.kernel_positions(kernel_size):
            _update_maximum(
                xp, values[block], argmax[block], sliding.elements_at(padded, position), sliding.indices(xp, position)
            )
    output[...], indices[...] = values.reshape(output.shape), argmax.reshape(output.shape)


@implements(
    ops._max_pool_backward,
    grad_output=lambda grad, indices, kernel_size: _gather_at(grad, indices, len(kernel_size)),
    indices=None,
)
def _max_pool_backward(
    xp, grad_output, indices, input_size, kernel_size, stride, padding, dilation, *, out
):  # fmt: skip
    dims = len(kernel_size)
    sliding = _Windows((kernel_size, stride, padding, dilation), input_size, indices.shape[-dims:])
    grads, argmax = _planes(grad_output, dims), _planes(indices, dims)
    result = xp.empty((len(grads), *input_size), out.dtype)
    for block in _blocks(xp, len(grads), math.prod(input_size)):
        padded = sliding.pad(xp, xp.zeros((len(grads[block]), *input_size), out.dtype), 0)
        for position in windows.kernel_positions(kernel_size):
            target = sliding.elements_at(padded, position)
            target += xp.where(argmax[block] == sliding.indices(xp, position), grads[block], 0)
        result[block] = windows.crop(padded, padding, input_size)
    out[...] = result.reshape(out.shape)


def _max_pool_nd(dims):
    def run(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices):
        numbers = ops.windows(f"max_pool{dims}d", dims, kernel_size, stride, padding, dilation)
        results = dispatch(_MAX, (input, *numbers, ceil_mode))
        return results if return_indices else results[0]

    return run


def _sliding_sums(xp: Any, array: Any, axis: int, kernel: int, stride: int, padding: int, count: int) -> Any:
    """The sums of windows along one axis."""
    array = xp.moveaxis(array, axis, -1)
    spanned = (count - 1) * stride + kernel
    padded = windows.pad(xp, array, (padding,), (max(spanned - array.shape[-1] - padding, 0),))
    total = windows.elements_at(padded, (0,), (stride,), (1,), (count,)).copy()
    for k in range(1, kernel):
        if cancellation.requested:
            cancellation.stop()
        total += windows.elements_at(padded, (k,), (stride,), (1,), (count,))
    return xp.moveaxis(total, -1, axis)


def _sliding_sums_adjoint(xp: Any, array: Any, axis: int, kernel: int, stride: int, padding: int, size: int) -> Any:
    """Every element added to all elements of its window along one axis: the adjoint of ``_sliding_sums``."""
    array = xp.moveaxis(array, axis, -1)
    count = array.shape[-1]
    padded = xp.zeros((*array.shape[:-1], max((count - 1) * stride + kernel, padding + size)), array.dtype)
    for k in range(kernel):
        if cancellation.requested:
            cancellation.stop()
        target = windows.elements_at(padded, (k,), (stride,), (1,), (count,))
        target += array
    return xp.moveaxis(padded[..., padding : padding + size], -1, axis)


def _divisors(xp: Any, size: Size, count: Size, numbers: tuple[Size, Size, Size], includes: bool, override: Any) -> Any:
    """The divisor of every window: the override, or the window's number of elements, of the output's shape."""
    if override is not None:
        return xp.asarray(override)
    divisors = xp.asarray(1)
    for n, m, k, s, p in zip(size, count, *numbers, strict=True):
        start = xp.arange(m) * s - p
        end = xp.minimum(start + k, n + p)
        length = end - start if includes else xp.minimum(end, n) - xp.maximum(start, 0)
        divisors = divisors[..., None] * length
    return divisors


def _divide(xp: Any, total: Any, divisors: Any) -> Any:
    if total.dtype.kind == "f":
        return total / divisors.astype(total.dtype)
    return xp.sign(total) * (xp.abs(total) // abs(divisors)) * xp.sign(divisors)


def _avg_pool_input_gradient(
    grad, input_meta, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
):
    rest = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return dispatch(_AVG_BACKWARD, (grad, input_meta.shape[-len(kernel_size) :], *rest))


@implements(ops._avg_pool, input=_avg_pool_input_gradient)
def _avg_pool(xp, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, *, out):
    dims = len(kernel_size)
    size, count = input.shape[-dims:], out.shape[-dims:]
    divisors = _divisors(xp, size, count, (kernel_size, stride, padding), count_include_pad, divisor_override)
    planes, result = _planes(input, dims), xp.empty((out.size // max(math.prod(count), 1), *count), out.dtype)
    for block in _blocks(xp, len(planes), math.prod(size)):
        total = planes[block]
        for d in range(dims):
            total = _sliding_sums(xp, total, d + 1, kernel_size[d], stride[d], padding[d], count[d])
        result[block] = _divide(xp, total, divisors)
    out[...] = result.reshape(out.shape)


@implements(
    ops._avg_pool_backward,
    grad_output=lambda grad, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override: dispatch(
        _AVG, (grad, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    ),
)
def _avg_pool_backward(
    xp, grad_output, input_size, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, *, out
):  # fmt: skip
    dims = len(kernel_size)
    count = grad_output.shape[-dims:]
    divisors = _divisors(xp, input_size, count, (kernel_size, stride, padding), count_include_pad, divisor_override)
    planes = _planes(grad_output, dims)
    result = xp.empty((len(planes), *input_size), out.dtype)
    for block in _blocks(xp, len(planes), math.prod(input_size)):
        part = _divide(xp, planes[block], divisors)
        for d in range(dims):
            part = _sliding_sums_adjoint(xp, part, d + 1, kernel_size[d], stride[d], padding[d], input_size[d])
        result[block] = part
    out[...] = result.reshape(out.shape)


def _avg_pool_nd(dims):
    def run(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override=None):
        numbers = ops.windows(f"avg_pool{dims}d", dims, kernel_size, stride, padding)[:3]
        return dispatch(_AVG, (input, *numbers, ceil_mode, count_include_pad, divisor_override))

    return run


def _part_bounds(xp: Any, size: int, count: int) -> tuple[Any, Any, int]:
    """Where each of ``count`` parts of ``size`` elements begins and ends, and the length of the longest part."""
    number = xp.arange(count, dtype="int64")
    starts, ends = number * size // max(count, 1), -(-(number + 1) * size // max(count, 1))
    longest = -(-size // max(count, 1)) + (1 if count and size % count else 0)
    return starts, ends, longest


def _part_sums(xp: Any, array: Any, axis: int, count: int) -> Any:
    """The sums of ``count`` parts along one axis; parts overlap where the size is not a multiple of the count."""
    size = array.shape[axis]
    starts, ends, longest = _part_bounds(xp, size, count)
    array = xp.moveaxis(array, axis, -1)
    total = xp.zeros((*array.shape[:-1], count), array.dtype)
    for k in range(longest if count else 0):
        if cancellation.requested:
            cancellation.stop()
        at = starts + k
        total += xp.where(at < ends, xp.take(array, xp.minimum(at, size - 1), axis=-1), 0)
    return xp.moveaxis(total, -1, axis)


def _part_lengths(xp: Any, size: Size, count: Size) -> Any:
    """The number of elements of every part, as an array of shape ``count``."""
    lengths = xp.asarray(1)
    for n, m in zip(size, count, strict=True):
        starts, ends, _ = _part_bounds(xp, n, m)
        lengths = lengths[..., None] * (ends - starts)
    return lengths


def _sum_parts(xp: Any, array: Any, count: Size) -> Any:
    for d, n in enumerate(count):
        array = _part_sums(xp, array, d + 1, n)
    return array


@implements(
    ops._adaptive_avg_pool,
    input=lambda grad, input_meta, output_size: F._adaptive_avg_pool_backward(
        grad, input_meta.shape[-len(output_size) :]
    ),
)
def _adaptive_avg_pool(xp, input, output_size, *, out):
    if not out.size:
        return
    dims = len(output_size)
    lengths = _part_lengths(xp, input.shape[-dims:], output_size)
    out[...] = (_sum_parts(xp, _planes(input, dims), output_size) / lengths).reshape(out.shape)


@implements(
    ops._adaptive_avg_pool_backward,
    grad_output=lambda grad, grad_output_meta, input_size: F._adaptive_avg_pool(
        grad, grad_output_meta.shape[-len(input_size) :]
    ),
)
def _adaptive_avg_pool_backward(xp, grad_output, input_size, *, out):
    """The parts that an element lies in are themselves a part of all parts, so the adjoint swaps sizes and counts."""
    if not grad_output.size:
        out[...] = 0
        return
    dims = len(input_size)
    scaled = _planes(grad_output, dims) / _part_lengths(xp, input_size, grad_output.shape[-dims:]).astype(out.dtype)
    out[...] = _sum_parts(xp, scaled, input_size).reshape(out.shape)


@implements(
    ops._adaptive_max_pool,
    input=lambda grad_output, indices, input_meta, output_size: _scatter_to(
        grad_output, indices, input_meta.shape, len(output_size)
    ),
)
def _adaptive_max_pool(xp, input, output_size, *, out):
    output, indices = out
    dims = len(output_size)
    size = input.shape[-dims:]
    limits = [_part_bounds(xp, n, m) for n, m in zip(size, output_size, strict=True)]
    planes = _planes(input, dims)
    values = xp.full((len(planes), *output_size), _lowest(input.dtype), input.dtype)
    argmax = xp.empty(values.shape, "int64")
    argmax[...] = _row_major_indices(xp, [starts for starts, _, _ in limits], size)
    for position in windows.kernel_positions(tuple(longest for _, _, longest in limits)) if values.size else ():
        lines = [starts + k for k, (starts, _, _) in zip(position, limits, strict=True)]
        valid = _outer_and(xp, [line < ends for line, (_, ends, _) in zip(lines, limits, strict=True)])
        index = _row_major_indices(xp, [xp.minimum(line, n - 1) for line, n in zip(lines, size, strict=True)], size)
        candidate = xp.take(planes.reshape(len(planes), -1), index, axis=1)
        _update_maximum(xp, values, argmax, candidate, index, valid)
    output[...], indices[...] = values.reshape(output.shape), argmax.reshape(output.shape)


def _outer_and(xp: Any, lines: list[Any]) -> Any:
    """The conjunction of all combinations of one truth value per dimension."""
    result = xp.asarray(True)
    for line in lines:
        result = result[..., None] & line
    return result


def _adaptive_avg_pool_nd(dims):
    def run(input, output_size):
        size = ops.parts(f"adaptive_avg_pool{dims}d", dims, input.meta, output_size)
        if all(n == 1 for n in size):
            return F.mean(input, tuple(range(-dims, 0)), True)
        return F._adaptive_avg_pool(input, size)

    return run


def _adaptive_max_pool_nd(dims):
    def run(input, output_size, return_indices):
        size = ops.parts(f"adaptive_max_pool{dims}d", dims, input.meta, output_size)
        results = F._adaptive_max_pool(input, size)
        return results if return_indices else results[0]

    return run


def _max_unpool_nd(dims):
    def run(input, indices, kernel_size, stride, padding, output_size):
        metas = (input.meta, indices.meta)
        wanted = ops.unpooled(f"max_unpool{dims}d", dims, *metas, kernel_size, stride, padding, output_size)
        lead, size = wanted.shape[:-dims], wanted.shape[-dims:]
        flat = F.zeros((*lead, math.prod(size)), dtype=input.dtype, device=input.device)
        output = F.reshape(F.scatter(flat, -1, _flat_planes(indices, dims), _flat_planes(input, dims)), wanted.shape)
        return output if wanted.is_contiguous else F._in_layout(output, wanted.strides)

    return run


for _dims in (1, 2, 3):
    composite(getattr(ops, f"max_pool{_dims}d"))(_max_pool_nd(_dims))
    composite(getattr(ops, f"avg_pool{_dims}d"))(_avg_pool_nd(_dims))
    composite(getattr(ops, f"adaptive_avg_pool{_dims}d"))(_adaptive_avg_pool_nd(_dims))
    composite(getattr(ops, f"adaptive_max_pool{_dims}d"))(_adaptive_max_pool_nd(_dims))
    composite(getattr(ops, f"max_unpool{_dims}d"))(_max_unpool_nd(_dims))

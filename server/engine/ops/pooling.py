"""Pooling. The generic kernels go over the places of a window, all windows of a cache-sized block of planes at once.

Means are sums along one dimension after the other. Maxima remember where they were: the first place that is larger than
all before it, or the last that is not a number, as in PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from server.engine import functional as F
from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS
from server.engine.registry import composite, implements
from telegrad_protocol.ops import pooling as ops

from . import windows
from .windows import Size

_MAX, _MAX_BACKWARD = OPERATORS["_max_pool"], OPERATORS["_max_pool_backward"]
_MEAN, _MEAN_BACKWARD = OPERATORS["_avg_pool"], OPERATORS["_avg_pool_backward"]
_HOST_BLOCK = 1 << 15
"""Elements of the results that are made at a time: they and their positions stay in cache."""


def _flat(value, dims):
    """The last dimensions as one."""
    return F.reshape(value, (*value.shape[:-dims], math.prod(value.shape[-dims:])))


def _picked(value, indices, dims):
    """The elements at the positions of maxima."""
    return F.reshape(F.gather(_flat(value, dims), -1, _flat(indices, dims)), indices.shape)


def _put_back(value, indices, shape, dims):
    """Elements added up at the positions of maxima, among zeros."""
    lead = shape[:-dims]
    flat = F.zeros((*lead, math.prod(shape[-dims:])), dtype=value.dtype, device=value.device)
    return F.reshape(F.scatter_add(flat, -1, _flat(indices, dims), _flat(value, dims)), shape)


def _blocks(xp: Any, planes: int, length: int) -> Iterator[slice]:
    step = max(_HOST_BLOCK // max(length, 1), 1) if xp is np else max(planes, 1)
    for start in range(0, planes, step):
        yield slice(start, start + step)


def _lowest(dtype: Any) -> Any:
    return -math.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _planes(array: Any, dims: int) -> Any:
    return array.reshape(math.prod(array.shape[:-dims]), *array.shape[-dims:])


class _Windows:
    """Sliding windows over pictures of one size."""

    def __init__(self, numbers: tuple[Size, Size, Size, Size], size: Size, count: Size) -> None:
        self.kernel, self.stride, self.padding, self.dilation = numbers
        self.size, self.count = size, count
        far = windows.reach(self.kernel, self.stride, self.dilation, count)
        self.after = tuple(max(r - n - p, 0) for r, n, p in zip(far, size, self.padding, strict=True))

    def room(self, xp: Any, planes: Any, fill: Any) -> Any:
        """The pictures with ``fill`` wherever a window sees beyond them."""
        return windows.room(xp, planes, self.padding, self.after, fill)

    def seen(self, room: Any, place: Size) -> Any:
        """What all windows have at one place."""
        return windows.seen_from(room, place, self.stride, self.dilation, self.count)

    def positions(self, xp: Any, place: Size) -> Any:
        """Where in the row-major picture that is."""
        starts = [k * d - p for k, d, p in zip(place, self.dilation, self.padding, strict=True)]
        rows = zip(starts, self.count, self.stride, strict=True)
        return _positions(xp, [start + xp.arange(n) * s for start, n, s in rows], self.size)

    def first(self, xp: Any) -> Any:
        """The first position of each window that is inside."""
        lines = []
        for n, s, p, d in zip(self.count, self.stride, self.padding, self.dilation, strict=True):
            start = xp.arange(n) * s - p
            lines.append(xp.where(start < 0, start + -(start // d) * d, start))
        return _positions(xp, lines, self.size)


def _positions(xp: Any, lines: list[Any], size: Size) -> Any:
    """Row-major positions of all combinations of one number per dimension."""
    found: Any = 0
    for line, n in zip(lines, size, strict=True):
        found = xp.asarray(found)[..., None] * n + line
    return found.reshape([len(line) for line in lines]).astype("int64")


def _improve(xp: Any, best: Any, where: Any, candidate: Any, position: Any, valid: Any = True) -> None:
    better = candidate > best
    if candidate.dtype.kind == "f":
        better |= candidate != candidate
    better &= valid
    xp.copyto(best, candidate, where=better)
    xp.copyto(where, xp.broadcast_to(position, where.shape), where=better)


def _input_of_max(grad_output, indices, input_meta, kernel_size, stride, padding, dilation):
    size = input_meta.shape[-len(kernel_size) :]
    return dispatch(_MAX_BACKWARD, (grad_output, indices, size, kernel_size, stride, padding, dilation))


@implements(ops._max_pool, input=_input_of_max)
def _max_pool(xp, input, kernel_size, stride, padding, dilation, ceil_mode, *, out):
    output, indices = out
    dims = len(kernel_size)
    slide = _Windows((kernel_size, stride, padding, dilation), input.shape[-dims:], output.shape[-dims:])
    planes = _planes(input, dims)
    values = xp.full((len(planes), *slide.count), _lowest(input.dtype), input.dtype)
    found = xp.empty(values.shape, "int64")
    found[...] = slide.first(xp)
    for block in _blocks(xp, len(planes), math.prod(slide.count)):
        room = slide.room(xp, planes[block], _lowest(input.dtype))
        for place in windows.places(kernel_size):
            _improve(xp, values[block], found[block], slide.seen(room, place), slide.positions(xp, place))
    output[...], indices[...] = values.reshape(output.shape), found.reshape(output.shape)


@implements(
    ops._max_pool_backward,
    grad_output=lambda grad, indices, kernel_size: _picked(grad, indices, len(kernel_size)),
    indices=None,
)
def _max_pool_backward(
    xp, grad_output, indices, input_size, kernel_size, stride, padding, dilation, *, out
):  # fmt: skip
    dims = len(kernel_size)
    slide = _Windows((kernel_size, stride, padding, dilation), input_size, indices.shape[-dims:])
    grads, found = _planes(grad_output, dims), _planes(indices, dims)
    result = xp.empty((len(grads), *input_size), out.dtype)
    for block in _blocks(xp, len(grads), math.prod(input_size)):
        room = slide.room(xp, xp.zeros((len(grads[block]), *input_size), out.dtype), 0)
        for place in windows.places(kernel_size):
            target = slide.seen(room, place)
            target += xp.where(found[block] == slide.positions(xp, place), grads[block], 0)
        result[block] = windows.inside(room, padding, input_size)
    out[...] = result.reshape(out.shape)


def _max_pooled(dims):
    def run(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices):
        numbers = ops.windows(f"max_pool{dims}d", dims, kernel_size, stride, padding, dilation)
        found = dispatch(_MAX, (input, *numbers, ceil_mode))
        return found if return_indices else found[0]

    return run


def _sliding_sums(xp: Any, array: Any, axis: int, kernel: int, stride: int, padding: int, count: int) -> Any:
    """The sums of windows along one axis."""
    array = xp.moveaxis(array, axis, -1)
    far = (count - 1) * stride + kernel
    room = windows.room(xp, array, (padding,), (max(far - array.shape[-1] - padding, 0),))
    total = windows.seen_from(room, (0,), (stride,), (1,), (count,)).copy()
    for k in range(1, kernel):
        total += windows.seen_from(room, (k,), (stride,), (1,), (count,))
    return xp.moveaxis(total, -1, axis)


def _spread_sums(xp: Any, array: Any, axis: int, kernel: int, stride: int, padding: int, size: int) -> Any:
    """Each element added to its window along one axis: the adjoint of ``_sliding_sums``."""
    array = xp.moveaxis(array, axis, -1)
    count = array.shape[-1]
    room = xp.zeros((*array.shape[:-1], max((count - 1) * stride + kernel, padding + size)), array.dtype)
    for k in range(kernel):
        target = windows.seen_from(room, (k,), (stride,), (1,), (count,))
        target += array
    return xp.moveaxis(room[..., padding : padding + size], -1, axis)


def _divisors(xp: Any, size: Size, count: Size, numbers: tuple[Size, Size, Size], includes: bool, override: Any) -> Any:
    """How many elements each window has."""
    if override is not None:
        return xp.asarray(override)
    found = xp.asarray(1)
    for n, m, k, s, p in zip(size, count, *numbers, strict=True):
        start = xp.arange(m) * s - p
        end = xp.minimum(start + k, n + p)
        length = end - start if includes else xp.minimum(end, n) - xp.maximum(start, 0)
        found = found[..., None] * length
    return found


def _divided(xp: Any, total: Any, divisors: Any) -> Any:
    if total.dtype.kind == "f":
        return total / divisors.astype(total.dtype)
    return xp.sign(total) * (xp.abs(total) // abs(divisors)) * xp.sign(divisors)


def _input_of_mean(grad, input_meta, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    rest = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return dispatch(_MEAN_BACKWARD, (grad, input_meta.shape[-len(kernel_size) :], *rest))


@implements(ops._avg_pool, input=_input_of_mean)
def _avg_pool(xp, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, *, out):
    dims = len(kernel_size)
    size, count = input.shape[-dims:], out.shape[-dims:]
    divisors = _divisors(xp, size, count, (kernel_size, stride, padding), count_include_pad, divisor_override)
    planes, result = _planes(input, dims), xp.empty((out.size // max(math.prod(count), 1), *count), out.dtype)
    for block in _blocks(xp, len(planes), math.prod(size)):
        total = planes[block]
        for d in range(dims):
            total = _sliding_sums(xp, total, d + 1, kernel_size[d], stride[d], padding[d], count[d])
        result[block] = _divided(xp, total, divisors)
    out[...] = result.reshape(out.shape)


@implements(
    ops._avg_pool_backward,
    grad_output=lambda grad, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override: dispatch(
        _MEAN, (grad, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
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
        part = _divided(xp, planes[block], divisors)
        for d in range(dims):
            part = _spread_sums(xp, part, d + 1, kernel_size[d], stride[d], padding[d], input_size[d])
        result[block] = part
    out[...] = result.reshape(out.shape)


def _mean_pooled(dims):
    def run(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override=None):
        numbers = ops.windows(f"avg_pool{dims}d", dims, kernel_size, stride, padding)[:3]
        return dispatch(_MEAN, (input, *numbers, ceil_mode, count_include_pad, divisor_override))

    return run


def _limits(xp: Any, size: int, count: int) -> tuple[Any, Any, int]:
    """Where each of ``count`` equal parts of ``size`` elements begins and ends, and the length of the longest."""
    number = xp.arange(count, dtype="int64")
    starts, ends = number * size // max(count, 1), -(-(number + 1) * size // max(count, 1))
    longest = -(-size // max(count, 1)) + (1 if count and size % count else 0)
    return starts, ends, longest


def _part_sums(xp: Any, array: Any, axis: int, count: int) -> Any:
    """The sums of equal parts along one axis; parts overlap where they do not come out even."""
    size = array.shape[axis]
    starts, ends, longest = _limits(xp, size, count)
    array = xp.moveaxis(array, axis, -1)
    total = xp.zeros((*array.shape[:-1], count), array.dtype)
    for k in range(longest if count else 0):
        at = starts + k
        total += xp.where(at < ends, xp.take(array, xp.minimum(at, size - 1), axis=-1), 0)
    return xp.moveaxis(total, -1, axis)


def _part_lengths(xp: Any, size: Size, count: Size) -> Any:
    found = xp.asarray(1)
    for n, m in zip(size, count, strict=True):
        starts, ends, _ = _limits(xp, n, m)
        found = found[..., None] * (ends - starts)
    return found


def _summed_parts(xp: Any, array: Any, count: Size) -> Any:
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
    out[...] = (_summed_parts(xp, _planes(input, dims), output_size) / lengths).reshape(out.shape)


@implements(
    ops._adaptive_avg_pool_backward,
    grad_output=lambda grad, grad_output_meta, input_size: F._adaptive_avg_pool(
        grad, grad_output_meta.shape[-len(input_size) :]
    ),
)
def _adaptive_avg_pool_backward(xp, grad_output, input_size, *, out):
    """An element is in the parts whose numbers are its own part of them: the adjoint has sizes and counts swapped."""
    if not grad_output.size:
        out[...] = 0
        return
    dims = len(input_size)
    scaled = _planes(grad_output, dims) / _part_lengths(xp, input_size, grad_output.shape[-dims:]).astype(out.dtype)
    out[...] = _summed_parts(xp, scaled, input_size).reshape(out.shape)


@implements(
    ops._adaptive_max_pool,
    input=lambda grad_output, indices, input_meta, output_size: _put_back(
        grad_output, indices, input_meta.shape, len(output_size)
    ),
)
def _adaptive_max_pool(xp, input, output_size, *, out):
    output, indices = out
    dims = len(output_size)
    size = input.shape[-dims:]
    limits = [_limits(xp, n, m) for n, m in zip(size, output_size, strict=True)]
    planes = _planes(input, dims)
    values = xp.full((len(planes), *output_size), _lowest(input.dtype), input.dtype)
    found = xp.empty(values.shape, "int64")
    found[...] = _positions(xp, [starts for starts, _, _ in limits], size)
    for place in windows.places(tuple(longest for _, _, longest in limits)) if values.size else ():
        lines = [starts + k for k, (starts, _, _) in zip(place, limits, strict=True)]
        valid = _all_of(xp, [line < ends for line, (_, ends, _) in zip(lines, limits, strict=True)])
        where = _positions(xp, [xp.minimum(line, n - 1) for line, n in zip(lines, size, strict=True)], size)
        candidate = xp.take(planes.reshape(len(planes), -1), where, axis=1)
        _improve(xp, values, found, candidate, where, valid)
    output[...], indices[...] = values.reshape(output.shape), found.reshape(output.shape)


def _all_of(xp: Any, lines: list[Any]) -> Any:
    found = xp.asarray(True)
    for line in lines:
        found = found[..., None] & line
    return found


def _adaptive_mean(dims):
    def run(input, output_size):
        size = ops.parts(f"adaptive_avg_pool{dims}d", dims, input.meta, output_size)
        if all(n == 1 for n in size):
            return F.mean(input, tuple(range(-dims, 0)), True)
        return F._adaptive_avg_pool(input, size)

    return run


def _adaptive_max(dims):
    def run(input, output_size, return_indices):
        size = ops.parts(f"adaptive_max_pool{dims}d", dims, input.meta, output_size)
        found = F._adaptive_max_pool(input, size)
        return found if return_indices else found[0]

    return run


def _unpooled(dims):
    def run(input, indices, kernel_size, stride, padding, output_size):
        metas = (input.meta, indices.meta)
        wanted = ops.unpooled(f"max_unpool{dims}d", dims, *metas, kernel_size, stride, padding, output_size)
        lead, size = wanted.shape[:-dims], wanted.shape[-dims:]
        flat = F.zeros((*lead, math.prod(size)), dtype=input.dtype, device=input.device)
        found = F.reshape(F.scatter(flat, -1, _flat(indices, dims), _flat(input, dims)), wanted.shape)
        return found if wanted.is_contiguous else F._in_layout(found, wanted.strides)

    return run


for _dims in (1, 2, 3):
    composite(getattr(ops, f"max_pool{_dims}d"))(_max_pooled(_dims))
    composite(getattr(ops, f"avg_pool{_dims}d"))(_mean_pooled(_dims))
    composite(getattr(ops, f"adaptive_avg_pool{_dims}d"))(_adaptive_mean(_dims))
    composite(getattr(ops, f"adaptive_max_pool{_dims}d"))(_adaptive_max(_dims))
    composite(getattr(ops, f"max_unpool{_dims}d"))(_unpooled(_dims))

"""Array work that NumPy and CuPy do differently: sums, scattering with duplicates, bounds of indices, strided windows.

Accumulation is deterministic on both: contributions to one element are added in the order in which they are given.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from server.engine import compiled, context
from server.engine.device import threads
from telegrad_protocol.errors import IndexOutOfRangeError, out_of_bounds

Array = Any
_UFUNCS = {"sum": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}
_WIDENED = "eE"
"""The characters of NumPy's types of half precision, whose sums are made in single precision."""
_SMALL = 1 << 12
"""Arrays of at most so many bytes are made without looking whether there is room for them."""
_FEW = 16
"""Sums of at most so many numbers are made in the numbers' own type: their rounding errors stay small."""
_PIECE = 1 << 16
"""The elements of rows whose places are worked out at once: they fit the cache."""


def negative(xp: Any, array: Array, out: Array) -> None:
    """``-array``. NumPy 2.4 gives wrong numbers where a result with gaps is the operand itself, so that is copied."""
    if xp is np and not out.flags.c_contiguous and np.may_share_memory(array, out):
        array = array.copy()
    xp.negative(array, out=out)


def sums_in(xp: Any, dtype: Any) -> Any:
    """The type that running values of ``dtype`` are kept in: NumPy rounds each, so theirs is a double, as PyTorch's."""
    return np.promote_types(dtype, np.float64) if xp is np and dtype.kind in "fc" else dtype


def sum_over(xp: Any, array: Array, axis: int | tuple[int, ...] | None, keepdims: bool = False) -> Array:
    """The sum over ``axis``, in the array's type.

    NumPy adds neighbours in memory pairwise, and all else one after another: that is done in doubles here.
    """
    dtype = array.dtype
    if xp is not np or dtype.kind not in "fc" or dtype == sums_in(np, dtype) or not array.ndim:
        return xp.sum(array, axis=axis, keepdims=keepdims, dtype=dtype)
    inner, rest, axes, is_long = _steps_of_sum(array.shape, array.strides, array.itemsize, axis)
    part = np.add.reduce(array, axis=inner, keepdims=True) if inner else array
    if rest:
        wide = sums_in(np, dtype) if is_long else dtype
        part = np.add.reduce(part, axis=rest, keepdims=True, dtype=wide).astype(dtype, copy=False)
    return part if keepdims else part.squeeze(axes)


@functools.lru_cache(maxsize=1024)
def _steps_of_sum(
    shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, axis: int | tuple[int, ...] | None
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], bool]:  # fmt: skip
    """Along which axes a sum is made first and then, all of them, and whether those that come then are long."""
    listed = range(len(shape)) if axis is None else (axis,) if isinstance(axis, int) else axis
    axes = {a % len(shape) for a in listed}
    inner = _neighbours(shape, strides, itemsize, axes)
    rest = tuple(axes - set(inner))
    return inner, rest, tuple(axes), math.prod(shape[a] for a in rest) > _FEW


def _neighbours(
    shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, axes: set[int]
) -> tuple[int, ...]:  # fmt: skip
    """The axes of ``axes`` along which elements are adjacent in memory, innermost first."""
    axes_in_order, step = [], itemsize
    for axis in sorted(range(len(shape)), key=lambda a: (strides[a], shape[a])):
        if axis not in axes or strides[axis] != step:
            break
        axes_in_order.append(axis)
        step *= shape[axis]
    return tuple(axes_in_order)


def scalar(number: complex, dtype: Any) -> Any:
    """A number as ``dtype``, wrapped around where it does not fit."""
    return np.asarray(number).astype(dtype)[()]


def check_index(op: str, index: Array, size: int, where: str, *, wraps: bool = False) -> None:
    """Refuse an index array that points beyond ``size``; negative ones count from the end where ``wraps``."""
    if index.size == 0:
        return
    lowest, highest = _extremes(index)
    low = -size if wraps else 0
    if lowest < low or highest >= size:
        offending = lowest if lowest < low else highest
        raise IndexOutOfRangeError(
            f"{op}: index {offending} is out of range for {where}: {out_of_bounds(op, offending, where)}"
        )


def _extremes(index: Array) -> tuple[int, int]:
    if index.__class__ is np.ndarray:  # what NumPy's methods call in the end
        return int(np.minimum.reduce(index, axis=None)), int(np.maximum.reduce(index, axis=None))
    return int(index.min()), int(index.max())


def check_room(xp: Any, nbytes: int) -> None:
    """Refuse to make an array, of a size that data decides, that the session could never hold.

    Nothing is asked for what is small: of the result itself the allocator tells.
    """
    if nbytes <= _SMALL:
        return
    for backend in context.current.backends.values():
        if backend.xp is xp:
            backend.check_room(nbytes)
            return


def dimension(dim: int, size: int) -> str:
    """The text by which error messages name a dimension that an index is out of range for."""
    return f"dimension {dim} of size {size}"


def in_front(array: Array, dim: int) -> Array:
    """A view of an array with a dimension, not counted from the end, before all others."""
    if not dim:
        return array
    return array.transpose(dim, *range(dim), *range(dim + 1, array.ndim))


def wrapped(xp: Any, index: Array, size: int) -> Array:
    """Checked indices with negative ones counted from the front."""
    return xp.where(index < 0, index + size, index)


def window(xp: Any, array: Array, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> Array:
    """A view of the memory behind a freshly allocated ``array``; strides and offset in elements from its first one."""
    step = array.itemsize
    view = xp.lib.stride_tricks.as_strided
    length = 1 + sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) // step if array.size else 0
    memory = view(array, (length,), (step,)) if length else array.reshape(-1)
    return view(memory[offset:], size, [s * step for s in stride])


def take_rows(xp: Any, array: Array, index: Array, axis: int, out: Array) -> None:
    """``array`` at checked positions of one axis; negative ones count from the end."""
    if xp is np and out.flags.c_contiguous:
        np.take(array, index, axis=axis, out=out, mode="wrap")
    else:
        xp.copyto(out, xp.take(array, index, axis=axis))


def along(xp: Any, index: Array, dim: int) -> tuple[Array, ...]:
    """A key that addresses ``array[..., index[i, j, k], ...]`` at ``dim`` and the own position elsewhere."""
    key = []
    for d, length in enumerate(index.shape):
        shape = [1] * index.ndim
        shape[d] = length
        key.append(index if d == dim else xp.arange(length).reshape(shape))
    return tuple(key)


def reduce_at(xp: Any, target: Array, key: tuple[Array, ...], values: Array, how: str) -> None:
    """``target[key] = target[key] (how) values``, duplicates included; ``key`` indexes the first dimensions.

    Indices are checked and not negative. Half precision is added up in float32.
    """
    leading, rest = target.shape[: len(key)], target.shape[len(key) :]
    width = _product(rest)
    places = _expanded(xp, _positions(key, leading), np.broadcast_shapes(*(k.shape for k in key)))
    rows = _expanded(xp, xp.asarray(values), places.shape + rest).reshape(places.size, width)
    flat = target.reshape(_product(leading), width)
    reduce_rows(xp, flat, places.reshape(-1), rows, how)
    if not xp.may_share_memory(flat, target):
        target[...] = flat.reshape(target.shape)


def _expanded(xp: Any, array: Array, shape: tuple[int, ...]) -> Array:
    """The array, broadcast to a shape if it has another: compiled loops take none that cannot be written to."""
    return array if array.shape == shape else xp.broadcast_to(array, shape)


def _product(sizes: tuple[int, ...]) -> int:
    return math.prod(sizes)


def _positions(key: tuple[Array, ...], shape: tuple[int, ...]) -> Array:
    """The row-major position of every part that a key of index arrays addresses."""
    position: Any = 0
    step = 1
    for indices, size in zip(reversed(key), reversed(shape), strict=True):
        position = position + indices * step
        step *= size
    return position


def add_at(xp: Any, target: Array, key: tuple[Any, ...], values: Array) -> None:
    """``target[key] += values``, duplicates included, for a key of checked index arrays and whole dimensions."""
    if any(not isinstance(k, slice) and k.dtype == bool for k in key):
        target[key] += values  # a 0-d mask picks everything or nothing, never twice
        return
    dims = [d for d, k in enumerate(key) if not isinstance(k, slice)]
    picked = [wrapped(xp, key[d], target.shape[d]) for d in dims]
    block = np.broadcast_shapes(*(p.shape for p in picked))
    at = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
    rest = [target.shape[d] for d in range(target.ndim) if d not in dims]
    rows = xp.broadcast_to(xp.asarray(values), (*rest[:at], *block, *rest[at:]))
    rows = xp.moveaxis(rows, range(at, at + len(block)), range(len(block)))
    reduce_at(xp, xp.moveaxis(target, dims, range(len(dims))), tuple(picked), rows, "sum")


def identity(how: str, dtype: Any) -> Any:
    """The result of a reduction of no elements."""
    if how in ("sum", "mean", "prod"):
        return 1 if how == "prod" else 0
    if dtype.kind == "b":
        return how == "amin"
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if how == "amax" else np.iinfo(dtype).max
    return -np.inf if how == "amax" else np.inf


def mean_at(xp: Any, target: Array, key: tuple[Array, ...], values: Array, include_self: bool) -> None:
    """The mean of the given values, and of what is there with ``include_self``; integers round down."""
    count = xp.full(target.shape, int(include_self), "int64")
    reduce_at(xp, count, key, xp.ones(values.shape, "int64"), "sum")
    count = xp.maximum(count, 1)
    reduce_at(xp, target, key, values, "sum")
    if target.dtype.kind in "iub":
        target[...] = target // count
    else:
        target[...] = (target / count.astype(target.dtype)).astype(target.dtype)


def reduce_rows(xp: Any, target: Array, index: Array, rows: Array, how: str = "sum") -> None:
    """``target[index[i]] = target[index[i]] (how) rows[i]`` for every row, duplicates included, in order.

    ``target`` is (n, width), ``index`` (m,), ``rows`` broadcasts to (m, width). Half precision is added in float32.
    """
    if not index.size or not target.size:
        return
    rows = _expanded(xp, rows, (index.size, target.shape[1]))
    wide = _in_single(target) if target.dtype.char in _WIDENED else target
    if xp is np:
        _reduce_host(wide, index, rows, how)
    else:
        _reduce_device(xp, wide, index, rows, how)
    if wide is not target:
        _round_into(target, wide)


_WORDS = {"e": np.dtype(np.uint16), "E": np.dtype(np.int16)}
"""What compiled loops take for half precision, as ``compiled.arithmetic.typed`` says."""


def _conversions(array: Array) -> Any:
    """The compiled loops that convert half precision, where they take an array of it; else None."""
    takes = array.__class__ is np.ndarray and array.size >= compiled.LEAST
    takes = takes and array.flags.c_contiguous and array.flags.writeable
    return compiled.kernels("elementwise") if takes else None


def _in_single(array: Array) -> Array:
    """A copy in single precision."""
    loops = _conversions(array)
    if loops is None:
        return array.astype(np.float32)
    copy, char = np.empty(array.shape, np.float32), array.dtype.char
    loops.widen[char](array.view(_WORDS[char]).reshape(-1), copy.reshape(-1))
    return copy


def _round_into(target: Array, wide: Array) -> None:
    loops, char = _conversions(target), target.dtype.char
    if loops is None:
        target[...] = wide.astype(target.dtype)
    else:
        loops.narrow[char](wide.reshape(-1), target.view(_WORDS[char]).reshape(-1))


def _adds_in_loop(target: Array, index: Array, rows: Array) -> bool:
    """Add rows to those of the target by a compiled loop; False, and nothing written, where there is none."""
    takes = rows.size >= compiled.LEAST and target.flags.c_contiguous and index.dtype == np.int64
    loops = compiled.kernels("tensors.scatters") if takes else None
    if loops is None or target.dtype.char not in loops.add_to_rows:
        return False
    given = _in_single(rows) if rows.dtype.char in _WIDENED else rows
    places, added = np.require(index, None, ["C", "W"]), np.require(given, target.dtype, ["C", "W"])
    shares = threads.shares_of(target.shape[1], target.nbytes + added.nbytes, threads.VECTOR)
    given = target, places.view(np.uint64), added
    threads.run_loop(loops.add_to_rows[target.dtype.char], [(*given, share.start, share.stop) for share in shares])
    return True


def _reduce_host(target: Array, index: Array, rows: Array, how: str) -> None:
    """Add one row after the other, as all loops do: with another order sums would have other last bits."""
    if how == "sum" and _adds_in_loop(target, index, rows):
        return
    width = target.shape[1]
    flat, columns = target.reshape(-1), np.arange(width)
    step = max(1, _PIECE // width)
    for start in range(0, index.size, step):
        places = (index[start : start + step, None] * width + columns).reshape(-1)
        values = rows[start : start + step].reshape(-1).astype(target.dtype, copy=False)
        _UFUNCS[how].at(flat, places, values)
    if not np.may_share_memory(flat, target):
        target[...] = flat.reshape(target.shape)


_SEGMENTS: dict[str, Any] = {}
_STEPS = {
    "sum": "total = total + value", "prod": "total = total * value",
    "amax": "total = (value != value || value > total) ? value : total",
    "amin": "total = (value != value || value < total) ? value : total",
}  # fmt: skip


def _reduce_device(xp: Any, target: Array, index: Array, rows: Array, how: str) -> None:
    """One thread per target element walks through its contributions, sorted stably by place."""
    order = xp.argsort(index, kind="stable").astype(np.int64)
    ordered = index[order]
    is_first = xp.concatenate((xp.ones(1, bool), ordered[1:] != ordered[:-1]))
    starts = xp.concatenate((xp.flatnonzero(is_first), xp.asarray([index.size]))).astype(np.int64)
    places = ordered[starts[:-1]].astype(np.int64)
    dense = target if target.flags.c_contiguous else xp.ascontiguousarray(target)
    kernel = _SEGMENTS.get(how) or _SEGMENTS.setdefault(how, _segment_kernel(xp, how))
    rows = xp.ascontiguousarray(rows).astype(target.dtype, copy=False)
    kernel(rows, order, starts, places, target.shape[1], dense, size=places.size * target.shape[1])
    if dense is not target:
        target[...] = dense


def _segment_kernel(xp: Any, how: str) -> Any:
    body = f"""
    long long segment = i / width, column = i % width;
    long long place = places[segment] * width + column;
    T total = target[place];
    for (long long k = starts[segment]; k < starts[segment + 1]; ++k) {{
        T value = rows[order[k] * width + column];
        {_STEPS[how]};
    }}
    target[place] = total;
    """
    return xp.ElementwiseKernel(
        "raw T rows, raw int64 order, raw int64 starts, raw int64 places, int64 width",
        "raw T target",
        body,
        f"segment_{how}",
    )

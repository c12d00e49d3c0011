"""Tensors of random elements, drawn by the server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad_protocol.dtypes import DType, bool_, float32, float64
from telegrad_protocol.errors import ArgumentError
from telegrad_protocol.memory_format import MemoryFormat

from .._ops.functions import function
from .._session.devices import DeviceLike
from .._tensor.dtype_limits import float_limits, integer_limits
from .._tensor.tensor import Tensor

_complex, _empty, _randint = function("complex"), function("empty"), function("randint")


def make_tensor(
    *shape: int | Sequence[int], dtype: DType, device: DeviceLike, low: float | None = None, high: float | None = None,
    requires_grad: bool = False, noncontiguous: bool = False, exclude_zero: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:  # fmt: skip
    """Return a tensor whose elements are drawn uniformly from ``[low, high)``.

    By default they are drawn from [-9, 9), whole numbers from [-9, 10), or [0, 10) where the dtype has no sign. Limits
    outside of the dtype's range are moved into it. ``exclude_zero`` has the smallest positive number in place of 0.

    Raises ValueError for limits that are NaN or in the wrong order, and for ``requires_grad`` of whole numbers.
    """
    size: tuple[int, ...] = tuple(shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape)  # type: ignore[arg-type]
    is_whole = not (dtype.is_floating_point or dtype.is_complex)
    if requires_grad and is_whole:
        raise ArgumentError(f"make_tensor: requires_grad needs a floating-point or complex dtype, not {dtype}")
    if noncontiguous and memory_format is not None:
        raise ArgumentError("make_tensor: give noncontiguous or memory_format, not both")
    start, end = _limits(dtype, is_whole, low, high)
    if noncontiguous and size:  # every second element of a tensor that is twice as long
        values = _draw((*size[:-1], 2 * size[-1]), dtype, device, start, end)[..., ::2]
    else:
        values = _draw(size, dtype, device, start, end)
    if exclude_zero:
        smallest = 1 if is_whole else float_limits(dtype).tiny * (1 + 1j if dtype.is_complex else 1)
        values[values == 0] = smallest
    if memory_format is not None:
        values = values.clone(memory_format=memory_format)
    return values.requires_grad_(requires_grad)  # type: ignore[no-any-return]


def _limits(dtype: DType, is_whole: bool, low: float | None, high: float | None) -> tuple[float, float]:
    if dtype == bool_:
        defaults, least, greatest = (0.0, 2.0), 0.0, 2.0
    elif is_whole:
        whole = integer_limits(dtype)
        defaults, least, greatest = (-9.0 if dtype.is_signed else 0.0, 10.0), whole.min, whole.max
    else:
        real = float_limits(dtype)
        defaults, least, greatest = (-9.0, 9.0), real.min, real.max
    start, end = defaults[0] if low is None else low, defaults[1] if high is None else high
    if start != start or end != end:
        raise ArgumentError(f"make_tensor: low and high must be numbers, not {start} and {end}")
    if start > end or (start == end and is_whole):
        raise ArgumentError(f"make_tensor: low must be less than high, not {start} and {end}")
    return min(max(start, least), greatest), min(max(end, least), greatest)


def _draw(size: Sequence[int], dtype: DType, device: DeviceLike, low: float, high: float) -> Any:
    if dtype.is_complex:
        parts = float64 if dtype.itemsize == 16 else float32
        real, imaginary = (_draw(size, parts, device, low, high) for _ in range(2))
        return _complex(real, imaginary).to(dtype)
    if dtype.is_floating_point:
        wide = float64 if dtype == float64 else float32
        return _empty(size, dtype=wide, device=device).uniform_(low, high).to(dtype)
    return _randint(int(low), int(high), size, device=device).to(dtype)

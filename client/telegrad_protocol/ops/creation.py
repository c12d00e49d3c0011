"""Contracts of operations that make tensors out of nothing, fill them, or copy them."""

from __future__ import annotations

import math

from telegrad_protocol.dtypes import BOOL, COMPLEX, FLOAT, DType, bool_, get_default_dtype, int64, of_scalar
from telegrad_protocol.errors import ArgumentError, DTypeError, ShapeError
from telegrad_protocol.layout import Size, broadcast_shapes, result_strides
from telegrad_protocol.meta import CPU, Device, Meta

from .contract import Scalar, op
from .rules import check_size


def new(name: str, size: Size, dtype: DType | None, device: Device | None) -> Meta:
    """Return the meta of a row-major tensor, of the default type and device where none is given."""
    return Meta.of(check_size(name, size), dtype or get_default_dtype(), device or CPU)


def like(input: Meta, dtype: DType | None, device: Device | None) -> Meta:
    """Return the meta of a new tensor in the memory order of ``input``."""
    return input.like(dtype=dtype, device=device, strides=result_strides(input.shape, [(input.shape, input.strides)]))


def check_fits(name: str, value: Scalar, dtype: DType) -> None:
    """Refuse a number that a tensor of ``dtype`` cannot hold."""
    if isinstance(value, complex) and not value.imag and dtype.category < COMPLEX:
        value = value.real
    if isinstance(value, complex):
        if BOOL < dtype.category < COMPLEX:
            raise DTypeError(
                f"{name}: value cannot be converted to type {dtype.name} without overflow: the complex number {value}"
            )
    elif dtype.category >= FLOAT:
        if abs(value) > largest_of(dtype) and abs(value) != math.inf:
            raise DTypeError(f"{name}: the number {value} does not fit into {dtype.name}")
    elif dtype.category != BOOL:
        low, high = integer_range(dtype)
        if not low - (high if not dtype.is_signed else 0) <= value <= high:
            raise DTypeError(f"{name}: the number {value} does not fit into {dtype.name}")


_LARGEST = {
    "float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38,
    "float64": 1.7976931348623157e308,
}  # fmt: skip


def largest_of(dtype: DType) -> float:
    """Return the largest finite number of a floating-point type, or of a complex type's parts."""
    return _LARGEST[dtype.to_real().name]


def integer_range(dtype: DType) -> tuple[int, int]:
    """Return the smallest and the largest number of an integer type."""
    bits = 8 * dtype.itemsize
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype.is_signed else (0, (1 << bits) - 1)


@op(method=False, differentiable=False)
def zeros(*size: int, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make a tensor of zeros."""
    return new("zeros", size, dtype, device)


@op(method=False, differentiable=False)
def ones(*size: int, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make a tensor of ones."""
    return new("ones", size, dtype, device)


@op(method=False, differentiable=False)
def empty(*size: int, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make a tensor of uninitialized memory."""
    return new("empty", size, dtype, device)


@op(method=False, differentiable=False)
def full(size: Size, fill_value: Scalar, *, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make a tensor filled with one number, of the number's type where none is given."""
    check_fits("full", fill_value, dtype or of_scalar(fill_value))
    return new("full", size, dtype or of_scalar(fill_value), device)


@op(method=False, out=False, differentiable=False)
def scalar_tensor(s: Scalar, *, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make a 0-d tensor of one number."""
    check_fits("scalar_tensor", s, dtype or get_default_dtype())
    return new("scalar_tensor", (), dtype, device)


@op(method=False, out=False, differentiable=False)
def empty_strided(size: Size, stride: Size, *, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make a tensor of uninitialized memory with the given strides."""
    if len(size) != len(stride) or min(stride, default=0) < 0:
        raise ShapeError(f"empty_strided: sizes {list(size)} and strides {list(stride)} do not go together")
    return Meta.of(check_size("empty_strided", size), dtype or get_default_dtype(), device or CPU, stride)


@op(out=False, method=False, differentiable=False)
def zeros_like(input: Meta, *, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make a tensor of zeros in the shape and layout of ``input``."""
    return like(input, dtype, device)


@op(out=False, method=False, differentiable=False)
def ones_like(input: Meta, *, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make a tensor of ones in the shape and layout of ``input``."""
    return like(input, dtype, device)


@op(out=False, method=False, differentiable=False)
def empty_like(input: Meta, *, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make a tensor of uninitialized memory in the shape and layout of ``input``."""
    return like(input, dtype, device)


@op(out=False, method=False, differentiable=False)
def full_like(input: Meta, fill_value: Scalar, *, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make a tensor filled with one number in the shape and layout of ``input``."""
    check_fits("full_like", fill_value, dtype or input.dtype)
    return like(input, dtype, device)


def _new(name: str, input: Meta, size: Size, dtype: DType | None, device: Device | None) -> Meta:
    return input.like(check_size(name, size), dtype, device)


@op(out=False, differentiable=False)
def new_zeros(input: Meta, *size: int, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make a tensor of zeros, of the type and on the device of ``input``."""
    return _new("new_zeros", input, size, dtype, device)


@op(out=False, differentiable=False)
def new_ones(input: Meta, *size: int, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make a tensor of ones, of the type and on the device of ``input``."""
    return _new("new_ones", input, size, dtype, device)


@op(out=False, differentiable=False)
def new_empty(input: Meta, *size: int, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make a tensor of uninitialized memory, of the type and on the device of ``input``."""
    return _new("new_empty", input, size, dtype, device)


@op(out=False, differentiable=False)
def new_full(
    input: Meta, size: Size, fill_value: Scalar, *, dtype: DType | None = None, device: Device | None = None
) -> Meta:
    """Make a tensor filled with one number, of the type and on the device of ``input``."""
    check_fits("new_full", fill_value, dtype or input.dtype)
    return _new("new_full", input, size, dtype, device)


@op(out=False, differentiable=False)
def new_empty_strided(
    input: Meta, size: Size, stride: Size, *, dtype: DType | None = None, device: Device | None = None
) -> Meta:
    """Make a tensor of uninitialized memory with the given strides, of the type and on the device of ``input``."""
    if len(size) != len(stride) or min(stride, default=0) < 0:
        raise ShapeError(f"new_empty_strided: sizes {list(size)} and strides {list(stride)} do not go together")
    return input.like(check_size("new_empty_strided", size), dtype, device, stride)


def _arange(start: Scalar, end: Scalar, step: Scalar, dtype: DType | None, device: Device | None) -> Meta:
    if any(isinstance(s, complex) for s in (start, end, step)):
        raise DTypeError(f"arange: bounds and step must be real, got {start}, {end} and {step}: unsupported range")
    if not all(math.isfinite(s) for s in (start, end, step)):  # type: ignore[arg-type]
        raise ArgumentError(f"arange: bounds and step must be finite, got {start}, {end} and {step}: unsupported range")
    if step == 0:
        raise ArgumentError(f"arange: step must be nonzero, got {step}")
    if (end - start) * step < 0:  # type: ignore[operator]
        given = f"from {start} to {end} in steps of {step}"
        raise ArgumentError(f"arange: upper bound and lower bound inconsistent with step sign: {given}")
    natural = get_default_dtype() if any(isinstance(s, float) for s in (start, end, step)) else int64
    kind = dtype or natural
    if kind.category in (BOOL, COMPLEX):
        raise DTypeError(f"arange: not defined for {kind.name}")
    if kind.category < FLOAT:
        check_fits("arange", start, int64)
        check_fits("arange", step, int64)
        if kind is int64 and int(step) == 0:  # type: ignore[arg-type]
            raise ArgumentError(f"arange: steps of {step} are 0 as {kind.name}: step must be nonzero")
    return new("arange", (_count(start, end, step, kind),), kind, device)


def _count(start: Scalar, end: Scalar, step: Scalar, dtype: DType) -> int:
    if dtype is int64:
        first, last, by = int(start), int(end), int(step)  # type: ignore[arg-type]
        return -((first - last) // by) if by else 0
    first, last, by = float(start), float(end), float(step)  # type: ignore[arg-type,assignment]
    count = (last - first) / by
    if not math.isfinite(count):
        raise ArgumentError(f"arange: too many numbers from {start} to {end} in steps of {step}")
    return math.ceil(count)


@op(method=False, differentiable=False)
def arange(end: Scalar, *, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make a vector of the numbers from 0 up to ``end``, which is left out."""
    return _arange(0, end, 1, dtype, device)


@op(name="arange.start", method=False, differentiable=False)
def arange_start(
    start: Scalar, end: Scalar, step: Scalar = 1, *, dtype: DType | None = None, device: Device | None = None
) -> Meta:
    """Make a vector of the numbers from ``start`` in steps of ``step`` up to ``end``, which is left out."""
    return _arange(start, end, step, dtype, device)


def _spaced(
    name: str, start: Meta | Scalar, end: Meta | Scalar, steps: int, dtype: DType | None, device: Device | None
) -> Meta:
    bounds = (start, end)
    if steps < 0:
        raise ArgumentError(f"{name}: number of steps must be non-negative, got {steps}")
    if any(isinstance(b, Meta) and b.ndim for b in bounds):
        raise ShapeError(
            f"{name}: only supports 0-dimensional start and end tensors, and numbers, got {start} and {end}"
        )
    is_complex = any(b.dtype.is_complex if isinstance(b, Meta) else isinstance(b, complex) for b in bounds)
    natural = get_default_dtype().to_complex() if is_complex else get_default_dtype()
    if dtype is bool_ and steps > 1:
        raise DTypeError(f"{name}: not implemented for bool; make numbers and compare them")
    if is_complex and dtype is not None and not dtype.is_complex:
        raise DTypeError(f"{name}: complex bounds do not give {dtype.name}")
    for bound in bounds:
        if not isinstance(bound, Meta):
            check_fits(name, bound, dtype or natural)
    place = device or next((b.device for b in bounds if isinstance(b, Meta)), None)
    return new(name, (steps,), dtype or natural, place)


@op(method=False, differentiable=False)
def linspace(
    start: Meta | Scalar, end: Meta | Scalar, steps: int, *, dtype: DType | None = None, device: Device | None = None
) -> Meta:
    """Make a vector of ``steps`` evenly spaced numbers from ``start`` to ``end``, both included."""
    return _spaced("linspace", start, end, steps, dtype, device)


@op(method=False, differentiable=False)
def logspace(
    start: Meta | Scalar, end: Meta | Scalar, steps: int, base: float = 10.0, *, dtype: DType | None = None,
    device: Device | None = None,
) -> Meta:  # fmt: skip
    """Make a vector of ``steps`` powers of ``base``, with exponents evenly spaced from ``start`` to ``end``."""
    return _spaced("logspace", start, end, steps, dtype, device)


@op(method=False, differentiable=False)
def eye(n: int, m: int | None = None, *, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make a matrix of ``n`` rows and ``m`` columns with ones on the diagonal and zeros elsewhere."""
    return new("eye", (n, n if m is None else m), dtype, device)


def _triangle(name: str, input: Meta) -> Meta:
    if input.ndim < 2:
        raise ShapeError(f"{name}: input tensor must have at least 2 dimensions, got {input}")
    return input.like()


@op(inplace=True)
def tril(input: Meta, diagonal: int = 0) -> Meta:
    """Copy the elements on and below a diagonal; the others are 0."""
    return _triangle("tril", input)


@op(inplace=True)
def triu(input: Meta, diagonal: int = 0) -> Meta:
    """Copy the elements on and above a diagonal; the others are 0."""
    return _triangle("triu", input)


@op(out=False)
def clone(input: Meta) -> Meta:
    """Copy into new memory in the same memory order."""
    return like(input, None, None)


@op(mutates="input", out=False, mixed_devices=True)
def copy_(input: Meta, src: Meta, non_blocking: bool = False) -> Meta:
    """Overwrite ``input`` with ``src``, broadcast and cast."""
    if broadcast_shapes("copy_", input.shape, src.shape) != input.shape:
        raise ShapeError(f"copy_: {src} does not broadcast to {input}")
    return input


@op(name="copy_.Scalar", mutates="input", out=False)
def copy_number_(input: Meta, src: Scalar, non_blocking: bool = False) -> Meta:
    """Overwrite every element with a number, cast as an element of a tensor is."""
    return input


@op(mutates="input", out=False)
def fill_(input: Meta, value: Scalar) -> Meta:
    """Overwrite every element with a number."""
    check_fits("fill_", value, input.dtype)
    return input


@op(name="fill_.Tensor", mutates="input", out=False, mixed_devices=True)
def fill_tensor_(input: Meta, value: Meta) -> Meta:
    """Overwrite every element with the element of a 0-d tensor."""
    if value.ndim:
        raise ShapeError(f"fill_: the value must be a number or a 0-d tensor, not {value}")
    return input


@op(mutates="input", out=False)
def zero_(input: Meta) -> Meta:
    """Overwrite every element with 0."""
    return input

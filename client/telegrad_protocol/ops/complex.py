"""Contracts of complex numbers: their parts, their angle, their conjugate, and pairs of floats seen as them."""

from __future__ import annotations

from telegrad_protocol.dtypes import float16, float32, float64
from telegrad_protocol.errors import DTypeError, ShapeError
from telegrad_protocol.meta import Meta

from .contract import op, pointwise
from .creation import like
from .pointwise import same_dtype

_PARTS = (float16, float32, float64)


def _part(input: Meta, number: int) -> Meta:
    strides = tuple(2 * stride for stride in input.strides)
    return Meta.of(input.shape, input.dtype.to_real(), input.device, strides, 2 * input.offset + number)


@op(view_of="input", method=False)
def real(input: Meta) -> Meta:
    """View the real parts of a complex tensor; a real tensor is returned itself."""
    return _part(input, 0) if input.dtype.is_complex else input.view(input.shape, input.strides)


@op(view_of="input", method=False)
def imag(input: Meta) -> Meta:
    """View the imaginary parts of a complex tensor."""
    if not input.dtype.is_complex:
        raise DTypeError(f"imag: real tensors have no imaginary part, got {input}")
    return _part(input, 1)


@op(view_of="input", method=False)
def view_as_real(input: Meta) -> Meta:
    """View complex numbers as pairs of floats in a new last dimension."""
    if not input.dtype.is_complex:
        raise DTypeError(f"view_as_real: expected a complex tensor, got {input}")
    strides = (*(2 * stride for stride in input.strides), 1)
    return Meta.of((*input.shape, 2), input.dtype.to_real(), input.device, strides, 2 * input.offset)


@op(view_of="input", method=False)
def view_as_complex(input: Meta) -> Meta:
    """View the pairs of floats in the last dimension as complex numbers."""
    if input.dtype not in _PARTS:
        raise DTypeError(f"view_as_complex: expected float16, float32 or float64, got {input}")
    if not input.ndim or input.shape[-1] != 2 or input.strides[-1] != 1:
        raise ShapeError(f"view_as_complex: the last size must be 2 and its stride 1, got {input}, {input.strides}")
    if any(stride % 2 for stride in (*input.strides[:-1], input.offset)):
        raise ShapeError(f"view_as_complex: strides and offset must be even, got {input.strides} and {input.offset}")
    strides = tuple(stride // 2 for stride in input.strides[:-1])
    return Meta.of(input.shape[:-1], input.dtype.to_complex(), input.device, strides, input.offset // 2)


@op(view_of="input", copies=lambda input: input.dtype.is_complex)
def conj(input: Meta) -> Meta:
    """Compute the complex conjugate as a copy; a real tensor is returned itself."""
    return like(input, None, None) if input.dtype.is_complex else input.view(input.shape, input.strides)


@pointwise
def conj_physical(input: Meta) -> Meta:
    """Compute the complex conjugate, always as a copy."""


@pointwise(promotion=lambda input: "complex_to_float" if input.dtype.is_complex else "int_to_float", inplace=False)
def angle(input: Meta) -> Meta:
    """Compute the angle of complex numbers in the plane; it is 0 or pi for real ones."""


def _check_parts(name: str, first: Meta, second: Meta) -> None:
    same_dtype(name, first, second)
    if first.dtype not in _PARTS:
        raise DTypeError(f"{name}: expected float16, float32 or float64 operands, got {first}")


@pointwise(promotion="float_to_complex", takes="f", inplace=False, method=False)
def complex(real: Meta, imag: Meta) -> Meta:
    """Combine real and imaginary parts: real + i * imag."""
    _check_parts("complex", real, imag)


@pointwise(promotion="float_to_complex", takes="f", inplace=False, method=False)
def polar(abs: Meta, angle: Meta) -> Meta:
    """Combine absolute values and angles: abs * exp(i * angle)."""
    _check_parts("polar", abs, angle)

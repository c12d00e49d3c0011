"""Kinds of element types, as ``torch._prims_common`` tells them: which they are, and which correspond to each other."""

from __future__ import annotations

from functools import reduce
from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad_protocol import dtypes as _dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError, DTypeError

_KINDS = (bool, int, float, complex)
_HALVES = (_dtypes.float16, _dtypes.bfloat16, _dtypes.complex32)


def is_boolean_dtype(dtype: DType) -> bool:
    """Tell whether elements are truth values."""
    return dtype is _dtypes.bool_


def is_integer_dtype(dtype: DType) -> bool:
    """Tell whether elements are whole numbers."""
    return dtype.category == _dtypes.INTEGER


def is_float_dtype(dtype: DType) -> bool:
    """Tell whether elements are floating-point numbers."""
    return dtype.is_floating_point


def is_complex_dtype(dtype: DType) -> bool:
    """Tell whether elements are complex numbers."""
    return dtype.is_complex


def is_grad_dtype(dtype: DType) -> bool:
    """Tell whether tensors of this type may require gradients."""
    return dtype.is_differentiable


def is_low_precision_dtype(dtype: DType) -> bool:
    """Tell whether elements have half precision."""
    return dtype in _HALVES


def dtype_to_type(dtype: DType) -> type:
    """Return Python's type of numbers that corresponds to a type of elements."""
    return _KINDS[dtype.category]


dtype_to_type_ctor = dtype_to_type


def type_to_dtype(typ: type) -> DType:
    """Return the type of elements of which tensors of Python's numbers are."""
    if typ not in _KINDS:
        raise ArgumentError(f"invalid type {typ}: expected bool, int, float or complex")
    return _dtypes.of_scalar(typ())


def corresponding_real_dtype(dtype: DType) -> DType:
    """Return the type of a complex number's parts."""
    if not dtype.is_complex:
        raise DTypeError(f"corresponding_real_dtype: expected a complex type, not {dtype}")
    return dtype.to_real()


def corresponding_complex_dtype(dtype: DType) -> DType:
    """Return the type of complex numbers whose parts are of this type."""
    return dtype.to_complex()


def get_computation_dtype(dtype: DType) -> DType:
    """Return the type that half precision is computed in, any other type itself."""
    wider = (_dtypes.float32, _dtypes.float32, _dtypes.complex64)
    return wider[_HALVES.index(dtype)] if dtype in _HALVES else dtype


def get_higher_dtype(a: Any, b: Any) -> DType | None:
    """Return the type that two types, tensors or numbers promote to; None stands for no type."""
    known = [_dtype_of(one) for one in (a, b) if one is not None]
    return reduce(_dtypes.promote_types, known) if known else None


def _dtype_of(value: Any) -> DType:
    if isinstance(value, DType):
        return value
    return value.dtype if isinstance(value, Tensor) else _dtypes.of_scalar(value)


def dtype_or_default(dtype: DType | None) -> DType:
    """Return a type, or the default one for None."""
    return dtype if dtype is not None else _dtypes.get_default_dtype()

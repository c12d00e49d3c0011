"""Limits of the numeric types."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import DTypeError

from .host_arrays import TO_NUMPY


class FloatLimits(NamedTuple):
    """What a floating-point type can hold."""

    bits: int
    eps: float
    max: float
    min: float
    tiny: float
    smallest_normal: float
    resolution: float
    dtype: str


class IntegerLimits(NamedTuple):
    """What an integer type can hold."""

    bits: int
    max: int
    min: int
    dtype: str


_BFLOAT16 = FloatLimits(
    16, 2.0**-7, (2 - 2.0**-7) * 2.0**127, -(2 - 2.0**-7) * 2.0**127, 2.0**-126, 2.0**-126, 1e-2, "bfloat16"
)


def float_limits(dtype: DType) -> FloatLimits:
    """Limits of a floating-point or complex type, whose parts count."""
    if dtype.category < dtypes.FLOAT:
        raise DTypeError(f"finfo: {dtype.name} is not a floating-point type; use iinfo()")
    real = dtype.to_real()
    if real is dtypes.bfloat16:
        return _BFLOAT16
    found = np.finfo(TO_NUMPY[real])
    tiny = float(found.tiny)
    values = (float(found.eps), float(found.max), float(found.min), tiny, tiny, float(found.resolution))
    return FloatLimits(real.itemsize * 8, *values, real.name)


def integer_limits(dtype: DType) -> IntegerLimits:
    """Limits of an integer type."""
    if dtype.category != dtypes.INTEGER:
        raise DTypeError(f"iinfo: {dtype.name} is not an integer type; use finfo()")
    found = np.iinfo(TO_NUMPY[dtype])
    return IntegerLimits(dtype.itemsize * 8, int(found.max), int(found.min), dtype.name)

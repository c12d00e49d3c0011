"""What numeric types can hold: the results of ``finfo`` and ``iinfo``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentTypeError

from .host_arrays import TO_NUMPY


class FloatLimits(NamedTuple):
    """The limits of a floating-point type, under NumPy's and PyTorch's names."""

    bits: int
    eps: float
    max: float
    min: float
    tiny: float
    smallest_normal: float
    resolution: float
    dtype: str

    def __repr__(self) -> str:
        numbers = ", ".join([f"{name}={getattr(self, name):g}" for name in _SHOWN])
        return f"finfo({numbers}, dtype={self.dtype})"


class IntegerLimits(NamedTuple):
    """The limits of an integer type."""

    bits: int
    max: int
    min: int
    dtype: str

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"


_SHOWN = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")

_BFLOAT16 = FloatLimits(
    16, 2.0**-7, (2 - 2.0**-7) * 2.0**127, -(2 - 2.0**-7) * 2.0**127, 2.0**-126, 2.0**-126, 1e-2, "bfloat16"
)


_EIGHT_BITS = {
    "float8_e4m3fn": (0.125, 448.0, -448.0, 2.0**-6),
    "float8_e4m3fnuz": (0.125, 240.0, -240.0, 2.0**-7),
    "float8_e5m2": (0.25, 57344.0, -57344.0, 2.0**-14),
    "float8_e5m2fnuz": (0.125, 57344.0, -57344.0, 2.0**-15),
    "float8_e8m0fnu": (1.0, 2.0**127, 2.0**-127, 2.0**-127),
}
"""The distance from 1 to the next number, the largest, the least and the smallest normal number."""


def float_limits(dtype: DType) -> FloatLimits:
    """Return the limits of a floating-point type; of a complex type, those of its real part."""
    dtype = dtypes.dtype_for("finfo", dtype)
    if dtype.category < dtypes.FLOAT:
        raise ArgumentTypeError(
            f"finfo: torch.finfo() requires a floating point input type, not {dtype.name}; use iinfo()"
        )
    real = dtype.to_real()
    if real.name in _EIGHT_BITS:
        eps, largest, least, tiny = _EIGHT_BITS[real.name]
        return FloatLimits(8, eps, largest, least, tiny, tiny, 1.0, real.name)
    if real is dtypes.bfloat16:
        return _BFLOAT16
    limits = np.finfo(TO_NUMPY[real])
    tiny = float(limits.tiny)
    values = (float(limits.eps), float(limits.max), float(limits.min), tiny, tiny, float(str(limits.resolution)))
    return FloatLimits(real.itemsize * 8, *values, real.name)


def integer_limits(dtype: DType) -> IntegerLimits:
    """Return the limits of an integer type."""
    dtype = dtypes.dtype_for("iinfo", dtype)
    if dtype.category != dtypes.INTEGER:
        raise ArgumentTypeError(f"iinfo: torch.iinfo() requires an integer input type, not {dtype.name}; use finfo()")
    limits = np.iinfo(TO_NUMPY[dtype])
    return IntegerLimits(dtype.itemsize * 8, int(limits.max), int(limits.min), dtype.name)

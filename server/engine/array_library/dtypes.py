"""The protocol's element types as NumPy's dtypes, which CuPy shares."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType

_ADDED = {
    dtypes.bfloat16: ml_dtypes.bfloat16,
    dtypes.complex32: getattr(ml_dtypes, "complex32", "V4"),  # before 0.6 its elements can be moved but not computed
}
NUMPY_DTYPES: dict[DType, np.dtype[Any]] = {dtype: np.dtype(_ADDED.get(dtype, dtype.name)) for dtype in dtypes.ALL}
BY_NUMPY: dict[np.dtype[Any], DType] = {numpy_dtype: dtype for dtype, numpy_dtype in NUMPY_DTYPES.items()}
HALVES = frozenset((dtypes.float16, dtypes.bfloat16))
"""The 16-bit floating types."""
COMPUTED_IN = {dtypes.float16: dtypes.float32, dtypes.bfloat16: dtypes.float32, dtypes.complex32: dtypes.complex64}
"""The types whose elements are widened to be computed with, and the wider types."""

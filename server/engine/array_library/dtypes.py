"""The protocol's element types as NumPy's dtypes, which CuPy shares."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType

NUMPY_DTYPES: dict[DType, np.dtype[Any]] = {
    dtype: np.dtype(ml_dtypes.bfloat16 if dtype is dtypes.bfloat16 else dtype.name) for dtype in dtypes.ALL
}
BY_NUMPY: dict[np.dtype[Any], DType] = {numpy_dtype: dtype for dtype, numpy_dtype in NUMPY_DTYPES.items()}
HALVES = frozenset((dtypes.float16, dtypes.bfloat16))
"""The 16-bit floating types."""

"""Which module factorizes matrices of an array library: LAPACK on the host, cuSOLVER and cuBLAS on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import cuda_lapack, host_lapack


def library_of(xp: Any) -> Any:
    """The module whose functions take arrays of ``xp``; both have the same functions."""
    return host_lapack if xp is np else cuda_lapack

"""Convolutions, and maxima of windows, on the host in float32, by compiled loops and by BLAS; importing it registers
the kernels.
"""

from __future__ import annotations

from . import kernels as kernels
from . import pooling as pooling

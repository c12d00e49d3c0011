"""Operations on large tensors that are broadcast, or addressed by data. Importing it registers kernels.

It is imported after ``pointwise_parts``, which would take operands of arithmetic, too, and goes before it.
"""

from __future__ import annotations

from . import row_arithmetic, scattering

__all__ = ["row_arithmetic", "scattering"]

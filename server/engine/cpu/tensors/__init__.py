"""Operations on large tensors that are broadcast, or addressed by data, and extremes, which give such addresses.

Importing it registers kernels.

It is imported after ``pointwise_parts``, which would take operands of arithmetic, too, and goes before it.
"""

from __future__ import annotations

from . import extremes, row_arithmetic, scattering

__all__ = ["extremes", "row_arithmetic", "scattering"]

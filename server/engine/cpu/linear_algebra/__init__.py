"""Operations on matrices, and transforms of signals, that write into their results' memory.

Importing the package registers their kernels.
"""

from __future__ import annotations

from . import (
    compact,
    few_matrices,
    general_spectra,
    least_squares,
    matrices,
    norms,
    orthogonal,
    small_products,
    spectra,
    transforms,
    triangular,
)

__all__ = [
    "compact", "few_matrices", "general_spectra", "least_squares", "matrices", "norms", "orthogonal", "small_products",
    "spectra", "transforms", "triangular",
]  # fmt: skip

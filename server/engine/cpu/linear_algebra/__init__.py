"""Operations on matrices, and transforms of signals, that write into their results' memory.

Importing the package registers their kernels.
"""

from __future__ import annotations

from . import few_matrices, matrices

__all__ = ["few_matrices", "matrices"]

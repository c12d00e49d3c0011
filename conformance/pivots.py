"""Whether LU factorizations are right, where libraries choose their pivots by different sizes of numbers.

LAPACK takes the element whose two parts have the largest sum of absolute values; cuBLAS and cuSOLVER, which PyTorch
calls on a GPU, may take another one where numbers are complex. Then neither the permutations nor the factors are the
same.
"""

from __future__ import annotations

from typing import Final

import torch

PIVOTED: Final = frozenset(("lu", "linalg.lu", "linalg.lu_factor", "linalg.lu_factor_ex"))
_LARGEST: Final = 2**0.5
"""A multiplier's size is at most 1 by the measure that chose the pivot, and by the other one at most this."""


def is_factorization(
    name: str, matrix: torch.Tensor, ours: list[torch.Tensor], theirs: list[torch.Tensor], tolerance: float
) -> bool:  # fmt: skip
    """Whether results give a complex matrix back as P L U, with partial pivoting, and fail where PyTorch's fail."""
    if not matrix.is_complex() or [t.shape for t in ours] != [t.shape for t in theirs]:
        return False
    permutation, lower, upper = ours if name == "linalg.lu" else torch.lu_unpack(*ours[:2])
    allowed = tolerance * matrix.shape[-1] * float(matrix.abs().sum() and matrix.abs().amax())
    is_product = torch.allclose(permutation @ lower @ upper, matrix, rtol=tolerance, atol=allowed)
    is_pivoted = bool((lower.abs() <= _LARGEST * (1 + tolerance)).all()) and _is_permutation(permutation)
    fails_alike = name == "linalg.lu" or len(ours) < 3 or torch.equal(ours[2], theirs[2])
    return is_product and is_pivoted and fails_alike


def _is_permutation(matrix: torch.Tensor) -> bool:
    """Whether every row and every column is zeros and a one."""
    ones = matrix == 1
    is_single = all(bool((ones.sum(dim) == 1).all()) for dim in (-1, -2))
    return is_single and int(matrix.count_nonzero()) == int(ones.sum())

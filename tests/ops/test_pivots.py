"""How the sweep over PyTorch's operators judges LU factorizations that were made with other pivots than LAPACK's."""

from __future__ import annotations

import pytest
import torch

from conformance.pivots import is_factorization

TOLERANCE = 2e-5


def _with_pivots_by_magnitude(matrix: torch.Tensor) -> list[torch.Tensor]:
    """Compact factors, rows exchanged, counted from 1, and info, where the pivot is the largest absolute value."""
    factors, size = matrix.clone(), matrix.shape[-1]
    pivots = torch.zeros(size, dtype=torch.int32)
    for k in range(size):
        chosen = k + int(factors[k:, k].abs().argmax())
        pivots[k] = chosen + 1
        factors[[k, chosen]] = factors[[chosen, k]]
        factors[k + 1 :, k] /= factors[k, k]
        factors[k + 1 :, k + 1 :] -= torch.outer(factors[k + 1 :, k], factors[k, k + 1 :])
    return [factors, pivots, torch.tensor(0, dtype=torch.int32)]


@pytest.fixture
def matrix() -> torch.Tensor:
    """A matrix in whose first column LAPACK takes the first element, which is smaller than the second."""
    numbers = torch.randn(4, 4, dtype=torch.complex64)
    numbers[:, 0] = torch.tensor([8 + 8j, 12, 1, 1])
    return numbers


def test_other_pivots_make_a_factorization(seed: int, matrix: torch.Tensor) -> None:
    ours, theirs = _with_pivots_by_magnitude(matrix), list(torch.linalg.lu_factor_ex(matrix))
    assert ours[1][0] == 2 and theirs[1][0] == 1
    assert is_factorization("linalg.lu_factor_ex", matrix, ours, theirs, TOLERANCE)
    whole = list(torch.lu_unpack(*ours[:2]))
    assert is_factorization("linalg.lu", matrix, whole, list(torch.linalg.lu(matrix)), TOLERANCE)


def test_what_is_not_a_factorization_is_told(seed: int, matrix: torch.Tensor) -> None:
    theirs = list(torch.linalg.lu_factor_ex(matrix))
    factors, pivots, info = theirs
    others = pivots.clone()
    others[0] = 2
    for wrong in ([factors * 1.001, pivots, info], [factors, others, info], [factors, pivots, info + 1]):
        assert not is_factorization("linalg.lu_factor_ex", matrix, wrong, theirs, TOLERANCE)
    permutation, lower, upper = torch.linalg.lu(matrix)
    scaled = [permutation, lower * 4, upper / 4]
    assert not is_factorization("linalg.lu", matrix, scaled, [permutation, lower, upper], TOLERANCE)
    assert not is_factorization("linalg.lu_factor", matrix.real, theirs[:2], theirs[:2], TOLERANCE)

"""Parts of spectra and older helpers of linear algebra, as users call them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


def _decaying(rng: np.random.Generator, m: int, n: int) -> np.ndarray[Any, Any]:
    """A matrix whose singular values halve from one to the next."""
    left, _ = np.linalg.qr(rng.standard_normal((m, m)))
    right, _ = np.linalg.qr(rng.standard_normal((n, n)))
    k = min(m, n)
    return (left[:, :k] * 0.5 ** np.arange(k)) @ right[:k]


@pytest.mark.parametrize("shape", [(40, 20), (20, 40)])
def test_the_largest_singular_values_are_found(tg: Any, rng: np.random.Generator, shape: tuple[int, int]) -> None:
    tg.manual_seed(int(rng.integers(1000)))
    given = _decaying(rng, *shape)
    U, S, V = tg.svd_lowrank(tg.tensor(given), q=12, niter=4)
    assert U.shape == (shape[0], 12) and V.shape == (shape[1], 12)
    np.testing.assert_allclose(S[:8].numpy(), 0.5 ** np.arange(8), rtol=1e-3)
    np.testing.assert_allclose(((U * S) @ V.mT).numpy(), given, atol=0.01)


def test_principal_components_are_those_of_centred_rows(tg: Any, rng: np.random.Generator) -> None:
    given = _decaying(rng, 50, 10) + 3.0
    _, S, V = tg.pca_lowrank(tg.tensor(given), q=10)
    expected = np.linalg.svd(given - given.mean(0), compute_uv=False)
    np.testing.assert_allclose(S.numpy(), expected, atol=1e-9)
    np.testing.assert_allclose((V.mT @ V).numpy(), np.eye(10), atol=1e-9)
    with pytest.raises(ValueError, match="q must be between 0 and 10"):
        tg.pca_lowrank(tg.tensor(given), q=11)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("generalized", [True, False])
def test_a_few_eigenvalues_of_a_large_matrix(
    tg: Any, rng: np.random.Generator, largest: bool, generalized: bool
) -> None:
    import scipy.linalg

    tg.manual_seed(int(rng.integers(1000)))
    size = 60
    root = rng.standard_normal((size, size))
    A = root @ root.T + np.diag(np.arange(1.0, size + 1) * 10)
    B = np.eye(size) + 0.1 * np.diag(np.arange(size)) if generalized else None
    values, vectors = tg.lobpcg(tg.tensor(A), k=3, B=None if B is None else tg.tensor(B), largest=largest, tol=1e-9)
    every = scipy.linalg.eigh(A, B, eigvals_only=True)
    np.testing.assert_allclose(values.numpy(), every[::-1][:3] if largest else every[:3], rtol=1e-6)
    X = vectors.numpy()
    residual = A @ X - (X if B is None else B @ X) * values.numpy()
    assert np.abs(residual).max() < 1e-4 * np.abs(A).max()


def test_eigenvalues_have_gradients(tg: Any, rng: np.random.Generator) -> None:
    root = rng.standard_normal((20, 20))
    A = tg.tensor(root @ root.T, requires_grad=True)
    values, vectors = tg.lobpcg(A, k=1)
    values.sum().backward()
    v = vectors.numpy()
    np.testing.assert_allclose(A.grad.numpy(), v @ v.T, atol=1e-6)


def test_lobpcg_refuses_what_is_too_small(tg: Any) -> None:
    with pytest.raises(RuntimeError, match="fewer than three times the 2 requested"):
        tg.lobpcg(tg.eye(5), k=2)


@pytest.mark.filterwarnings("ignore:torch.lu is deprecated", "ignore:torch.chain_matmul is deprecated")
def test_older_helpers(tg: Any, rng: np.random.Generator) -> None:
    numbers = rng.standard_normal((4, 4))
    a = tg.tensor(numbers)
    LU, pivots, info = tg.lu(a, get_infos=True)
    P, L, U = tg.lu_unpack(LU, pivots)
    np.testing.assert_allclose((P @ L @ U).numpy(), numbers, atol=1e-12)
    assert info.item() == 0 and len(a.lu()) == 2
    np.testing.assert_allclose(tg.chain_matmul(a, a, a).numpy(), np.linalg.matrix_power(numbers, 3), atol=1e-12)
    np.testing.assert_allclose(tg.norm(a, p="nuc").item(), np.linalg.norm(numbers, "nuc"))
    np.testing.assert_allclose(a.norm(p="nuc", dim=(0, 1)).item(), np.linalg.norm(numbers, "nuc"))

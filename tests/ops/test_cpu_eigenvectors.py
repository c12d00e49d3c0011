"""Compiled loops for eigenvalues of general real matrices, beside double precision and LAPACK."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from server.engine import functional as F
from server.engine.array_library import host_small_matrices as small
from server.engine.array_library import host_spectra
from server.engine.backward import grad
from telegrad_protocol.errors import LinearAlgebraError

from .adapters import EngineAdapter

EPS = {"f": 2.0**-23, "d": 2.0**-52}
COUNT = 3


@pytest.fixture(autouse=True)
def _any_number_of_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small, "_LEAST_LOADED", 0)


def eig(a: Any, vectors: bool = True) -> Any:
    """Eigenvalues and eigenvectors by the loops, None where they leave it to LAPACK."""
    kind = np.result_type(a.dtype, np.complex64)
    values, columns = np.empty(a.shape[:-1], kind), np.empty(a.shape, kind)
    return (values, columns) if small.eig_into(a, values, columns if vectors else None) else None


def check(a: Any, found: Any, bound: float) -> None:
    """Residuals beside the norm, lengths, and pairs, whose largest element is real."""
    values, vectors = found
    exact, norm = a.astype(complex), np.linalg.norm(a.astype(float), 2, axis=(-2, -1))
    residual = exact @ vectors.astype(complex) - vectors.astype(complex) * values[..., None, :]
    eps = EPS[a.dtype.char]
    assert (np.abs(residual).max((-2, -1)) <= bound * eps * norm).all()
    assert np.abs(np.linalg.norm(vectors.astype(complex), axis=-2) - 1).max() <= 8 * eps
    for number, row in enumerate(values):
        at = 0
        while at < row.size:
            column = vectors[number, :, at]
            if row[at].imag == 0:
                assert not column.imag.any()
                at += 1
                continue
            assert row[at].imag > 0 and row[at + 1] == row[at].conj()
            np.testing.assert_array_equal(vectors[number, :, at + 1], column.conj())
            sizes = np.abs(column.astype(complex))
            assert not column.imag[sizes >= sizes.max() * (1 - 100 * eps)].all()
            at += 2


def distances(values: Any, others: Any) -> Any:
    """How far each number is from the nearest of the others."""
    return np.abs(values[:, None] - others[None, :]).min(1)


@pytest.mark.parametrize("kind", EPS)
@pytest.mark.parametrize("size", [2, 3, 4, 5, 8, 13, 31, 33, 64, 100])
def test_eigenvectors_are_exact(rng: np.random.Generator, size: int, kind: str) -> None:
    a = rng.standard_normal((COUNT, size, size)).astype(kind)
    found = eig(a)
    check(a, found, 4 * size + 40)
    without = eig(a, vectors=False)[0]
    for number in range(COUNT):
        exact = np.linalg.eigvals(a[number].astype(float))
        condition = np.linalg.cond(np.linalg.eig(a[number].astype(float))[1])
        bound = (size + 40) * EPS[kind] * np.linalg.norm(a[number], 2) * condition
        for values in (found[0][number], without[number]):
            assert distances(values, exact).max() <= bound
            assert distances(exact, values).max() <= bound
    turned = a[:, ::-1, ::-1].swapaxes(1, 2)
    check(turned, eig(turned), 4 * size + 40)


def hard(rng: np.random.Generator, size: int) -> dict[str, Any]:
    """Matrices whose eigenvalues are ill-conditioned, equal, of one size, or far apart."""
    normal, rows = rng.standard_normal((size, size)), np.arange(size)
    q = np.linalg.qr(normal)[0]
    frank = np.where(rows >= rows[:, None] - 1, size - np.maximum(rows, rows[:, None]), 0)
    spread = 10.0 ** rng.uniform(-3, 3, size)
    companion = np.eye(size, k=-1)
    companion[0] = rng.standard_normal(size)
    return {
        "frank": frank, "companion": companion, "orthogonal": q, "skew": normal - normal.T,
        "symmetric": normal @ normal.T,
        "cycle": np.roll(np.eye(size), 1, 0), "graded": normal * 10.0 ** (-8 * rows / size)[:, None],
        "badly scaled": normal * spread[:, None] / spread, "one row": np.outer(normal[0], normal[1]),
        "nearly a Jordan block": q @ (2 * np.eye(size) + np.eye(size, k=1)) @ q.T,
        "two values": q @ np.diag(np.where(rows < size // 2, 1.0, 2.0)) @ q.T,
        "integers": rng.integers(-2, 3, (size, size)) + size * np.eye(size, k=1) + np.eye(size, k=-1),
    }  # fmt: skip


@pytest.mark.parametrize("kind", EPS)
@pytest.mark.parametrize("size", [2, 4, 9, 16])
def test_hard_matrices_have_residuals_like_lapacks(rng: np.random.Generator, size: int, kind: str) -> None:
    solved = 0
    for name, matrix in hard(rng, size).items():
        a = np.asarray(matrix, kind)[None]
        found = eig(a)
        if found is not None:
            solved += 1
            assert np.isfinite(found[1]).all(), name
            check(a, found, 40 * size + 100)
    assert solved >= 8


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e30, 1e-30])
def test_what_is_not_finite_or_needs_scaling_is_left_to_lapack(rng: np.random.Generator, number: float) -> None:
    a = rng.standard_normal((40, 8, 8)).astype("f")
    a[7] *= np.float32(number)
    assert eig(a) is None
    adapter = EngineAdapter()
    tensor = adapter.tensor(torch.from_numpy(a))
    if not np.isfinite(number):
        with pytest.raises(LinearAlgebraError):
            F.linalg_eig(tensor)
        return
    values = adapter.numpy(F.linalg_eigvals(tensor))[7]
    exact = np.linalg.eigvals(a[7].astype(float))
    assert distances(values.astype(complex), exact).max() <= 1e-3 * np.abs(exact).max()


@pytest.mark.parametrize("kind", EPS)
def test_eigenvalues_that_a_permutation_shows_are_exact(rng: np.random.Generator, kind: str) -> None:
    a = np.tril(rng.standard_normal((5, 20, 20))).astype(kind)
    a[1:] += np.eye(20, dtype=kind)
    a[4] = 2 * np.eye(20) + np.eye(20, k=-1)
    assert eig(a) is None
    values = host_spectra.eig(a, True)[0]
    for found, matrix in zip(values, a, strict=True):
        np.testing.assert_array_equal(np.sort(found.real), np.sort(matrix.diagonal()))


@pytest.mark.parametrize("kind", EPS)
@pytest.mark.parametrize("size", [2, 3, 8])
def test_one_small_matrix_is_for_the_loops(
    rng: np.random.Generator, size: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_spectra, "eig", None)  # what calls LAPACK
    adapter, a = EngineAdapter(), rng.standard_normal((size, size)).astype(kind)
    for given in (a, a.T):
        value = adapter.tensor(torch.from_numpy(given))
        values, vectors = [adapter.numpy(part) for part in F.linalg_eig(value)]
        check(given[None], (values[None], vectors[None]), 4 * size + 40)
        np.testing.assert_allclose(adapter.numpy(F.linalg_eigvals(value)), values, rtol=1e-4 if kind == "f" else 1e-10)


def test_batches_of_any_shape_have_eigenvectors(rng: np.random.Generator) -> None:
    adapter = EngineAdapter()
    a = rng.standard_normal((2, 5, 16, 16)).astype("f")
    values, vectors = [adapter.numpy(part) for part in F.linalg_eig(adapter.tensor(torch.from_numpy(a)))]
    assert (values.shape, vectors.shape, values.dtype) == ((2, 5, 16), a.shape, np.complex64)
    check(a.reshape(10, 16, 16), (values.reshape(10, 16), vectors.reshape(10, 16, 16)), 100)


def test_the_gradient_of_squared_eigenvalues_is_that_of_a_trace(rng: np.random.Generator) -> None:
    adapter = EngineAdapter()
    a = rng.standard_normal((4, 24, 24))
    leaf = adapter.tensor(torch.from_numpy(a), requires_grad=True)
    values = F.linalg_eigvals(leaf)
    (found,) = grad([F.sum(F.real(values * values))], [None], [leaf])
    np.testing.assert_allclose(adapter.numpy(found), 2 * a.swapaxes(1, 2), rtol=0, atol=1e-8)

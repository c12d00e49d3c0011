"""Compiled loops for eigenvalues, singular values and least squares, beside double precision and LAPACK."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from server.engine import compiled
from server.engine.array_library import host_least_squares
from server.engine.array_library import host_small_matrices as small
from telegrad_protocol.errors import LinearAlgebraError

from .adapters import EngineAdapter

EPS = {"f": 2.0**-24, "d": 2.0**-53}


def symmetric(rng: np.random.Generator, count: int, size: int, kind: str) -> Any:
    a = rng.standard_normal((count, size, size)).astype(kind)
    return a + a.swapaxes(1, 2)


def eigh(a: Any, upper: bool) -> Any:
    """Eigenvalues and eigenvectors by the loops, None where they leave it to LAPACK."""
    values, vectors = np.empty(a.shape[:-1], a.dtype), np.empty(a.shape, a.dtype).swapaxes(1, 2)
    return (values, vectors) if small.eigh_into(a, upper, values, vectors) else None


def check_eigh(a: Any, found: Any, kind: str) -> None:
    values, vectors = [part.astype(float) for part in found]
    exact, size = a.astype(float), a.shape[-1]
    scale = np.abs(np.linalg.eigvalsh(exact)).max(-1)[:, None] + 1e-300
    bound = 4 * (size + 4) * EPS[kind]
    assert (np.abs(values - np.linalg.eigvalsh(exact)) / scale).max() <= bound
    assert (np.diff(values) >= 0).all()
    assert np.abs(vectors.swapaxes(1, 2) @ vectors - np.eye(size)).max() <= bound
    assert (np.abs(exact @ vectors - vectors * values[:, None]).max(-1) / scale).max() <= bound


@pytest.mark.parametrize("kind", EPS)
@pytest.mark.parametrize("size", [1, 2, 3, 8, 13, 31, 33, 64])
def test_eigenvectors_of_one_triangle_are_exact(rng: np.random.Generator, size: int, kind: str) -> None:
    a = symmetric(rng, (1 << 11) // size**2 + 3, size, kind)
    for upper in (False, True):
        other = np.tril(np.full((size, size), np.nan), -1)
        check_eigh(a, eigh((a + (other if upper else other.T)).astype(kind), upper), kind)
    check_eigh(a[:, ::-1, ::-1], eigh(np.broadcast_to(a[:, ::-1, ::-1], a.shape), False), kind)


@pytest.mark.parametrize("kind", EPS)
def test_eigenvalues_may_be_equal_zero_or_far_apart(rng: np.random.Generator, kind: str) -> None:
    q = np.linalg.qr(rng.standard_normal((40, 12, 12)))[0]
    for values in (np.zeros(12), np.ones(12), [1e-6] * 6 + [1.0] * 6, 10.0 ** -np.arange(12), np.arange(12) - 6.0):
        a = (q * np.asarray(values)) @ q.swapaxes(1, 2)
        a = ((a + a.swapaxes(1, 2)) / 2).astype(kind)
        check_eigh(a, eigh(a, False), kind)
    for a in (np.zeros((40, 12, 12), kind), np.broadcast_to(np.eye(12, dtype=kind)[::-1], (40, 12, 12)).copy()):
        check_eigh(a, eigh(a, True), kind)


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e30, 1e-30])
def test_what_needs_scaling_or_is_not_finite_is_left_to_lapack(rng: np.random.Generator, number: float) -> None:
    a = symmetric(rng, 40, 8, "f")
    a[7] *= np.float32(number)
    assert eigh(a, False) is None
    adapter = EngineAdapter()
    if np.isfinite(number):
        actual = adapter.numpy(adapter.functional.linalg_eigh(adapter.tensor(torch.from_numpy(a)))[0])
        np.testing.assert_allclose(actual[7], np.linalg.eigvalsh(a[7].astype(float)), rtol=1e-4, atol=1e-5 * number)
    else:
        with pytest.raises(LinearAlgebraError), np.errstate(all="ignore"):
            adapter.functional.linalg_eigh(adapter.tensor(torch.from_numpy(a)))


@pytest.mark.parametrize("shape", [(8, 8), (16, 16), (16, 3), (2, 11), (1, 16), (5, 1)])
def test_singular_values_are_exact_beside_the_largest(rng: np.random.Generator, shape: tuple[int, int]) -> None:
    a = rng.standard_normal((500, *shape)).astype("f")
    a[1::3, :, -1] = a[1::3, :, 0]
    a[2] = 0
    a[4] *= np.float32(1e30)
    a[5] *= np.float32(1e-36)
    values = np.empty((500, min(shape)), "f")
    assert small.svdvals_into(a, values)
    exact = np.linalg.svd(a.astype(float), compute_uv=False)
    assert (np.abs(values - exact) <= 4 * EPS["f"] * exact[:, :1] + 1e-45).all()
    a[3, 0, 0] = np.inf
    assert not small.svdvals_into(a, values)


@pytest.mark.parametrize("kind", EPS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_least_squares_are_as_exact_as_lapacks(rng: np.random.Generator, kind: str, order: Any) -> None:
    for (m, n), columns in (
        ((512, 128), 4),
        ((70, 40), 1),
        ((60, 40), 20),
        ((300, 7), 2),
        ((130, 17), 9),
        ((700, 3), 1),
    ):
        a = np.asarray(rng.standard_normal((2, m, n)), kind, order=order)
        b = rng.standard_normal((2, m, columns)).astype(kind)
        x = np.empty((2, n, columns), kind)
        assert host_least_squares._by_loops(a, b, x)
        exact = np.linalg.pinv(a.astype(float)) @ b
        lapack = host_least_squares._full_rank(a, b, np.zeros(a.shape[:-2], np.int32))
        bound = max(4 * np.abs(lapack - exact).max(), 100 * EPS[kind] * np.abs(exact).max())
        assert np.abs(x - exact).max() <= bound


def test_least_squares_that_cannot_be_squared_are_lapacks(rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((1, 64, 40)).astype("f"), rng.standard_normal((1, 64, 1)).astype("f")
    x = np.empty((1, 40, 1), "f")
    scaled = (a * 10.0 ** -np.arange(40)).astype("f")
    without = np.where(np.arange(40) == 3, np.float32(0), a)
    large, tiny = a * np.float32(1e30), a * np.float32(1e-30)
    for given, side in ((large, b), (tiny, b), (scaled, b), (without, b), (a, b * np.float32(1e-38)), (a * np.nan, b)):
        assert not host_least_squares._by_loops(given, side, x)
    assert host_least_squares._by_loops(a, b * 0, x)
    assert not x.any()
    adapter = EngineAdapter()
    tensors = [adapter.tensor(torch.from_numpy(each[0])) for each in (large, b)]
    actual = adapter.numpy(adapter.functional.linalg_lstsq(*tensors, driver="gels")[0])
    np.testing.assert_allclose(actual * 1e30, np.linalg.pinv(a[0].astype(float)) @ b[0], rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("kind", EPS)
@pytest.mark.parametrize("size", [3, 8, 11, 16])
@pytest.mark.parametrize("count", [300, 513])
def test_groups_are_read_and_written_in_squares(rng: np.random.Generator, size: int, count: int, kind: str) -> None:
    a = (rng.standard_normal((count, size, size)) + 2 * size * np.eye(size)).astype(kind)
    definite = a @ a.swapaxes(1, 2)
    loops = small.interleaved_for(a)
    assert loops is compiled.kernels("factorizations.interleaved")
    info, pivots = np.empty(count, np.int32), np.empty((count, size), np.int32)
    for given, out in ((a, a.copy()), (a.swapaxes(1, 2), a.copy().swapaxes(1, 2)), (a, a.copy().swapaxes(1, 2))):
        assert small.lu_factor_into(loops, given, out, pivots, info) == 0
        lower, upper = np.tril(out.astype(float), -1) + np.eye(size), np.triu(out.astype(float))
        product = lower @ upper
        for number in range(count):
            rows = np.arange(size)
            for step, row in enumerate(pivots[number] - 1):
                rows[[step, row]] = rows[[row, step]]
            np.testing.assert_allclose(product[number], given[number][rows], atol=20 * size * EPS[kind] * size)
        assert small.cholesky_into(loops, definite, False, out, info) == 0
        np.testing.assert_allclose(out, np.linalg.cholesky(definite.astype(float)), rtol=0, atol=1e4 * EPS[kind] * size)
    assert not info.any()
    definite[5, 1, 1], definite[9, 0, 0] = -1, 0
    assert small.cholesky_into(loops, definite, False, out, info) == 2
    assert np.flatnonzero(info).tolist() == [5, 9] and info[9] == 1
    a[4], a[7, :, 0] = 0, 0
    assert small.lu_factor_into(loops, a, out, pivots, info) == 2
    assert np.flatnonzero(info).tolist() == [4, 7]

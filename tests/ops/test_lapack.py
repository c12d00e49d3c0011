"""The same factorizations on the host and on a GPU: each is put together again and compared with what was given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from server.engine.array_library.lapack import library_of

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]
BATCHES = [(), (3,), (2, 0), (40,)]
SIZES = [(4, 4), (5, 3), (3, 5), (1, 1), (0, 3), (70, 40)]


@pytest.fixture(params=["numpy", pytest.param("cupy", marks=pytest.mark.gpu)])
def xp(request: pytest.FixtureRequest) -> Any:
    if request.param == "numpy":
        return np
    request.getfixturevalue("cuda_host")  # CuPy's memory comes from the engine's allocator
    return pytest.importorskip("cupy")


@pytest.fixture(params=DTYPES, ids=lambda dtype: dtype.__name__)
def dtype(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(autouse=True)
def _silent() -> Any:
    """Let invalid values pass, as the worker does."""
    with np.errstate(all="ignore"):
        yield


def _numbers(xp: Any, rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    numbers = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    return xp.asarray((numbers if np.dtype(dtype).kind == "c" else numbers.real).astype(dtype))


def _adjoint(array: Any) -> Any:
    return array.swapaxes(-2, -1).conj()


def _assert_close(actual: Any, expected: Any, dtype: Any) -> None:
    arrays = [array.get() if hasattr(array, "get") else np.asarray(array) for array in (actual, expected)]
    tolerance = 2e-3 if np.finfo(dtype).eps > 1e-10 else 1e-8
    np.testing.assert_allclose(*np.broadcast_arrays(*arrays), rtol=tolerance, atol=tolerance * 10)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("batch", BATCHES)
def test_rectangular_matrices_are_put_together_again(
    xp: Any, rng: np.random.Generator, dtype: Any, batch: tuple[int, ...], size: tuple[int, int]
) -> None:
    library, (m, n), k = library_of(xp), size, min(size)
    a = _numbers(xp, rng, (*batch, *size), dtype)
    for full in (True, False):
        u, s, vh, info = library.svd(a, full, True)
        _assert_close((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], a, dtype)
        assert (u.dtype, s.dtype, u.shape[-1]) == (a.dtype, a.real.dtype, m if full else k) and not info.any()
    _assert_close(library.svd(a, False, False)[1], s, dtype)
    for columns in {k, m}:
        q, r = library.qr(a, columns)
        assert q.shape == (*batch, m, columns)
        _assert_close(q @ r, a, dtype)
    if k and m >= n:
        factor, tau = library.geqrf(a)
        _assert_close(library.householder_product(factor, tau) @ xp.triu(factor[..., :n, :]), a, dtype)
        x = library.lstsq(a, a[..., :1] * 2, 1e-6, "gels")[0]
        _assert_close(a @ x, a[..., :1] * 2, dtype)


@pytest.mark.parametrize("size", [1, 4, 40])
@pytest.mark.parametrize("batch", BATCHES)
def test_systems_of_square_matrices_are_solved(
    xp: Any, rng: np.random.Generator, dtype: Any, batch: tuple[int, ...], size: int
) -> None:
    library = library_of(xp)
    identity = xp.eye(size, dtype=dtype)
    a = _numbers(xp, rng, (*batch, size, size), dtype) + identity * size
    b = _numbers(xp, rng, (*batch, size, 2), dtype)
    lu, pivots, info = library.lu_factor(a, True)
    assert (pivots.shape, pivots.dtype, info.shape) == ((*batch, size), np.int32, batch)
    _assert_close(a @ library.lu_solve(lu, pivots, b, False), b, dtype)
    _assert_close(_adjoint(a) @ library.lu_solve(lu, pivots, b, True), b, dtype)
    _assert_close(a @ library.solve(a, b)[0], b, dtype)
    _assert_close(a @ library.inv(a)[0], identity, dtype)
    sign, logarithm = library.slogdet(a)
    _assert_close(sign * xp.exp(logarithm - size * np.log(size)), library.det(a / size), dtype)
    for upper in (False, True):
        triangle = xp.triu(a) if upper else xp.tril(a)
        _assert_close(triangle @ library.solve_triangular(triangle, b, upper, False), b, dtype)


@pytest.mark.parametrize("size", [1, 4, 40])
@pytest.mark.parametrize("batch", BATCHES)
def test_spectra_and_roots_of_square_matrices(
    xp: Any, rng: np.random.Generator, dtype: Any, batch: tuple[int, ...], size: int
) -> None:
    library = library_of(xp)
    a = _numbers(xp, rng, (*batch, size, size), dtype)
    values, vectors, info = library.eig(a, True)
    assert values.dtype == np.result_type(dtype, np.complex64) and not info.any()
    _assert_close(a @ vectors, vectors * values[..., None, :], dtype)
    hermitian = a + _adjoint(a)
    for upper in (False, True):
        values, vectors, _ = library.eigh(hermitian, upper, True)
        _assert_close(hermitian @ vectors, vectors * values[..., None, :], dtype)
        _assert_close(library.eigh(hermitian, upper, False)[0], values, dtype)
    definite = a @ _adjoint(a) / size + xp.eye(size, dtype=dtype)
    for upper in (False, True):
        factor, info = library.cholesky(definite, upper)
        _assert_close(_adjoint(factor) @ factor if upper else factor @ _adjoint(factor), definite, dtype)
        assert not info.any()
    factor, pivots, _ = library.ldl_factor(definite, True)
    b = a[..., :1]
    _assert_close(definite @ library.ldl_solve(factor, pivots, b, True), b, dtype)


def test_the_row_that_fails_is_told(xp: Any) -> None:
    library = library_of(xp)
    indefinite = xp.asarray([[[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]])
    assert library.cholesky(indefinite, False)[1].tolist() == [2, 0]
    singular = xp.asarray([[1.0, 2.0], [2.0, 4.0]])
    assert library.lu_factor(singular, True)[2].tolist() == 2
    assert library.inv(singular)[1].tolist() == 2


@pytest.mark.parametrize("size", [(4, 4), (6, 3), (3, 6), (70, 40), (40, 70)])
@pytest.mark.parametrize("batch", [(), (3,), (2, 2)])
def test_least_squares_are_those_of_the_smallest_norm(
    xp: Any, rng: np.random.Generator, dtype: Any, batch: tuple[int, ...], size: tuple[int, int]
) -> None:
    m, n = size
    a = _numbers(xp, rng, (*batch, m, n), dtype)
    a[..., : min(size), : min(size)] += xp.eye(min(size), dtype=dtype) * 2 * max(size)
    b = _numbers(xp, rng, (*batch, m, 2), dtype)
    x = library_of(xp).lstsq(a, b, 1e-6, "gels")[0]
    host = [array.get() if hasattr(array, "get") else array for array in (a, b)]
    expected = np.linalg.pinv(host[0].astype(np.complex128)) @ host[1]
    assert x.dtype == a.dtype and x.shape == (*batch, n, 2)
    _assert_close(x, expected if np.dtype(dtype).kind == "c" else expected.real, dtype)


@pytest.mark.parametrize("size", [(5, 5), (5, 3), (3, 5), (40, 40)])
@pytest.mark.parametrize("batch", [(), (3,), (2, 2)])
def test_factors_and_rows_exchanged_give_matrices_back(
    xp: Any, rng: np.random.Generator, dtype: Any, batch: tuple[int, ...], size: tuple[int, int]
) -> None:
    """Whichever of two complex numbers a library takes for the larger one, multipliers stay below the root of 2."""
    a, k = _numbers(xp, rng, (*batch, *size), dtype), min(size)
    lu, pivots, info = library_of(xp).lu_factor(a, True)
    lower = xp.tril(lu[..., :k], -1) + xp.eye(size[0], k, dtype=dtype)
    product = lower @ xp.triu(lu[..., :k, :])
    exchanged = (pivots.get() if hasattr(pivots, "get") else pivots).reshape(-1, k)
    flat = product.reshape(-1, *size)
    for number, rows in enumerate(exchanged.tolist()):
        for row in reversed(range(k)):
            flat[number, [row, rows[row] - 1]] = flat[number, [rows[row] - 1, row]]
    _assert_close(flat.reshape(a.shape), a, dtype)
    assert float(abs(lower).max()) < 1.4143 and not info.any()

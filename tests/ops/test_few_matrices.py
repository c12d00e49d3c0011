"""Factorizations of a few matrices, which are written into the results' memory, beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from server.engine import functional as F
from server.engine.array_library import host_lapack, host_orthogonal
from server.engine.cpu.linear_algebra import few_matrices
from server.engine.ops.linear_algebra.factorizations import _orders_at_once, _orders_in_turn
from telegrad_protocol.errors import LinearAlgebraError

from .adapters import EngineAdapter

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
SHAPES = [(1, 1), (10, 10), (1, 8, 8), (8, 5, 5), (9, 5, 5), (2, 1, 4, 4), (100, 100)]


@pytest.fixture
def adapter() -> EngineAdapter:
    return EngineAdapter()


def square(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype) + 2 * shape[-1] ** 0.5 * torch.eye(shape[-1], dtype=dtype)


def layouts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The same numbers in rows, in columns, and apart from each other."""
    wide = torch.zeros(*tensor.shape[:-1], 2 * tensor.shape[-1], dtype=tensor.dtype)
    wide[..., ::2] = tensor
    return [tensor.contiguous(), tensor.mT.contiguous().mT, wide[..., ::2]]


def close(actual: Any, expected: Any, dtype: torch.dtype) -> None:
    tolerance = 1e-3 if dtype in (torch.float32, torch.complex64) else 1e-9
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_square_matrices_have_pytorchs_results(
    adapter: EngineAdapter, seed: int, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    torch.manual_seed(seed)
    a, b = square(shape, dtype), torch.randn(*shape[:-1], 3, dtype=dtype)
    definite = a @ a.mH
    cases = [
        ("inv", a, (), {}), ("det", a, (), {}), ("slogdet", a, (), {}), ("inv_ex", a, (), {}),
        ("cholesky", definite, (), {}), ("cholesky_ex", definite, (), {"upper": True}),
        ("eigvalsh", definite, (), {"UPLO": "U"}), ("solve", a, (b,), {}), ("svdvals", a, (), {}),
    ]  # fmt: skip
    for name, matrix, others, keywords in cases:
        expected = getattr(torch.linalg, name)(matrix, *others, **keywords)
        listed = expected if isinstance(expected, tuple) else (expected,)
        for given in layouts(matrix):
            results = getattr(F, f"linalg_{name}")(*map(adapter.tensor, (given, *others)), **keywords)
            for result, other in zip(results if isinstance(results, tuple) else (results,), listed, strict=True):
                assert tuple(result.shape) == tuple(other.shape)
                scale = other.abs().max().item() or 1.0
                close(adapter.numpy(result) / scale, other.resolve_conj().numpy() / scale, dtype)
    right = F.linalg_solve(adapter.tensor(a), adapter.tensor(b.mT.contiguous()), left=False)
    close(adapter.numpy(right), torch.linalg.solve(a, b.mT, left=False).resolve_conj().numpy(), dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [*SHAPES, (12, 4), (4, 12), (3, 30, 7), (3, 7, 30)], ids=str)
def test_lu_factors_are_pytorchs(adapter: EngineAdapter, seed: int, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(seed)
    a = torch.randn(shape, dtype=dtype)
    for given in layouts(a):
        lu, pivots, info = [adapter.numpy(part) for part in F.linalg_lu_factor_ex(adapter.tensor(given))]
        assert not info.any() and (pivots.shape, info.shape) == ((*shape[:-2], min(shape[-2:])), shape[:-2])
        whole = torch.lu_unpack(torch.from_numpy(lu.copy()), torch.from_numpy(pivots.copy()))
        close((whole[0] @ whole[1] @ whole[2]).numpy(), a.numpy(), dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [*SHAPES, (12, 4), (4, 12), (3, 30, 7), (3, 7, 30), (70, 6, 6), (0, 3)], ids=str)
def test_permutations_and_triangles_are_pytorchs(
    adapter: EngineAdapter, seed: int, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    torch.manual_seed(seed)
    a = torch.randn(shape, dtype=dtype)
    for given in layouts(a):
        for ours, theirs in zip(F.linalg_lu(adapter.tensor(given)), torch.linalg.lu(a), strict=True):
            assert ours.shape == tuple(theirs.shape)
            close(adapter.numpy(ours), theirs.numpy(), dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
@pytest.mark.parametrize("shape", [*SHAPES, (12, 4), (4, 12), (3, 30, 7), (3, 7, 30), (70, 60), (3, 200, 40)], ids=str)
def test_qr_has_orthonormal_columns_and_zeros_below_the_diagonal(
    adapter: EngineAdapter, seed: int, shape: tuple[int, ...], mode: str, dtype: torch.dtype
) -> None:
    torch.manual_seed(seed)
    a = torch.randn(shape, dtype=dtype)
    expected = torch.linalg.qr(a, mode=mode)
    for given in layouts(a):
        q, r = [adapter.numpy(part) for part in F.linalg_qr(adapter.tensor(given), mode)]
        assert (q.shape, r.shape) == (tuple(expected[0].shape), tuple(expected[1].shape))
        close(r, expected[1].numpy(), dtype)
        assert not np.tril(r, -1).any()
        if mode != "r":
            close(q @ r, a.numpy(), dtype)
            close(
                q.swapaxes(-2, -1).conj() @ q,
                np.broadcast_to(np.eye(q.shape[-1]), (*shape[:-2], *q.shape[-1:] * 2)),
                dtype,
            )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (10, 10), (3, 8, 8), (9, 5, 5), (100, 100)], ids=str)
@pytest.mark.parametrize("left", [True, False])
def test_triangular_systems_have_pytorchs_solutions(
    adapter: EngineAdapter, seed: int, shape: tuple[int, ...], left: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(seed)
    n = shape[-1]
    full = torch.randn(shape, dtype=dtype) / n + 2 * torch.eye(n, dtype=dtype)
    b = torch.randn(*shape[:-2], *((n, 3) if left else (3, n)), dtype=dtype)
    for upper in (True, False):
        for unitriangular in (True, False):
            options = {"upper": upper, "left": left, "unitriangular": unitriangular}
            exact = torch.triu(full) if upper else torch.tril(full)
            expected = torch.linalg.solve_triangular(exact, b, **options)
            for given in layouts(full):
                actual = F.linalg_solve_triangular(adapter.tensor(given), adapter.tensor(b), **options)
                close(adapter.numpy(actual), expected.numpy(), dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_fails_is_told_as_for_batches(adapter: EngineAdapter, dtype: torch.dtype) -> None:
    zeros = adapter.tensor(torch.zeros(3, 3, dtype=dtype))
    batch = torch.eye(3, dtype=dtype).repeat(4, 1, 1)
    batch[2, 1] = 0
    several = adapter.tensor(batch)
    for function in (F.linalg_inv, F.linalg_cholesky, F.linalg_lu_factor, lambda a: F.linalg_solve(a, a)):
        with pytest.raises(LinearAlgebraError, match=r"^linalg\.\w+: (?!\()"):
            function(zeros)
        with pytest.raises(LinearAlgebraError, match=r"Batch element 2"):
            function(several)
    assert adapter.numpy(F.linalg_inv_ex(several)[1]).tolist() == [0, 0, 2, 0]
    assert adapter.numpy(F.linalg_cholesky_ex(several)[1]).tolist() == [0, 0, 2, 0]
    assert adapter.numpy(F.linalg_lu_factor_ex(several)[2]).tolist() == [0, 0, 2, 0]


@pytest.mark.parametrize("place", [(0, 0), (2, 1), (3, 3)])
def test_nan_fails_where_pytorch_says_so_and_is_passed_on(adapter: EngineAdapter, place: tuple[int, int]) -> None:
    a = torch.eye(4) * 2 + 0.1
    a[place] = torch.nan
    _, info = F.linalg_cholesky_ex(adapter.tensor(a))
    assert adapter.numpy(info) == torch.linalg.cholesky_ex(a)[1].item()
    for result in (F.linalg_inv_ex(adapter.tensor(a))[0], F.linalg_det(adapter.tensor(a))):
        assert np.isnan(adapter.numpy(result)).any()


def test_results_in_given_memory_are_the_same(tg: Any, seed: int) -> None:
    torch.manual_seed(seed)
    a = torch.randn(6, 6)
    tensor = tg.tensor(a.numpy())
    for make in (lambda: tg.empty(6, 6), lambda: tg.empty(6, 6).mT, lambda: tg.empty(6, 12)[:, ::2]):
        q, r = make(), make()
        tg.linalg.qr(tensor, out=(q, r))
        close((q @ r).numpy(), a.numpy(), a.dtype)
        tg.linalg.inv(tensor, out=q)
        close((q @ tensor).numpy(), np.eye(6), a.dtype)


@pytest.mark.parametrize("columns", [1, 7, 31])
def test_exchanges_of_rows_in_turn_are_those_at_once(rng: np.random.Generator, columns: int) -> None:
    pivots = rng.integers(1, 32, (90, columns)).astype(np.int32)
    np.testing.assert_array_equal(_orders_in_turn(pivots, 31), _orders_at_once(np, pivots, 31))


@pytest.mark.parametrize("kind", ["f", "d"])
@pytest.mark.parametrize("shape", [(64, 64), (130, 97), (97, 130), (2, 300, 30), (2, 30, 300), (1000, 24)])
def test_panels_are_as_exact_as_lapack(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> None:
    a = rng.standard_normal(shape).astype(kind)
    (m, n), eps = shape[-2:], np.finfo(kind).eps
    k = min(m, n)
    for given in (a, np.asfortranarray(a), np.broadcast_to(a, a.shape)):
        for columns in (0, k, m):
            found = host_orthogonal._by_panels(given, columns)
            assert found is not None
            q, r = found
            assert r.shape == (*shape[:-2], columns or k, n) and not np.tril(r, -1).any()
            if not columns:
                np.testing.assert_allclose(r, host_orthogonal._by_panels(given, k)[1], rtol=0, atol=1e3 * m * eps)
                continue
            assert np.abs(q.astype(float) @ r - a).max() <= 4 * m * eps * np.abs(a).max()
            assert np.abs(q.swapaxes(-2, -1).astype(float) @ q - np.eye(columns)).max() <= 4 * m * eps


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e30, 1e-38])
def test_columns_that_cannot_be_squared_are_lapacks(rng: np.random.Generator, number: float) -> None:
    a = rng.standard_normal((80, 60)).astype("f") * np.float32(number)
    assert host_orthogonal._by_panels(a, 60) is None
    q, r = host_lapack.qr(a, 60)
    if np.isfinite(number):
        assert np.abs(q.astype(float) @ r - a).max() <= 1e-4 * np.abs(a).max()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("shape", [(260, 70), (70, 260), (2, 300, 66), (400, 5), (5, 400)])
def test_tall_and_wide_matrices_have_singular_values_of_their_triangles(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: Any
) -> None:
    a = (rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else 0)).astype(
        dtype
    )
    tolerance, k = 1e3 * np.finfo(dtype).eps, min(shape[-2:])
    exact = np.linalg.svd(a.astype(np.result_type(dtype, np.float64)), compute_uv=False)
    for full in (True, False):
        u, s, vh, info = host_lapack.svd(a, full, True)
        assert not info.any() and u.dtype == dtype and u.shape[-1] == (shape[-2] if full else k)
        np.testing.assert_allclose(s, exact, rtol=tolerance, atol=tolerance)
        assert np.abs((u[..., :k] * s[..., None, :]) @ vh[..., :k, :] - a).max() <= 100 * tolerance
        for columns in (u, vh.swapaxes(-2, -1)):
            product = columns.swapaxes(-2, -1).conj() @ columns
            assert np.abs(product - np.eye(columns.shape[-1])).max() <= tolerance
    np.testing.assert_allclose(host_lapack.svd(a, False, False)[1], exact, rtol=tolerance, atol=tolerance)


def test_batches_for_compiled_loops_are_no_few_matrices(adapter: EngineAdapter) -> None:
    few, many = [adapter.tensor(torch.zeros(count, 8, 8)).meta for count in (3, 100)]
    assert few_matrices._is_few(few)
    assert not few_matrices._is_few(many)


@pytest.mark.parametrize("driver", ["gelsy", "gelss", "gelsd"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("shape", [(200, 40), (3, 30, 6), (12, 9), (9, 12)])
def test_tall_problems_have_the_smallest_solutions_and_ranks(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, driver: str
) -> None:
    turn = 1j if np.dtype(dtype).kind == "c" else 0
    a = (rng.standard_normal(shape) + turn * rng.standard_normal(shape)).astype(dtype)
    a[..., 2] = a[..., 0] * 2
    b = (rng.standard_normal((*shape[:-1], 3)) + turn * rng.standard_normal((*shape[:-1], 3))).astype(dtype)
    rcond = 100 * float(np.finfo(dtype).eps) * max(shape)
    x, rank, singular, _ = host_lapack.lstsq(a, b, rcond, driver)
    wide = a.astype(np.result_type(dtype, np.float64))
    expected = np.linalg.pinv(wide, rcond=rcond) @ b
    assert (rank == min(shape[-2], shape[-1] - 1)).all() and rank.shape == shape[:-2]
    assert np.abs(x - expected).max() <= 1e4 * np.finfo(dtype).eps * np.abs(expected).max()
    if driver != "gelsy":
        exact = np.linalg.svd(wide, compute_uv=False)
        assert np.abs(singular - exact).max() <= 100 * np.finfo(dtype).eps * exact.max()

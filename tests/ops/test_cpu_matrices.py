"""Compiled loops for batches of small matrices, and triangular systems in blocks, beside double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from server.engine import compiled
from server.engine import functional as F
from server.engine.array_library import host_lapack
from server.engine.array_library import host_small_matrices as small
from telegrad_protocol.errors import LinearAlgebraError

from .adapters import EngineAdapter

SIZES = [1, 2, 3, 8, 17, 32]
KINDS = {"f": 2e-5, "d": 1e-13}


@pytest.fixture(autouse=True)
def _silent() -> Any:
    """Let invalid values pass, as the worker does."""
    with np.errstate(all="ignore"):
        yield


@pytest.fixture
def adapter() -> EngineAdapter:
    return EngineAdapter()


@pytest.fixture
def lapack(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Calls a function of ``host_lapack`` without the loops."""

    def call(function: Any, *args: Any) -> Any:
        with monkeypatch.context() as patch:
            for name in ("loops_for", "interleaved_for"):
                patch.setattr(small, name, lambda *given, **named: None)
            return function(*args)

    return call


def batch_of(rng: np.random.Generator, size: int, kind: str, columns: int | None = None) -> Any:
    """Well-conditioned matrices, enough of them, of which memory has every second column in reverse."""
    count = max(8, (1 << 11) // size**2 + 1)
    shape = (count, size, columns or size)
    matrices = rng.standard_normal((*shape[:2], 2 * shape[2])).astype(kind)[..., ::-2]
    matrices += 4 * size**0.5 * np.eye(*shape[1:], dtype=kind)[:, rng.permutation(shape[2])]
    assert small.loops_for(matrices) is not None
    return matrices


def close(actual: Any, expected: Any, kind: str, factor: float = 1) -> None:
    tolerance = KINDS[kind] * factor
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_factorizations_and_solutions_are_exact(rng: Any, lapack: Any, size: int, kind: str) -> None:
    a = batch_of(rng, size, kind)
    exact = a.astype(float)
    lu, pivots, info = host_lapack.lu_factor(a, True)
    expected = lapack(host_lapack.lu_factor, a, True)
    assert not info.any()
    np.testing.assert_array_equal(pivots, expected[1])
    close(lu, expected[0], kind, size)
    b = rng.standard_normal((*a.shape[:2], 5)).astype(kind)
    close(host_lapack.solve(a, b)[0], np.linalg.solve(exact, b), kind, size)
    close(host_lapack.inv(a)[0], np.linalg.inv(exact), kind, size)
    for transposed in (a, a.swapaxes(1, 2)):
        close(
            host_lapack.solve(transposed, b[:1].repeat(len(a), 0))[0],
            np.linalg.solve(transposed.astype(float), b[:1]),
            kind,
            size,
        )
    definite = a @ a.swapaxes(1, 2) / size + np.eye(size, dtype=kind)
    for upper in (False, True):
        above = np.triu(np.full((size, size), np.nan, kind), 1)
        given = definite + (above.T if upper else above)  # the other triangle is not to be read
        factor, info = host_lapack.cholesky(given, upper)
        exact_factor = np.linalg.cholesky(definite.astype(float))
        assert not info.any()
        close(factor, exact_factor.swapaxes(1, 2) if upper else exact_factor, kind, 10 * size)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_indefinite_matrices_have_lapacks_pivots(rng: Any, lapack: Any, size: int, kind: str) -> None:
    """Also where blocks of two rows are needed, where a matrix is singular, and where it has no numbers."""
    a = batch_of(rng, size, kind)
    a[::2] = rng.standard_normal(a[::2].shape)
    a[1::3, np.arange(size), np.arange(size)] = 0
    a[2::5, size // 2], a[2::5, :, size // 2], a[3::7, 0, 0] = 0, 0, np.nan
    assert small.loops_for(a, module="indefinite") is not None
    factor, pivots, info = host_lapack.ldl_factor(a, False)
    expected = lapack(host_lapack.ldl_factor, a, False)
    np.testing.assert_array_equal(pivots, expected[1])
    np.testing.assert_array_equal(info, expected[2])
    assert info[2::5].all() and (size < 3 or (pivots < 0).any())
    scale = np.nanmax(abs(expected[0]), (-1, -2), keepdims=True, initial=1)
    close(factor / scale, expected[0] / scale, kind, 100 * size)


def definite_of(rng: np.random.Generator, size: int, kind: str) -> Any:
    """Symmetric positive-definite matrices, as many as ``batch_of`` has, with two dimensions for the batch."""
    a = batch_of(rng, size, kind)
    definite = a @ a.swapaxes(1, 2) / size + np.eye(size, dtype=kind)
    return definite.reshape(1, *definite.shape)


CALLS: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "lower": ("cholesky_ex", (), {}), "upper": ("cholesky", (), {"upper": True}), "lu": ("lu_factor_ex", (), {}),
    "inv": ("inv", (), {}), "det": ("det", (), {}), "slogdet": ("slogdet", (), {}), "eigh": ("eigvalsh", (), {}),
    "svdvals": ("svdvals", (), {}), "solve": ("solve", (3,), {}),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 3, 8, 16])
@pytest.mark.parametrize("call", CALLS)
def test_operations_write_into_their_results(
    adapter: EngineAdapter, rng: Any, call: str, size: int, kind: str
) -> None:  # fmt: skip
    name, columns, keywords = CALLS[call]
    a = torch.from_numpy(definite_of(rng, size, kind))
    sides = [torch.from_numpy(rng.standard_normal((*a.shape[:3], n)).astype(kind)) for n in columns]
    expected = getattr(torch.linalg, name)(a.double(), *[side.double() for side in sides], **keywords)
    operands = [adapter.tensor(tensor) for tensor in (a, *sides)]
    function = getattr(F, f"linalg_{name}")
    results = function(*operands, **keywords)
    several = isinstance(results, tuple)
    for result, other in zip(results if several else [results], expected if several else [expected], strict=True):
        assert tuple(result.shape) == tuple(other.shape)
        close(adapter.numpy(result), other.numpy(), kind, 40 * size)
    turned = function(F.transpose(operands[0], -2, -1), *operands[1:], **keywords)
    first = adapter.numpy(turned[0] if several else turned)
    close(first, adapter.numpy(results[0] if several else results), kind, 40 * size)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 3, 16])
def test_systems_with_factors_of_many_matrices_are_solved_by_loops(
    adapter: EngineAdapter, rng: Any, monkeypatch: pytest.MonkeyPatch, size: int, kind: str
) -> None:
    solved = []
    into = small.lu_solve_into
    monkeypatch.setattr(small, "lu_solve_into", lambda *arrays: solved.append(into(*arrays)) or solved[-1])
    a = torch.from_numpy(definite_of(rng, size, kind))
    sides = torch.from_numpy(rng.standard_normal((*a.shape[:3], 2)).astype(kind))
    factors = [adapter.tensor(part) for part in torch.linalg.lu_factor(a)]
    expected = torch.linalg.solve(a.double(), sides.double()).numpy()
    for given in (sides, sides.mT.contiguous().mT):
        close(adapter.numpy(F.linalg_lu_solve(*factors, adapter.tensor(given))), expected, kind, 40 * size)
    assert solved == [True, True]


def test_few_elements_are_for_loops_once_there_were_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    few = np.ones((100, 2, 2), "f")
    assert small.interleaved_for(few[:9]) is None
    monkeypatch.setattr(compiled, "_loaded", {})
    monkeypatch.setattr(small, "_runs", iter(range(200)))
    found = [small.interleaved_for(few) is not None for _ in range(150)]
    assert not any(found[:50])
    assert found[-1]


@pytest.mark.parametrize("kind", KINDS)
def test_operations_say_which_matrix_fails(adapter: EngineAdapter, rng: Any, kind: str) -> None:
    a = definite_of(rng, 8, kind)
    a[0, 5] = 0
    wrong, sides = [adapter.tensor(torch.from_numpy(array)) for array in (a, a[..., :1] * 0)]
    for run in (lambda: F.linalg_cholesky(wrong), lambda: F.linalg_inv(wrong), lambda: F.linalg_solve(wrong, sides)):
        with pytest.raises(LinearAlgebraError, match=r"Batch element 5"):
            run()
    assert np.flatnonzero(adapter.numpy(F.linalg_cholesky_ex(wrong)[1])).tolist() == [5]
    assert np.flatnonzero(adapter.numpy(F.linalg_lu_factor_ex(wrong)[2])).tolist() == [5]
    assert np.isnan(adapter.numpy(F.linalg_inv_ex(wrong)[0])[0, 5]).all()
    assert adapter.numpy(F.linalg_det(wrong))[0, 5] == 0
    sign, logarithm = F.linalg_slogdet(wrong)
    assert (adapter.numpy(sign)[0, 5], adapter.numpy(logarithm)[0, 5]) == (0, -np.inf)


@pytest.mark.parametrize("kind", KINDS)
def test_determinants_near_the_ends_of_the_range_have_logarithms(adapter: EngineAdapter, rng: Any, kind: str) -> None:
    for scale in (np.finfo(kind).tiny * 64, np.finfo(kind).max / 64):
        a = (rng.uniform(0.5, 1, (40, 8, 1)) * np.eye(8) * rng.choice([-1, 1], (40, 1, 8)) * scale).astype(kind)
        sign, logarithm = F.linalg_slogdet(adapter.tensor(torch.from_numpy(a)))
        expected = torch.linalg.slogdet(torch.from_numpy(a / a.dtype.type(scale)).double())
        close(adapter.numpy(sign), expected[0].numpy(), kind)
        close(adapter.numpy(logarithm), expected[1].numpy() + 8 * np.log(float(scale)), kind, 100)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rows", "columns"), [(n, n) for n in SIZES] + [(9, 4), (4, 9), (64, 64), (33, 20), (1, 40)])
@pytest.mark.parametrize("complete", [False, True])
def test_qr_is_that_of_lapack(rng: Any, lapack: Any, rows: int, columns: int, kind: str, complete: bool) -> None:
    count = 2048 // (rows * columns) + 8
    a = rng.standard_normal((count, rows, columns)).astype(kind)
    wanted = rows if complete else min(rows, columns)
    q, r = host_lapack.qr(a, wanted)
    assert (q.shape, r.shape) == ((count, rows, wanted), (count, wanted, columns))
    close(q.astype(float) @ r, a, kind, rows)
    close(q.swapaxes(1, 2).astype(float) @ q, np.broadcast_to(np.eye(wanted), (count, wanted, wanted)), kind, rows)
    np.testing.assert_array_equal(host_lapack.qr(a, None)[1], r[:, : min(rows, columns)])
    expected = lapack(host_lapack.qr, a, wanted)
    ours, theirs = (np.diagonal(upper, axis1=1, axis2=2) for upper in (r, expected[1]))
    assert ((ours > 0) == (theirs > 0))[np.abs(theirs) > 1e-3].all()


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_near_the_ends_of_the_range_are_reflected(rng: Any, lapack: Any, kind: str) -> None:
    tiny, huge = np.finfo(kind).tiny, np.finfo(kind).max
    for scale in (tiny * 16, huge / 64):
        a = (rng.uniform(0.5, 1, (600, 2, 2)) * scale).astype(kind)
        q, r = host_lapack.qr(a, 2)
        expected = lapack(host_lapack.qr, a, 2)
        close(q, expected[0], kind, 10)
        close(r / scale, expected[1] / scale, kind, 10)
    zeros = np.zeros((600, 3, 2), kind)
    zeros[:, 0] = -1
    q, r = host_lapack.qr(zeros, 2)
    np.testing.assert_array_equal(r[:, 0], zeros[:, 0])
    np.testing.assert_array_equal(q, np.broadcast_to(np.eye(3, 2), q.shape))


@pytest.mark.parametrize("kind", KINDS)
def test_what_fails_is_told_by_matrix(rng: Any, kind: str) -> None:
    a = batch_of(rng, 8, kind)
    a[3, :, 5] = a[3, :, 2]
    a[4] = 0
    a[6, 2, 2] = np.nan
    info = host_lapack.lu_factor(a, True)[2]
    assert info[4] == 1
    assert info[[0, 1, 2, 5, 7]].tolist() == [0] * 5
    singular = batch_of(rng, 8, kind)
    singular[4] = 0
    inverse, info = host_lapack.inv(singular)
    assert np.flatnonzero(info).tolist() == [4]
    assert np.isnan(inverse[4]).all()
    close(inverse[5] @ singular[5], np.eye(8), kind, 100)
    definite = np.broadcast_to(np.eye(8, dtype=kind), (40, 8, 8)).copy()
    definite[7, 3, 3] = -1
    definite[9, 5, 5] = np.nan
    _, info = host_lapack.cholesky(definite, False)
    assert [info[7], info[9], np.count_nonzero(info)] == [4, 6, 2]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [5, 32, 33, 161])
def test_triangular_systems_are_solved(rng: Any, size: int, kind: str) -> None:
    count = 100 if size == 5 else 8 if size == 32 else 2
    full = rng.standard_normal((count, size, size)).astype(kind) / size + 2 * np.eye(size, dtype=kind)
    for upper in (False, True):
        for unit in (False, True):
            exact = (np.triu if upper else np.tril)(full).astype(float)
            if unit:
                np.einsum("bii->bi", exact)[...] = 1
            for columns, a in ((1, full), (7, full.swapaxes(1, 2).copy().swapaxes(1, 2)), (3, full[:1])):
                b = rng.standard_normal((count, size, columns)).astype(kind)
                spread = np.broadcast_to(a, full.shape)
                expected = np.linalg.solve(exact[: len(a)], b)
                close(host_lapack.solve_triangular(spread, b, upper, unit), expected, kind, 10)
    assert host_lapack.solve_triangular(full, np.empty((count, size, 0), kind), True, False).shape == (count, size, 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("upper", [False, True])
def test_lapack_factorizes_again_only_what_is_not_definite(
    adapter: EngineAdapter, rng: Any, monkeypatch: pytest.MonkeyPatch, kind: str, upper: bool
) -> None:
    counts: list[int] = []
    call = host_lapack.call
    monkeypatch.setattr(host_lapack, "call", lambda *given: counts.append(given[2]) or call(*given))
    a = torch.from_numpy(definite_of(rng, 8, kind))
    a[0, 5, 3, 3] = a[0, 2, 0, 0] = -1
    factor, info = map(adapter.numpy, F.linalg_cholesky_ex(adapter.tensor(a), upper=upper))
    expected, wanted = torch.linalg.cholesky_ex(a, upper=upper)
    assert counts == [2]
    assert (info == wanted.numpy()).all() and info[0, 5] == 4 and info[0, 2] == 1
    np.testing.assert_allclose(factor[info == 0], expected.numpy()[info == 0], rtol=1e-3, atol=1e-4)
    with pytest.raises(LinearAlgebraError, match="Batch element 2"):
        F.linalg_cholesky(adapter.tensor(a), upper=upper)

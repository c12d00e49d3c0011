"""Operations that give LAPACK whole batches by their addresses, or are one operation on the host, beside PyTorch's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from server.engine import compiled
from server.engine import functional as F
from server.engine.array_library.host_libraries import call
from server.engine.cpu.linear_algebra import sequences
from server.engine.dispatcher import call as call_operator
from server.engine.operators import OPERATORS
from telegrad_protocol.errors import ArgumentError, LinearAlgebraError, ShapeError

from .adapters import EngineAdapter
from .test_few_matrices import DTYPES, layouts, square

BATCHES = [(), (3,), (2, 1), (4, 30)]


@pytest.fixture
def adapter() -> EngineAdapter:
    return EngineAdapter()


def same(actual: Any, expected: torch.Tensor, adapter: EngineAdapter, what: str) -> None:
    """Fail where numbers, types or strides are not PyTorch's."""
    tolerance = 2e-3 if expected.dtype in (torch.float32, torch.complex64) else 1e-8
    scale = max(1.0, expected.abs().max().item()) if expected.numel() else 1.0
    numbers = expected.resolve_conj().numpy()
    np.testing.assert_allclose(adapter.numpy(actual) / scale, numbers / scale, tolerance, tolerance, err_msg=what)
    assert actual.dtype.name == str(expected.dtype).removeprefix("torch."), what
    if expected.numel() > 1:
        assert actual.meta.strides == expected.stride(), what


def factorized(shape: tuple[int, ...], dtype: torch.dtype) -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Operations that take matrices, with their operands and keywords."""
    a, b = square(shape, dtype), torch.randn(*shape[:-1], 3, dtype=dtype)
    n, symmetric = shape[-1], a + a.mT
    L = torch.linalg.cholesky(a @ a.mH)
    LU, pivots = torch.linalg.lu_factor(a)
    yield "linalg.ldl_factor", (symmetric,), {}
    yield "linalg.ldl_factor_ex", (a @ a.mH,), {"hermitian": True}
    yield "linalg.ldl_solve", (*torch.linalg.ldl_factor(symmetric), b), {}
    yield "linalg.lu_solve", (LU, pivots, b), {}
    yield "linalg.lu_solve", (LU, pivots, b), {"adjoint": True}
    yield "linalg.lu_solve", (LU, pivots, b.mT.contiguous()), {"left": False}
    yield "cholesky_solve", (b, L), {}
    yield "cholesky_solve", (b, L.mH.contiguous()), {"upper": True}
    yield "cholesky_inverse", (L,), {}
    yield "cholesky_inverse", (L.mH,), {"upper": True}
    yield "linalg.solve", (a, b[..., 0].contiguous()), {}
    yield "linalg.solve", (a, b.mT.contiguous()), {"left": False}
    yield "linalg.solve_triangular", (a, b), {"upper": True}
    yield "linalg.lu", (a,), {}
    yield "linalg.matrix_power", (a / n**0.5, 3), {}
    yield "linalg.matrix_power", (a, -1), {}
    yield "linalg.matrix_rank", (a[..., :1] @ a[..., :1, :],), {}
    yield "linalg.matrix_rank", (a @ a.mH,), {"hermitian": True, "atol": 1e-3, "rtol": 0.5}
    yield "linalg.pinv", (a,), {"rtol": 1e-4}
    yield "linalg.cond", (a,), {}
    yield "linalg.cond", (a, -2), {}
    yield "linalg.vecdot", (a, a.mT), {"dim": -2}


def reflected(shape: tuple[int, ...], dtype: torch.dtype) -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Operations that take tall and wide matrices, with their operands and keywords."""
    *batch, m, n = shape
    a, b = torch.randn(shape, dtype=dtype), torch.randn(*batch, m, 2, dtype=dtype)
    yield "linalg.qr", (a, "r"), {}
    yield "linalg.lu", (a,), {}
    yield "linalg.pinv", (a,), {}
    yield "linalg.pinv", (a[..., :1] @ a[..., :1, :],), {"rtol": 1e-3}
    for driver in ("gels", "gelsy", "gelsd"):
        yield "linalg.lstsq", (a, b), {"driver": driver}
        yield "linalg.lstsq", (a, b[..., 0].contiguous()), {"driver": driver}
    if m < n:
        return
    factor, tau = torch.geqrf(a)
    yield "geqrf", (a,), {}
    yield "linalg.householder_product", (factor, tau), {}
    for transpose in (False, True):
        yield "ormqr", (factor, tau, b), {"transpose": transpose}
        yield "ormqr", (factor.contiguous(), tau, b.mT.contiguous()), {"transpose": transpose, "left": False}


def of_torch(name: str) -> Callable[..., Any]:
    """PyTorch's function of a name that may be one of ``torch.linalg``."""
    return getattr(torch.linalg if name.startswith("linalg.") else torch, name.removeprefix("linalg."))  # type: ignore[no-any-return]


def compare(adapter: EngineAdapter, cases: Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]) -> None:
    """Compare all results of each case, and those for the first operand in other layouts."""
    for name, args, keywords in cases:
        expected = of_torch(name)(*args, **keywords)
        listed = expected if isinstance(expected, tuple) else (expected,)
        for first in layouts(args[0]):
            given = [adapter.tensor(arg) if isinstance(arg, torch.Tensor) else arg for arg in (first, *args[1:])]
            results = getattr(F, name.replace(".", "_"))(*given, **keywords)
            for result, other in zip(results if isinstance(results, tuple) else (results,), listed, strict=True):
                if name != "linalg.lu" or other.numel():
                    same(result, other, adapter, f"{name} of {tuple(first.shape)} {first.dtype}, {keywords}")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("batch", BATCHES, ids=str)
def test_results_and_their_strides_are_pytorchs(
    adapter: EngineAdapter, seed: int, batch: tuple[int, ...], dtype: torch.dtype
) -> None:
    torch.manual_seed(seed)
    compare(adapter, factorized((*batch, 5, 5), dtype))
    for shape in ((7, 3), (3, 7), (1, 1)):
        compare(adapter, reflected((*batch, *shape), dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("batch", [(), (3,), (2, 1)], ids=str)
def test_sequences_do_the_same_without_the_compiled_loop(
    monkeypatch: pytest.MonkeyPatch, adapter: EngineAdapter, seed: int, batch: tuple[int, ...], dtype: torch.dtype
) -> None:
    monkeypatch.setattr(sequences, "_loop", lambda count: None)
    torch.manual_seed(seed)
    compare(adapter, factorized((*batch, 6, 6), dtype))  # of other sizes than elsewhere: plans are kept
    for shape in ((8, 4), (4, 8), (2, 1)):
        compare(adapter, reflected((*batch, *shape), dtype))


def test_both_ends_of_a_table_know_the_same_codes() -> None:
    loop = compiled.load("factorizations.sequences")
    names = ("CALL", "COPY", "PERMUTATION", "FIND_NUMBER", "FIND_NAN", "FIND_NOT_FINITE")
    for name in names:
        assert getattr(sequences, f"_{name}") == getattr(loop, name)
    assert loop.ADDRESSES == sequences.FIXED


@pytest.mark.parametrize("with_loop", [True, False], ids=["compiled", "numpy"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_sequences_end_where_a_number_says_so(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, dtype: Any, with_loop: bool
) -> None:
    loop = compiled.load("factorizations.sequences") if with_loop else None
    monkeypatch.setattr(sequences, "_loop", lambda count: loop)
    kind = np.dtype(dtype)
    numbers, infos, place = rng.standard_normal(5).astype(kind), np.zeros(3, np.int32), sequences.Place
    behind = numbers.copy()
    target = sequences.Matrices(place(1), kind, (1, 1, 5), (0, 0, kind.itemsize))
    clear = sequences.Copy(target, target, copies=False, lowest=9)
    ends = {
        "nan": sequences.EndIfNaN(place(0, 0, kind.itemsize), kind, 5),
        "special": sequences.EndIfNotFinite(place(0), kind, 5), "info": sequences.EndIfAny(place(2), 3),
    }  # fmt: skip
    runs = {name: sequences.sequence([step, clear], 1) for name, step in ends.items()}
    addresses = [array.ctypes.data for array in (numbers, behind, infos)]
    for value, info, expected in ((1.5, 0, ""), (np.inf, 0, "special"), (-np.nan, 0, "nan special"), (0, -2, "info")):
        numbers[3], infos[1] = value, info
        ended = []
        for name, run in runs.items():
            behind[:] = 1
            if run(*addresses):
                ended.append(name)
            assert behind.any() == (name in ended)  # what is behind the end is not done
        assert " ".join(ended) == expected


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_large_matrices_are_copied_in_panels_and_refused_where_they_fail(
    adapter: EngineAdapter, seed: int, dtype: torch.dtype
) -> None:
    compiled.load("factorizations.sequences")
    torch.manual_seed(seed)
    a = square((210, 210), dtype)
    definite = a @ a.mH
    for given in layouts(definite):
        same(F.linalg_cholesky(adapter.tensor(given)), torch.linalg.cholesky(definite), adapter, "cholesky")
    for given in layouts(a):
        packed, pivots = F.linalg_lu_factor(adapter.tensor(given))
        expected = torch.linalg.lu_factor(a)
        same(packed, expected[0], adapter, "lu_factor")
        assert (adapter.numpy(pivots) == expected[1].numpy()).all()
    definite[205, 205] = -1
    with pytest.raises(LinearAlgebraError, match="leading minor of order 206 is not positive-definite"):
        F.linalg_cholesky(adapter.tensor(definite))
    assert adapter.numpy(F.linalg_cholesky_ex(adapter.tensor(definite))[1]) == 206
    a[:, 7] = 0
    with pytest.raises(LinearAlgebraError, match=r"U\[8,8\] is zero"):
        F.linalg_lu_factor(adapter.tensor(a))


@pytest.mark.parametrize("count", [1, 3, 50])
def test_routines_are_called_alike_with_and_without_compiled_loops(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, count: int
) -> None:
    given = rng.standard_normal((count, 4, 4))
    compiled.load("factorizations.routines")
    results = []
    for _ in range(2):
        factors, pivots, infos = given.copy(), np.zeros((count, 4), np.int32), np.ones(count, np.int32)
        call("getrf", given.dtype, count, 4, 4, factors, 4, pivots, infos)
        results.append((factors, pivots, infos))
        for name in ("kernels", "loaded"):
            monkeypatch.setattr(compiled, name, lambda name: None)
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first, second)
    assert not results[0][2].any() and (results[0][0] != given).any()


def in_reverse(like: torch.Tensor) -> torch.Tensor:
    """Zeros whose dimensions lie in memory in the reverse order."""
    return torch.zeros(like.shape[::-1], dtype=like.dtype).permute(*reversed(range(like.ndim)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64], ids=str)
@pytest.mark.parametrize("batch", [(40, 20), (2, 3)], ids=str)
def test_results_are_written_to_memory_of_any_strides(
    adapter: EngineAdapter, seed: int, batch: tuple[int, ...], dtype: torch.dtype
) -> None:
    torch.manual_seed(seed)
    root = square((*batch, 4, 4), dtype)
    a, b = root @ root.mH + torch.eye(4, dtype=dtype), torch.randn(*batch, 4, 2, dtype=dtype)
    cases: list[tuple[str, tuple[torch.Tensor, ...]]] = [
        ("linalg.det", (a,)), ("linalg.slogdet", (a,)), ("linalg.inv", (a,)), ("linalg.cholesky", (a,)),
        ("linalg.solve", (a, b)), ("linalg.solve", (a, b[..., 0].contiguous())), ("linalg.eigvalsh", (a,)),
        ("linalg.svdvals", (a,)), ("linalg.lu_factor", (a,)), ("cholesky_inverse", (a,)), ("cholesky_solve", (b, a)),
    ]  # fmt: skip
    for name, operands in cases:
        expected = of_torch(name)(*operands)
        listed = expected if isinstance(expected, tuple) else (expected,)
        targets = [adapter.tensor(in_reverse(one)) for one in listed]
        operator = OPERATORS[f"{name.replace('.', '_')}.out"]
        names = [param.name for param in operator.op.params[-len(listed) :]]
        call_operator(operator, tuple(map(adapter.tensor, operands)), dict(zip(names, targets, strict=True)))
        for target, one in zip(targets, listed, strict=True):
            scale = one.abs().max().item()
            np.testing.assert_allclose(adapter.numpy(target) / scale, one.numpy() / scale, 2e-3, 2e-3, err_msg=name)


@pytest.mark.parametrize("wrong", [[4, 2, 3], [0, 2, 3], [1, -2, 3], [-1, -2, -3], [-9, -9, 3]], ids=str)
@pytest.mark.parametrize("count", [1, 30])
def test_pivots_outside_of_the_matrix_are_refused(adapter: EngineAdapter, count: int, wrong: list[int]) -> None:
    pivots = torch.tensor([[1, 2, 3]] * (count - 1) + [wrong], dtype=torch.int32)
    a, b = adapter.tensor(torch.eye(3).repeat(count, 1, 1)), adapter.tensor(torch.ones(count, 3, 3))
    for given in (pivots, torch.stack([pivots, pivots], -1)[..., 0]):
        with pytest.raises(ArgumentError, match="lu_solve: pivots must be numbers of rows, from 1 to 3"):
            F.linalg_lu_solve(a, adapter.tensor(given), b)
        with pytest.raises(ArgumentError, match="ldl_solve: pivots must be numbers of rows"):
            F.linalg_ldl_solve(a, adapter.tensor(given), b)


def test_what_has_no_result_is_an_error_or_infinite(adapter: EngineAdapter) -> None:
    exactly = torch.diag(torch.tensor([1.0, 2.0, 0.0]))  # any sum in another order could round a zero away
    singular, missing = adapter.tensor(exactly), adapter.tensor(torch.full((2, 3, 3), math.nan))
    for a in (singular, adapter.tensor(exactly.repeat(3000, 1, 1))):
        with pytest.raises(LinearAlgebraError, match="does not have full rank"):
            F.linalg_lstsq(a, a, driver="gels")
    for function in (F.linalg_pinv, F.linalg_svdvals, F.linalg_cond, F.linalg_matrix_rank):
        with pytest.raises(LinearAlgebraError, match=r"\(Batch element 0\).*failed to converge"):
            function(missing)
    for norm in ("nuc", "fro", 1):
        assert adapter.numpy(F.linalg_cond(singular, norm)) == np.inf
    for matrix, others in ((F.linalg_cond, ()), (F.linalg_matrix_rank, ())):
        assert matrix(adapter.tensor(torch.zeros(2, 0, 0)), *others).shape == (2,)


def test_operations_of_the_engine_alone_refuse_what_they_cannot_compute(adapter: EngineAdapter) -> None:
    a, empty = adapter.tensor(torch.ones(3, 3)), adapter.tensor(torch.zeros(0, 0))
    for exponent in (0, -1):
        with pytest.raises(ArgumentError, match="positive exponent"):
            F._matrix_power(a, exponent)
    for refused in (
        lambda: F._linalg_cond(empty, False), lambda: F._linalg_matrix_rank(empty, 0.0, 0.0, False),
        lambda: F._linalg_vecdot(a, adapter.tensor(torch.ones(3)), -1),
        lambda: F._linalg_lstsq_plain(a, adapter.tensor(torch.ones(2, 3, 3)), None, None),
        lambda: F._ormqr(adapter.tensor(torch.ones(3, 5)), adapter.tensor(torch.ones(5)), a, True, False),
    ):  # fmt: skip
        with pytest.raises(ShapeError):
            refused()

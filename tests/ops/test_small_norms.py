"""Norms of few numbers on the CPU, which prepared kernels and one operation without a derivative compute."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from server.engine import compiled
from server.engine.cpu.linear_algebra import norms

from .adapters import EngineAdapter

_SHAPES = [(10,), (4, 4), (3, 4, 5), (1, 3), (200, 30), (2, 0), (5, 1, 7)]
_ORDERS = (2, 1, math.inf, -math.inf, 0, 3, -1, 0.5)
_OF_MATRICES = ("fro", "nuc", 2, -2, 1, -1, math.inf, -math.inf)
_TYPES = ("float32", "float64", "complex64")


def _outcome(norm: Any, *args: Any) -> Any:
    try:
        result = norm(*args)
        return result.tolist(), tuple(result.shape), str(result.dtype).rpartition(".")[2]
    except (RuntimeError, IndexError, ValueError) as error:
        return type(error)


def _same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, type) or isinstance(theirs, type):
        return isinstance(ours, type) and isinstance(theirs, type)
    return ours[1:] == theirs[1:] and np.allclose(ours[0], theirs[0], rtol=1e-4, atol=1e-5, equal_nan=True)


def _exact(x: Any, order: float, dim: int | None) -> Any:
    """A norm in extended precision."""
    size = np.abs(x.astype("G"))
    if order == 0:
        return (size != 0).sum(dim)
    if abs(order) == math.inf:
        return size.max(dim) if order > 0 else size.min(dim)
    return (size**order).sum(dim) ** (1 / np.longdouble(order))


def _views(x: Any) -> list[Any]:
    """Views of a tensor of three dimensions: as it is, turned, with gaps, with one element several times, of part."""
    return [x, x.transpose(0, 2), x[:, ::2], x[:1].expand(3, -1, -1), x[1:, :, 1:]]


@pytest.mark.parametrize("dtype", [*_TYPES, "complex128"])
def test_norms_of_any_strides_are_exact(tg: Any, rng: np.random.Generator, dtype: str) -> None:
    assert compiled.kernels("tensors.norms")
    unit = float(np.finfo(dtype).eps)
    for shape in ((4, 6, 5), (2, 3, 600), (900, 2, 3)):
        ours, theirs = _both(tg, rng, shape, dtype)
        ours[0, 0, 0], theirs[0, 0, 0] = 0, 0
        for mine, other in zip(_views(ours), _views(theirs), strict=True):
            for order, dim in itertools.product(_ORDERS, (None, 0, 1, -1)):
                if order == -1 and (dim is None or (other.numpy() == 0).any()):
                    continue
                result, exact = tg.linalg.vector_norm(mine, order, dim), _exact(other.numpy(), order, dim)
                bound = (2 + 4 * max(1, 1 / abs(order or 1))) * unit  # a root of order 1/2 doubles what a sum has lost
                np.testing.assert_allclose(result.numpy(), exact.astype(other.real.numpy().dtype), rtol=bound)


@pytest.mark.parametrize("dtype", [*_TYPES, "complex128"])
def test_norms_of_what_is_not_finite_or_far_from_1(tg: Any, rng: np.random.Generator, dtype: str) -> None:
    """NaN is a norm wherever it is an element, and magnitudes of complex numbers are not lost to overflow."""
    ours, theirs = _both(tg, rng, (6, 40), dtype)
    for row, number in enumerate((math.nan, math.inf, -math.inf, 0.0)):
        ours[row, 7], theirs[row, 7] = number, number
    ours[4] *= 1e-25
    theirs[4] *= 1e-25
    for order in _ORDERS:
        mine, other = (library.linalg.vector_norm(x, order, 1) for library, x in ((tg, ours), (torch, theirs)))
        if order in (3, -1):  # cubes of float32 that PyTorch cannot hold
            mine, other = mine[[0, 1, 2, 3, 5]], other[[0, 1, 2, 3, 5]]
        if order == 2:
            mine, other = mine[:4], other[:4]
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-5, atol=0, err_msg=str(order))
    for order in (1, -1, math.inf, -math.inf):
        for rows in (slice(0, 2), slice(3, 6)):
            mine, other = tg.linalg.matrix_norm(ours[rows], order), torch.linalg.matrix_norm(theirs[rows], order)
            np.testing.assert_allclose(mine.item(), other.item(), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("columns", [2, 3, 16])
def test_norms_of_few_long_columns_are_loops(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, columns: int, dtype: str
) -> None:
    assert compiled.kernels("tensors.norms")
    monkeypatch.setattr(norms, "reduce", None)  # what computes norms of many numbers otherwise
    x, adapter = rng.standard_normal((20_000, columns)).astype(dtype), EngineAdapter()
    for order in (2, 1, math.inf):
        result = adapter.numpy(adapter.functional.norm(adapter.tensor(torch.from_numpy(x)), order, (0,)))
        exact = _exact(x, order, 0)
        theirs = np.abs(torch.linalg.vector_norm(torch.from_numpy(x), order, 0).numpy() - exact)
        assert (np.abs(result - exact) <= theirs.max() + 2 * np.finfo(dtype).eps * exact).all()


def test_norms_of_all_numbers_are_loops_however_dimensions_lie(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, adapter, x = [], EngineAdapter(), torch.from_numpy(rng.standard_normal((3, 7, 11)))
    launch = norms._loop_launch
    monkeypatch.setattr(norms, "_loop_launch", lambda *given: taken.append(True) or launch(*given))
    for dims in ((0, 1), (0, 2), (1, 2)):
        turned = x.transpose(*dims)
        result = adapter.numpy(adapter.functional.norm(adapter.tensor(turned), 2, (0, 1, 2)))
        np.testing.assert_allclose(result, turned.norm().numpy(), rtol=1e-14)
    assert len(taken) == 3


def _both(tg: Any, rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> tuple[Any, Any]:
    parts = rng.standard_normal((2, *shape))
    numbers = (parts[0] + 1j * parts[1] if dtype.startswith("c") else parts[0]).astype(dtype)
    return tg.from_numpy(numbers).cpu(), torch.from_numpy(numbers)


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("shape", _SHAPES, ids=str)
def test_norms_of_vectors(tg: Any, rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> None:
    ours, theirs = _both(tg, rng, shape, dtype)
    for order, dim, keeps in itertools.product(_ORDERS, (None, 0, -1, (0, 1)), (False, True)):
        for turned in (False, True):
            a, b = (ours.transpose(0, -1), theirs.transpose(0, -1)) if turned else (ours, theirs)
            mine = _outcome(tg.linalg.vector_norm, a, order, dim, keeps)
            other = _outcome(torch.linalg.vector_norm, b, order, dim, keeps)
            assert _same(mine, other), (order, dim, keeps, turned, mine, other)


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("shape", [shape for shape in _SHAPES if len(shape) > 1], ids=str)
def test_norms_of_matrices(tg: Any, rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> None:
    ours, theirs = _both(tg, rng, shape, dtype)
    for order, dim, keeps in itertools.product(_OF_MATRICES, ((0, 1), (-1, -2), (1, -1)), (False, True)):
        for _ in range(2):  # the second time the operation alone is run
            mine = _outcome(tg.linalg.matrix_norm, ours, order, dim, keeps)
            other = _outcome(torch.linalg.matrix_norm, theirs, order, dim, keeps)
            assert _same(mine, other), (order, dim, keeps, mine, other)


@pytest.mark.parametrize("order", [1, math.inf, 2, "nuc", "fro"])
def test_norms_of_matrices_that_require_grad_have_a_history(tg: Any, rng: np.random.Generator, order: Any) -> None:
    ours, theirs = _both(tg, rng, (4, 5), "float64")
    for _ in range(2):
        grads = []
        for library, x in ((tg, ours), (torch, theirs)):
            leaf = x.detach().clone().requires_grad_()
            library.linalg.matrix_norm(leaf, order).backward()
            grads.append(np.asarray(leaf.grad.tolist()))
        np.testing.assert_allclose(*grads, rtol=1e-6, atol=1e-9)
        tg.linalg.matrix_norm(ours, order)  # without a history, of the same shape


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_no_bit_tells_whether_the_loop_is_loaded(
    tg: Any, rng: np.random.Generator, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    assert compiled.kernels("tensors.norms")
    places = int(rng.integers(20, 40))  # shapes that no other test has prepared a launch for
    operands = [_both(tg, rng, shape, dtype)[0] for shape in ((places,), (5, places), (places, 3, 7))]
    operands += [operands[1].t(), operands[2][:, ::2]]
    for x, order, dim in itertools.product(operands, _ORDERS, (None, 0, -1)):
        with monkeypatch.context() as before:
            before.setattr(compiled, "kernels_after", lambda runs, name: None)
            by_numpy = [tg.linalg.vector_norm(x, order, dim).numpy() for _ in range(2)]
        by_loop = [tg.linalg.vector_norm(x, order, dim).numpy() for _ in range(2)]
        for one in (*by_numpy, *by_loop):
            assert one.tobytes() == by_loop[0].tobytes(), (x.shape, order, dim)

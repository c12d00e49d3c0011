"""Norms of few numbers on the CPU, which prepared kernels and one operation without a derivative compute."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

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

"""Linear algebra where there is little or nothing to compute, or no solution: results and errors are PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

Call = tuple[str, tuple[Any, ...], dict[str, Any]]
SINGULAR = torch.tensor([[0.0, 1.0], [0.0, 2.0]], dtype=torch.float64)
ZEROS = torch.zeros(2, 2, dtype=torch.float64)
SHAPES = [(0, 0), (0, 3, 3), (3, 0, 0), (2, 3, 3), (1, 1), (3,), (2, 3), (), (0, 3), (3, 0)]
UNARY = (
    "cholesky_ex", "inv", "inv_ex", "det", "slogdet", "lu_factor_ex", "eigvalsh", "svdvals", "matrix_norm",
    "matrix_exp", "cond", "matrix_rank", "pinv", "qr", "vector_norm",
)  # fmt: skip


def _numbers(*shape: int) -> torch.Tensor:
    root = torch.randn(shape, dtype=torch.float64)
    return root @ root.mT + torch.eye(shape[-1]) if len(shape) > 1 and shape[-1] == shape[-2] else root


def _calls() -> list[Call]:
    calls: list[Call] = [(name, (_numbers(*shape),), {}) for name in UNARY for shape in SHAPES]
    for matrix in (SINGULAR, ZEROS, torch.stack([torch.eye(2, dtype=torch.float64), SINGULAR])):
        calls += [(name, (matrix,), {}) for name in ("inv", "cholesky", "det", "slogdet", "pinv", "matrix_rank")]
        calls += [("cond", (matrix,), {"p": p}) for p in (None, 1, -2, "fro")]
        calls += [("solve", (matrix, _numbers(2, 1)), {})]
        calls += [("inv_ex", (matrix,), {"check_errors": True}), ("cholesky_ex", (matrix,), {"check_errors": True})]
    calls += [("cond", (matrix,), {"p": "nuc"}) for matrix in (ZEROS, _numbers(3, 3), _numbers(2, 3, 3))]
    calls += [
        ("matrix_norm", (_numbers(*shape), order), {})
        for order in (1, -1, 2, -2, float("inf"), -float("inf"), "nuc", "fro")
        for shape in ((0, 3), (3, 0), (2, 0, 3))
    ]
    for matrix in ((3, 3), (2, 3, 3), (0, 3, 3), (4, 1, 3, 3)):
        for sides in ((3,), (3, 2), (2, 3), (2, 3, 2), (3, 0), (4, 3)):
            calls.append(("solve", (_numbers(*matrix), _numbers(*sides)), {}))
            calls.append(("solve_triangular", (_numbers(*matrix).tril(), _numbers(*sides)), {"upper": False}))
    wide = torch.randn(4, 4, dtype=torch.complex128)
    views = (wide.mT, wide.mH, wide.conj(), wide[::2, ::2], wide.expand(3, 4, 4), wide.real, wide.imag)
    calls += [(name, (view,), {}) for view in views for name in ("inv", "det", "slogdet", "lu_factor", "svdvals")]
    calls += [("vander", (_numbers(*shape),), {"N": N}) for shape in ((0, 3), (1,), (2, 3)) for N in (None, 0, 1, 3)]
    return calls


def _outcome(function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The results as arrays, or True for an error of linear algebra and False for another."""
    try:
        results = function(*args, **kwargs)
        listed = results if isinstance(results, tuple) else (results,)
        return [np.array(result.resolve_conj() if hasattr(result, "resolve_conj") else result) for result in listed]
    except Exception as error:
        return any("LinAlg" in kind.__name__ or "LinearAlgebra" in kind.__name__ for kind in type(error).__mro__)


@pytest.mark.filterwarnings("ignore")
def test_edges_are_pytorchs(tg: Any, seed: int) -> None:
    torch.manual_seed(seed)
    differences = []
    for name, args, kwargs in _calls():
        ours = [tg.tensor(a.resolve_conj().numpy()) if isinstance(a, torch.Tensor) else a for a in args]
        mine, theirs = _outcome(getattr(tg.linalg, name), ours, kwargs), _outcome(
            getattr(torch.linalg, name), list(args), kwargs
        )  # fmt: skip
        if isinstance(mine, bool) or isinstance(theirs, bool):
            is_same = mine is theirs
        else:
            is_same = len(mine) == len(theirs) and all(
                a.shape == b.shape and a.dtype == b.dtype and np.allclose(a, b, 1e-6, 1e-8, equal_nan=True)
                for a, b in zip(mine, theirs, strict=True)
            )
        if not is_same:
            shapes = [tuple(a.shape) if isinstance(a, torch.Tensor) else a for a in args]
            differences.append(f"{name}{shapes} {kwargs}: {mine} for {theirs}")
    assert not differences

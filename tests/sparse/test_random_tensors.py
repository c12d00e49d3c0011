"""Sparse tensors of random shapes, layouts and dtypes: conversions and operations give PyTorch's elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from .twins import difference, outcome

DTYPES = ("float32", "float64", "complex64", "int64", "int32", "bool", "float16", "bfloat16")
SHAPES: list[tuple[tuple[int, ...], int]] = [
    ((5,), 1), ((3, 4), 2), ((3, 4), 1), ((2, 3, 4), 3), ((2, 3, 4), 2), ((2, 3, 4), 1), ((0, 3), 2), ((3, 0), 2),
    ((0,), 1), ((3, 0), 1), ((1, 1), 2),
]  # fmt: skip
"""Shapes, and how many of their dimensions are sparse."""
EVERYWHERE = [
    "x.to_dense()", "x.coalesce()", "x.coalesce().is_coalesced()", "x.clone()", "x + x", "x - x * 2", "x * x", "-x",
    "x.abs()", "x.sum()", "t.sparse.sum(x)", "x.sum(0)", "t.sparse.sum(x, -1)", "t.cat([x, x])", "t.cat([x, x], -1)",
    "x.unsqueeze(0)", "x.unsqueeze(-1)", "x[0]", "x.to(t.float64)", "x.bool()", "x.sparse_dim(), x.dense_dim()",
    "t.zeros_like(x)", "x.to_dense().to_sparse()", "d + x", "d.sparse_mask(x)", "x * d", "x.transpose(0, 1)",
    "t.stack([x, x])", "x.index_select(0, t.tensor([0, 0]))", "t.narrow_copy(x, 0, 0, 1)",
    "x.coalesce().sparse_mask(x)",
    "x.to_dense().to_sparse(1)", "t.sparse.softmax(x, 0)", "t.sparse.softmax(x, -1)", "x.square().sqrt()", "x / 2",
    "x.norm()", "x.is_same_size(x)", "x.t()", "t.any(x)", "d.clone().add_(x)", "x.clone().mul_(2)", "x.clone().add_(x)",
]  # fmt: skip
MATRICES = [
    "m.to_sparse_csr()", "m.to_sparse_csc()", "m.to_sparse_csr().to_dense()", "m.to_sparse_csr().to_sparse()",
    "m.to_sparse_csc().to_sparse_csr()", "m.to_sparse_csr().to_sparse_csc()", "m.to_sparse_csr() * 2",
    "m.to_dense().to_sparse_csr()", "m.to_dense().to_sparse_csc().to_dense()", "m.to_sparse_csr().t().to_dense()",
    "m @ e", "m.to_sparse_csr() @ e", "m @ e[:, 0]", "m.t() @ f", "t.mm(m, e)", "m @ m.t()",
    "t.addmm(f @ e.t() @ e, m, e)",
    "m.to_sparse_csr() + m.to_sparse_csr()", "m.to_sparse_csr().sum()", "m.to_sparse_csr().to(t.float64)",
    "d.sparse_mask(m.to_sparse_csr())", "m.to_sparse_csr()[0]", "m.to_sparse_csr().abs()",
    "t.zeros_like(m.to_sparse_csr())",
    "m.to_sparse_bsr((1, 1)).to_dense()", "m.to_sparse_bsr((3, 2)).to_dense()",
    "m.to_dense().to_sparse_bsc((1, 2)).to_dense()",
    "m.to_sparse_csr().to_sparse_bsr((3, 2)).to_dense()", "m.to_sparse_bsr((3, 2)).t().to_dense()",
]  # fmt: skip


def drawn(rng: np.random.Generator, dtype: str, *shape: int) -> Any:
    """Return numbers that have an exact sum in every dtype."""
    values = rng.integers(0 if dtype == "bool" else -2, 3, shape)
    return values + 1j * rng.integers(-2, 3, shape) if dtype.startswith("complex") else values


def operands(rng: np.random.Generator, dtype: str, shape: tuple[int, ...], sparse_dim: int) -> Any:
    """Return what makes the same operands under both libraries: indices with duplicates, in no order."""
    sizes, inner = shape[:sparse_dim], shape[sparse_dim:]
    count = 0 if 0 in sizes else int(rng.integers(0, 9))
    indices = np.stack([rng.integers(0, max(size, 1), count) for size in sizes])
    values, dense = drawn(rng, dtype, count, *inner), drawn(rng, dtype, *shape)
    others = [drawn(rng, dtype, size, 2) for size in (shape * 2)[:2]]

    def make(t: Any) -> dict[str, Any]:
        kind = getattr(t, dtype)
        place = t.tensor(indices.astype(np.int64)).reshape(sparse_dim, count)
        x = t.sparse_coo_tensor(place, t.tensor(values).to(kind).reshape(count, *inner), shape)
        f, e = (t.tensor(other).to(kind) for other in others)
        return {"x": x, "m": x, "d": t.tensor(dense).to(kind).reshape(shape), "e": e, "f": f}

    return make


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_are_pytorchs(tg: Any, rng: np.random.Generator, dtype: str) -> None:
    differences = {}
    shapes = SHAPES if dtype == "float32" else [SHAPES[at] for at in rng.choice(len(SHAPES), 3, replace=False)]
    for shape, sparse_dim in shapes:
        make = operands(rng, dtype, shape, sparse_dim)
        is_matrix = len(shape) == sparse_dim == 2 and dtype not in ("bool", "float16", "bfloat16")
        for text in EVERYWHERE + MATRICES * is_matrix:
            theirs = outcome(text, torch, make)
            is_other = "softmax" in text and "float" not in dtype  # of which PyTorch takes what is empty
            if is_other or isinstance(theirs, Exception):  # PyTorch has fewer combinations of layouts and dtypes
                continue
            found = difference(outcome(text, tg, make), theirs, 2e-2 if dtype.endswith("16") else 1e-5)
            if found:
                differences[shape, sparse_dim, text] = found
    assert differences == {}

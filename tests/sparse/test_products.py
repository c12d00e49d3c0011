"""Products with sparse matrices: against dense products in double precision, derivatives by finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from telegrad import TelegradError
from telegrad._ops.functions import function

from .twins import outcome

DTYPES = ("float64", "float32", "float16", "bfloat16", "complex64", "complex128", "int64", "int32")
TOLERANCES = {"float32": 1e-5, "complex64": 1e-5, "float16": 1e-2, "bfloat16": 5e-2}


def matrices(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray[Any, Any]:
    """Return random matrices of which every third element is not zero, the same number in each of a batch."""
    stored = rng.permuted(np.tile(np.arange(shape[-1] * shape[-2]) % 3 == 0, (*shape[:-2], 1)), axis=-1)
    values = rng.integers(1, 5, shape) if dtype.startswith("int") else rng.standard_normal(shape)
    values = values + 1j * rng.standard_normal(shape) if dtype.startswith("complex") else values
    return values * stored.reshape(shape)


def dense(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray[Any, Any]:
    """Return random numbers that a dtype can hold."""
    values = rng.integers(-4, 5, shape) if dtype.startswith("int") else rng.standard_normal(shape)
    return values + 1j * rng.standard_normal(shape) if dtype.startswith("complex") else values


def assert_close(ours: Any, expected: Any, dtype: str) -> None:
    """Compare in double precision, as near as the dtype allows."""
    elements = ours.to_dense().detach()
    array = (elements.float() if dtype in ("float16", "bfloat16") else elements).numpy()
    tolerance = TOLERANCES.get(dtype, 1e-10)
    np.testing.assert_allclose(array, expected, tolerance, 8 * tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_are_those_of_dense_matrices(tg: Any, rng: np.random.Generator, dtype: str) -> None:
    kind = getattr(tg, dtype)
    a, b, v = matrices(rng, dtype, 7, 5), dense(rng, dtype, 5, 4), dense(rng, dtype, 5)
    if dtype in ("float16", "bfloat16"):
        a, b, v = (np.asarray(tg.tensor(x).to(kind).float().numpy(), dtype=np.float64) for x in (a, b, v))
    x, other, vector = (tg.tensor(data).to(kind) for data in (a, b, v))
    twice = tg.cat([x.to_sparse(), (x * 2).to_sparse()], 0).to_dense()
    assert_close(twice, np.concatenate([a, 2 * a]), dtype)
    uncoalesced = x.to_sparse() + (x * 2).to_sparse().t().contiguous().t()
    for sparse in (x.to_sparse(), x.to_sparse_csr(), x.to_sparse_csc(), x.to_sparse_bsr((7, 1)), x.t().to_sparse().t()):
        assert_close(sparse @ other, a @ b, dtype)
        assert_close(sparse @ vector, a @ v, dtype)
        assert_close(other.t() @ sparse.t(), (a @ b).T, dtype)
    assert_close(uncoalesced @ other, 3 * a @ b, dtype)
    assert_close(tg.sparse.mm(x.to_sparse(), x.t().to_sparse()), a @ a.T, dtype)
    assert_close(tg.sparse.mm(x.to_sparse_csr(), x.t().to_sparse_csr()), a @ a.T, dtype)
    assert_close(tg.addmm(tg.tensor(a @ b).to(kind), x.to_sparse(), other, beta=2, alpha=3), 5 * (a @ b), dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
def test_batches_of_any_layout_are_multiplied(tg: Any, rng: np.random.Generator, dtype: str) -> None:
    a, b = matrices(rng, dtype, 3, 6, 4), dense(rng, dtype, 3, 4, 5)
    x, other = (tg.tensor(data).to(getattr(tg, dtype)) for data in (a, b))
    for sparse in (x.to_sparse(), x.to_sparse_csr(), x.to_sparse_csc()):
        assert_close(tg.bmm(sparse, other), a @ b, dtype)
        assert_close(sparse @ other, a @ b, dtype)
        assert_close(tg.bmm(other.transpose(1, 2), sparse.transpose(1, 2)), (a @ b).swapaxes(1, 2), dtype)
    assert_close(x[0].to_sparse_csr() @ other, a[0] @ b, dtype)


def test_derivatives_are_those_of_finite_differences(tg: Any, rng: np.random.Generator) -> None:
    crow, col = (tg.tensor(data) for data in ([0, 2, 2, 3], [0, 3, 1]))
    check, again = tg.autograd.gradcheck, tg.autograd.gradgradcheck
    for dtype, batches in (("float64", ((), (2,))), ("complex128", ((),))):
        for batch in batches:
            v, b, g, left = (
                tg.tensor(dense(rng, dtype, *shape)).requires_grad_()
                for shape in ((*batch, 3), (4, 2), (*batch, 3, 2), (*batch, 3, 2))
            )
            plain = (lambda v, b: function("_csr_matmul")(crow, col, v, b, 4, False), (v, b))
            transposed = (lambda v, g: function("_csr_matmul")(crow, col, v, g, 4, True), (v, g))
            sampled = (lambda left, b: function("_csr_sampled_matmul")(crow, col, left, b), (left, b))
            for program, inputs in (plain, transposed, sampled):
                assert check(program, inputs)
                assert again(program, inputs)


def test_systems_are_solved_and_differentiated(tg: Any, rng: np.random.Generator) -> None:
    a = matrices(rng, "float64", 6, 6) + 4 * np.eye(6)
    sparse, b = tg.tensor(a).to_sparse_csr().requires_grad_(), tg.tensor(dense(rng, "float64", 6, 2)).requires_grad_()
    assert_close(tg.sparse.spsolve(sparse, b), np.linalg.solve(a, b.detach().numpy()), "float64")
    assert_close(tg.sparse.spsolve(sparse, b[:, 0]), np.linalg.solve(a, b.detach().numpy()[:, 0]), "float64")
    check = tg.sparse.as_sparse_gradcheck(tg.autograd.gradcheck)
    assert check(tg.sparse.spsolve, (sparse, b))
    with pytest.raises(TelegradError, match="singular"):
        tg.sparse.spsolve(tg.zeros(2, 2).to_sparse_csr(), tg.ones(2)).tolist()


FAULTY = [([0, 1, 2], [0, 9]), ([0, 1, 2], [-1, 0]), ([0, 2, 1], [0, 1]), ([0, 1, 9], [0, 1]), ([1, 1, 2], [0, 1])]


@pytest.mark.parametrize(("crow", "col"), FAULTY)
def test_indices_that_point_outside_are_refused(tg: Any, crow: list[int], col: list[int]) -> None:
    starts, places, values = tg.tensor(crow), tg.tensor(col), tg.ones(2)
    for program in (
        lambda: function("_csr_indices")(starts, places, 3)[0],
        lambda: function("_csr_matmul")(starts, places, values, tg.ones(3, 2), 3, False),
        lambda: function("_csr_matmul")(starts, places, values, tg.ones(2, 2), 3, True),
        lambda: function("_csr_sampled_matmul")(starts, places, tg.ones(2, 2), tg.ones(3, 2)),
        lambda: tg.sparse_csr_tensor(starts, places, values, (2, 3)) @ tg.ones(3, 2),
    ):
        with pytest.raises(TelegradError, match="sparse matrix"):
            program().tolist()


def test_a_repeated_product_waits_for_nothing(tg: Any) -> None:
    adjacency = tg.eye(5).to_sparse()
    x = tg.ones(5, 3, requires_grad=True)
    (adjacency @ x).sum().backward()
    before = tg.wire_stats().round_trips
    for _ in range(3):
        (adjacency.t() @ tg.relu(adjacency @ x)).sum().backward()
    assert tg.wire_stats().round_trips == before


NODES = """
t.sparse.mm(s, d); s @ d; t.mm(s, d); t.mv(s, w); s @ w; t.addmm(b, s, d); t.sparse.addmm(b, s, d); d.t() @ s.t()
t.sparse.mm(s, s.t()); s @ s.t(); c @ d; t.sparse.mm(c, d); t.mv(c, w); t.addmm(b, c, d); t.matmul(c, d)
t.sparse.mm(c, d, "mean"); t.sparse.mm(c, d, "sum"); t.sparse.sampled_addmm(c, b @ d.t().clone(), t.eye(3))
t.bmm(t.stack([s, s]), t.stack([d, d]))
"""


@pytest.mark.parametrize("text", [text.strip() for text in NODES.replace("\n", ";").split(";") if text.strip()])
def test_products_are_shown_as_pytorchs_nodes(tg: Any, text: str) -> None:
    def operands(t: Any) -> dict[str, Any]:
        given = {"d": t.ones(3, 4), "b": t.ones(2, 4), "w": t.ones(3), "s": t.eye(2, 3).to_sparse()}
        given["c"] = t.eye(2, 3).to_sparse_csr()
        return {name: value.requires_grad_() for name, value in given.items()}

    ours, theirs = (outcome(text, t, operands) for t in (tg, torch))
    assert ours.grad_fn.name() == theirs.grad_fn.name()


def test_functions_of_programs_take_and_save_sparse_arguments(tg: Any, rng: np.random.Generator) -> None:
    class Product(tg.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, matrix: Any, others: Any) -> Any:
            ctx.save_for_backward(matrix)
            return tg.mm(matrix, others)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            (matrix,) = ctx.saved_tensors
            return None, tg.mm(matrix.t(), gradient)

    left, right = matrices(rng, "float64", 4, 3), dense(rng, "float64", 3, 2)
    others = tg.tensor(right, requires_grad=True)
    product = Product.apply(tg.tensor(left).to_sparse(), others)
    product.sum().backward()
    np.testing.assert_allclose(product.detach().numpy(), left @ right, rtol=1e-12)
    np.testing.assert_allclose(others.grad.numpy(), left.T @ np.ones((4, 2)), rtol=1e-12)

"""Sparse tensors on a GPU: products by cuSPARSE, checks in hindsight, and everything that holds on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from telegrad._ops.functions import function

from . import test_embeddings as embeddings
from . import test_graphs as graphs
from . import test_operations as operations
from . import test_products as products

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:.*[Ss]parse")]


@pytest.mark.parametrize("dtype", products.DTYPES)
def test_products_are_those_of_dense_matrices(cuda_tg: Any, rng: np.random.Generator, dtype: str) -> None:
    products.test_products_are_those_of_dense_matrices(cuda_tg, rng, dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
def test_batches_of_any_layout_are_multiplied(cuda_tg: Any, rng: np.random.Generator, dtype: str) -> None:
    products.test_batches_of_any_layout_are_multiplied(cuda_tg, rng, dtype)


def test_derivatives_are_those_of_finite_differences(cuda_tg: Any, rng: np.random.Generator) -> None:
    products.test_derivatives_are_those_of_finite_differences(cuda_tg, rng)


@pytest.mark.parametrize(("crow", "col"), products.FAULTY)
def test_indices_that_point_outside_are_refused(cuda_tg: Any, crow: list[int], col: list[int]) -> None:
    products.test_indices_that_point_outside_are_refused(cuda_tg, crow, col)


def test_a_repeated_product_waits_for_nothing(cuda_tg: Any) -> None:
    products.test_a_repeated_product_waits_for_nothing(cuda_tg)


@pytest.mark.parametrize(
    "expressions", [operations.ELEMENTWISE, operations.PRODUCTS, operations.SHAPES, operations.CONSTRUCTION]
)
def test_results_and_refusals_are_pytorchs(cuda_tg: Any, expressions: list[str]) -> None:
    operations.test_results_and_refusals_are_pytorchs(cuda_tg, expressions)


def test_embeddings_give_sparse_gradients(cuda_tg: Any, rng: np.random.Generator) -> None:
    embeddings.test_tables_are_trained_as_by_pytorch(cuda_tg, rng, "SparseAdam")


def test_a_graph_is_learned_as_by_pytorch(cuda_tg: Any) -> None:
    graphs.test_a_graph_is_learned_as_by_pytorch(cuda_tg, "sparse_csr")


def test_checked_indices_are_checked_again_after_they_were_written(cuda_tg: Any) -> None:
    tg = cuda_tg
    crow, col = function("_csr_indices")(tg.tensor([0, 1, 2]), tg.tensor([0, 2]), 3)
    dense, values = tg.eye(3), tg.ones(2)
    expected = [[1.0, 0, 0], [0, 0, 1.0]]
    assert function("_csr_matmul")(crow, col, values, dense, 3, False).tolist() == expected
    with tg.no_grad():
        col.fill_(99)
    with pytest.raises(tg.TelegradError, match="sparse matrix: index 99 is out of range for 3 columns"):
        function("_csr_matmul")(crow, col, values, dense, 3, False).tolist()
    assert function("_csr_matmul")(crow, col * 0, values, dense, 3, False).tolist() == [[1.0, 0, 0], [1.0, 0, 0]]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "complex64"])
def test_rows_of_many_and_of_no_elements_are_multiplied(cuda_tg: Any, rng: np.random.Generator, dtype: str) -> None:
    tg, kind = cuda_tg, getattr(cuda_tg, dtype)
    dense = rng.standard_normal((70, 2000)) * (rng.random((70, 2000)) < rng.choice([0.0, 0.01, 0.9], (70, 1)))
    sparse = tg.tensor(dense).to(kind).to_sparse_csr()
    vector = tg.tensor(rng.standard_normal(2000)).to(kind)
    left, right = (tg.tensor(rng.standard_normal((count, 60))).to(kind) for count in (70, 2000))
    wide = tg.complex128 if kind.is_complex else tg.float64
    stored = sparse.to_dense().to(wide).cpu().numpy()
    x, a, b = (t.to(wide).cpu().numpy() for t in (vector, left, right))
    tolerance = products.TOLERANCES.get(dtype, 1e-9) * 20
    for ours, theirs in (
        (sparse @ vector, stored @ x),
        (tg.sparse.sampled_addmm(sparse, left, right.t(), beta=0).to_dense(), (a @ b.T) * (stored != 0)),
    ):
        np.testing.assert_allclose(ours.to(wide).cpu().numpy(), theirs, tolerance, tolerance * 100)


@pytest.mark.parametrize("width", [1, 3, 33, 200])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "complex64"])
def test_large_products_are_those_of_the_host(cuda_tg: Any, rng: np.random.Generator, dtype: str, width: int) -> None:
    tg, kind = cuda_tg, getattr(cuda_tg, dtype)
    a = tg.tensor(products.matrices(rng, dtype, 300, 500)).to(kind)
    b, left = (tg.tensor(products.dense(rng, dtype, rows, width)).to(kind) for rows in (500, 300))
    sparse, host = a.to_sparse_csr(), a.to_dense().cpu()
    tolerance = products.TOLERANCES.get(dtype, 1e-9) * 20
    for ours, theirs in (
        (sparse @ b, host @ b.cpu()),
        (sparse.t() @ left, host.t() @ left.cpu()),
        (tg.sparse.sampled_addmm(sparse, left, b.t(), beta=0).to_dense(), (left.cpu() @ b.cpu().t()) * (host != 0)),
    ):
        x, y = (t.to(tg.complex128 if kind.is_complex else tg.float64).cpu().numpy() for t in (ours, theirs))
        np.testing.assert_allclose(x, y, tolerance, tolerance * 20)

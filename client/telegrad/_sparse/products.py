"""Products of sparse tensors with dense ones, and with each other.

What a product needs of the indices, ``ProductForm``, is made once for all tensors that share them, and kept: rows where
they begin and columns, checked by the server and in the type that its libraries multiply fastest.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

from telegrad._tensor.layouts import sparse_coo, sparse_csr
from telegrad._tensor.tensor import Tensor
from telegrad_protocol import dtypes
from telegrad_protocol.errors import ArgumentError, DTypeError, NotSupportedError, ShapeError

from .coalescing import coalesce, from_positions
from .conversions import to_coordinates, to_dense, to_lines
from .functions import implements, run
from .indices import arange, expanded, merged, starts, summed
from .shown_nodes import shown_as
from .tensor import BLOCKED, BY_ROWS, SparseTensor


class ProductForm(NamedTuple):
    """The matrix, or its transpose where ``is_transposed``, by rows; ``order`` sorts the values, None if they are."""

    crow: Tensor
    col: Tensor
    columns: int
    is_transposed: bool
    order: Tensor | None

    def flipped(self) -> ProductForm:
        """Return the form of the transpose."""
        return self._replace(is_transposed=not self.is_transposed)

    def times(self, values: Tensor, other: Tensor) -> Tensor:
        """Return the product with a dense matrix, or a batch of them."""
        if self.order is not None:
            values = run("index_select", values, 0, self.order)
        return run(  # type: ignore[no-any-return]
            "_csr_matmul", self.crow, self.col, values, other, self.columns, self.is_transposed
        )


def form_of(tensor: SparseTensor) -> ProductForm:
    """Return what products need of the indices of a matrix, or of a batch of them in a compressed layout."""
    cell = tensor._cell
    if cell[0] is None:
        made = _form(tensor)
        cell[0] = made.flipped() if tensor._is_flipped else made
    form: ProductForm = cell[0]
    return form.flipped() if tensor._is_flipped else form


def _form(tensor: SparseTensor) -> ProductForm:
    first = tensor.batch_dims
    if tensor._kind is not sparse_coo:
        by_rows = tensor._kind in BY_ROWS
        columns = tensor.shape[first + 1 if by_rows else first]
        crow, col = tensor._parts[:2]
        if first:
            crow, col, columns = _on_diagonal(crow, col, columns)
        crow, col = run("_csr_indices", crow, col, columns)
        return ProductForm(crow, col, columns, not by_rows, None)
    rows, cols = tensor._parts[0].unbind(0)
    order = None
    if not tensor._is_coalesced:
        order = run("argsort", rows, stable=True)
        rows, cols = rows[order], cols[order]
    crow = starts(rows, tensor.shape[0])
    crow, cols = run("_csr_indices", crow, cols, tensor.shape[1])
    return ProductForm(crow, cols, tensor.shape[1], False, order)


def _on_diagonal(crow: Tensor, col: Tensor, columns: int) -> tuple[Tensor, Tensor, int]:
    """Return the indices of a batch of matrices as those of one that has them on its diagonal."""
    count, lines, stored = math.prod(crow.shape[:-1]), crow.shape[-1] - 1, col.shape[-1]
    number = arange(count, crow).reshape(count, 1)
    begins = crow.reshape(count, lines + 1)[:, :lines].to(dtypes.int64) + number * stored
    end = run("full", (1,), count * stored, dtype=dtypes.int64, device=crow.device)
    places = col.reshape(count, stored).to(dtypes.int64) + number * columns
    return run("cat", [begins.reshape(-1), end]), places.reshape(-1), count * columns


def _matrix(name: str, tensor: SparseTensor) -> SparseTensor:
    """Return a tensor whose elements, not blocks of them, products can take."""
    if tensor.dense_dims:
        raise NotSupportedError(f"{name}: a matrix with {tensor.dense_dims} dense dimensions cannot be multiplied")
    return to_lines(tensor, sparse_csr, None) if tensor._kind in BLOCKED else tensor


def _check(name: str, left: Tensor, right: Tensor, ndim: int = 2) -> None:
    if left.ndim != ndim or right.ndim != ndim:
        raise ShapeError(f"{name}: expected {ndim}-dimensional tensors, got {left._meta} and {right._meta}")
    if left.shape[-1] != right.shape[-2]:
        raise ShapeError(f"{name}: cannot multiply {left._meta} by {right._meta}")
    if left.dtype is not right.dtype:
        raise DTypeError(f"{name}: operands must have one dtype, got {left._meta} and {right._meta}")


@implements("mm", "spmm")
@shown_as("MmBackward0")
def mm(input: Tensor, mat2: Tensor) -> Any:
    """Multiply two matrices, of which at least one is sparse; the result is sparse where both are."""
    _check("mm", input, mat2)
    if isinstance(input, SparseTensor) and isinstance(mat2, SparseTensor):
        return _sparse_product(_matrix("mm", input), _matrix("mm", mat2))
    if isinstance(input, SparseTensor):
        matrix = _matrix("mm", input)
        return form_of(matrix).times(matrix.stored, mat2)
    matrix = _matrix("mm", mat2)  # type: ignore[arg-type]
    return form_of(matrix).flipped().times(matrix.stored, input.t()).t()


@implements("mv")
@shown_as("MvBackward0")
def mv(input: Tensor, vec: Tensor) -> Any:
    """Multiply a sparse matrix by a dense vector."""
    if isinstance(vec, SparseTensor):
        raise NotSupportedError("mv: not supported for a sparse vector; use to_dense()")
    return mm(input, vec.reshape(-1, 1) if vec.ndim == 1 else vec).reshape(-1)


@implements("bmm")
@shown_as("BmmBackward0")
def bmm(input: Tensor, mat2: Tensor) -> Any:
    """Multiply matrices by matrices, batch by batch; one of the operands is sparse."""
    _check("bmm", input, mat2, 3)
    if input.shape[0] != mat2.shape[0]:
        raise ShapeError(f"bmm: batches of different sizes: {input._meta} and {mat2._meta}")
    if isinstance(mat2, SparseTensor):
        if isinstance(input, SparseTensor):
            raise NotSupportedError("bmm: not supported for two sparse tensors; convert one with to_dense()")
        return bmm(mat2.transpose(1, 2), input.transpose(1, 2)).transpose(1, 2)
    sparse: SparseTensor = input  # type: ignore[assignment]
    if sparse._kind is not sparse_coo and sparse._kind not in BLOCKED and sparse.batch_dims == 1:
        batch, rows, columns = sparse.shape
        values, other = sparse.stored.reshape(batch * sparse.count), mat2.reshape(batch * columns, mat2.shape[2])
        return form_of(sparse).times(values, other).reshape(batch, rows, mat2.shape[2])
    return _stacked(to_coordinates(sparse), mat2)


def _stacked(sparse: SparseTensor, other: Tensor) -> Tensor:
    """Multiply matrices of different numbers of elements as one that has them on its diagonal."""
    batch, rows, columns = sparse.shape
    if sparse._cell[0] is None:
        numbers, row, column = sparse._parts[0].unbind(0)
        diagonal = SparseTensor(
            sparse_coo, (run("stack", [numbers * rows + row, numbers * columns + column]), sparse.stored),
            (batch * rows, batch * columns), sparse._is_coalesced,
        )  # fmt: skip
        sparse._cell[0] = _form(diagonal)
    product = sparse._cell[0].times(sparse.stored, other.reshape(batch * columns, other.shape[2]))
    return product.reshape(batch, rows, other.shape[2])  # type: ignore[no-any-return]


@implements("matmul", "__matmul__")
def matmul(input: Tensor, other: Tensor) -> Any:
    """Multiply matrices, vectors, or batches of matrices."""
    if input.ndim == 2 and other.ndim == 1:
        return mv(input, other)
    if input.ndim == 1 and other.ndim == 2:
        return mv(other.t(), input)
    if input.ndim == other.ndim == 3:
        return bmm(input, other)
    if isinstance(input, SparseTensor) and input.ndim == 2 and other.ndim == 3 and not isinstance(other, SparseTensor):
        matrix = _matrix("matmul", input)
        return form_of(matrix).times(matrix.stored, other)
    return mm(input, other)


@implements("addmm")
@shown_as("AddmmBackward0")
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Return beta * input + alpha * (mat1 @ mat2)."""
    if isinstance(input, SparseTensor) and not (isinstance(mat1, SparseTensor) and isinstance(mat2, SparseTensor)):
        raise NotSupportedError("addmm: a sparse input can be added to the product of two sparse matrices only")
    product = mm(mat1, mat2) if isinstance(mat1, SparseTensor) or isinstance(mat2, SparseTensor) else mat1 @ mat2
    scaled = product if alpha == 1 else product * alpha
    if isinstance(scaled, SparseTensor) and not isinstance(input, SparseTensor):
        scaled = to_dense(scaled)
    if beta == 0:
        return scaled.expand(product.shape) if not isinstance(scaled, SparseTensor) else scaled
    return (input if beta == 1 else input * beta) + scaled


@implements("addmm_")
def addmm_(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """Make a tensor beta * input + alpha * (mat1 @ mat2) in place."""
    result = addmm(input, mat1, mat2, beta=beta, alpha=alpha)
    return input.become(result, "addmm_") if isinstance(input, SparseTensor) else input.copy_(result)


@implements("addmv")
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Return beta * input + alpha * (mat @ vec)."""
    product = mv(mat, vec) * alpha
    return product if beta == 0 else input * beta + product


def _sparse_product(left: SparseTensor, right: SparseTensor) -> SparseTensor:
    """Return the product of two sparse matrices; three round trips, for the numbers of its terms and elements."""
    a, b = coalesce(to_coordinates(left)), to_lines(right, sparse_csr, None)
    rows, inner = a._parts[0].unbind(0)
    starts_of, columns = b._parts[0].to(dtypes.int64), b._parts[1].to(dtypes.int64)
    lengths = (starts_of[1:] - starts_of[:-1])[inner]
    ends = lengths.cumsum(0)
    terms = int(ends[-1].item()) if a.count else 0
    of_a = expanded(run("cat", [ends.new_zeros(1), ends]), terms)
    of_b = starts_of[inner][of_a] + arange(terms, rows) - (ends - lengths)[of_a]
    keys, places = merged(rows[of_a] * right.shape[1] + columns[of_b])
    values = summed(a.stored[of_a] * b.stored[of_b], places, keys.shape[0])
    product = from_positions(keys, values, (left.shape[0], right.shape[1]), 2)
    return product if left._kind is sparse_coo else to_lines(product, sparse_csr, None)


_REDUCTIONS: Final = {"max": "amax", "min": "amin"}
"""Reductions by the names that some functions have for them: `sparse.mm` says max where `scatter_reduce` says amax."""


@shown_as("SparseMmReduceImplBackward0")
def reduced(input: SparseTensor, mat2: Tensor, reduce: str) -> Tensor:
    """Return for each row the sum, mean, largest or smallest of the terms of a product: (m,n) @ (n,k) -> (m,k)."""
    reduce = _REDUCTIONS.get(reduce, reduce)
    if reduce not in ("sum", "mean", "amax", "amin"):
        raise ArgumentError(
            f"torch.sparse.mm: reduce argument must be one of sum, mean, max, amax, min or amin, not {reduce!r}"
        )
    _check("sparse.mm", input, mat2)
    if input._kind is not sparse_csr:
        raise NotSupportedError(f"sparse.mm: reduce= is for sparse_csr tensors, not for {input._kind.name}")
    if reduce == "sum":
        return mm(input, mat2)  # type: ignore[no-any-return]
    rows, columns = expanded(input._parts[0], input.count), input._parts[1].to(dtypes.int64)
    terms = input.stored.unsqueeze(1) * mat2[columns]
    target = mat2.new_zeros((input.shape[0], mat2.shape[1]))
    places = rows.unsqueeze(1).expand(terms.shape)
    return run("scatter_reduce", target, 0, places, terms, reduce, include_self=False)  # type: ignore[no-any-return]


@shown_as("SparseSampledAddmmBackward0")
def sampled_addmm(input: SparseTensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> SparseTensor:
    """Return beta * input + alpha * (mat1 @ mat2) at the stored indices of ``input``."""
    if not isinstance(input, SparseTensor) or input._kind is not sparse_csr:
        raise NotSupportedError("sampled_addmm: expected a sparse_csr tensor as input; convert it with to_sparse_csr()")
    if isinstance(mat1, SparseTensor) or isinstance(mat2, SparseTensor):
        raise NotSupportedError("sampled_addmm: mat1 and mat2 must be dense")
    if mat1.ndim < 2 or mat2.ndim < 2 or mat1.shape[-1] != mat2.shape[-2]:
        raise ShapeError(f"sampled_addmm: cannot multiply {mat1._meta} by {mat2._meta}")
    if (*mat1.shape[:-1], mat2.shape[-1]) != tuple(input.shape):
        raise ShapeError(f"sampled_addmm: {mat1._meta} @ {mat2._meta} does not have the shape {tuple(input.shape)}")
    form = form_of(input)
    rows, columns = mat1, mat2.transpose(-1, -2)
    if input.batch_dims:
        rows, columns = (matrix.reshape(math.prod(matrix.shape[:-1]), matrix.shape[-1]) for matrix in (rows, columns))
    values = run("_csr_sampled_matmul", form.crow, form.col, rows, columns).reshape(input.stored.shape) * alpha
    return input.like(values if beta == 0 else input.stored * beta + values)


@implements("smm")
def smm(input: SparseTensor, mat: Tensor) -> Any:
    """Multiply a sparse matrix by a dense one; the result is sparse."""
    product = mm(input, mat)
    return product.to_sparse()


@implements("hspmm")
def hspmm(mat1: SparseTensor, mat2: Tensor) -> SparseTensor:
    """Multiply a sparse matrix by a dense one; of the result those rows are stored that have an element in ``mat1``."""
    mat1.require("hspmm", sparse_coo)
    rows, _ = merged(mat1._parts[0][0])
    values = run("index_select", mm(mat1, mat2), 0, rows)
    shape = (mat1.shape[0], mat2.shape[1])
    return SparseTensor(sparse_coo, (rows.unsqueeze(0), values), shape, is_coalesced=True)


@implements("sspaddmm")
def sspaddmm(input: SparseTensor, mat1: SparseTensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Return beta * input + alpha * (mat1 @ mat2) as a sparse tensor."""
    input.require("sspaddmm", sparse_coo)
    product = mm(mat1, mat2)
    product = product if isinstance(product, SparseTensor) else product.to_sparse()
    return input * beta + product * alpha

"""Contracts of products with sparse matrices, which are stored by rows: where rows begin, columns, and values.

The client's sparse tensors are made of such operands; users do not call these operations by name. Indices are checked
by the server. ``m`` rows, ``n`` columns, ``k`` columns of the other operand, ``b`` matrices in a batch, ``z`` stored
elements of each matrix.
"""

from __future__ import annotations

from telegrad_protocol.dtypes import bool_, int32, int64
from telegrad_protocol.errors import DTypeError, ShapeError
from telegrad_protocol.meta import Meta

from .contract import op
from .indexing import check_integers

_INT32_LIMIT = 1 << 31


def _batch_of(name: str, crow: Meta, col: Meta, *others: Meta) -> int | None:
    """Return the size of the batch, None where no operand has one; refuse operands that do not fit together."""
    check_integers(name, crow)
    check_integers(name, col)
    if crow.ndim not in (1, 2) or col.ndim not in (1, 2) or not crow.shape[-1]:
        raise ShapeError(f"{name}: crow {crow} and col {col} must be vectors, or matrices of a row for each matrix")
    batched = [crow.shape[0]] * (crow.ndim == 2) + [col.shape[0]] * (col.ndim == 2)
    batched += [other.shape[0] for other in others if other.ndim == 3]
    if len(set(batched)) > 1:
        raise ShapeError(f"{name}: operands have batches of different sizes: {sorted(set(batched))}")
    return batched[0] if batched else None


def _shape(batch: int | None, *sizes: int) -> tuple[int, ...]:
    return sizes if batch is None else (batch, *sizes)


def _check_types(name: str, *operands: Meta) -> None:
    if len({operand.dtype for operand in operands}) > 1:
        raise DTypeError(f"{name}: operands must have one dtype, got {' and '.join(map(str, operands))}")
    if operands[0].dtype is bool_:
        raise DTypeError(f"{name}: products of booleans are not supported, got {operands[0]}")


@op(method=False, out=False, inplace=True)
def _with_gradient_of(input: Meta, leaf: Meta) -> Meta:
    """Return ``input``, whose gradient flows to ``leaf`` too; written for its form in place, which copies nothing."""
    if input.shape != leaf.shape or input.dtype is not leaf.dtype:
        raise ShapeError(f"_with_gradient_of: {leaf} is not like {input}")
    return input.like()


@op(method=False, out=False, differentiable=False, returns=("crow", "col"))
def _csr_indices(crow: Meta, col: Meta, columns: int) -> tuple[Meta, Meta]:
    """Check where rows begin, and columns, of sparse matrices; return them as int32 where that is wide enough."""
    _batch_of("_csr_indices", crow, col)
    wide = max(columns, col.shape[-1]) >= _INT32_LIMIT
    dtype = int64 if wide else int32
    return crow.like(crow.shape, dtype=dtype), col.like(col.shape, dtype=dtype)


@op(method=False, out=False, no_grad=("crow", "col"))
def _csr_matmul(crow: Meta, col: Meta, values: Meta, other: Meta, columns: int, transposed: bool) -> Meta:
    """Multiply sparse matrices by dense ones: (m,n) @ (n,k) -> (m,k), or ``transposed``: (n,m) @ (m,k) -> (n,k).

    Every operand may have a batch in front, (b,m+1), (b,z), (b,z) and (b,n,k); those without one are used for all.
    """
    batch = _batch_of("_csr_matmul", crow, col, other)
    if values.ndim not in (1, 2) or values.shape[-1] != col.shape[-1]:
        raise ShapeError(f"_csr_matmul: values {values} do not fit columns {col}")
    if other.ndim not in (2, 3):
        raise ShapeError(f"_csr_matmul: expected a matrix, or a batch of them, got {other}")
    _check_types("_csr_matmul", values, other)
    rows = crow.shape[-1] - 1
    if values.ndim == 2:
        if batch not in (None, values.shape[0]):
            raise ShapeError(f"_csr_matmul: values {values} are not a batch of {batch}")
        batch = values.shape[0]
    if other.shape[-2] != (rows if transposed else columns):
        left = (columns, rows) if transposed else (rows, columns)
        raise ShapeError(f"_csr_matmul: cannot multiply a sparse matrix of {left[0]}x{left[1]} by {other}")
    return other.like(_shape(batch, columns if transposed else rows, other.shape[-1]))


@op(method=False, out=False, no_grad=("crow", "col"))
def _csr_sampled_matmul(crow: Meta, col: Meta, left: Meta, right: Meta) -> Meta:
    """Compute the elements of left @ right.T that a sparse matrix stores: (m,k), (n,k) -> (z,).

    Every operand may have a batch in front; those without one are used for all.
    """
    batch = _batch_of("_csr_sampled_matmul", crow, col, left, right)
    if left.ndim not in (2, 3) or right.ndim not in (2, 3) or left.shape[-1] != right.shape[-1]:
        raise ShapeError(f"_csr_sampled_matmul: cannot multiply {left} by the transpose of {right}")
    _check_types("_csr_sampled_matmul", left, right)
    if left.shape[-2] != crow.shape[-1] - 1:
        raise ShapeError(f"_csr_sampled_matmul: {left} does not have a row for each of {crow.shape[-1] - 1}")
    return left.like(_shape(batch, col.shape[-1]))


@op(method=False, out=False, no_grad=("crow", "col"))
def _csr_solve(crow: Meta, col: Meta, values: Meta, other: Meta, transposed: bool) -> Meta:
    """Solve the system of a sparse square matrix, or of its transpose: (n,n), (n,k) -> (n,k)."""
    if crow.ndim != 1 or col.ndim != 1 or values.shape != col.shape:
        raise ShapeError(f"_csr_solve: expected one sparse matrix, got crow {crow}, col {col} and values {values}")
    _batch_of("_csr_solve", crow, col)
    _check_types("_csr_solve", values, other)
    if not values.dtype.is_differentiable:
        raise DTypeError(f"_csr_solve: expected floating point or complex numbers, got {values}")
    if other.ndim != 2 or other.shape[0] != crow.shape[0] - 1:
        raise ShapeError(f"_csr_solve: {other} does not have the {crow.shape[0] - 1} rows of the matrix")
    return other.like(other.shape)

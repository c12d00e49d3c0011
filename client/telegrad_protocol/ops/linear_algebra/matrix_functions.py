"""Contracts of norms, powers, exponentials, ranks and products of matrices, in ``linalg``."""

from __future__ import annotations

import math
from itertools import pairwise

from telegrad_protocol.dtypes import DType, bool_, int64
from telegrad_protocol.errors import ArgumentError, DTypeError, ShapeError
from telegrad_protocol.layout import Size, broadcast_shapes, wrap_dim, wrap_dims
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import spread
from telegrad_protocol.ops.contract import Scalar, op
from telegrad_protocol.ops.reduce import reduced
from telegrad_protocol.ops.views import diagonal as plain_diagonal

from .linalg import cross as plain_cross
from .linalg import matmul as plain_matmul
from .matrices import check_floating, check_matrix, check_square, check_square_shape, column_major, real_like


@op(name="linalg_vector_norm", method=False, module="linalg")
def vector_norm(
    x: Meta, ord: Scalar = 2, dim: int | Size | None = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Meta:
    """Compute the norm of order ``ord`` of vectors along dimensions, or of all elements."""
    spread.check_converted("linalg.vector_norm", x, dtype)
    return spread.norm.rule(x, ord, dim, keepdim, dtype=dtype)


def matrix_dims(name: str, A: Meta, dim: Size) -> tuple[int, int]:
    """Return the two different dimensions of matrices, counted from the front."""
    if len(dim) != 2:
        raise ShapeError(f"{name}: dim must be a 2-tuple, got {list(dim)}")
    rows, columns = (wrap_dim(name, d, A.ndim) for d in dim)
    if rows == columns:
        raise ShapeError(f"{name}: dims must be different, got {list(dim)}")
    return rows, columns


_NAMED = ("fro", "nuc")
_NUMBERS = (2, -2, 1, -1, math.inf, -math.inf)


def _check_matrix_norm(name: str, A: Meta, ord: Scalar | str, dim: Size, dtype: DType | None) -> None:
    check_matrix(name, A)
    spread.check_converted(name, A, dtype)
    rows, columns = matrix_dims(name, A, dim)
    if (isinstance(ord, str) and ord not in _NAMED) or (not isinstance(ord, str) and ord not in _NUMBERS):
        raise ArgumentError(f"{name}: order {ord!r} is not supported; the orders are {_NAMED} and {_NUMBERS}")
    if ord in (2, -2, "nuc"):
        check_floating(name, A)
    needed = {-2: (rows, columns), -1: (columns,), -math.inf: (rows,)}.get(ord, ())  # type: ignore[arg-type]
    if 0 in [A.shape[d] for d in needed]:
        raise ShapeError(f"{name}: the norm of order {ord} of {A} is not defined, it has no elements")


@op(name="linalg_matrix_norm", method=False, module="linalg")
def matrix_norm(
    A: Meta, ord: Scalar, dim: Size = (-2, -1), keepdim: bool = False, *, dtype: DType | None = None
) -> Meta:
    """Compute a norm of matrices: 2 and -2 of singular values, 1, -1, inf and -inf of sums of absolute values."""
    _check_matrix_norm("linalg.matrix_norm", A, ord, dim, dtype)
    return _normed("linalg.matrix_norm", A, dim, keepdim, dtype)


@op(name="linalg_matrix_norm.str_ord", method=False, module="linalg")
def matrix_norm_named(
    A: Meta, ord: str = "fro", dim: Size = (-2, -1), keepdim: bool = False, *, dtype: DType | None = None
) -> Meta:
    """Compute the Frobenius norm, 'fro', or the nuclear norm, 'nuc', of matrices."""
    _check_matrix_norm("linalg.matrix_norm", A, ord, dim, dtype)
    return _normed("linalg.matrix_norm", A, dim, keepdim, dtype)


def name_of_order(ord: Scalar | str) -> str:
    """Return the name by which ``_linalg_matrix_norm`` knows an order."""
    return ord if isinstance(ord, str) else format(ord, "g")


_ORDERS = {name_of_order(number): number for number in _NUMBERS}
"""Orders that are numbers, by their names."""


@op(name="_linalg_matrix_norm", method=False, out=False, differentiable=False)
def plain_matrix_norm(A: Meta, ord: str, dim: Size, keepdim: bool) -> Meta:
    """Compute a norm of matrices that have elements, without a derivative; ``ord`` is nuc or the name of a number."""
    if not A.numel:
        raise ShapeError(f"linalg.matrix_norm: expected matrices that have elements, got {A}")
    _check_matrix_norm("linalg.matrix_norm", A, _ORDERS.get(ord, ord), dim, None)
    return _normed("linalg.matrix_norm", A, dim, keepdim, None)


def _normed(name: str, A: Meta, dim: int | Size | None, keepdim: bool, dtype: DType | None) -> Meta:
    return A.like(reduced(name, A, dim, keepdim), (dtype or A.dtype).to_real())


@op(name="linalg_norm", method=False, module="linalg")
def norm(
    input: Meta, ord: Scalar | None = None, dim: int | Size | None = None, keepdim: bool = False, *,
    dtype: DType | None = None,
) -> Meta:  # fmt: skip
    """Compute the norm of vectors or matrices; without an order the 2-norm of the elements."""
    spread.check_converted("linalg.norm", input, dtype)
    if ord is None:
        return _normed("linalg.norm", input, dim, keepdim, dtype)
    listed = (dim,) if isinstance(dim, int) else dim
    if listed is None and input.ndim not in (1, 2):
        raise ShapeError(f"linalg.norm: with an order and without dim the input must be 1D or 2D, got {input}")
    if listed is not None and len(listed) not in (1, 2):
        raise ShapeError(f"linalg.norm: with an order dim must name 1 or 2 dimensions, got {list(listed)}")
    if len(listed) == 2 if listed is not None else input.ndim == 2:
        return matrix_norm.rule(input, ord, listed or (0, 1), keepdim, dtype=dtype)
    return vector_norm.rule(input, ord, dim, keepdim, dtype=dtype)


@op(name="linalg_norm.ord_str", method=False, module="linalg")
def norm_named(
    input: Meta, ord: str, dim: int | Size | None = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Meta:
    """Compute the Frobenius norm, 'fro', or the nuclear norm, 'nuc', of matrices."""
    listed = (dim,) if isinstance(dim, int) else dim
    if listed is None and input.ndim != 2:
        raise ShapeError(f"linalg.norm: order {ord!r} without dim needs a 2D input, got {input}")
    return matrix_norm_named.rule(input, ord, (0, 1) if listed is None else listed, keepdim, dtype=dtype)


@op
def nuclear_norm(input: Meta, dim: Size | None = None, keepdim: bool = False) -> Meta:
    """Compute the sum of the singular values of matrices."""
    if dim is None and input.ndim != 2:
        raise ShapeError(f"nuclear_norm: expected a tensor with 2 dimensions, got {input}")
    return matrix_norm_named.rule(input, "nuc", dim or (0, 1), keepdim)


def _condition(A: Meta, p: Scalar | str | None) -> Meta:
    check_matrix("linalg.cond", A)
    if p is None or p in (2, -2):
        check_floating("linalg.cond", A)
    else:
        _check_matrix_norm("linalg.cond", A, p, (-2, -1), None) if A.numel else None
        check_square("linalg.cond", A)
    return real_like(A, A.shape[:-2])


@op(name="_linalg_cond", method=False, out=False, differentiable=False)
def plain_cond(A: Meta, is_inverted: bool) -> Meta:
    """Compute the condition number in the 2-norm, or its inverse, without a derivative."""
    _check_not_empty("linalg.cond", A)
    return _condition(A, 2)


def _check_not_empty(name: str, A: Meta) -> None:
    if not A.numel:
        raise ShapeError(f"{name}: expected matrices that have elements, got {A}")


@op(name="linalg_cond", method=False, module="linalg")
def cond(A: Meta, p: Scalar | None = None) -> Meta:
    """Compute the condition number of matrices in a norm, by default the 2-norm."""
    return _condition(A, p)


@op(name="linalg_cond.p_str", method=False, module="linalg")
def cond_named(A: Meta, p: str) -> Meta:
    """Compute the condition number of matrices in the Frobenius norm, 'fro', or the nuclear norm, 'nuc'."""
    return _condition(A, p)


def _rank(A: Meta, hermitian: bool, *tolerances: Meta | Scalar | None) -> Meta:
    if any([isinstance(tolerance, complex) for tolerance in tolerances]):
        raise DTypeError(f"linalg.matrix_rank: tolerances must be real numbers, got {tolerances}")
    check_matrix("linalg.matrix_rank", A)
    check_floating("linalg.matrix_rank", A)
    if hermitian:
        check_square("linalg.matrix_rank", A)
    of_tolerances = [tolerance.shape for tolerance in tolerances if isinstance(tolerance, Meta) and A.numel]
    return A.like(broadcast_shapes("linalg.matrix_rank", A.shape[:-2], *of_tolerances), int64)


@op(name="_linalg_matrix_rank", method=False, out=False, differentiable=False)
def plain_matrix_rank(A: Meta, atol: float, rtol: float, hermitian: bool) -> Meta:
    """Count the singular values larger than max(atol, rtol * the largest), where tolerances are numbers."""
    _check_not_empty("linalg.matrix_rank", A)
    return _rank(A, hermitian, atol, rtol)


@op(name="linalg_matrix_rank.tolerances", method=False, module="linalg", differentiable=False)
def matrix_rank_tolerances(
    A: Meta, *, atol: Meta | Scalar | None = None, rtol: Meta | Scalar | None = None, hermitian: bool = False
) -> Meta:  # fmt: skip
    """Count the singular values larger than max(atol, rtol * the largest)."""
    return _rank(A, hermitian, atol, rtol)


@op(name="linalg_matrix_rank", method=False, module="linalg", differentiable=False)
def matrix_rank(A: Meta, tol: Meta | Scalar, hermitian: bool = False) -> Meta:
    """Count the singular values larger than ``tol``."""
    return _rank(A, hermitian, tol)


@op(name="_matrix_power", method=False, out=False, differentiable=False)
def plain_matrix_power(A: Meta, n: int) -> Meta:
    """Multiply square matrices by themselves ``n`` times, at least once, without a derivative."""
    if n < 1:
        raise ArgumentError(f"matrix_power: expected a positive exponent, got {n}")
    return _power("matrix_power", A, n)


@op
def matrix_power(input: Meta, n: int) -> Meta:
    """Multiply square matrices by themselves ``n`` times; a negative ``n`` takes the inverse."""
    return _power("matrix_power", input, n)


def _power(name: str, input: Meta, n: int) -> Meta:
    check_matrix(name, input)
    if input.shape[-1] != input.shape[-2]:
        raise ShapeError(f"{name}: A must be batches of square matrices, got {input}")
    if n < 0:
        check_floating(name, input)
    return column_major(input) if n == -1 else input.like()


@op(name="linalg_matrix_power", method=False, module="linalg")
def linalg_matrix_power(A: Meta, n: int) -> Meta:
    """Multiply square matrices by themselves ``n`` times; a negative ``n`` takes the inverse."""
    return _power("linalg.matrix_power", A, n)


def _exponential(A: Meta) -> Meta:
    check_square_shape("linalg.matrix_exp", A)
    if not A.dtype.is_differentiable:
        raise DTypeError(f"linalg.matrix_exp: expected a floating point or complex tensor, got {A}")
    return A.like()


@op(out=False)
def matrix_exp(A: Meta) -> Meta:
    """Compute the exponential of square matrices."""
    return _exponential(A)


@op(name="linalg_matrix_exp", method=False, module="linalg", out=False)
def linalg_matrix_exp(A: Meta) -> Meta:
    """Compute the exponential of square matrices."""
    return _exponential(A)


@op(name="linalg_multi_dot", method=False, module="linalg")
def multi_dot(tensors: list[Meta]) -> Meta:
    """Multiply two or more matrices in the order that takes the fewest multiplications; the ends may be vectors."""
    if len(tensors) < 2:
        raise ShapeError(f"linalg.multi_dot: expected at least 2 tensors, got {len(tensors)}")
    first, *middle, last = tensors
    if first.dtype is bool_:
        raise DTypeError(f"linalg.multi_dot: not defined for bool, got {first}")
    for tensor in middle:
        if tensor.ndim != 2:
            raise ShapeError(f"linalg.multi_dot: all but the first and the last must be 2D, got {tensor}")
    for tensor in (first, last):
        if tensor.ndim not in (1, 2):
            raise ShapeError(f"linalg.multi_dot: the first and the last must be 1D or 2D, got {tensor}")
    for left, right in pairwise(tensors):
        if left.dtype is not right.dtype:
            raise DTypeError(f"linalg.multi_dot: all tensors must have the same dtype, got {left} and {right}")
        if left.shape[-1] != right.shape[0]:
            raise ShapeError(f"linalg.multi_dot: cannot multiply {left} by {right}")
    return first.like(first.shape[:-1] + last.shape[1:])


@op(name="linalg_matmul", method=False, module="linalg")
def matmul(input: Meta, other: Meta) -> Meta:
    """Multiply vectors, matrices, or batches of matrices whose batch dimensions broadcast."""
    return plain_matmul.rule(input, other)


@op(name="linalg_cross", method=False, module="linalg")
def cross(input: Meta, other: Meta, *, dim: int = -1) -> Meta:
    """Compute the cross product of vectors along ``dim``, which has size 3."""
    return plain_cross.rule(input, other, dim)


@op(name="linalg_diagonal", method=False, module="linalg", view_of="A")
def diagonal(A: Meta, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Meta:
    """View the diagonal of matrices as a new last dimension."""
    return plain_diagonal.rule(A, offset, dim1, dim2)


@op(name="_linalg_vecdot", method=False, out=False, differentiable=False)
def plain_vecdot(x: Meta, y: Meta, dim: int) -> Meta:
    """Compute ``linalg.vecdot`` of operands of one shape, without a derivative."""
    if x.shape != y.shape:
        raise ShapeError(f"linalg.vecdot: expected operands of one shape, got {x} and {y}")
    return vecdot.rule(x, y, dim=dim)


@op(name="linalg_vecdot", method=False, module="linalg")
def vecdot(x: Meta, y: Meta, *, dim: int = -1) -> Meta:
    """Sum the products of the conjugates of ``x`` and of ``y`` along a dimension."""
    if x.dtype is not y.dtype or not x.dtype.is_differentiable:
        raise DTypeError(f"linalg.vecdot: expected floating point or complex operands of one type, got {x} and {y}")
    shape = broadcast_shapes("linalg.vecdot", x.shape, y.shape)
    if not shape:
        raise ShapeError(f"linalg.vecdot: expected vectors, got {x} and {y}")
    along = wrap_dim("linalg.vecdot", dim, len(shape))
    return x.like(shape[:along] + shape[along + 1 :])


def _power_count(x: Meta, N: int | None) -> int:
    return N if N is not None else x.shape[-1] if x.ndim else 1


@op(name="linalg_vander", method=False, module="linalg", out=False)
def vander(x: Meta, *, N: int | None = None) -> Meta:
    """Make matrices of the powers 0, 1, ... N - 1 of the elements of vectors."""
    if _power_count(x, N) <= 1:
        raise ShapeError(f"linalg.vander: expected vectors and N greater than 1, got {x} and {N}")
    dtype = x.dtype if x.dtype.category >= 2 else int64
    return x.like((*(x.shape or (1,)), _power_count(x, N)), dtype)


@op(name="linalg_tensorinv", method=False, module="linalg")
def tensorinv(A: Meta, ind: int = 2) -> Meta:
    """Invert a tensor as a linear map from its last dimensions to the first ``ind``."""
    if ind <= 0:
        raise ArgumentError(f"linalg.tensorinv: ind must be positive, got {ind}")
    check_floating("linalg.tensorinv", A)
    rows, columns = A.shape[:ind], A.shape[ind:]
    if math.prod(rows) != math.prod(columns):
        raise ShapeError(f"linalg.tensorinv: prod(A.shape[:{ind}]) must be prod(A.shape[{ind}:]), got {A}")
    if not A.numel:
        return A.like(columns + rows)
    size = math.prod(columns)  # the inverse has contiguous columns
    behind = tuple([stride * size for stride in A.like(rows).strides])
    return A.like(columns + rows, strides=A.like(columns).strides + behind)


@op(name="linalg_tensorsolve", method=False, module="linalg")
def tensorsolve(A: Meta, B: Meta, dims: Size | None = None) -> Meta:
    """Solve tensordot(A, X) = B for X; ``dims`` of A are moved to its end before."""
    check_floating("linalg.tensorsolve", A, B)
    moved = wrap_dims("linalg.tensorsolve", dims or (), A.ndim)
    kept = [size for d, size in enumerate(A.shape) if d not in moved]
    shape = (*kept, *(A.shape[d] for d in moved if A.ndim))[B.ndim :]  # without dimensions, 0 and -1 are allowed
    if math.prod(shape) != B.numel or A.numel != B.numel * B.numel:
        raise ShapeError(f"linalg.tensorsolve: {A} is no square map to {B}")
    return A.like(shape)

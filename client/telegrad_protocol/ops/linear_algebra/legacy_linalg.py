"""Contracts of linear algebra at the top level, under names that PyTorch had before ``linalg``."""

from __future__ import annotations

from telegrad_protocol.dtypes import int64
from telegrad_protocol.errors import ArgumentError, ShapeError
from telegrad_protocol.layout import Size, broadcast_shapes
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.contract import op

from . import factorizations, matrix_functions, solvers
from .matrices import check_floating, check_matrix, check_square, column_major, real_like


@op(out=False)
def det(input: Meta) -> Meta:
    """Compute the determinant of square matrices."""
    return solvers.det.rule(input)


@op(returns=("sign", "logabsdet"))
def slogdet(input: Meta) -> tuple[Meta, Meta]:
    """Compute the sign and the logarithm of the absolute value of the determinant of square matrices."""
    return solvers.slogdet.rule(input)


@op
def inverse(input: Meta) -> Meta:
    """Invert square matrices."""
    return solvers.inv.rule(input)


@op(out=False)
def pinverse(input: Meta, rcond: float = 1e-15) -> Meta:
    """Compute the pseudo-inverse, in which singular values up to ``rcond`` times the largest count as 0."""
    return solvers.pinv.rule(input, rcond)


@op
def cholesky(input: Meta, upper: bool = False) -> Meta:
    """Factor Hermitian positive-definite matrices into L @ L.mH, or U.mH @ U with ``upper``."""
    return factorizations.cholesky.rule(input)


@op(returns=("Q", "R"))
def qr(input: Meta, some: bool = True) -> tuple[Meta, Meta]:
    """Factor matrices into Q @ R; without ``some`` Q is square."""
    return factorizations.qr.rule(input, "reduced" if some else "complete")


@op(returns=("U", "S", "V"))
def svd(input: Meta, some: bool = True, compute_uv: bool = True) -> tuple[Meta, Meta, Meta]:
    """Factor matrices into U @ diag(S) @ V.mH; without ``compute_uv`` U and V are zeros."""
    check_matrix("svd", input)
    check_floating("svd", input)
    (m, n), batch = input.shape[-2:], input.shape[:-2]
    k = min(m, n)
    left, right = (k, k) if some and compute_uv else (m, n)
    return input.like((*batch, m, left)), real_like(input, (*batch, k)), input.like((*batch, n, right))


@op
def lu_solve(b: Meta, LU_data: Meta, LU_pivots: Meta) -> Meta:
    """Solve A @ X = b given the LU factorization of A."""
    return factorizations.lu_solve.rule(LU_data, LU_pivots, b)


@op(name="_lu_with_info", method=False, out=False)
def lu_with_info(input: Meta, pivot: bool = True, check_errors: bool = True) -> tuple[Meta, Meta, Meta]:
    """Compute what ``linalg.lu_factor_ex`` does."""
    return factorizations.lu_factor_ex.rule(input, pivot=pivot, check_errors=check_errors)


@op(returns=("solution", "cloned_coefficient"))
def triangular_solve(
    b: Meta, A: Meta, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Meta, Meta]:  # fmt: skip
    """Solve A @ X = b, or A.mT @ X = b with ``transpose``, for triangular A; also return a copy of A."""
    check_square("triangular_solve", A)
    check_matrix("triangular_solve", b)
    check_floating("triangular_solve", A, b)
    if b.shape[-2] != A.shape[-1]:
        raise ShapeError(f"triangular_solve: incompatible matrix sizes {b} and {A}")
    batch = broadcast_shapes("triangular_solve", b.shape[:-2], A.shape[:-2])
    return column_major(b, (*batch, *b.shape[-2:])), column_major(A, (*batch, *A.shape[-2:]))


@op(method=False)
def vander(x: Meta, N: int | None = None, increasing: bool = False) -> Meta:
    """Make a matrix of the powers of the elements of a vector, by default N of them in descending order."""
    if x.ndim != 1 or (N is not None and N < 0):
        raise ShapeError(f"vander: expected a vector and N that is not negative, got {x} and {N}")
    dtype = x.dtype if x.dtype.category >= 2 else int64
    return x.like((x.shape[0], x.shape[0] if N is None else N), dtype)


@op(method=False)
def frobenius_norm(input: Meta, dim: Size, keepdim: bool = False) -> Meta:
    """Compute the 2-norm of the elements along dimensions."""
    if len(dim) > 2:
        raise ArgumentError(f"frobenius_norm: expected at most 2 dimensions, got {list(dim)}")
    return matrix_functions.vector_norm.rule(input, 2, dim or None, keepdim)

"""Contracts of factorizations of matrices: Cholesky, LU, LDL, QR and Householder reflectors, in ``linalg``."""

from __future__ import annotations

from telegrad_protocol.dtypes import int32
from telegrad_protocol.errors import ArgumentError, DTypeError, ShapeError
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.contract import op

from .matrices import batch_of, check_floating, check_matrix, check_side, check_square, column_major, in_order


def _info(A: Meta) -> Meta:
    return A.like(A.shape[:-2], int32)


@op(name="linalg_cholesky_ex", method=False, module="linalg", returns=("L", "info"))
def cholesky_ex(A: Meta, *, upper: bool = False, check_errors: bool = False) -> tuple[Meta, Meta]:
    """Factor Hermitian positive-definite matrices into L @ L.mH; ``info`` is not 0 where a matrix is none."""
    check_square("linalg.cholesky", A)
    return column_major(A), _info(A)


@op(name="linalg_cholesky", method=False, module="linalg")
def cholesky(A: Meta, *, upper: bool = False) -> Meta:
    """Factor Hermitian positive-definite matrices into L @ L.mH, or U.mH @ U with ``upper``."""
    check_square("linalg.cholesky", A)
    return column_major(A)


@op(name="linalg_lu_factor_ex", method=False, module="linalg", returns=("LU", "pivots", "info"))
def lu_factor_ex(A: Meta, *, pivot: bool = True, check_errors: bool = False) -> tuple[Meta, Meta, Meta]:
    """Factor matrices into P @ L @ U, compactly; ``info`` is not 0 where a pivot is 0."""
    check_matrix("linalg.lu_factor", A)
    check_floating("linalg.lu_factor", A)
    return column_major(A), A.like((*A.shape[:-2], min(A.shape[-2:])), int32), _info(A)


@op(name="linalg_lu_factor", method=False, module="linalg", returns=("LU", "pivots"))
def lu_factor(A: Meta, *, pivot: bool = True) -> tuple[Meta, Meta]:
    """Factor matrices into P @ L @ U, compactly: L below the diagonal, U above, and the rows that were exchanged."""
    check_matrix("linalg.lu_factor", A)
    check_floating("linalg.lu_factor", A)
    return column_major(A), A.like((*A.shape[:-2], min(A.shape[-2:])), int32)


def _unpacked(A: Meta) -> tuple[Meta, Meta, Meta]:
    (m, n), batch = A.shape[-2:], A.shape[:-2]
    k = min(m, n)
    return A.like((*batch, m, m)), A.like((*batch, m, k)), A.like((*batch, k, n))


@op(name="_plain_lu", method=False, out=False, returns=("P", "L", "U"), constants=("P",))
def plain_lu(A: Meta, pivot: bool) -> tuple[Meta, Meta, Meta]:
    """Factor matrices into P, L and U at once."""
    return lu.infer((A, pivot))  # type: ignore[return-value]


@op(name="linalg_lu", method=False, module="linalg", returns=("P", "L", "U"), constants=("P",))
def lu(A: Meta, *, pivot: bool = True) -> tuple[Meta, Meta, Meta]:
    """Factor matrices into a permutation, a unit lower and an upper triangular matrix: P @ L @ U."""
    check_matrix("linalg.lu", A)
    check_floating("linalg.lu", A)
    P, L, U = _unpacked(A)
    return P if pivot else A.like((0,)), L, U


@op(method=False, returns=("P", "L", "U"), constants=("P",))
def lu_unpack(
    LU_data: Meta, LU_pivots: Meta, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Meta, Meta, Meta]:  # fmt: skip
    """Unpack what ``linalg.lu_factor`` returns into P, L and U; what is not asked for is empty."""
    check_matrix("lu_unpack", LU_data)
    if unpack_pivots and LU_pivots.dtype is not int32:
        raise DTypeError(f"lu_unpack: LU_pivots is expected to be a contiguous tensor of int32, got {LU_pivots}")
    if unpack_pivots and LU_pivots.shape != (*LU_data.shape[:-2], min(LU_data.shape[-2:])):
        raise ShapeError(f"lu_unpack: the pivots {LU_pivots} do not fit {LU_data}")
    P, L, U = _unpacked(LU_data)
    empty = LU_data.like((0,))
    return P if unpack_pivots else empty, L if unpack_data else empty, U if unpack_data else empty


@op(name="_permutation", method=False, out=False, differentiable=False)
def permutation(pivots: Meta, like: Meta, size: int) -> Meta:
    """Make the permutation matrices that exchange rows as ``pivots`` say, in the type of ``like``."""
    if pivots.dtype is not int32 or not pivots.ndim or pivots.shape[-1] > size:
        raise ShapeError(f"_permutation: {pivots} are not pivots of {size} rows")
    return like.like((*pivots.shape[:-1], size, size))


@op(name="linalg_lu_solve", method=False, module="linalg", no_grad=("pivots",))
def lu_solve(LU: Meta, pivots: Meta, B: Meta, *, left: bool = True, adjoint: bool = False) -> Meta:
    """Solve systems of linear equations by an LU factorization: A @ X = B, or X @ A = B without ``left``."""
    check_square("linalg.lu_solve", LU)
    if pivots.dtype is not int32 or pivots.shape != LU.shape[:-1]:
        raise ShapeError(f"linalg.lu_solve: the pivots {pivots} do not fit {LU}")
    return in_order(B, check_side("linalg.lu_solve", LU, B, left), left)


@op(name="linalg_ldl_factor_ex", method=False, module="linalg", returns=("LD", "pivots", "info"))
def ldl_factor_ex(A: Meta, *, hermitian: bool = False, check_errors: bool = False) -> tuple[Meta, Meta, Meta]:
    """Factor symmetric or Hermitian matrices into L @ D @ L.mT, compactly; ``info`` is not 0 where D is singular."""
    check_square("linalg.ldl_factor", A)
    return column_major(A), A.like(A.shape[:-1], int32), _info(A)


@op(name="linalg_ldl_factor", method=False, module="linalg", returns=("LD", "pivots"))
def ldl_factor(A: Meta, *, hermitian: bool = False) -> tuple[Meta, Meta]:
    """Factor symmetric or Hermitian matrices into L @ D @ L.mT, compactly."""
    check_square("linalg.ldl_factor", A)
    return column_major(A), A.like(A.shape[:-1], int32)


@op(name="linalg_ldl_solve", method=False, module="linalg", no_grad=("pivots",))
def ldl_solve(LD: Meta, pivots: Meta, B: Meta, *, hermitian: bool = False) -> Meta:
    """Solve systems of linear equations by an LDL factorization."""
    check_square("linalg.ldl_solve", LD)
    check_matrix("linalg.ldl_solve", B)
    if pivots.dtype.category != 1 or pivots.shape != LD.shape[:-1]:
        raise ShapeError(f"linalg.ldl_solve: the pivots {pivots} do not fit {LD}")
    return column_major(B, check_side("linalg.ldl_solve", LD, B, True))


@op(name="linalg_qr", method=False, module="linalg", returns=("Q", "R"))
def qr(A: Meta, mode: str = "reduced") -> tuple[Meta, Meta]:
    """Factor matrices into Q @ R, Q orthonormal and R upper triangular; ``mode`` is 'reduced', 'complete' or 'r'."""
    check_matrix("linalg.qr", A)
    check_floating("linalg.qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise ArgumentError(f"linalg.qr: mode must be 'reduced', 'complete' or 'r', not {mode!r}")
    (m, n), batch = A.shape[-2:], A.shape[:-2]
    k = m if mode == "complete" else min(m, n)
    return A.like((0,)) if mode == "r" else column_major(A, (*batch, m, k)), column_major(A, (*batch, k, n))


@op(returns=("a", "tau"))
def geqrf(input: Meta) -> tuple[Meta, Meta]:
    """Compute a QR factorization as LAPACK keeps it: R above the diagonal, and Householder reflectors below."""
    check_matrix("geqrf", input)
    check_floating("geqrf", input)
    return column_major(input), input.like((*input.shape[:-2], min(input.shape[-2:])))


def _check_reflectors(name: str, A: Meta, tau: Meta) -> None:
    check_matrix(name, A)
    check_floating(name, A, tau)
    if A.shape[-2] < A.shape[-1] or tau.ndim < 1 or A.shape[-1] < tau.shape[-1]:
        raise ShapeError(f"{name}: expected at least as many rows as columns, and as columns as scales: {A} and {tau}")
    if A.ndim - tau.ndim != 1 or A.shape[:-2] != tau.shape[:-1]:
        raise ShapeError(f"{name}: the scales {tau} do not have the batch of {A}")


@op(name="linalg_householder_product", method=False, module="linalg")
def householder_product(A: Meta, tau: Meta) -> Meta:
    """Compute the first columns of the product of Householder reflectors, as ``geqrf`` returns them."""
    _check_reflectors("linalg.householder_product", A, tau)
    return column_major(A)


@op(name="_householder_product", method=False, out=False)
def plain_householder_product(A: Meta, tau: Meta) -> Meta:
    """Compute ``linalg.householder_product`` without a derivative."""
    _check_reflectors("linalg.householder_product", A, tau)
    return column_major(A)


@op
def orgqr(input: Meta, tau: Meta) -> Meta:
    """Compute ``linalg.householder_product``."""
    _check_reflectors("orgqr", input, tau)
    return column_major(input)


@op(name="_ormqr", method=False, out=False)
def plain_ormqr(input: Meta, tau: Meta, other: Meta, left: bool, transpose: bool) -> Meta:
    """Compute ``ormqr`` without a derivative by ``input`` and ``tau``."""
    return ormqr.rule(input, tau, other, left, transpose)


@op
def ormqr(input: Meta, tau: Meta, other: Meta, left: bool = True, transpose: bool = False) -> Meta:
    """Multiply by the product of the Householder reflectors (input, tau), or its adjoint: Q @ other."""
    check_matrix("ormqr", input, other)
    check_floating("ormqr", input, tau, other)
    if tau.ndim != input.ndim - 1 or tau.shape[:-1] != input.shape[:-2] or input.ndim != other.ndim:
        raise ShapeError(f"ormqr: {input}, {tau} and {other} do not have the same batch")
    if tau.shape[-1] > min(input.shape[-2:]) or other.shape[-2 if left else -1] != input.shape[-2]:
        raise ShapeError(f"ormqr: {input}, {tau} and {other} do not fit")
    if other.shape[:-2] != input.shape[:-2]:
        raise ShapeError(f"ormqr: {input} and {other} do not have the same batch")
    return column_major(other)


@op
def cholesky_solve(B: Meta, L: Meta, upper: bool = False) -> Meta:
    """Solve A @ X = B given the Cholesky factor L of A."""
    check_square("cholesky_solve", L)
    check_matrix("cholesky_solve", B)
    if B.shape[-2] != L.shape[-1]:
        raise ShapeError(f"cholesky_solve: incompatible matrix sizes {B} and {L}")
    check_floating("cholesky_solve", B, L)
    return column_major(B, (*batch_of("cholesky_solve", B, L), *B.shape[-2:]))


@op
def cholesky_inverse(L: Meta, upper: bool = False) -> Meta:
    """Compute the inverse of A given its Cholesky factor L."""
    check_square("cholesky_inverse", L)
    return column_major(L)

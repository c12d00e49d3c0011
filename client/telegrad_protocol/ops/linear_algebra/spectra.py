"""Contracts of eigenvalues, eigenvectors and singular values, in ``linalg``."""

from __future__ import annotations

from telegrad_protocol.errors import ArgumentError
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.contract import op

from .matrices import check_floating, check_matrix, check_square, column_major, real_like


def _check_triangle(name: str, UPLO: str) -> None:
    if UPLO.upper() not in ("L", "U"):
        raise ArgumentError(f"{name}: UPLO must be 'L' or 'U', not {UPLO!r}")


@op(name="linalg_eigh", method=False, module="linalg", returns=("eigenvalues", "eigenvectors"))
def eigh(A: Meta, UPLO: str = "L") -> tuple[Meta, Meta]:
    """Compute eigenvalues, in ascending order, and eigenvectors of symmetric or Hermitian matrices."""
    check_square("linalg.eigh", A)
    _check_triangle("linalg.eigh", UPLO)
    return real_like(A, A.shape[:-1]), column_major(A)


@op(name="linalg_eigvalsh", method=False, module="linalg")
def eigvalsh(A: Meta, UPLO: str = "L") -> Meta:
    """Compute eigenvalues, in ascending order, of symmetric or Hermitian matrices."""
    check_square("linalg.eigvalsh", A)
    _check_triangle("linalg.eigvalsh", UPLO)
    return real_like(A, A.shape[:-1])


@op(name="_eigvalsh", method=False, out=False, differentiable=False)
def plain_eigvalsh(A: Meta, UPLO: str) -> Meta:
    """Compute ``linalg.eigvalsh`` without a derivative."""
    return eigvalsh.rule(A, UPLO)


@op(name="linalg_eig", method=False, module="linalg", returns=("eigenvalues", "eigenvectors"))
def eig(A: Meta) -> tuple[Meta, Meta]:
    """Compute eigenvalues and eigenvectors of square matrices, which are complex."""
    check_square("linalg.eig", A)
    dtype = A.dtype.to_complex() if not A.dtype.is_complex else A.dtype
    return A.like(A.shape[:-1], dtype), column_major(A.like(dtype=dtype))


@op(name="linalg_eigvals", method=False, module="linalg")
def eigvals(A: Meta) -> Meta:
    """Compute eigenvalues of square matrices, which are complex."""
    check_square("linalg.eigvals", A)
    return A.like(A.shape[:-1], A.dtype if A.dtype.is_complex else A.dtype.to_complex())


@op(name="_eigvals", method=False, out=False, differentiable=False)
def plain_eigvals(A: Meta) -> Meta:
    """Compute ``linalg.eigvals`` without a derivative."""
    return eigvals.rule(A)


def _check_driver(name: str, A: Meta, driver: str | None) -> None:
    check_matrix(name, A)
    check_floating(name, A)
    if driver is None:
        return
    if A.device.type == "cpu":
        raise ArgumentError(f"{name}: driver is only for CUDA tensors")
    if driver not in ("gesvd", "gesvdj", "gesvda"):
        raise ArgumentError(f"{name}: driver must be 'gesvd', 'gesvdj', 'gesvda' or None, not {driver!r}")


@op(name="linalg_svd", method=False, module="linalg", returns=("U", "S", "Vh"))
def svd(A: Meta, full_matrices: bool = True, *, driver: str | None = None) -> tuple[Meta, Meta, Meta]:
    """Factor matrices into U @ diag(S) @ Vh, with singular values S in descending order."""
    _check_driver("linalg.svd", A, driver)
    (m, n), batch = A.shape[-2:], A.shape[:-2]
    k = min(m, n)
    left, right = (m, n) if full_matrices else (k, k)
    return column_major(A, (*batch, m, left)), real_like(A, (*batch, k)), column_major(A, (*batch, right, n))


@op(name="linalg_svdvals", method=False, module="linalg")
def svdvals(A: Meta, *, driver: str | None = None) -> Meta:
    """Compute singular values of matrices in descending order."""
    _check_driver("linalg.svdvals", A, driver)
    return real_like(A, (*A.shape[:-2], min(A.shape[-2:])))


@op(name="_svdvals", method=False, out=False, differentiable=False)
def plain_svdvals(A: Meta) -> Meta:
    """Compute ``linalg.svdvals`` without a derivative."""
    return svdvals.rule(A)

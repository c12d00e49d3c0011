"""Eigenvalues, eigenvectors and singular values, with derivatives where they are distinct."""

from __future__ import annotations

from server.engine import functional as F
from server.engine.array_library.lapack import library_of
from server.engine.autograd.inplace import requires_grad
from server.engine.operators import OPERATORS, Single
from server.engine.ops.complex import conj
from server.engine.registry import comes_to, composite, implements
from telegrad_protocol.errors import LinearAlgebraError
from telegrad_protocol.ops.linear_algebra import spectra as ops

from .matrices import adjoint, check_info, diagonal


def _to(value, dtype):
    return value if value.dtype is dtype else F._to_copy(value, dtype=dtype)


def _over_gaps(numerator, values):
    """numerator[i, j] / (values[j] - values[i]), and 0 on the diagonal; infinite or NaN where values are equal."""
    gaps = F.unsqueeze(values, -2) - F.unsqueeze(values, -1)
    ones = F.diag_embed(F.ones_like(values))
    return (numerator - F.diag_embed(diagonal(numerator))) / (gaps + ones)


def _eigh_backward(eigenvalues, eigenvectors, grad_eigenvalues=None, grad_eigenvectors=None):
    V = eigenvectors
    on_diagonal = None if grad_eigenvalues is None else _to(grad_eigenvalues, V.dtype)
    if grad_eigenvectors is None:
        return F.matmul(V * F.unsqueeze(on_diagonal, -2), adjoint(V))
    projected = F.matmul(adjoint(V), grad_eigenvectors)
    inner = _over_gaps((projected - adjoint(projected)) * 0.5, eigenvalues)
    if on_diagonal is not None:
        inner = inner + F.diag_embed(on_diagonal)
    return F.matmul(V, F.matmul(inner, adjoint(V)))


def not_converged(info):
    """Why there are no eigenvalues."""
    return (
        "The algorithm failed to converge because the input matrix is ill-conditioned, has too many repeated "
        f"eigenvalues or non-finite values (error code: {info})"
    )


@implements(ops.eigh, A=_eigh_backward)
def eigh(xp, A, UPLO):
    values, vectors, info = library_of(xp).eigh(A, UPLO in "Uu", True)
    check_info(xp, "linalg.eigh", info, not_converged)
    return values, vectors


@implements(ops.plain_eigvalsh)
def plain_eigvalsh(xp, A, UPLO):
    values, _, info = library_of(xp).eigh(A, UPLO in "Uu", False)
    check_info(xp, "linalg.eigvalsh", info, not_converged)
    return values


@composite(ops.eigvalsh)
def eigvalsh(A, UPLO):
    return F.linalg_eigh(A, UPLO)[0] if requires_grad(A) else F._eigvalsh(A, UPLO)


@comes_to(ops.eigvalsh)
def _only_plain_eigvalsh(records, A, UPLO):
    return None if records else Single(OPERATORS["_eigvalsh"])


def _eig_backward(eigenvalues, eigenvectors, A_meta, grad_eigenvalues=None, grad_eigenvectors=None):
    """V^-H (diag(grad_L) + (V^H grad_V - V^H V Re(diag(V^H grad_V))) / conj(E)) V^H"""
    V = eigenvectors
    if grad_eigenvectors is None:
        inner = F.unsqueeze(grad_eigenvalues, -1) * adjoint(V)
    else:
        projected = F.matmul(adjoint(V), grad_eigenvectors)
        lengths = _to(F.real(diagonal(projected)), V.dtype)
        inner = _over_gaps(projected - F.matmul(adjoint(V), V * F.unsqueeze(lengths, -2)), conj(eigenvalues))
        if grad_eigenvalues is not None:
            inner = inner + F.diag_embed(grad_eigenvalues)
        inner = F.matmul(inner, adjoint(V))
    grad = F.linalg_solve(adjoint(V), inner)
    return grad if A_meta.dtype.is_complex else F.real(grad)


def _check_finite(xp, name, A):
    if not bool(xp.isfinite(A).all()):
        raise LinearAlgebraError(f"{name}: input tensor should not contain infs or NaNs")


@implements(ops.eig, A=_eig_backward)
def eig(xp, A):
    _check_finite(xp, "linalg.eig", A)
    values, vectors, info = library_of(xp).eig(A, True)
    check_info(xp, "linalg.eig", info, not_converged)
    return values, vectors


@implements(ops.plain_eigvals)
def plain_eigvals(xp, A):
    _check_finite(xp, "linalg.eigvals", A)
    values, _, info = library_of(xp).eig(A, False)
    check_info(xp, "linalg.eigvals", info, not_converged)
    return values


@composite(ops.eigvals)
def eigvals(A):
    return F.linalg_eig(A)[0] if requires_grad(A) else F._eigvals(A)


@comes_to(ops.eigvals)
def _only_plain_eigvals(records, A):
    return None if records else Single(OPERATORS["_eigvals"])


def _skew(matrix):
    return matrix - adjoint(matrix)


def _of_singular_values(grad_S, U, Vh):
    """U diag(grad_S) V^H, scaling the smaller of both"""
    if U.shape[-2] >= Vh.shape[-1]:
        return F.matmul(U, F.unsqueeze(grad_S, -1) * Vh)
    return F.matmul(U * F.unsqueeze(grad_S, -2), Vh)


def _svd_backward(U, S, Vh, grad_U=None, grad_S=None, grad_Vh=None):
    m, n, k = U.shape[-2], Vh.shape[-1], S.shape[-1]
    U, Vh = F.narrow(U, -1, 0, k), F.narrow(Vh, -2, 0, k)
    on_diagonal = None if grad_S is None else _to(grad_S, U.dtype)
    if grad_U is None and grad_Vh is None:
        return _of_singular_values(on_diagonal, U, Vh)
    grad_U = F.zeros_like(U) if grad_U is None else F.narrow(grad_U, -1, 0, k)
    grad_Vh = F.zeros_like(Vh) if grad_Vh is None else F.narrow(grad_Vh, -2, 0, k)
    S = _to(S, U.dtype)
    columns, rows = F.unsqueeze(S, -2), F.unsqueeze(S, -1)
    left, right = _skew(F.matmul(adjoint(U), grad_U)), _skew(F.matmul(Vh, adjoint(grad_Vh)))
    inner = _over_gaps(left * columns + rows * right, S * S)
    if on_diagonal is not None:
        inner = inner + F.diag_embed(on_diagonal)
    if U.dtype.is_complex:
        inner = inner + F.diag_embed(diagonal(left) / (2 * S))
    if m > k:
        scaled = grad_U / columns
        grad = F.matmul(U, inner) + scaled - F.matmul(U, F.matmul(adjoint(U), scaled))
        return F.matmul(grad, Vh)
    if n > k:
        scaled = grad_Vh / rows
        grad = F.matmul(inner, Vh) + scaled - F.matmul(F.matmul(scaled, adjoint(Vh)), Vh)
        return F.matmul(U, grad)
    return F.matmul(U, F.matmul(inner, Vh))


def svd_failed(info):
    """Why there are no singular values."""
    if info < 0:
        return "The algorithm failed to converge because the input matrix contained non-finite values"
    return not_converged(info)


@implements(ops.svd, A=_svd_backward)
def svd(xp, A, full_matrices, *, driver):
    U, S, Vh, info = library_of(xp).svd(A, full_matrices, True)
    check_info(xp, "linalg.svd", info, svd_failed)
    return U, S, Vh


@implements(ops.plain_svdvals)
def plain_svdvals(xp, A):
    _, S, _, info = library_of(xp).svd(A, False, False)
    check_info(xp, "linalg.svdvals", info, svd_failed)
    return S


@composite(ops.svdvals)
def svdvals(A, *, driver):
    return F.linalg_svd(A, False, driver=driver)[1] if requires_grad(A) else F._svdvals(A)


@comes_to(ops.svdvals)
def _only_plain_svdvals(records, A, driver):
    return None if records else Single(OPERATORS["_svdvals"], lambda args: args[:1])

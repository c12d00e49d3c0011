"""Linear algebra under the names that PyTorch had before ``linalg``."""

from __future__ import annotations

from server.engine import functional as F
from server.engine.registry import composite
from telegrad_protocol.ops.linear_algebra import legacy_linalg as ops

from .matrices import adjoint


@composite(ops.det)
def det(input):
    return F.linalg_det(input)


@composite(ops.slogdet)
def slogdet(input):
    return F.linalg_slogdet(input)


@composite(ops.inverse)
def inverse(input):
    return F.linalg_inv(input)


@composite(ops.pinverse)
def pinverse(input, rcond):
    return F.linalg_pinv(input, rcond)


@composite(ops.cholesky)
def cholesky(input, upper):
    return F.linalg_cholesky(input, upper=upper)


@composite(ops.qr)
def qr(input, some):
    return F.linalg_qr(input, "reduced" if some else "complete")


@composite(ops.svd)
def svd(input, some, compute_uv):
    if compute_uv:
        U, S, Vh = F.linalg_svd(input, not some)
        return U, S, adjoint(Vh)
    (m, n), batch = input.shape[-2:], input.shape[:-2]
    U, V = (F.zeros((*batch, size, size), dtype=input.dtype, device=input.device) for size in (m, n))
    return U, F.linalg_svdvals(input), V


@composite(ops.lu_solve)
def lu_solve(b, LU_data, LU_pivots):
    return F.linalg_lu_solve(LU_data, LU_pivots, b)


@composite(ops.lu_with_info)
def lu_with_info(input, pivot, check_errors):
    return F.linalg_lu_factor_ex(input, pivot=pivot, check_errors=check_errors)


@composite(ops.triangular_solve)
def triangular_solve(b, A, upper, transpose, unitriangular):
    matrix, is_upper = (F.transpose(A, -2, -1), not upper) if transpose else (A, upper)
    solution = F.linalg_solve_triangular(matrix, b, upper=is_upper, unitriangular=unitriangular)
    size = (*solution.shape[:-2], *A.shape[-2:])
    return solution, F._in_layout(F.expand(A, size), ops.column_major(A.meta, size).strides)


@composite(ops.vander)
def vander(x, N, increasing):
    count = x.shape[0] if N is None else N
    if not count or not x.numel:
        return F.zeros((x.shape[0], count), dtype=x.dtype if x.dtype.category >= 2 else ops.int64, device=x.device)
    powers = F.linalg_vander(x, N=max(count, 2))
    powers = F.narrow(powers, -1, 0, count)
    return powers if increasing else F.flip(powers, (-1,))


@composite(ops.frobenius_norm)
def frobenius_norm(input, dim, keepdim):
    return F.norm(input, 2, dim or None, keepdim)

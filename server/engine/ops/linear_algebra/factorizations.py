"""Factorizations of matrices by LAPACK or cuSOLVER; derivatives are compositions of differentiable operations."""

from __future__ import annotations

import math

import numpy as np

from server.engine import functional as F
from server.engine.array_library.lapack import library_of
from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS, Single
from server.engine.ops.complex import conj
from server.engine.registry import comes_to, composite, implements
from telegrad_protocol.errors import ArgumentError, NotSupportedError
from telegrad_protocol.ops.linear_algebra import factorizations as ops

from ..derivatives import not_differentiable
from .matrices import adjoint, check_info, diagonal, expanded, swapped

_CHOLESKY, _LU = OPERATORS["linalg_cholesky_ex"], OPERATORS["linalg_lu_factor_ex"]
_PLAIN_LU, _LDL = OPERATORS["_plain_lu"], OPERATORS["linalg_ldl_factor_ex"]


def _cholesky_backward(grad_L, L, upper):
    """L^-H phi(L^H grad_L) L^-1, where phi takes the Hermitian part of the lower triangle"""
    if upper:
        L, grad_L = adjoint(L), adjoint(grad_L)
    below = F.tril(F.matmul(adjoint(L), grad_L), -1)
    on_diagonal = F.sum(conj(L) * grad_L, -2)  # the diagonal of L^H grad_L
    real = F.real(on_diagonal) if on_diagonal.dtype.is_complex else on_diagonal
    inner = (below + adjoint(below) + F.diag_embed(F._to_copy(real, dtype=L.dtype))) * 0.5
    half = F.linalg_solve_triangular(adjoint(L), inner, upper=True)
    return F.linalg_solve_triangular(L, half, upper=False, left=False)


def not_positive(info):
    """Why a matrix has no Cholesky factor."""
    return (
        "The factorization could not be completed because the input is not positive-definite "
        f"(the leading minor of order {info} is not positive-definite)"
    )


@implements(ops.cholesky_ex, A=_cholesky_backward)
def cholesky_ex(xp, A, *, upper, check_errors):
    factor, info = library_of(xp).cholesky(A, upper)
    if check_errors:
        check_info(xp, "linalg.cholesky", info, not_positive)
    return factor, info


@composite(ops.cholesky)
def cholesky(A, *, upper):
    return dispatch(_CHOLESKY, (A, upper, True))[0]


@comes_to(ops.cholesky)
def _only_cholesky_ex(records, A, upper):
    return Single(_CHOLESKY, lambda args: (*args, True), 0)


def _split(LU):
    """The unit lower and the upper triangular matrix of a compact factorization."""
    m, n = LU.shape[-2:]
    k = min(m, n)
    lower = F.tril(F.narrow(LU, -1, 0, k), -1) + F.eye(m, k, dtype=LU.dtype, device=LU.device)
    return lower, F.triu(F.narrow(LU, -2, 0, k))


def _unpacked(LU):
    """The same in row-major memory."""
    return tuple(map(F.contiguous, _split(LU)))


def _lu_backward(grad_LU, LU, pivots, pivot):
    """The gradient of A, which is P L U, by what L and U are packed into."""
    m, n = LU.shape[-2:]
    k = min(m, n)
    block = _factors_backward(F.narrow(grad_LU, -1, 0, k), F.narrow(grad_LU, -2, 0, k), *_split(LU))
    return F.matmul(F._permutation(pivots, LU, m), block) if pivot else block


def _factors_backward(lower, upper, L, U):
    """The gradient of L U: that of square matrices for the leading block, and what the rest adds to it."""
    (m, k), n = L.shape[-2:], U.shape[-1]
    L1, U1 = F.narrow(L, -2, 0, k), F.narrow(U, -1, 0, k)
    gL1, gU1 = F.tril(F.narrow(lower, -2, 0, k), -1), F.triu(F.narrow(upper, -1, 0, k))
    below, above = F.matmul(adjoint(L1), gL1), F.matmul(gU1, adjoint(U1))
    if m > n:
        gL2 = F.narrow(lower, -2, k, m - k)
        above = above - F.matmul(adjoint(F.narrow(L, -2, k, m - k)), gL2)
    if n > m:
        gU2 = F.narrow(upper, -1, k, n - k)
        below = below - F.matmul(gU2, adjoint(F.narrow(U, -1, k, n - k)))
    block = F.linalg_solve_triangular(adjoint(L1), F.tril(below, -1) + F.triu(above), upper=True, unitriangular=True)
    if m > n:
        block = F.cat([block, gL2], -2)
    block = F.linalg_solve_triangular(adjoint(U1), block, upper=False, left=False)
    if n > m:
        rest = F.linalg_solve_triangular(adjoint(L1), gU2, upper=True, unitriangular=True)
        block = F.cat([block, rest], -1)
    return block


def zero_pivot(info):
    """Why an LU factorization cannot be used."""
    return f"U[{info},{info}] is zero and using it on lu_solve would result in a division by zero"


@implements(ops.lu_factor_ex, A=_lu_backward)
def lu_factor_ex(xp, A, *, pivot, check_errors):
    factor, pivots, info = library_of(xp).lu_factor(A, pivot)
    if check_errors:
        check_info(xp, "linalg.lu_factor", info, zero_pivot)
    return factor, pivots, info


@composite(ops.lu_factor)
def lu_factor(A, *, pivot):
    return dispatch(_LU, (A, pivot, True))[:2]


@comes_to(ops.lu_factor)
def _only_lu_factor_ex(records, A, pivot):
    return Single(_LU, lambda args: (*args, True), slice(2))


@composite(ops.lu)
def lu(A, *, pivot):
    if A.device.type == "cpu":
        return dispatch(_PLAIN_LU, (A, pivot))
    LU, pivots, _ = F.linalg_lu_factor_ex(A, pivot=pivot)
    permutation = F._permutation(pivots, LU, A.shape[-2]) if pivot else _nothing(LU)
    return permutation, *_unpacked(LU)


@comes_to(ops.lu)
def _only_plain_lu(records, A, pivot):
    return Single(_PLAIN_LU) if A.device.type == "cpu" else None


def _plain_lu_backward(grad_L, grad_U, P, L, U, pivot):
    block = _factors_backward(grad_L, grad_U, L, U)
    return F.matmul(P, block) if pivot else block


@implements(ops.plain_lu, A=_plain_lu_backward)
def plain_lu(xp, A, pivot):
    m, n = A.shape[-2:]
    k = min(m, n)
    LU, pivots, _ = library_of(xp).lu_factor(A, pivot)
    rows = permutation(xp, pivots, LU, m) if pivot else xp.empty((0,), A.dtype)
    return rows, xp.tril(LU[..., :k], -1) + xp.eye(m, k, dtype=A.dtype), xp.triu(LU[..., :k, :])


def _nothing(like):
    return F.empty((0,), dtype=like.dtype, device=like.device)


@composite(ops.lu_unpack)
def lu_unpack(LU_data, LU_pivots, unpack_data, unpack_pivots):
    nothing = _nothing(LU_data)
    permutation = F._permutation(LU_pivots, LU_data, LU_data.shape[-2]) if unpack_pivots else nothing
    return permutation, *(_unpacked(LU_data) if unpack_data else (nothing, nothing))


_MATRICES_IN_TURN = 64
"""Up to so many matrices, numbers of rows are exchanged in lists of each."""


@implements(ops.permutation)
def permutation(xp, pivots, like, size):
    """The rows of the identity, exchanged one after the other."""
    count = math.prod(pivots.shape[:-1])
    flat = pivots.reshape(count, pivots.shape[-1])
    if xp is np and flat.size and not (flat.min() >= 1 and flat.max() <= size):
        raise ArgumentError(f"pivots are numbers of rows, from 1 to {size}")
    in_turn = xp is np and count <= _MATRICES_IN_TURN
    order = _orders_in_turn(flat, size) if in_turn else _orders_at_once(xp, flat, size)
    matrices = xp.zeros((count, size, size), like.dtype)
    matrices[xp.arange(count)[:, None], order, xp.arange(size)[None, :]] = 1
    return matrices.reshape(*pivots.shape[:-1], size, size)


def _orders_in_turn(pivots, size):
    """The numbers of rows after all exchanges."""
    orders = np.empty((len(pivots), size), np.int64)
    for number, rows in enumerate(pivots.tolist()):
        order = list(range(size))
        for row, other in enumerate(rows):
            order[row], order[other - 1] = order[other - 1], order[row]
        orders[number] = order
    return orders


def _orders_at_once(xp, pivots, size):
    """The same, in all matrices at once."""
    order = xp.empty((len(pivots), size), np.int64)
    order[...] = xp.arange(size)
    numbers = xp.arange(len(pivots))
    for row in range(pivots.shape[1]):
        other = pivots[:, row] - 1
        first, second = order[:, row].copy(), order[numbers, other].copy()
        order[:, row], order[numbers, other] = second, first
    return order


def checked_pivots(xp, pivots, size):
    """The numbers of rows that were exchanged, of which none may be outside of the matrix: LAPACK does not look.

    On a GPU, where to look at them would be to wait, those outside are replaced.
    """
    if xp is not np:
        return xp.clip(pivots, 1, size)
    if pivots.size and np.maximum.reduce((pivots - 1).view(np.uint32), axis=None) >= size:
        raise ArgumentError(
            f"linalg.lu_solve: pivots must be numbers of rows, from 1 to {size}: did you pass what lu_factor returned?"
        )
    return pivots


def check_pivots_in_pairs(xp, pivots, size):
    """Refuse pivots of LDL that are outside of the matrix, and a single negative one: those of blocks come in pairs."""
    if not _come_in_pairs((pivots if xp is np else pivots.get()).reshape(-1, size), size):
        raise ArgumentError(
            f"linalg.ldl_solve: pivots must be numbers of rows, up to {size} and negative in pairs: did you pass "
            "what ldl_factor returned?"
        )


def _come_in_pairs(pivots, size):
    """Whether pivots are numbers of rows, and as many as are negative before one that is not, and in all, are even."""
    rows = np.abs(pivots)
    if rows.min() < 1 or rows.max() > size:
        return False
    is_negative = pivots < 0
    if not is_negative.any():
        return True
    odd = np.add.accumulate(is_negative, axis=1, dtype=np.int32) & 1
    return not ((odd & ~is_negative).any() or odd[:, -1].any())


def _lu_solve_B(grad, LU, pivots, left, adjoint):
    return F.linalg_lu_solve(LU, pivots, grad, left=left, adjoint=not adjoint)


_adjoint_of = adjoint


def _lu_solve_LU(grad, LU, pivots, out, left, adjoint):
    """The gradient of A = P L U, from which those of L and U follow."""
    side = _lu_solve_B(grad, LU, pivots, left, adjoint)
    first, second = (side, out) if left else (out, side)
    if not left:
        of_A = -F.matmul(_adjoint_of(first), second)
    else:
        of_A = -F.matmul(first, _adjoint_of(second))
    if adjoint:
        of_A = _adjoint_of(of_A)
    L, U = _split(LU)
    permuted = F.matmul(_adjoint_of(F._permutation(pivots, LU, LU.shape[-1])), of_A)
    return F.tril(F.matmul(permuted, _adjoint_of(U)), -1) + F.triu(F.matmul(_adjoint_of(L), permuted))


@implements(ops.lu_solve, LU=_lu_solve_LU, B=_lu_solve_B)
def lu_solve(xp, LU, pivots, B, *, left, adjoint):
    if not left:  # X A = B is A^H X^H = B^H
        B = swapped(B).conj()
    LU, B = expanded(xp, LU, B)
    rows = xp.broadcast_to(checked_pivots(xp, pivots, LU.shape[-1]), LU.shape[:-1])
    solved = library_of(xp).lu_solve(LU, rows, B, adjoint == left)
    return solved if left else swapped(solved).conj()


@implements(ops.ldl_factor_ex, A=not_differentiable("linalg.ldl_factor", "A"))
def ldl_factor_ex(xp, A, *, hermitian, check_errors):
    factor, pivots, info = library_of(xp).ldl_factor(A, hermitian)
    if check_errors:
        check_info(xp, "linalg.ldl_factor", info, lambda row: f"D[{row},{row}] is zero: the matrix is singular")
    return factor, pivots, info


@composite(ops.ldl_factor)
def ldl_factor(A, *, hermitian):
    return dispatch(_LDL, (A, hermitian, True))[:2]


@comes_to(ops.ldl_factor)
def _only_ldl_factor_ex(records, A, hermitian):
    return Single(_LDL, lambda args: (*args, True), slice(2))


@implements(
    ops.ldl_solve,
    LD=not_differentiable("linalg.ldl_solve", "LD"),
    B=not_differentiable("linalg.ldl_solve", "B"),
)
def ldl_solve(xp, LD, pivots, B, *, hermitian):
    if pivots.size:
        check_pivots_in_pairs(xp, pivots, LD.shape[-1])
    LD, B = expanded(xp, LD, B)
    return library_of(xp).ldl_solve(LD, xp.broadcast_to(pivots, LD.shape[:-1]), B, hermitian)


def _inverse_projection(matrix):
    """X + X^H with half of its diagonal: the adjoint of what takes an upper triangle with a real diagonal"""
    total = matrix + adjoint(matrix)
    return total - F.diag_embed(diagonal(total) * 0.5)


def _qr_backward(grad_Q, grad_R, Q, R, A_meta, mode):
    m, n = A_meta.shape[-2:]
    if mode == "r":
        raise NotSupportedError("linalg.qr: the derivative is not implemented for mode='r', which computes no Q")
    if mode == "complete" and m > n:
        raise NotSupportedError("linalg.qr: the derivative is not implemented for mode='complete' and tall matrices")
    if m < n:  # A2 = Q R2
        grad_R, other = F.narrow(grad_R, -1, 0, m), F.narrow(grad_R, -1, m, n - m)
        right = F.matmul(Q, F.narrow(R, -1, m, n - m))
        grad_Q = grad_Q + F.matmul(right, adjoint(other))
        R = F.narrow(R, -1, 0, m)
    inner = F.matmul(grad_R, adjoint(R)) - F.matmul(adjoint(Q), grad_Q)
    total = grad_Q + F.matmul(Q, _inverse_projection(F.triu(inner)))
    leading = F.linalg_solve_triangular(adjoint(R), total, upper=False, left=False)
    return leading if m >= n else F.cat([leading, F.matmul(Q, other)], -1)


@implements(ops.qr, A=_qr_backward)
def qr(xp, A, mode):
    m, n = A.shape[-2:]
    if mode == "r":
        return xp.empty((0,), A.dtype), library_of(xp).qr(A, None)[1]
    return library_of(xp).qr(A, m if mode == "complete" else min(m, n))


def _factor_gradient(symmetric, L, upper):
    """The gradient of L, none of whose elements counts as 0, given that of A = L L^H."""
    total = symmetric + adjoint(symmetric)
    return -F.matmul(L, total) if upper else -F.matmul(total, L)


def _cholesky_solve_B(grad, L, upper):
    return F.cholesky_solve(grad, L, upper)


def _cholesky_solve_both(grad, L, out, upper, wanted):
    side = _cholesky_solve_B(grad, L, upper)
    return side, _factor_gradient(F.matmul(side, adjoint(out)), L, upper)


def _cholesky_solve_L(grad, L, out, upper):
    return _cholesky_solve_both(grad, L, out, upper, None)[1]


@implements(ops.cholesky_solve, B=_cholesky_solve_B, L=_cholesky_solve_L, together=_cholesky_solve_both)
def cholesky_solve(xp, B, L, upper):
    L, B = expanded(xp, L, B)
    return library_of(xp).cholesky_solve(L, B, upper)


def _cholesky_inverse_backward(grad, L, out, upper):
    return _factor_gradient(F.matmul(out, F.matmul(grad, out)), L, upper)


@implements(ops.cholesky_inverse, L=_cholesky_inverse_backward)
def cholesky_inverse(xp, L, upper):
    identity = xp.broadcast_to(xp.eye(L.shape[-1], dtype=L.dtype), L.shape)
    return library_of(xp).cholesky_solve(L, identity, upper)

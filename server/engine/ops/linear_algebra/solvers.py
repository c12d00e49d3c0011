"""Systems of linear equations, inverses, determinants and least squares."""

from __future__ import annotations

import numpy as np

from server.engine import functional as F
from server.engine.array_library.lapack import library_of
from server.engine.autograd.inplace import requires_grad
from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS, Single
from server.engine.ops.complex import conj
from server.engine.registry import comes_to, composite, implements
from server.engine.value import Value
from telegrad_protocol.ops.linear_algebra import solvers as ops

from .matrices import adjoint, check_info, expanded, swapped
from .spectra import not_converged, svd_failed

_SOLVE, _INV = OPERATORS["_linalg_solve"], OPERATORS["linalg_inv_ex"]


def _solve_backward_B(grad_result, A, left):
    return F._linalg_solve(adjoint(A), grad_result, left, False)[0]


def _solve_backward_A(grad_result, A, B_meta, result, left):
    return _solve_backward(grad_result, A, B_meta, result, left, None)[0]


def _solve_backward(grad_result, A, B_meta, result, left, wanted):
    """Both gradients, of which that of A needs that of B."""
    side = _solve_backward_B(grad_result, A, left)
    if ops.is_vector(A.meta, B_meta):
        return -F.mul(F.unsqueeze(side, -1), F.unsqueeze(conj(result), -2)), side
    return -F.matmul(side, adjoint(result)) if left else -F.matmul(adjoint(result), side), side


def singular(info):
    """Why a system has no solution."""
    return "The solver failed because the input matrix is singular"


@implements(ops.plain_solve, A=_solve_backward_A, B=_solve_backward_B, together=_solve_backward)
def plain_solve(xp, A, B, left, check_errors):
    if ops.is_vector(A, B):
        result, info = plain_solve(xp, A, B[..., None], left, check_errors)
        return result[..., 0], info
    A, B = expanded(xp, A, B)
    result, info = library_of(xp).solve(A, B) if left else library_of(xp).solve(swapped(A), swapped(B))
    if check_errors:
        check_info(xp, "linalg.solve", info, singular)
    return (result if left else swapped(result)), info


@composite(ops.solve_ex)
def solve_ex(A, B, *, left, check_errors):
    return dispatch(_SOLVE, (A, B, left, check_errors))


@comes_to(ops.solve_ex)
def _only_plain_solve_ex(records, A, B, left, check_errors):
    return Single(_SOLVE)


@composite(ops.solve)
def solve(A, B, *, left):
    return dispatch(_SOLVE, (A, B, left, True))[0]


@comes_to(ops.solve)
def _only_plain_solve(records, A, B, left):
    return Single(_SOLVE, lambda args: (*args, True), 0)


def _triangle(matrix, upper, unitriangular):
    if upper:
        return F.triu(matrix, 1 if unitriangular else 0)
    return F.tril(matrix, -1 if unitriangular else 0)


def _triangular_B(grad, A, upper, left, unitriangular):
    return F.linalg_solve_triangular(adjoint(A), grad, upper=not upper, left=left, unitriangular=unitriangular)


def _triangular_A(grad, A, out, upper, left, unitriangular):
    return _triangular_both(grad, A, out, upper, left, unitriangular, None)[0]


def _triangular_both(grad, A, out, upper, left, unitriangular, wanted):
    side = _triangular_B(grad, A, upper, left, unitriangular)
    product = F.matmul(side, adjoint(out)) if left else F.matmul(adjoint(out), side)
    return _triangle(-product, upper, unitriangular), side


@implements(ops.solve_triangular, A=_triangular_A, B=_triangular_B, together=_triangular_both)
def solve_triangular(xp, A, B, *, upper, left, unitriangular):
    A, B = expanded(xp, A, B)
    if left:
        return library_of(xp).solve_triangular(A, B, upper, unitriangular)
    return swapped(library_of(xp).solve_triangular(swapped(A), swapped(B), not upper, unitriangular))


def not_invertible(info):
    """Why a matrix has no inverse."""
    reason = "the inversion could not be completed because the input matrix is singular"
    return f"The diagonal element {info} is zero, {reason}"


def _inv_backward(grad_inverse, inverse):
    return -F.matmul(adjoint(inverse), F.matmul(grad_inverse, adjoint(inverse)))


@implements(ops.inv_ex, A=_inv_backward)
def inv_ex(xp, A, *, check_errors):
    inverse, info = library_of(xp).inv(A)
    if check_errors:
        check_info(xp, "linalg.inv", info, not_invertible)
    return inverse, info


@composite(ops.inv)
def inv(A):
    return dispatch(_INV, (A, True))[0]


@comes_to(ops.inv)
def _only_inv_ex(records, A):
    return Single(_INV, lambda args: (*args, True), 0)


def _per_matrix(value):
    return F.unsqueeze(F.unsqueeze(value, -1), -1)


@implements(ops.det, A=lambda grad, A: _per_matrix(grad) * conj(F._cofactors(A)))
def det(xp, A):
    return library_of(xp).det(A)


def _cofactors_backward(grad, A):
    """The derivative of det(A) A^-T, where A is regular; the cofactor of a number is 1."""
    if A.shape[-1] == 1:
        return F.zeros_like(A)
    inverse, _ = F.linalg_inv_ex(A)
    determinant = F.linalg_det(A)
    of_determinant = F.sum(grad * conj(F.transpose(inverse, -2, -1)), (-2, -1))
    of_inverse = F.transpose(grad * _per_matrix(conj(determinant)), -2, -1)
    through = _per_matrix(of_determinant) * conj(F._cofactors(A))
    return through - F.matmul(adjoint(inverse), F.matmul(of_inverse, adjoint(inverse)))


@implements(ops.cofactors, A=_cofactors_backward)
def cofactors(xp, A):
    """det(A) A^-T; for singular matrices by singular values, leaving one out at a time."""
    library = library_of(xp)
    inverse, info = library.inv(A)
    result = swapped(inverse) * library.det(A)[..., None, None]
    if not A.size or not bool(xp.any(info)):
        return result
    U, S, Vh, _ = library.svd(A, True, True)
    size = S.shape[-1]
    others = xp.repeat(S[..., None, :], size, -2)
    others[..., xp.arange(size), xp.arange(size)] = 1
    sign = (library.det(U) * library.det(Vh))[..., None]
    adjugate = (swapped(Vh).conj() * (sign * xp.prod(others, -1))[..., None, :]) @ swapped(U).conj()
    return xp.where((info != 0)[..., None, None], swapped(adjugate), result).astype(A.dtype, copy=False)


def _slogdet_backward(grad_logabsdet, A, sign, grad_sign=None):
    """The gradient of log(det(A)) is A^-H; the sign turns with its imaginary part."""
    factor = grad_logabsdet
    if A.dtype.is_complex and grad_sign is not None:
        factor = F.complex(grad_logabsdet, F.imag(grad_sign * conj(sign)))
    return _per_matrix(factor) * adjoint(F.linalg_inv_ex(A)[0])


@implements(ops.slogdet, A=_slogdet_backward)
def slogdet(xp, A):
    return library_of(xp).slogdet(A)


@composite(ops.logdet)
def logdet(input):
    sign, logarithm = F.linalg_slogdet(input)
    if input.dtype.is_complex:
        return F.log(sign) + logarithm
    return F.where(F.eq(sign, -1), float("nan"), logarithm)


def _pinv_backward(grad, A, pinv):
    """The derivative of the pseudo-inverse of matrices whose rank does not change."""
    m, n = A.shape[-2:]
    pinv_adjoint, grad_adjoint = adjoint(pinv), adjoint(grad)
    if m <= n:
        K = F.matmul(grad_adjoint, pinv)
        through = F.matmul(K, pinv_adjoint)
        rest = F.matmul(F.matmul(pinv_adjoint, pinv), grad_adjoint - F.matmul(K, A))
        return -adjoint(F.matmul(pinv, K)) + through - F.matmul(F.matmul(A, pinv), through) + rest
    K = F.matmul(pinv, grad_adjoint)
    through = F.matmul(pinv_adjoint, K)
    rest = F.matmul(F.matmul(grad_adjoint - F.matmul(A, K), pinv), pinv_adjoint)
    return -adjoint(F.matmul(K, pinv)) + rest + through - F.matmul(F.matmul(through, pinv), A)


def _column(like, tolerance):
    """A tolerance beside rows of singular values, in their type."""
    return like.dtype.type(tolerance) if isinstance(tolerance, (int, float)) else tolerance[..., None]


@implements(ops.plain_pinv, A=lambda grad, A, out: _pinv_backward(grad, A, out))
def plain_pinv(xp, A, atol, rtol, hermitian):
    library = library_of(xp)
    if not A.size:
        return xp.zeros((*A.shape[:-2], A.shape[-1], A.shape[-2]), A.dtype)
    if hermitian:
        values, vectors, info = library.eigh(A, False, True)
        check_info(xp, "linalg.pinv", info, not_converged)
        size, left, right = xp.abs(values), vectors, swapped(vectors).conj()
    else:
        left, values, right, info = library.svd(A, False, True)
        check_info(xp, "linalg.pinv", info, svd_failed)
        left, right, size = swapped(right).conj(), swapped(left).conj(), values
    cutoff = xp.maximum(_column(size, atol), _column(size, rtol) * size.max(-1, keepdims=True))
    inverse = xp.where(size > cutoff, 1 / xp.where(size > cutoff, values, 1), 0)
    return ((left * inverse[..., None, :].astype(A.dtype)) @ right).astype(A.dtype, copy=False)


def _usual_tolerance(A):
    return max(A.shape[-2:]) * float(np.finfo(A.dtype.to_real().name).eps)


def number_tolerances(A, atol, rtol):
    """Both tolerances where they are numbers, else None: as ``tolerances`` has them."""
    if not all([each is None or isinstance(each, (int, float)) for each in (atol, rtol)]):
        return None
    absolute = float(atol or 0)
    if rtol is not None:
        return absolute, float(rtol)
    return absolute, 0.0 if absolute > 0 else _usual_tolerance(A)


def tolerances(A, atol, rtol):
    """Both tolerances as values; what is not given is 0, but the relative one is the usual if both are missing or 0."""
    real = A.dtype.to_real()
    usual = _usual_tolerance(A)

    def as_value(tolerance):
        if tolerance.__class__ is Value:
            return F._to_copy(tolerance, dtype=real, device=A.device)
        return F.full((), float(tolerance), dtype=real, device=A.device)

    absolute = as_value(0.0 if atol is None else atol)
    if rtol is not None:
        return absolute, as_value(rtol)
    if atol is None:
        return absolute, as_value(usual)
    return absolute, F.where(absolute > 0, 0.0, F.full_like(absolute, usual))


@composite(ops.pinv_tolerances)
def pinv_tolerances(A, *, atol, rtol, hermitian):
    return F._linalg_pinv(A, *(number_tolerances(A, atol, rtol) or tolerances(A, atol, rtol)), hermitian)


@comes_to(ops.pinv_tolerances)
def _only_plain_pinv(records, A, atol, rtol, hermitian):
    numbers = number_tolerances(A, atol, rtol)
    return numbers and Single(OPERATORS["_linalg_pinv"], lambda args: (args[0], *numbers, hermitian))


@composite(ops.pinv)
def pinv(A, rcond, hermitian):
    return F._linalg_pinv(A, *(number_tolerances(A, 0.0, rcond) or tolerances(A, 0.0, rcond)), hermitian)


@comes_to(ops.pinv)
def _only_plain_pinv_of_rcond(records, A, rcond, hermitian):
    return _only_plain_pinv(records, A, 0.0, rcond, hermitian)


def _lstsq_B(grad_solution, A):
    return F.matmul(adjoint(F.linalg_pinv(A)), grad_solution)


def _lstsq_A(grad_solution, A, B):
    return _pinv_backward(F.matmul(grad_solution, adjoint(B)), A, F.linalg_pinv(A))


def not_of_full_rank(info):
    """Why the driver ``gels`` has no solution."""
    return (
        "The least squares solution could not be computed because the input matrix does not have full rank "
        f"(error code: {info}); the other drivers compute the smallest solution"
    )


@implements(ops.plain_lstsq, A=_lstsq_A, B=_lstsq_B)
def plain_lstsq(xp, A, B, rcond, driver):
    solution, rank, singular, info = library_of(xp).lstsq(A, B, rcond, driver)
    if info is not None:
        check_info(xp, "linalg.lstsq", info, not_of_full_rank)
    nothing = xp.empty((0,), np.int64), xp.empty((0,), singular.dtype)
    return solution, rank if driver != "gels" else nothing[0], singular if driver in ("gelsd", "gelss") else nothing[1]


@implements(ops.lstsq_plain)
def lstsq_plain(xp, A, B, rcond, driver):
    is_vectors, (m, n) = B.ndim < A.ndim, A.shape[-2:]
    driver = driver or ("gelsy" if xp is np else "gels")
    sides = B[..., None] if is_vectors else B
    cutoff = least_squares_cutoff(A.shape, A.dtype, rcond)
    solution, rank, singular = plain_lstsq(xp, A, sides, cutoff, driver)
    residuals = xp.empty((0,), A.real.dtype)
    if m > n and driver != "gelsy" and not A.size:
        residuals = xp.zeros((*A.shape[:-2], sides.shape[-1]), A.real.dtype)
    elif m > n and driver != "gelsy":
        residuals = xp.square(xp.abs(A @ solution - sides)).sum(-2)
    return solution[..., 0] if is_vectors else solution, residuals, rank, singular


def least_squares_cutoff(shape, dtype, rcond):
    """Beside the largest of singular values, what counts as 0."""
    return float(np.finfo(dtype).eps) * max(shape[-2:]) if rcond is None else rcond


@comes_to(ops.lstsq)
def _only_plain_lstsq(records, A, B, rcond, driver):
    one_batch = A.shape[:-1] == B.shape or (A.ndim == B.ndim and A.shape[:-2] == B.shape[:-2])
    plain = not records and A.device.type == "cpu" and one_batch
    return Single(OPERATORS["_linalg_lstsq_plain"]) if plain else None


@composite(ops.lstsq)
def lstsq(A, B, rcond, *, driver):
    if _only_plain_lstsq(requires_grad(A) or requires_grad(B), A.meta, B.meta, rcond, driver):
        return F._linalg_lstsq_plain(A, B, rcond, driver)
    chosen, is_vectors = ops.check_least_squares(A.meta, B.meta, driver)
    sides = F.unsqueeze(B, -1) if is_vectors else B
    batch = ops.broadcast_shapes("linalg.lstsq", A.shape[:-2], sides.shape[:-2])
    m, n = A.shape[-2:]
    spread, sides = F.expand(A, (*batch, m, n)), F.expand(sides, (*batch, *sides.shape[-2:]))
    cutoff = least_squares_cutoff(A.shape, A.dtype.to_real().name, rcond)
    solution, rank, singular = F._linalg_lstsq(spread, sides, cutoff, chosen)
    if m > n and chosen != "gelsy":
        difference = F.abs(F.matmul(spread, solution) - sides)
        residuals = F.sum(F.square(difference), -2)
    else:
        residuals = F.abs(F.narrow(F.reshape(solution, (solution.numel,)), 0, 0, 0))
    rank, singular = (_of_first(result, A.shape[:-2], batch) for result in (rank, singular))
    return F.squeeze(solution, -1) if is_vectors else solution, residuals, rank, singular


def _of_first(result, own_batch, batch):
    """Return of results of repeated matrices those of the first of each; empty results have no batch."""
    repeated = [dim for dim, size in enumerate(own_batch) if size != batch[dim]]
    if not repeated or result.shape == (0,):
        return result
    for dim in repeated:
        result = F.narrow(result, dim, 0, 1)
    return F.clone(result)

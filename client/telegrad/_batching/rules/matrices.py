"""Linear algebra: its operations take any number of dimensions before those of a matrix."""

from __future__ import annotations

from typing import Any

from ..case import Case, Operand, enter, rule


def _each_matrix(case: Case) -> Any:
    """Call the operation on operands whose dimensions before the last two broadcast."""
    operands = case.operands()
    ndim = max([operand.ndim for operand in operands])
    return case.call(*[_aligned(value, ndim, 2) for value in case.args])


def _aligned(value: Any, ndim: int, core: int) -> Any:
    return value.padded(ndim, core) if isinstance(value, Operand) else value


enter(
    _each_matrix,
    (
        "linalg_cholesky_ex", "linalg_cholesky", "cholesky", "linalg_lu_factor_ex", "linalg_lu_factor", "linalg_lu",
        "linalg_ldl_factor_ex", "linalg_ldl_factor", "linalg_qr", "geqrf", "cholesky_inverse", "linalg_eigh",
        "linalg_eigvalsh", "_eigvalsh", "linalg_eig", "linalg_eigvals", "_eigvals", "linalg_svd", "linalg_svdvals",
        "_svdvals", "linalg_inv_ex", "linalg_inv", "linalg_det", "_cofactors", "linalg_slogdet", "logdet",
        "matrix_power", "linalg_matrix_power", "matrix_exp", "linalg_matrix_exp", "det", "slogdet", "inverse",
        "pinverse", "qr", "svd", "cholesky_solve", "linalg_solve_triangular", "triangular_solve",
        "_lu_with_info",
    ),
)  # fmt: skip


@rule("_linalg_lstsq")
def _least_squares(case: Case) -> Any:
    return case.shaped(_each_matrix(case))


@rule("linalg_vander")
def _vander(case: Case) -> Any:
    return case.shaped(case.call(case.args[0].front, *case.args[1:]))


@rule("linalg_pinv", "linalg_matrix_rank", "_linalg_pinv")
def _with_tolerances(case: Case) -> Any:
    x, *rest = case.args
    if any([isinstance(value, Operand) for value in rest]):
        return NotImplemented
    return case.call(x.front, *rest)


@rule("linalg_solve", "linalg_solve_ex", "_linalg_solve")
def _solve(case: Case) -> Any:
    a, b, *rest = case.args
    is_vector = b.ndim == 1 or (a.ndim - 1 == b.ndim and b.shape == a.shape[:-1])
    matrices, sides = a.front, b.front.unsqueeze(-1) if is_vector else b.front
    ndim = max(matrices.ndim, sides.ndim)
    given = [t.reshape(case.size, *(1,) * (ndim - t.ndim), *t.shape[1:]) for t in (matrices, sides)]
    if is_vector and case.named("left") is False:
        return NotImplemented
    result = case.call(*given, *rest)
    if not is_vector:
        return result
    if isinstance(result, tuple):
        parts = [result[0].squeeze(-1), *result[1:]]
        return result._make(parts) if hasattr(result, "_make") else tuple(parts)
    return result.squeeze(-1)


@rule("linalg_lu_solve", "linalg_ldl_solve")
def _solve_factored(case: Case) -> Any:
    factors, pivots, b, *rest = case.args
    ndim = max(factors.ndim, b.ndim)
    return case.call(factors.padded(ndim, 2), pivots.padded(ndim - 1, 1), b.padded(ndim, 2), *rest)


@rule("linalg_householder_product", "orgqr", "_householder_product", "lu_unpack")
def _with_vector(case: Case) -> Any:
    matrix, vector, *rest = case.args
    return case.call(matrix.front, vector.front, *rest)


@rule("ormqr")
def _ormqr(case: Case) -> Any:
    matrix, vector, other, *rest = case.args
    return case.call(matrix.front, vector.front, other.front, *rest)

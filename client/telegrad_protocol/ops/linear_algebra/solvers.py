"""Contracts of systems of linear equations, inverses, determinants and least squares, in ``linalg``."""

from __future__ import annotations

from telegrad_protocol.dtypes import int32, int64
from telegrad_protocol.errors import ArgumentError, DTypeError, ShapeError
from telegrad_protocol.layout import Size, broadcast_shapes
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.contract import Scalar, op

from .matrices import (
    batch_of,
    check_floating,
    check_matrix,
    check_side,
    check_square,
    column_major,
    in_order,
    is_vector,
    real_like,
)


def _solution(A: Meta, B: Meta, left: bool) -> Meta:
    check_square("linalg.solve", A)
    if not B.ndim:
        raise ShapeError(f"linalg.solve: B must have at least 1 dimension, got {B}")
    if not is_vector(A, B):
        return in_order(B, check_side("linalg.solve", A, B, left), left)
    if not left:
        raise ShapeError("linalg.solve: vector broadcasting of the left hand side is not supported for left=False")
    check_floating("linalg.solve", A, B)
    if B.shape[-1] != A.shape[-1]:
        raise ShapeError(f"linalg.solve: incompatible shapes of A and B: {A} and {B}")
    shape = broadcast_shapes("linalg.solve", A.shape[:-1], B.shape)
    return column_major(B, shape) if len(shape) > 1 else B.like(shape)


@op(name="_linalg_solve", method=False, out=False, returns=("result", "info"))
def plain_solve(A: Meta, B: Meta, left: bool, check_errors: bool) -> tuple[Meta, Meta]:
    """Solve systems of linear equations with an ``info`` for each."""
    result = _solution(A, B, left)
    return result, A.like(result.shape[:-1] if is_vector(A, B) else result.shape[:-2], int32)


@op(name="linalg_solve_ex", method=False, module="linalg", returns=("result", "info"))
def solve_ex(A: Meta, B: Meta, *, left: bool = True, check_errors: bool = False) -> tuple[Meta, Meta]:
    """Solve systems of linear equations; ``info`` is not 0 where a matrix is singular."""
    return plain_solve.rule(A, B, left, check_errors)


@op(name="linalg_solve", method=False, module="linalg")
def solve(A: Meta, B: Meta, *, left: bool = True) -> Meta:
    """Solve systems of linear equations with a unique solution: A @ X = B, or X @ A = B without ``left``."""
    return _solution(A, B, left)


@op(name="linalg_solve_triangular", method=False, module="linalg")
def solve_triangular(A: Meta, B: Meta, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Meta:
    """Solve systems of linear equations with triangular matrices A; the other triangle of A is not read."""
    check_square("linalg.solve_triangular", A)
    return column_major(B, check_side("linalg.solve_triangular", A, B, left))


@op(name="linalg_inv_ex", method=False, module="linalg", returns=("inverse", "info"))
def inv_ex(A: Meta, *, check_errors: bool = False) -> tuple[Meta, Meta]:
    """Invert square matrices; ``info`` is not 0 where a matrix is singular."""
    check_square("linalg.inv", A)
    return column_major(A), A.like(A.shape[:-2], int32)


@op(name="linalg_inv", method=False, module="linalg")
def inv(A: Meta) -> Meta:
    """Invert square matrices."""
    check_square("linalg.inv", A)
    return column_major(A)


@op(name="linalg_det", method=False, module="linalg")
def det(A: Meta) -> Meta:
    """Compute the determinant of square matrices."""
    check_square("linalg.det", A)
    return A.like(A.shape[:-2])


@op(name="_cofactors", method=False, out=False)
def cofactors(A: Meta) -> Meta:
    """Compute the matrices of cofactors, which are the derivatives of the determinant."""
    check_square("linalg.det", A)
    return A.like()


@op(name="linalg_slogdet", method=False, module="linalg", returns=("sign", "logabsdet"))
def slogdet(A: Meta) -> tuple[Meta, Meta]:
    """Compute the sign and the logarithm of the absolute value of the determinant of square matrices."""
    check_square("linalg.slogdet", A)
    return A.like(A.shape[:-2]), real_like(A, A.shape[:-2])


@op(out=False)
def logdet(input: Meta) -> Meta:
    """Compute the logarithm of the determinant of square matrices; NaN where it is negative."""
    check_square("logdet", input)
    return input.like(input.shape[:-2])


def _check_real(*tolerances: Meta | Scalar | None) -> None:
    if any([isinstance(tolerance, complex) for tolerance in tolerances]):
        raise DTypeError(f"linalg.pinv: tolerances must be real numbers, got {tolerances}")


@op(name="_linalg_pinv", method=False, out=False, no_grad=("atol", "rtol"))
def plain_pinv(A: Meta, atol: Meta | Scalar, rtol: Meta | Scalar, hermitian: bool) -> Meta:
    """Compute the pseudo-inverse, in which singular values up to max(atol, rtol * the largest) count as 0."""
    check_matrix("linalg.pinv", A)
    check_floating("linalg.pinv", A)
    _check_real(atol, rtol)
    for tolerance in (atol, rtol):
        if (
            isinstance(tolerance, Meta)
            and broadcast_shapes("linalg.pinv", tolerance.shape, A.shape[:-2]) != A.shape[:-2]
        ):
            raise ShapeError(f"linalg.pinv: the tolerances {tolerance} do not fit the batch of {A}")
    if hermitian:
        check_square("linalg.pinv", A)
    return A.like((*A.shape[:-2], A.shape[-1], A.shape[-2]))


def _pseudo_inverse(A: Meta, hermitian: bool, *tolerances: Meta | Scalar | None) -> Meta:
    _check_real(*tolerances)
    atol, rtol = (t if isinstance(t, Meta) else 0.0 for t in (*tolerances, None, None)[:2])
    return plain_pinv.rule(A, atol, rtol, hermitian)


@op(name="linalg_pinv.tolerances", method=False, module="linalg")
def pinv_tolerances(A: Meta, *, atol: Meta | Scalar | None = None, rtol: Meta | Scalar | None = None,
                    hermitian: bool = False) -> Meta:  # fmt: skip
    """Compute the pseudo-inverse, in which singular values up to max(atol, rtol * the largest) count as 0."""
    return _pseudo_inverse(A, hermitian, atol, rtol)


@op(name="linalg_pinv", method=False, module="linalg")
def pinv(A: Meta, rcond: Meta | Scalar, hermitian: bool = False) -> Meta:
    """Compute the pseudo-inverse, in which singular values up to ``rcond`` times the largest count as 0."""
    return _pseudo_inverse(A, hermitian, rcond)


def _drivers(A: Meta) -> tuple[str, ...]:
    return ("gels",) if A.device.type == "cuda" else ("gels", "gelsy", "gelsd", "gelss")


def _check_driver(driver: str, known: tuple[str, ...]) -> None:
    if driver not in known:
        raise ArgumentError(f"linalg.lstsq: parameter `driver` should be one of {', '.join(known)}, not {driver!r}")


def check_least_squares(A: Meta, B: Meta, driver: str | None) -> tuple[str, bool]:
    """Return the driver, and whether right sides are vectors."""
    check_matrix("linalg.lstsq", A)
    check_floating("linalg.lstsq", A, B)
    known = _drivers(A)
    if driver is not None:
        _check_driver(driver, known)
    is_batch_of_vectors = A.ndim - 1 == B.ndim and B.shape == A.shape[:-1]
    if not B.ndim or not (is_batch_of_vectors or B.ndim == A.ndim):
        raise ShapeError(f"linalg.lstsq: A.ndim must be that of B or one more, got {A} and {B}")
    if (B.shape[-1] if is_batch_of_vectors else B.shape[-2]) != A.shape[-2]:
        raise ShapeError(f"linalg.lstsq: the rows of {A} and {B} differ in number")
    return driver or known[min(1, len(known) - 1)], is_batch_of_vectors


@op(name="_linalg_lstsq", method=False, out=False, returns=("solution", "rank", "singular_values"),
    constants=("singular_values",))  # fmt: skip
def plain_lstsq(A: Meta, B: Meta, rcond: float, driver: str) -> tuple[Meta, Meta, Meta]:
    """Solve least-squares problems with matrices as right sides."""
    check_matrix("linalg.lstsq", A, B)
    _check_driver(driver, _drivers(A))
    (m, n), batch = A.shape[-2:], A.shape[:-2]
    check_floating("linalg.lstsq", A, B)
    if batch_of("linalg.lstsq", B) != batch or B.shape[-2] != m:
        raise ShapeError(f"linalg.lstsq: {A} and {B} do not fit")
    singular = real_like(A, (*batch, min(m, n)) if driver in ("gelsd", "gelss") else (0,))
    return _least_squares(A, batch, B.shape[-1:]), A.like(batch if driver != "gels" else (0,), int64), singular


def _least_squares(A: Meta, batch: Size, columns: Size) -> Meta:
    """Return the meta of solutions: the first rows of what LAPACK has overwritten the right sides with."""
    n, longest = A.shape[-1], max(A.shape[-2:])
    shape = (*batch, n, *columns)
    whole = A.like((*batch, *(columns or (1,)), max(longest, 1)))
    strides = whole.strides[:-2] + ((1, whole.strides[-2]) if columns else (1,))
    return A.like(shape, strides=strides) if all(shape) else A.like(shape)


@op(name="_linalg_lstsq_plain", method=False, out=False, differentiable=False,
    returns=("solution", "residuals", "rank", "singular_values"))  # fmt: skip
def lstsq_plain(A: Meta, B: Meta, rcond: float | None, driver: str | None) -> tuple[Meta, ...]:
    """Compute ``linalg.lstsq`` of operands of one batch without a derivative."""
    results: tuple[Meta, ...] = lstsq.rule(A, B, rcond, driver=driver)
    if A.shape[:-2] != B.shape[: A.ndim - 2]:
        raise ShapeError(f"linalg.lstsq: {A} and {B} do not have the same batch")
    return results


@op(name="linalg_lstsq", method=False, module="linalg",
    returns=("solution", "residuals", "rank", "singular_values"), constants=("singular_values",))  # fmt: skip
def lstsq(
    A: Meta, B: Meta, rcond: float | None = None, *, driver: str | None = None
) -> tuple[Meta, ...]:  # fmt: skip
    """Solve least-squares problems: minimize the norm of A @ X - B.

    ``driver`` is LAPACK's routine: 'gels', 'gelsy', 'gelsd' or 'gelss' on the CPU, 'gels' on a GPU. Residuals are for
    more rows than columns and another driver than 'gelsy', singular values for 'gelsd' and 'gelss'; else they are
    empty, as the rank is for 'gels'. Ranks and singular values are those of the matrices in ``A``, whatever the
    batch of ``B``.
    """
    chosen, is_batch_of_vectors = check_least_squares(A, B, driver)
    (m, n), batch = A.shape[-2:], broadcast_shapes("linalg.lstsq", A.shape[:-2], B.shape[: A.ndim - 2])
    columns = () if is_batch_of_vectors else B.shape[-1:]
    residuals = real_like(A, (*batch, *(columns or (1,))) if m > n and chosen != "gelsy" else (0,))
    rank = A.like(A.shape[:-2] if chosen != "gels" else (0,), int64)
    singular = real_like(A, (*A.shape[:-2], min(m, n)) if chosen in ("gelsd", "gelss") else (0,))
    return _least_squares(A, batch, columns), residuals, rank, singular

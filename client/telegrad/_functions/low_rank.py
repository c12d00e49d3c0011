"""Parts of the spectrum of large matrices: randomized singular values, principal components, a few eigenvalues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telegrad._ops.functions import function
from telegrad._session.grad_mode import no_grad
from telegrad._session.own_code import note
from telegrad._tensor.layouts import strided
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, ShapeError

from .properties import adjoint

_MOST_ITERATIONS = 1000
_PRECISIONS = {"float32": 1.2e-7, "float64": 2.23e-16, "complex64": 1.2e-7, "complex128": 2.23e-16}


def _call(name: str, *args: Any, **kwargs: Any) -> Any:
    return function(name)(*args, **kwargs)


def _random(A: Tensor, *size: int) -> Tensor:
    numbers: Tensor = _call("randn", *A.shape[:-2], *size, dtype=A.dtype, device=A.device)
    return numbers


def _basis(A: Tensor, q: int, niter: int, M: Tensor | None) -> Tensor:
    """Orthonormal columns whose span is close to that of the ``q`` largest singular vectors (Halko et al., 2009)."""
    whole = A if M is None else A - M
    Q = _call("linalg_qr", whole @ _random(A, A.shape[-1], q))[0]
    for _ in range(niter):
        Q = _call("linalg_qr", adjoint(whole) @ Q)[0]
        Q = _call("linalg_qr", whole @ Q)[0]
    return Q  # type: ignore[no-any-return]


def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return approximations U, S, V of the ``q`` largest singular values of ``A - M`` and their vectors.

    A random projection is improved by ``niter`` subspace iterations. Shapes: (..., m, n) gives (..., m, q), (..., q)
    and (..., n, q).
    """
    q = 6 if q is None else q
    m, n = A.shape[-2:]
    whole = A if M is None else A - M
    if m < n:
        U, S, V = svd_lowrank(adjoint(whole), q, niter)
        return V, S, U
    Q = _basis(whole, q, 2 if niter is None else niter, None)
    U, S, Vh = _call("linalg_svd", adjoint(Q) @ whole, full_matrices=False)
    return Q @ U, S, adjoint(Vh)


def pca_lowrank(
    A: Tensor, q: int | None = None, center: bool = True, niter: int = 2
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return U, S, V of the ``q`` largest principal components of the rows of ``A``, which are centred first.

    ``q`` is the number of components, by default 6 or the smaller dimension of ``A``; a larger one is refused.
    """
    m, n = A.shape[-2:]
    q = min(6, m, n) if q is None else q
    if not 0 <= q <= min(m, n):
        raise ArgumentError(f"pca_lowrank: q must be between 0 and {min(m, n)}, got {q}")
    if niter < 0:
        raise ArgumentError(f"pca_lowrank: niter must not be negative, got {niter}")
    if not center:
        return svd_lowrank(A, q, niter)
    layout: Any = A.layout
    if layout is not strided:
        return svd_lowrank(A.to_dense() - A.sum(dim=-2, keepdim=True).to_dense() / m, q, niter)
    return svd_lowrank(A - A.mean(dim=-2, keepdim=True), q, niter)


def lu(A: Tensor, pivot: bool = True, get_infos: bool = False, out: Any = None) -> Any:
    """Return the compact LU factorization and its pivots; with ``get_infos`` also whether each matrix was singular."""
    note("torch.lu is deprecated in favor of torch.linalg.lu_factor / torch.linalg.lu_factor_ex")
    result = tuple(_call("linalg_lu_factor_ex", A, pivot=pivot))[: 3 if get_infos else 2]
    if out is None:
        return result
    for target, tensor in zip(out, result, strict=True):
        target._become(tensor)
    return out


def chain_matmul(*matrices: Any, out: Tensor | None = None) -> Tensor:
    """Multiply matrices in the order that takes the fewest multiplications; see ``linalg.multi_dot``."""
    note("torch.chain_matmul is deprecated. Use torch.linalg.multi_dot, which accepts a list of two or more tensors.")
    listed = list(matrices[0]) if len(matrices) == 1 and isinstance(matrices[0], (list, tuple)) else list(matrices)
    if len(listed) == 1:
        return listed[0]  # type: ignore[no-any-return]
    return _call("linalg_multi_dot", listed, out=out)  # type: ignore[no-any-return]


def lobpcg(
    A: Tensor, k: int | None = None, B: Tensor | None = None, X: Tensor | None = None, n: int | None = None,
    iK: Tensor | None = None, niter: int | None = None, tol: float | None = None, largest: bool | None = None,
    method: str | None = None, tracker: Callable[[Any], None] | None = None,
    ortho_iparams: dict[str, int] | None = None, ortho_fparams: dict[str, float] | None = None,
    ortho_bparams: dict[str, bool] | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the ``k`` largest or smallest eigenvalues of A X = B X E, and eigenvectors, by preconditioned iterations.

    A is symmetric, B symmetric and positive definite; ``X`` is a first guess of ``n`` vectors, ``iK`` a preconditioner,
    and ``tol`` bounds the relative residuals. Both methods of PyTorch are served by one, in which all directions are
    orthonormal; ``tracker`` and the parameters of the orthogonalization are not used. Waits once per iteration.
    """
    if method not in (None, "basic", "ortho"):
        raise ArgumentError(f"lobpcg: method must be 'basic' or 'ortho', not {method!r}")
    size = A.shape[-1]
    count = k if k is not None else 1 if X is None else X.shape[-1]
    width = max(count, n if n is not None else count if X is None else X.shape[-1])
    if size < 3 * width:
        raise ShapeError(f"lobpcg: {size} rows are fewer than three times the {width} requested eigenpairs")
    tolerance = _PRECISIONS[A.dtype.name] ** 0.5 if tol is None else tol
    limit = _MOST_ITERATIONS if niter is None or niter < 0 else niter
    with no_grad():
        vectors = _iterate(A, B, X if X is not None else _random(A, size, width), iK, limit, tolerance, largest)
    vectors = vectors[..., :count]
    values = (vectors.conj() * (A @ vectors)).sum(dim=-2)
    return values.real if values.is_complex() else values, vectors


def _orthonormal(S: Tensor, B: Tensor | None) -> Tensor:
    """Columns of the same span whose products by way of B are the identity; directions that are lost are left out."""
    Q: Tensor = _call("linalg_qr", S)[0]
    if B is None:
        return Q
    factor = _call("linalg_cholesky", adjoint(Q) @ (B @ Q))
    return _call("linalg_solve_triangular", adjoint(factor), Q, upper=True, left=False)  # type: ignore[no-any-return]


def _iterate(
    A: Tensor, B: Tensor | None, X: Tensor, iK: Tensor | None, limit: int, tolerance: float, largest: bool | None
) -> Tensor:
    """Rayleigh-Ritz in the span of the vectors, their residuals, and the last directions."""
    width = X.shape[-1]
    size_of_A = _call("linalg_matrix_norm", A).unsqueeze(-1)
    size_of_B: Any = 1.0 if B is None else _call("linalg_matrix_norm", B).unsqueeze(-1)
    X = _ritz(A, _orthonormal(X, B), width, largest)[0]
    directions: list[Tensor] = []
    for _ in range(limit):
        image, metric = A @ X, X if B is None else B @ X
        values = (X.conj() * image).sum(dim=-2)
        residual = image - metric * values.unsqueeze(-2)
        size = _call("linalg_vector_norm", residual, dim=-2)
        bound = size_of_A + values.abs() * size_of_B
        length = _call("linalg_vector_norm", X, dim=-2)
        if bool((size <= tolerance * length * bound).all().item()):
            break
        residual = residual if iK is None else iK @ residual
        residual = residual / _call("linalg_vector_norm", residual, dim=-2, keepdim=True).clamp(min=1e-30)
        span = _orthonormal(_call("cat", [X, residual, *directions], -1), B)
        before = X
        X, _ = _ritz(A, span, width, largest)
        overlap = adjoint(before) @ (X if B is None else B @ X)
        directions = [X - before @ overlap]
    return X


def _ritz(A: Tensor, span: Tensor, width: int, largest: bool | None) -> tuple[Tensor, Tensor]:
    values, vectors = _call("linalg_eigh", adjoint(span) @ (A @ span))
    if largest is None or largest:
        return span @ vectors.flip(-1)[..., :width], values
    return span @ vectors[..., :width], values


METHODS: dict[str, Any] = {"lu": lu}

"""Powers, exponentials, ranks and products of matrices."""

from __future__ import annotations

import functools
import math

import numpy as np

from server.engine import functional as F
from server.engine.array_library.lapack import library_of
from server.engine.autograd.inplace import requires_grad
from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS, Single
from server.engine.ops.complex import conj
from server.engine.registry import comes_to, composite, derive, implements
from telegrad_protocol.ops.linear_algebra import matrix_functions as ops

from .matrices import adjoint, constant_of
from .matrix_norms import matrix_norm_of
from .solvers import number_tolerances, tolerances
from .spectra import plain_eigvalsh, plain_svdvals

_MM = OPERATORS["mm"]


def _cond(A, p):
    if not A.numel:
        return F.zeros(A.shape[:-2], dtype=A.dtype.to_real(), device=A.device)
    if _only_plain_cond(requires_grad(A), A.meta, p):
        return F._linalg_cond(A, p == -2)
    if p in (None, 2, -2):
        values = F.linalg_svdvals(A)
        largest, smallest = F.select(values, -1, 0), F.select(values, -1, -1)
        return smallest / largest if p == -2 else largest / smallest
    if p == "nuc":
        values = F.linalg_svdvals(A)
        return F.sum(values, -1) * F.sum(F.reciprocal(values), -1)
    inverse, info = F.linalg_inv_ex(A)
    is_singular = F.ne(info, 0)
    if requires_grad(A):  # no gradient may come from what is no number
        inverse = F.masked_fill(inverse, F.unsqueeze(F.unsqueeze(is_singular, -1), -1), 0)
    product = matrix_norm_of(A, p, (-2, -1), False, None) * matrix_norm_of(inverse, p, (-2, -1), False, None)
    return F.masked_fill(product, is_singular, math.inf)


@implements(ops.plain_cond)
def plain_cond(xp, A, is_inverted):
    values = plain_svdvals(xp, A)
    largest, smallest = values[..., 0], values[..., -1]
    with np.errstate(divide="ignore", invalid="ignore"):
        return smallest / largest if is_inverted else largest / smallest


@comes_to(ops.cond)
def _only_plain_cond(records, A, p):
    plain = not records and A.device.type == "cpu" and A.numel and p in (None, 2, -2)
    return Single(OPERATORS["_linalg_cond"], lambda args: (args[0], p == -2)) if plain else None


composite(ops.cond)(_cond)
composite(ops.cond_named)(_cond)


def _rank(A, atol, rtol, hermitian):
    if not A.numel:
        return F.zeros(A.shape[:-2], dtype=ops.int64, device=A.device)
    if _plain_rank(A.meta, atol, rtol, hermitian):
        return F._linalg_matrix_rank(A, *number_tolerances(A, atol, rtol), hermitian)
    values = F.abs(F._eigvalsh(A, "L")) if hermitian else F._svdvals(A)
    absolute, relative = tolerances(A, atol, rtol)
    cutoff = F.maximum(absolute, relative * F.amax(values, -1))
    return F.sum(F.gt(values, F.unsqueeze(cutoff, -1)), -1)


@implements(ops.plain_matrix_rank)
def plain_matrix_rank(xp, A, atol, rtol, hermitian):
    values = xp.abs(plain_eigvalsh(xp, A, "L")) if hermitian else plain_svdvals(xp, A)
    cutoff = xp.maximum(values.max(-1, keepdims=True) * values.dtype.type(rtol), values.dtype.type(atol))
    return (values > cutoff).sum(-1)


def _plain_rank(A, atol, rtol, hermitian):
    """The one operation where tolerances are numbers, on the host."""
    numbers = number_tolerances(A, atol, rtol)
    if numbers is None or not A.numel or A.device.type != "cpu":
        return None
    return Single(OPERATORS["_linalg_matrix_rank"], lambda args: (args[0], *numbers, hermitian))


@comes_to(ops.matrix_rank_tolerances)
def _only_plain_rank_of_tolerances(records, A, atol, rtol, hermitian):
    return _plain_rank(A, atol, rtol, hermitian)


@comes_to(ops.matrix_rank)
def _only_plain_rank(records, A, tol, hermitian):
    return _plain_rank(A, tol, 0.0, hermitian)


@composite(ops.matrix_rank_tolerances)
def matrix_rank_tolerances(A, *, atol, rtol, hermitian):
    return _rank(A, atol, rtol, hermitian)


@composite(ops.matrix_rank)
def matrix_rank(A, tol, hermitian):
    return _rank(A, tol, 0.0, hermitian)


@implements(ops.plain_matrix_power)
def plain_matrix_power(xp, A, n):
    result, square = None, A
    while True:
        if n & 1:
            result = square if result is None else result @ square
        n >>= 1
        if not n:
            return result.copy() if result is A else result
        square = square @ square


@comes_to(ops.matrix_power)
@comes_to(ops.linalg_matrix_power)
def _only_plain_power(records, A, n):
    plain = not records and A.device.type == "cpu" and n > 0 and A.dtype.name in _EXACT_TYPES
    return Single(OPERATORS["_matrix_power"]) if plain and A.shape[-1] <= _MOST_ROWS else None


_FEW_ELEMENTS = 1 << 12
"""Elements up to which a dot product for each vector costs less than products and sums of all of them."""
_EXACT_TYPES, _MOST_ROWS = ("float32", "float64", "complex64", "complex128"), 64
"""Types whose products NumPy computes as BLAS does, and sizes for which the operations around these cost the most."""


@composite(ops.matrix_power)
def matrix_power(input, n):
    """By repeated squaring."""
    if _only_plain_power(requires_grad(input), input.meta, n):
        return F._matrix_power(input, n)
    given = input
    if n == 0:
        return constant_of(input, F.eye(input.shape[-1], dtype=input.dtype, device=input.device))
    if n < 0:
        input, n = F.linalg_inv(input), -n
    result, square, is_inverse = None, input, input is not given and n == 1
    while True:
        if n & 1:
            result = square if result is None else F.matmul(result, square)
        n >>= 1
        if not n:
            return F.clone(result) if result is given else result if is_inverse else F.contiguous(result)
        square = F.matmul(square, square)


@composite(ops.linalg_matrix_power)
def linalg_matrix_power(A, n):
    return matrix_power(A, n)


_PADE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0,
    10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
_SHORT_PADE = 17297280.0, 8648640.0, 1995840.0, 277200.0, 25200.0, 1512.0, 56.0, 1.0
_PADE_RADIUS, _SHORT_PADE_RADIUS = 5.371920351148152, 3.925724783138660
"""Up to these 1-norms approximants of degree 13 and 7 are exact in double and in single precision (Higham 2005)."""
_EXACT_EXPONENTIALS = 16
"""Up to this size double precision takes hardly more time than single precision."""


def _exp_backward(grad, A):
    """The upper right block of exp([[A^H, grad], [0, A^H]])"""
    size, transposed = A.shape[-1], adjoint(A)
    above = F.cat([transposed, grad], -1)
    below = F.cat([F.zeros_like(grad), transposed], -1)
    return F.narrow(F.narrow(F.matrix_exp(F.cat([above, below], -2)), -2, 0, size), -1, size, size)


@implements(ops.matrix_exp, A=_exp_backward)
def matrix_exp(xp, A):
    """By scaling and squaring of a Padé approximant; small matrices in double precision."""
    if not A.size:
        return A
    given = A.dtype
    if A.shape[-1] <= _EXACT_EXPONENTIALS:
        A = A.astype(np.result_type(given, np.float64), copy=False)
    if A.shape[-1] == 1:
        return xp.exp(A).astype(given, copy=False)
    is_short = A.real.dtype == np.float32
    norms = xp.abs(A).sum(-2).max(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        scales = xp.log2(norms / (_SHORT_PADE_RADIUS if is_short else _PADE_RADIUS))
        squarings = xp.nan_to_num(xp.ceil(scales), nan=0.0, posinf=0.0, neginf=0.0)
    squarings = xp.clip(squarings, 0, 1100)[..., None, None]
    A = A * xp.exp2(-squarings)
    odd, even = _pade_parts(A, xp.eye(A.shape[-1], dtype=A.dtype), is_short)
    result = library_of(xp).solve(even - odd, even + odd)[0]
    for step in range(int(squarings.max())):
        result = xp.where(squarings > step, result @ result, result)
    return result.astype(given, copy=False)


def _pade_parts(A, identity, is_short):
    """The terms of odd and of even powers of the approximant's numerator; the denominator has the odd ones negated."""
    A2 = A @ A
    A4 = A2 @ A2
    A6 = A4 @ A2
    if is_short:
        b = _SHORT_PADE
        odd = A @ (b[7] * A6 + b[5] * A4 + b[3] * A2 + b[1] * identity)
        return odd, b[6] * A6 + b[4] * A4 + b[2] * A2 + b[0] * identity
    b = _PADE
    odd = A @ (A6 @ (b[13] * A6 + b[11] * A4 + b[9] * A2) + b[7] * A6 + b[5] * A4 + b[3] * A2 + b[1] * identity)
    return odd, A6 @ (b[12] * A6 + b[10] * A4 + b[8] * A2) + b[6] * A6 + b[4] * A4 + b[2] * A2 + b[0] * identity


@comes_to(ops.linalg_matrix_exp)
def _only_exponential(records, A):
    return Single(OPERATORS["matrix_exp"])


@composite(ops.linalg_matrix_exp)
def linalg_matrix_exp(A):
    return F.matrix_exp(A)


@composite(ops.multi_dot)
def multi_dot(tensors):
    """In the order of the fewest multiplications, found by dynamic programming."""
    first, last = tensors[0], tensors[-1]
    matrices = list(tensors)
    if first.ndim == 1:
        matrices[0] = F.unsqueeze(first, 0)
    if last.ndim == 1:
        matrices[-1] = F.unsqueeze(last, -1)
    sizes = (*[matrix.shape[0] for matrix in matrices], matrices[-1].shape[1])
    splits = _best_splits(sizes)
    product, shape = _product(matrices, splits, 0, len(matrices) - 1), first.shape[:-1] + last.shape[1:]
    return product if product.shape == shape else F.reshape(product, shape)


def _product(matrices, splits, begin, end):
    if begin == end:
        return matrices[begin]
    middle = splits[begin, end]
    factors = _product(matrices, splits, begin, middle), _product(matrices, splits, middle + 1, end)
    return dispatch(_MM, factors)


@functools.lru_cache(maxsize=1024)
def _best_splits(sizes):
    """After which matrix each range of a chain is split, where matrix i has the sizes i and i + 1."""
    count = len(sizes) - 1
    costs, splits = {(i, i): 0 for i in range(count)}, {}
    for length in range(2, count + 1):
        for begin in range(count - length + 1):
            end = begin + length - 1
            costs[begin, end], splits[begin, end] = min(
                (costs[begin, k] + costs[k + 1, end] + sizes[begin] * sizes[k + 1] * sizes[end + 1], k)
                for k in range(begin, end)
            )
    return splits


@composite(ops.matmul)
def matmul(input, other):
    return F.matmul(input, other)


@composite(ops.cross)
def cross(input, other, *, dim):
    return F.cross(input, other, dim)


@comes_to(ops.cross)
def _only_cross(records, input, other, dim):
    return Single(OPERATORS["cross"])


derive(
    ops.diagonal,
    A=lambda grad, A_meta, offset, dim1, dim2: F.diagonal_scatter(
        F.zeros(A_meta.shape, dtype=grad.dtype, device=grad.device), grad, offset, dim1, dim2
    ),
)


@implements(ops.plain_vecdot)
def plain_vecdot(xp, x, y, dim):
    return xp.vecdot(x, y, axis=dim) if xp is np else xp.sum(x.conj() * y, dim)


@comes_to(ops.vecdot)
def _only_plain_vecdot(records, x, y, dim):
    plain = not records and x.device.type == "cpu" and x.shape == y.shape and x.dtype.name in _EXACT_TYPES
    plain = plain and (x.numel <= _FEW_ELEMENTS or x.shape[dim] >= _MOST_ROWS)
    return Single(OPERATORS["_linalg_vecdot"]) if plain else None


@composite(ops.vecdot)
def vecdot(x, y, *, dim):
    if _only_plain_vecdot(requires_grad(x) or requires_grad(y), x.meta, y.meta, dim):
        return F._linalg_vecdot(x, y, dim)
    return F.sum(conj(x) * y, dim)


@composite(ops.vander)
def vander(x, *, N):
    x = x if x.ndim else F.unsqueeze(x, 0)
    count = x.shape[-1] if N is None else N
    x = x if x.dtype.category >= 2 else F._to_copy(x, dtype=ops.int64)
    ones = F.ones((*x.shape, 1), dtype=x.dtype, device=x.device)
    if count < 2:
        return ones
    powers = F.cumprod(F.expand(F.unsqueeze(x, -1), (*x.shape, count - 1)), -1)
    return F.cat([ones, powers], -1)


@composite(ops.tensorinv)
def tensorinv(A, ind):
    rows, columns = A.shape[:ind], A.shape[ind:]
    inverse = F.linalg_inv(F.reshape(A, (math.prod(rows), math.prod(columns))))
    return F.reshape(inverse, columns + rows)


@composite(ops.tensorsolve)
def tensorsolve(A, B, dims):
    if dims is not None:
        A = F.movedim(A, dims, tuple(range(A.ndim - len(dims), A.ndim)))
    size = B.numel
    return F.reshape(F.linalg_solve(F.reshape(A, (size, size)), F.reshape(B, (size,))), A.shape[B.ndim :])

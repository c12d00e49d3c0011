"""QR factorizations of matrices on the host: by compiled loops, NumPy's loops, or LAPACK's reflectors."""

from __future__ import annotations

import numpy as np

from server.engine import compiled

from . import host_small_matrices as small
from .host_libraries import PREFIXES, address_of, call, mkl, workspace
from .host_matrices import Array, as_columns, column_major, columns_of, matrices

_SMALL, _TINY = 64, 12
"""Up to these sizes batches go through compiled loops for single matrices, and through NumPy's loops."""
_LEAST_SIDE, _LEAST_ELEMENTS, _PANEL = 24, 1 << 12, 32
"""Rows, columns and elements of a matrix from which on compiled loops factorize it, and the columns of their panels."""


def geqrf(a: Array) -> tuple[Array, Array]:
    """LAPACK's QR factorization: R and reflectors, and the reflectors' scales."""
    factor = columns_of(a)
    tau = np.empty((*a.shape[:-2], min(a.shape[-2:])), a.dtype)
    if factor.size:
        (m, n), batch, infos = a.shape[-2:], matrices(factor), np.empty(1, np.int32)
        work = workspace("geqrf", a.dtype, m, n, (), m, ())
        call("geqrf", a.dtype, len(batch), m, n, batch, m, tau.reshape(len(batch), -1), (work,), work.size, (infos,))
    return factor, tau


def householder_product(a: Array, tau: Array) -> Array:
    """The first columns of the product of reflectors; there are as many as columns of ``a``."""
    return _product_of_reflectors(columns_of(a), tau)


def _product_of_reflectors(product: Array, tau: Array) -> Array:
    """The same in the memory of the reflectors, whose columns are contiguous."""
    if not product.size:
        return product
    (m, n), k = product.shape[-2:], tau.shape[-1]
    if not k:
        product[...] = np.eye(m, n)
        return product
    name = "ungqr" if product.dtype.kind == "c" else "orgqr"
    batch, infos = matrices(product), np.empty(1, np.int32)
    scales = np.ascontiguousarray(tau).reshape(len(batch), -1)
    work = workspace(name, product.dtype, m, n, k, (), m, ())
    call(name, product.dtype, len(batch), m, n, k, batch, m, scales, (work,), work.size, (infos,))
    return product


def ormqr(a: Array, tau: Array, other: Array, left: bool, transpose: bool) -> Array:
    """Matrices multiplied by the product of reflectors, or by its adjoint, from the left or from the right."""
    product, k = columns_of(other), tau.shape[-1]
    if not (product.size and k):
        return product
    (m, n), is_complex, batch, factors = other.shape[-2:], a.dtype.kind == "c", matrices(product), as_columns(a)
    name, rows, infos = "unmqr" if is_complex else "ormqr", a.shape[-2], np.empty(1, np.int32)
    trans = "N" if not transpose else "C" if is_complex else "T"
    head, scales = ("L" if left else "R", trans, m, n, k), np.ascontiguousarray(tau).reshape(len(batch), -1)
    work = workspace(name, a.dtype, *head, (), rows, (), (), m)
    call(name, a.dtype, len(batch), *head, factors, rows, scales, batch, m, (work,), work.size, (infos,))
    return product


def qr(a: Array, columns: int | None) -> tuple[Array, Array]:
    """Q with so many columns, and R; None means that only R is wanted."""
    (m, n), batch = a.shape[-2:], a.shape[:-2]
    k = min(m, n)
    loops = small.loops_for(a, _SMALL)
    if loops is not None:
        q, r = small.qr(loops, a, columns or 0, columns or k)
        return (r if columns is None else q), r
    if a.ndim > 2 and max(m, n) <= _TINY and a.size and columns is not None:
        q, r = np.linalg.qr(a, "complete" if columns > k else "reduced")
        return q.astype(a.dtype, copy=False), r.astype(a.dtype, copy=False)
    by_panels = _by_panels(a, 0 if columns is None else columns)
    if by_panels is not None:
        return by_panels
    factor, tau = geqrf(a)
    r = np.triu(factor[..., : k if columns is None else columns, :])
    if columns is None:
        return r, r
    padded = column_major((*batch, m, columns), a.dtype)
    padded[...] = 0
    padded[..., : min(n, columns)] = factor[..., : min(n, columns)]
    if not k:
        padded[...] = np.eye(m, columns)
        return padded, r
    return _product_of_reflectors(padded, tau), r


def has_panels(shape: tuple[int, ...], char: str) -> bool:
    """Whether matrices are factorized by panels in compiled loops, where these are there."""
    m, n = shape[-2:]
    return char in "fd" and min(m, n) >= _LEAST_SIDE and m * n >= _LEAST_ELEMENTS and mkl() is None


def _by_panels(a: Array, columns: int) -> tuple[Array, Array] | None:
    """The same for large real matrices; None where LAPACK is to factorize, as where squares of numbers overflow."""
    loops = compiled.kernels("factorizations.orthogonal") if has_panels(a.shape, a.dtype.char) and a.size else None
    if loops is None:
        return None
    (m, n), batch, char = a.shape[-2:], a.shape[:-2], a.dtype.char
    k, widest = min(m, n), max(n, columns)
    q, r = column_major((*batch, m, columns), a.dtype), column_major((*batch, columns or k, n), a.dtype)
    panels = -(-k // _PANEL)
    shapes = [(n, m), (k, m), (panels + 1, _PANEL, _PANEL), *[(widest, _PANEL)] * 2, (_PANEL,)]
    factor, tails, squares, *rest = [np.empty(shape, char) for shape in shapes]
    gemm, below = address_of(f"{PREFIXES[char]}gemm"), np.tri(columns or k, n, -1, dtype=bool)
    for matrix, target, triangle in zip(matrices(a), matrices(q).swapaxes(1, 2), matrices(r), strict=True):
        given = matrix if matrix.flags.writeable else matrix.copy(order="K")
        if not loops.qr(gemm, given, factor, tails, squares, target, *rest):
            return None
        triangle[...] = factor.T[: columns or k]
        np.copyto(triangle, 0, where=below)
    return (q if columns else r), r

"""Eigenvalues and eigenvectors of many small real matrices, one after the other.

Matrices that have to be permuted, whose numbers are too large or too small, that do not converge, or whose eigenvectors
grow beyond measure as those of defective matrices do, are left to LAPACK. Functions release the GIL and run on one
thread.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arithmetic import compiled_for_reals
from ..blas import product
from ..slots import specialized
from .hessenberg import balance, clear_reflections, form_reflections, reduce, separates
from .schur import LANES as LANES
from .schur import schur
from .spectra import add, add_two, is_moderate

Array = Any
_N = ord("N")
_UNIT, _UNIT_SINGLE = 2.220446049250313e-16, 1.1920928955078125e-07
_LEAST, _LEAST_SINGLE = 1e-290, 1e-30
"""What is neglected beside nothing."""
_MOST, _MOST_SINGLE = 1e100, 1e15
"""Elements of vectors that are larger than these, beside another that is 1, are left to LAPACK."""


@specialized
def _solve_one(d: complex, right: complex, small: float) -> complex:
    if abs(d.real) + abs(d.imag) < small:
        return right / small
    return complex(right.real / d.real, 0.0) if d.imag == 0 and right.imag == 0 else right / d


@specialized
def _solve_two(
    a: complex, b: complex, c: complex, d: complex, x: complex, y: complex, small: float
) -> tuple[complex, complex]:  # fmt: skip
    """Solve a system of two equations, by elimination with the larger pivot."""
    if abs(c.real) + abs(c.imag) > abs(a.real) + abs(a.imag):
        a, b, x, c, d, y = c, d, y, a, b, x
    if abs(a.real) + abs(a.imag) < small:
        a = complex(small, 0.0)
    factor = c / a
    second = _solve_one(d - factor * b, y - factor * x, small)
    return (x - b * second) / a, second


@specialized
def _substitute(t: Array, w: complex, end: int, real: Array, imaginary: Array, small: float, most: float) -> bool:
    """Solve (T - w) x = r for the leading ``end`` rows of a Schur form; a real w has no imaginary part of x."""
    is_complex = w.imag != 0
    j = end - 1
    while j >= 0:
        is_pair = j > 0 and t[j - 1, j] != 0
        low = complex(real[j], imaginary[j] if is_complex else 0.0)
        if is_pair:
            k = j - 1
            high = complex(real[k], imaginary[k] if is_complex else 0.0)
            high, low = _solve_two(
                complex(t[k, k], 0.0) - w, complex(t[j, k], 0.0), complex(t[k, j], 0.0), complex(t[j, j], 0.0) - w,
                high, low, small,
            )  # fmt: skip
        else:
            k, high = j, complex(0.0, 0.0)
            low = _solve_one(complex(t[j, j], 0.0) - w, low, small)
        if not max(abs(high.real), abs(high.imag), abs(low.real), abs(low.imag)) < most:
            return False
        kind = real.dtype.type
        real[j] = low.real
        if is_pair:
            real[k] = high.real
            add_two(real[:k], -kind(high.real), t[k, :k], -kind(low.real), t[j, :k])
        else:
            add(real[:k], -kind(low.real), t[j, :k])
        if is_complex:
            imaginary[j] = low.imag
            if is_pair:
                imaginary[k] = high.imag
                add_two(imaginary[:k], -kind(high.imag), t[k, :k], -kind(low.imag), t[j, :k])
            else:
                add(imaginary[:k], -kind(low.imag), t[j, :k])
        j = k - 1
    return True


@specialized
def _vectors_of_triangle(
    t: Array, real: Array, imaginary: Array, x: Array, unit: float, least: float, most: float
) -> bool:  # fmt: skip
    """Write the eigenvectors of a Schur form as columns; of a pair, the real and the imaginary part of one."""
    size = t.shape[0]
    x[:] = 0
    k = size - 1
    while k >= 0:
        w = complex(real[k], abs(imaginary[k]))
        small = max(unit * (abs(w.real) + w.imag), least)
        if w.imag == 0:
            x[k, k] = 1
            for i in range(k):
                x[k, i] = -t[k, i]
            if not _substitute(t, w, k, x[k], x[k], small, most):
                return False
            k -= 1
            continue
        a, b = x[k - 1], x[k]
        if abs(t[k, k - 1]) >= abs(t[k - 1, k]):
            first, second = np.float64(1), w.imag / np.float64(t[k, k - 1])
        else:
            first, second = -w.imag / np.float64(t[k - 1, k]), np.float64(1)
        a[k - 1], b[k] = first, second
        for i in range(k - 1):
            a[i] = -first * t[k - 1, i]
            b[i] = -second * t[k, i]
        if not _substitute(t, w, k - 1, a, b, small, most):
            return False
        k -= 2
    return True


@specialized
def _write_real(v: Array, out: Array) -> None:
    """Write a column as a vector of length 1."""
    total: Any = 0.0
    for i in range(v.size):
        total += np.float64(v[i]) * np.float64(v[i])
    factor = 1 / math.sqrt(total)
    for i in range(v.size):
        out[i] = v[i] * factor


@specialized
def _write_pair(a: Array, b: Array, out: Array, other: Array) -> None:
    """Write a complex vector, and its conjugate, with length 1; its largest element is real."""
    total: Any = 0.0
    top: Any = 0.0
    chosen = 0
    for i in range(a.size):
        size = np.float64(a[i]) * np.float64(a[i]) + np.float64(b[i]) * np.float64(b[i])
        total += size
        if size > top:
            chosen, top = i, size
    factor = 1 / (math.sqrt(total) * math.sqrt(top))
    c, s = np.float64(a[chosen]) * factor, np.float64(b[chosen]) * factor
    for i in range(a.size):
        x, y = np.float64(a[i]), np.float64(b[i])
        re, im = c * x + s * y, c * y - s * x
        if i == chosen:
            im = np.float64(0)
        out[i] = complex(re, im)
        other[i] = complex(re, -im)


@specialized
def _write(v: Array, scales: Array, imaginary: Array, out: Array) -> None:
    """Write the eigenvectors, undoing the scaling of rows; element (i, j) of ``out`` is at [i, j]."""
    size, j = v.shape[0], 0
    for k in range(size):
        for i in range(size):
            v[k, i] = v[k, i] * scales[i]
    while j < size:
        if imaginary[j] == 0:
            _write_real(v[j], out[:, j])
            j += 1
        else:
            _write_pair(v[j], v[j + 1], out[:, j], out[:, j + 1])
            j += 2


@compiled_for_reals(
    "int64", "T[:,:,:]", "C[:,:]", "C[:,:,:]", "T[:,:,::1]", "T[:,::1]", "T[:,::1]", "float64[::1]", returns="int64"
)
def eig(
    function: int, source: Array, values: Array, out: Array, work: Array, rows: Array, lanes: Array, scales: Array
) -> int:  # fmt: skip
    """Write eigenvalues, and eigenvectors where there is memory for them; return whether that could be done.

    ``function`` is the address of BLAS's product. The rest is scratch memory: of three matrices, eight rows, a row for
    each row of ``LANES`` numbers, and a row.
    """
    size, h, x = source.shape[1], work[0], work[2]
    z = work[1] if out.size else work[1, :0]
    is_double = source.itemsize == 8
    unit, least, most = (_UNIT, _LEAST, _MOST) if is_double else (_UNIT_SINGLE, _LEAST_SINGLE, _MOST_SINGLE)
    real, imaginary, reflections = rows[0], rows[1], rows[2:6].reshape(-1, 4)
    zero = h.dtype.type(0)
    for b in range(source.shape[0]):
        for j in range(size):
            for i in range(size):
                h[j, i] = source[b, i, j]
        if not is_moderate(h) or separates(h):
            return 0
        balance(h, scales)
        factors, products = rows[6], rows[7]
        reduce(h, factors, products)
        if z.size:
            form_reflections(h, factors, z, products)
        else:
            clear_reflections(h)
        if not schur(h, z, real, imaginary, reflections, lanes, unit, least):
            return 0
        for i in range(size):
            values[b, i] = complex(real[i], imaginary[i])
        if z.size:
            if not _vectors_of_triangle(h, real, imaginary, x, unit, least, most):
                return 0
            product(
                function, _N, _N, size, size, size, z.ctypes.data, size, x.ctypes.data, size, zero, h.ctypes.data, size
            )
            _write(h, scales, imaginary, out[b])
    return 1

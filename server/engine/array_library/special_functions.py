"""Where special functions come from: SciPy on the host, CuPy's counterpart on a GPU; and a fast error function."""

from __future__ import annotations

from typing import Any

import numpy as np

from server.engine.compiled.error_function import COEFFICIENTS, END

from .cache_blocks import in_blocks


def special(xp: Any) -> Any:
    """The module of special functions that belongs to an array library."""
    if xp is np:
        import scipy.special

        return scipy.special
    import cupyx.scipy.special

    return cupyx.scipy.special


def erf(xp: Any, input: Any, out: Any) -> None:
    """The error function; in float32 on the host ten times as fast as SciPy's, to 3e-7 of the value."""
    if xp is not np or out.dtype.char != "f":
        special(xp).erf(input, out=out)
        return
    for piece, target in in_blocks(xp, input, out):
        _erf_by_tanh(piece, target)


def gammainc(xp: Any, input: Any, other: Any, out: Any) -> None:
    """Write the regularized lower incomplete gamma function."""
    _write_with_limits(xp, special(xp).gammainc, input, other, out, 1)


def gammaincc(xp: Any, input: Any, other: Any, out: Any) -> None:
    """Write the regularized upper incomplete gamma function."""
    _write_with_limits(xp, special(xp).gammaincc, input, other, out, 0)


def _write_with_limits(xp: Any, function: Any, input: Any, other: Any, out: Any, at_infinity: int) -> None:
    """Write the limits where one operand decides and the other is NaN, as PyTorch and CuPy do and SciPy does not.

    ``out`` may be one of the operands, which are looked at after the function has been computed.
    """
    if xp is not np:
        function(input, other, out=out)
        return
    result = function(input, other)
    is_open = np.isnan(result)
    if is_open.any():
        result = np.where(is_open & np.isnan(input) & (other == 0), 1 - at_infinity, result)
        result = np.where(is_open & np.isnan(input) & (other == np.inf), at_infinity, result)
        result = np.where(is_open & np.isnan(other) & (input == np.inf), 1 - at_infinity, result)
    out[...] = result


def polygamma(xp: Any, input: Any, n: int, out: Any) -> None:
    """Write the n-th derivative of digamma; for n = 1 by the reflection formula where the argument is negative.

    SciPy's series only holds where the argument is positive.
    """
    if n == 0:
        digamma(xp, input, out)
        return
    order = xp.asarray(n)
    result = special(xp).polygamma(order, input)
    if n == 1:
        reflected = (xp.pi / xp.sin(xp.pi * input)) ** 2 - special(xp).polygamma(order, 1 - input)
        result = xp.where(input < 0, reflected, result)
    out[...] = result


def digamma(xp: Any, input: Any, out: Any) -> None:
    """Write the derivative of the logarithm of gamma; at 0 the one-sided limit, as PyTorch, where SciPy has NaN."""
    is_pole = input == 0
    limit = xp.copysign(xp.inf, -input)
    special(xp).digamma(input, out=out)
    xp.copyto(out, limit, where=is_pole)


def _erf_by_tanh(x: Any, out: Any) -> None:
    """tanh(x * p(x ** 2)): the polynomial's error shrinks where tanh is flat."""
    near = x.clip(-END, END)
    squared = near * near
    total = squared * COEFFICIENTS[0]
    for coefficient in COEFFICIENTS[1:-1]:
        total += coefficient
        total *= squared
    total += COEFFICIENTS[-1]
    total *= near
    np.tanh(total, out=out)

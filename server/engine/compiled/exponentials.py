"""Exponentials and hyperbolic tangents of single-precision numbers, as LLVM's instructions without a branch.

Loops that Numba compiles and loops of fused programs are made of the same instructions, so that both give the same
bits. Errors are at most 0.9 and 1.4 units in the last place; NaN stays NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir

Builder = Any
Val = Any
_FLOAT, _INT = ir.FloatType(), ir.IntType(32)
_ROUNDING = 12582912.0
"""1.5 * 2 ** 23: a number that is added to it is rounded to an integer, which is in the lower bits of the sum."""
_POWER = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1, 1, 1)
_TANH = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)
"""The coefficients of Cephes (S. Moshier), those of the highest powers first."""
_SMALL, _SATURATED = 0.625, 10.0
"""Up to here the hyperbolic tangent is a polynomial; from here on it is 1."""


def _number(value: float) -> Val:
    return ir.Constant(_FLOAT, float(np.float32(value)))


def _call(b: Builder, name: str, *operands: Val) -> Val:
    """One of LLVM's own functions."""
    kind = ir.FunctionType(_FLOAT, [_FLOAT] * len(operands))
    return b.call(b.module.declare_intrinsic(f"llvm.{name}", [_FLOAT], kind), operands)


def _fmuladd(b: Builder, x: Val, y: Val, z: Val) -> Val:
    """x * y + z, rounded once where the processor can do so in one instruction."""
    return _call(b, "fmuladd", x, y, z)


def _polynomial(b: Builder, coefficients: Sequence[float], x: Val) -> Val:
    total = _number(coefficients[0])
    for coefficient in coefficients[1:]:
        total = _fmuladd(b, total, x, _number(coefficient))
    return total


def _power_parts(b: Builder, x: Val) -> tuple[Val, Val]:
    """n, in the lower bits of an integer, and p with exp(x) = 2 ** n * p: a polynomial on [-ln(2) / 2, ln(2) / 2]."""
    shifted = _fmuladd(b, x, _number(1.4426950408889634), _number(_ROUNDING))
    n = b.fsub(shifted, _number(_ROUNDING))
    r = _fmuladd(b, n, _number(-0.693359375), x)
    r = _fmuladd(b, n, _number(2.12194440e-4), r)
    return b.bitcast(shifted, _INT), _polynomial(b, _POWER, r)


def _two_to_the(b: Builder, power: Val) -> Val:
    return b.bitcast(b.shl(b.add(power, _INT(127)), _INT(23)), _FLOAT)


def exp(b: Builder, x: Val) -> Val:
    """The exponential; two powers of two multiply the polynomial in turn, so that results may be subnormal."""
    x = b.select(b.fcmp_ordered("<", x, _number(-104)), _number(-104), x)
    x = b.select(b.fcmp_ordered(">", x, _number(89)), _number(89), x)
    power, p = _power_parts(b, x)
    power = b.sub(power, _INT(int(np.float32(_ROUNDING).view(np.int32))))
    half = b.ashr(power, _INT(1))
    return b.fmul(b.fmul(p, _two_to_the(b, half)), _two_to_the(b, b.sub(power, half)))


def tanh(b: Builder, x: Val) -> Val:
    """The hyperbolic tangent: x + x ** 3 * p(x ** 2) near 0, elsewhere 1 - 2 / (exp(2 |x|) + 1) with the sign of x."""
    size = _call(b, "fabs", x)
    square = b.fmul(x, x)
    near = _fmuladd(b, b.fmul(size, square), _polynomial(b, _TANH, square), size)
    bounded = b.select(b.fcmp_ordered(">", size, _number(_SATURATED)), _number(_SATURATED), size)
    power, p = _power_parts(b, b.fadd(bounded, bounded))
    scaled = b.bitcast(b.add(b.bitcast(p, _INT), b.shl(power, _INT(23))), _FLOAT)
    far = b.fsub(_number(1), b.fdiv(_number(2), b.fadd(scaled, _number(1))))
    return _call(b, "copysign", b.select(b.fcmp_ordered("<", size, _number(_SMALL)), near, far), x)

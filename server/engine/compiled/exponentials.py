"""The exponential of one single-precision number, written as LLVM's instructions without a branch.

Loops that Numba compiles and loops of fused programs are made of the same instructions, so that both give the same
bits. The error is below one unit in the last place; NaN stays NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

Builder = Any
Val = Any
_FLOAT, _INT = ir.FloatType(), ir.IntType(32)
_ROUNDING = 12582912.0
"""1.5 * 2 ** 23: a number that is added to it is rounded to an integer, which is in the lower bits of the sum."""
_POWER = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1, 1, 1)
"""The coefficients of Cephes (S. Moshier)."""


def _number(value: float) -> Val:
    return ir.Constant(_FLOAT, float(np.float32(value)))


def _fmuladd(b: Builder, x: Val, y: Val, z: Val) -> Val:
    """x * y + z, rounded once where the processor can do so in one instruction."""
    kind = ir.FunctionType(_FLOAT, [_FLOAT] * 3)
    return b.call(b.module.declare_intrinsic("llvm.fmuladd", [_FLOAT], kind), [x, y, z])


def _power_parts(b: Builder, x: Val) -> tuple[Val, Val]:
    """n, as an integer, and p with exp(x) = 2 ** n * p: p is a polynomial on [-ln(2) / 2, ln(2) / 2]."""
    shifted = _fmuladd(b, x, _number(1.4426950408889634), _number(_ROUNDING))
    n = b.fsub(shifted, _number(_ROUNDING))
    r = _fmuladd(b, n, _number(-0.693359375), x)
    r = _fmuladd(b, n, _number(2.12194440e-4), r)
    power = b.sub(b.bitcast(shifted, _INT), _INT(int(np.float32(_ROUNDING).view(np.int32))))
    p = _number(_POWER[0])
    for coefficient in _POWER[1:]:
        p = _fmuladd(b, p, r, _number(coefficient))
    return power, p


def _two_to_the(b: Builder, power: Val) -> Val:
    return b.bitcast(b.shl(b.add(power, _INT(127)), _INT(23)), _FLOAT)


def exp(b: Builder, x: Val) -> Val:
    """The exponential; two powers of two multiply the polynomial in turn, so that results may be subnormal."""
    x = b.select(b.fcmp_ordered("<", x, _number(-104)), _number(-104), x)
    x = b.select(b.fcmp_ordered(">", x, _number(89)), _number(89), x)
    power, p = _power_parts(b, x)
    half = b.ashr(power, _INT(1))
    return b.fmul(b.fmul(p, _two_to_the(b, half)), _two_to_the(b, b.sub(power, half)))

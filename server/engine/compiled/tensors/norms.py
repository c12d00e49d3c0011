"""Norms of vectors, and the largest or smallest sum of the rows or columns of matrices, whatever their strides.

Sums are of double precision. Steps count numbers of the type, of which complex ones have two; addresses count bytes.
Functions release the GIL and run on one thread.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..arithmetic import compiled
from ..signals import bytes_of, word
from ..slots import specialized
from ..tiles import element, write

COUNT, SUM, EUCLIDEAN, LARGEST, SMALLEST, CUBIC, POWER = range(7)
"""What a norm is made of: how many numbers are not 0, the sum of their magnitudes, the root of that of their squares,
their extremes, the third root of the sum of cubes, or another power."""
_MAGNITUDE, _INFINITY = (1 << 63) - 1, 0x7FF0000000000000
_STRETCH = 64
"""Numbers that are added up by themselves, so that sums of many lose little where they are added one by one."""
_LEAST_SQUARE, _MOST_SQUARE = 1e-290, 1e290
"""Between these a sum of two squares has lost nothing to underflow or overflow."""


@specialized
def _number(one: float, address: int, place: int) -> Any:
    """The number at a place behind an address, in double precision."""
    return np.float64(element(one, address, place))


@intrinsic  # type: ignore[untyped-decorator]
def _narrowed(typing: Any, one: Any, number: Any) -> Any:
    """A number of double precision as one of the type of the first."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fptrunc(args[1], ir.FloatType()) if signature.args[0].bitwidth == 32 else args[1]

    return one(one, types.float64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _bits(typing: Any, number: Any) -> Any:
    return types.int64(types.float64), lambda context, builder, signature, args: builder.bitcast(
        args[0], ir.IntType(64)
    )


@intrinsic  # type: ignore[untyped-decorator]
def _of_bits(typing: Any, bits: Any) -> Any:
    return types.float64(types.int64), lambda context, builder, signature, args: builder.bitcast(
        args[0], ir.DoubleType()
    )


@specialized
def _extreme(one: float, code: int, address: int, step: int, count: int) -> float:
    """The largest or smallest magnitude, NaN if there is one: magnitudes are ordered as their bits are, NaN last."""
    low, high = _bits(np.inf), 0
    if step == 1:
        for i in range(count):
            size = _bits(_number(one, address, i)) & _MAGNITUDE
            low, high = min(low, size), max(high, size)
    else:
        for i in range(count):
            size = _bits(_number(one, address, i * step)) & _MAGNITUDE
            low, high = min(low, size), max(high, size)
    return float(_of_bits(high if code == LARGEST or high > _INFINITY else low))


@specialized
def _sum(one: float, code: int, address: int, step: int, count: int) -> float:
    """The sum of magnitudes, or of their squares."""
    total = 0.0
    if code == SUM and step == 1:
        for i in range(count):
            total += abs(_number(one, address, i))
    elif step == 1:
        for i in range(count):
            number = _number(one, address, i)
            total += number * number
    else:
        for start in range(0, count, _STRETCH):
            part = 0.0
            for i in range(start, min(start + _STRETCH, count)):
                number = _number(one, address, i * step)
                part += abs(number) if code == SUM else number * number
            total += part
    return total


@specialized
def _powers(code: int, power: float, size: float) -> float:
    """What a norm adds up for a magnitude."""
    if code == COUNT:
        return 0.0 if size == 0 else 1.0
    if code == SUM:
        return size
    if code == EUCLIDEAN:
        return size * size
    return size * size * size if code == CUBIC else size**power


@specialized
def _root(code: int, power: float, total: float) -> float:
    """The norm that a code means, given what was added up for it."""
    if code in (COUNT, SUM):
        return total
    return math.sqrt(total) if code == EUCLIDEAN else total ** (1.0 / power)


@specialized
def _real(one: float, code: int, power: float, address: int, step: int, count: int) -> float:
    """The norm that a code means of real numbers at an address."""
    if code in (LARGEST, SMALLEST):
        return float(_extreme(one, code, address, step, count))
    if code in (SUM, EUCLIDEAN):
        return float(_root(code, power, _sum(one, code, address, step, count)))
    total = 0.0
    for start in range(0, count, _STRETCH):
        part = 0.0
        for i in range(start, min(start + _STRETCH, count)):
            part += _powers(code, power, abs(_number(one, address, i * step)))
        total += part
    return float(_root(code, power, total))


@specialized
def _complex(one: float, code: int, power: float, address: int, step: int, count: int) -> float:
    """The norm that a code means of complex numbers, each of two numbers at an address."""
    total, part, extreme, is_number = 0.0, 0.0, 0.0 if code == LARGEST else np.inf, True
    for i in range(count):
        real, imag = _number(one, address, i * step), _number(one, address, i * step + 1)
        square = real * real + imag * imag
        size = math.sqrt(square) if _LEAST_SQUARE < square < _MOST_SQUARE else math.hypot(real, imag)
        is_number = is_number and size == size
        if code == LARGEST:
            extreme = size if size > extreme else extreme
        elif code == SMALLEST:
            extreme = size if size < extreme else extreme
        else:
            part += _powers(code, power, size)
        if i % _STRETCH == _STRETCH - 1:
            total, part = total + part, 0.0
    if code in (LARGEST, SMALLEST):
        return extreme if is_number else np.nan
    return float(_root(code, power, total + part))


@specialized
def _norms(one: float, power: float, plan: int, source: int, target: int) -> None:
    code, kept, is_complex, size = word(plan, 0), word(plan, 1), word(plan, 2), bytes_of(one)
    for o in range(word(plan, 3)):
        best, is_number = 0.0 if kept == LARGEST else np.inf, True
        for i in range(word(plan, 5)):
            address = source + (o * word(plan, 4) + i * word(plan, 6)) * size
            if is_complex:
                norm = _complex(one, code, power, address, word(plan, 8), word(plan, 7))
            else:
                norm = _real(one, code, power, address, word(plan, 8), word(plan, 7))
            if kept < 0:
                write(target, _narrowed(one, norm))
                target += size
                continue
            is_number = is_number and norm == norm
            best = norm if (norm > best if kept == LARGEST else norm < best) else best
        if kept >= 0:
            write(target, _narrowed(one, best if is_number else np.nan))
            target += size


@compiled("float32", "float64", "int64", "int64", "int64")
def _single(one: float, power: float, plan: int, source: int, target: int) -> None:
    _norms(one, power, plan, source, target)


@compiled("float64", "float64", "int64", "int64", "int64")
def _double(one: float, power: float, plan: int, source: int, target: int) -> None:
    _norms(one, power, plan, source, target)


norms = {"f": _single, "d": _double}
"""Write norms one behind the other, by the real type's character; ``one`` is 1, and ``power`` the order.

``plan`` has integers: the code; LARGEST or SMALLEST where of each batch of norms only that one is written, else -1;
whether numbers are complex; how many batches there are, and the step between them; the same of the vectors of a batch,
and of the numbers of a vector.
"""

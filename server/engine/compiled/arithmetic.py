"""Functions of single float32 numbers that the compiler inlines into loops and vectorises, and conversions of bits.

Each has a relative error of a few units in the last place. NaN stays NaN: comparisons are written so that it passes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from . import exponentials

FAST = {"contract", "reassoc", "nsz", "arcp"}
"""What the compiler may do with sums and products; it must keep NaN and infinities."""
OPTIONS = {"nogil": True, "fastmath": FAST, "error_model": "numpy"}
"""How loops are compiled: without Python's lock, and without its checks of divisions."""
f32: Any = np.float32
i32 = np.int32
_LOWEST, _HIGHEST = f32(-86.6), f32(88.72283)
"""Between these, and no further, ``exp`` is a normal number; the lower one is rounded up."""


EXACT: set[str] = set()
"""The same where each operation is rounded, as NumPy's functions do."""


def compiled(*types: str, flags: set[str] = FAST, returns: str = "void") -> Callable[[Any], Any]:
    """Compile a function of these argument types, and keep the machine code on the disk."""
    options = {**OPTIONS, "fastmath": flags or False}
    decorate: Callable[[Any], Any] = njit(f"{returns}({','.join(types)})", cache=True, **options)
    return decorate


def compiled_for_reals(*types: str, returns: str = "void") -> Callable[[Any], Any]:
    """Compile one function for float32 and float64 elements, which are written ``T`` in the types of its arguments.

    ``C`` stands for the complex numbers that have two of them.
    """
    text = f"{returns}({','.join(types)})"
    kinds = {"float32": "complex64", "float64": "complex128"}
    signatures = [text.replace("T", kind).replace("C", pair) for kind, pair in kinds.items()]
    decorate: Callable[[Any], Any] = njit(signatures, cache=True, **OPTIONS)
    return decorate


HALF_WORDS = {"e": "uint16", "E": "int16"}
"""The integers as which loops take half precision, by the character of NumPy's type: float16 and bfloat16."""


def typed(*types: str, chars: str = "feE", flags: set[str] = FAST) -> Callable[[Any], dict[str, Any]]:
    """Compile a function for several types of elements, by the characters of NumPy's; T stands for an element."""

    def decorate(function: Any) -> dict[str, Any]:
        words = {char: HALF_WORDS.get(char, "float32") for char in chars}
        signatures = {char: [kind.replace("T", word) for kind in types] for char, word in words.items()}
        return {char: compiled(*kinds, flags=flags)(function) for char, kinds in signatures.items()}

    return decorate


inlined: Callable[[Any], Any] = njit(inline="always", **OPTIONS)
"""Compiles a function as a part of those that call it."""


@njit(inline="always")  # type: ignore[untyped-decorator]
def is_same(first: Any, second: Any) -> Any:
    """Whether two arrays begin at one address, as those of an operation in place do."""
    return first.ctypes.data == second.ctypes.data


def _bits(given: Any, wanted: Any, convert: Any) -> Any:
    """A function from one type to another that is an instruction or two of the compiler."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return convert(builder, args[0])

    @intrinsic  # type: ignore[untyped-decorator]
    def function(typing: Any, value: Any) -> Any:
        return wanted(given), generate

    return function


as_float = _bits(types.int32, types.float32, lambda builder, bits: builder.bitcast(bits, ir.FloatType()))
as_bits = _bits(types.float32, types.uint32, lambda builder, number: builder.bitcast(number, ir.IntType(32)))
signed_bits = _bits(types.float32, types.int32, lambda builder, number: builder.bitcast(number, ir.IntType(32)))


full_exp = _bits(types.float32, types.float32, exponentials.exp)
"""The exponential, whose results may be subnormal."""
tanh = _bits(types.float32, types.float32, exponentials.tanh)


@intrinsic  # type: ignore[untyped-decorator]
def wide(typing: Any, element: Any) -> Any:
    """An element of ``typed`` loops in single precision."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        (held,) = args
        if element is types.uint16:
            return builder.fpext(builder.bitcast(held, ir.HalfType()), ir.FloatType())
        if element is types.int16:
            bits = builder.zext(held, ir.IntType(32))
            return builder.bitcast(builder.shl(bits, bits.type(16)), ir.FloatType())
        return held

    return types.float32(element), generate


@intrinsic  # type: ignore[untyped-decorator]
def rounded(typing: Any, number: Any, like: Any) -> Any:
    """A number of single precision as an element of the array ``like``: the nearest, ties to even; NaN stays NaN."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = args[0]
        if like.dtype is types.uint16:
            return builder.bitcast(builder.fptrunc(value, ir.HalfType()), ir.IntType(16))
        if like.dtype is not types.int16:
            return value
        bits = builder.bitcast(value, ir.IntType(32))
        number_of, upper = bits.type, builder.lshr(bits, bits.type(16))
        odd = builder.and_(upper, number_of(1))
        near = builder.lshr(builder.add(builder.add(bits, number_of(0x7FFF)), odd), number_of(16))
        quiet = builder.or_(upper, number_of(0x40))
        return builder.trunc(builder.select(builder.fcmp_unordered("uno", value, value), quiet, near), ir.IntType(16))

    return like.dtype(types.float32, like), generate


@njit(inline="always")  # type: ignore[untyped-decorator]
def _power_parts(x: Any) -> Any:
    """n and p with exp(x) = 2 ** n * p: p is a polynomial on [-ln(2) / 2, ln(2) / 2] (Cephes, S. Moshier)."""
    n = np.rint(x * f32(1.4426950408889634))
    r = x - n * f32(0.693359375)
    r = r + n * f32(2.12194440e-4)
    p = f32(1.9875691500e-4)
    p = p * r + f32(1.3981999507e-3)
    p = p * r + f32(8.3334519073e-3)
    p = p * r + f32(4.1665795894e-2)
    p = p * r + f32(1.6666665459e-1)
    p = p * r + f32(5.0000001201e-1)
    p = p * r * r + r + f32(1.0)
    return n, p


@njit(inline="always")  # type: ignore[untyped-decorator]
def exp(x: Any) -> Any:
    """The exponential; results near and below the smallest normal number are 0."""
    bounded = _LOWEST if x < _LOWEST else x
    bounded = _HIGHEST if bounded > _HIGHEST else bounded
    n, p = _power_parts(bounded)
    result = (p + p) * as_float((i32(n) + i32(126)) << i32(23))
    result = f32(np.inf) if x > _HIGHEST else result
    return f32(0.0) if x < _LOWEST else result


@njit(inline="always")  # type: ignore[untyped-decorator]
def erf(x: Any) -> Any:
    """The error function on [-4, 4], beyond which it is 1 in single precision: a quotient of polynomials (Eigen's)."""
    x = f32(-4.0) if x < f32(-4.0) else x
    x = f32(4.0) if x > f32(4.0) else x
    s = x * x
    p = f32(-2.72614225801306e-10)
    p = p * s + f32(2.77068142495902e-08)
    p = p * s + f32(-2.10102402082508e-06)
    p = p * s + f32(-5.69250639462346e-05)
    p = p * s + f32(-7.34990630326855e-04)
    p = p * s + f32(-2.95459980854025e-03)
    p = p * s + f32(-1.60960333262415e-02)
    q = f32(-1.45660718464996e-05)
    q = q * s + f32(-2.13374055278905e-04)
    q = q * s + f32(-1.68282697438203e-03)
    q = q * s + f32(-7.37332916720468e-03)
    q = q * s + f32(-1.42647390514189e-02)
    return x * p / q


@njit(inline="always")  # type: ignore[untyped-decorator]
def normal_cdf(x: Any) -> Any:
    """(1 + erf(x / sqrt(2))) / 2"""
    return f32(0.5) + f32(0.5) * erf(x * f32(0.7071067811865476))


@njit(inline="always")  # type: ignore[untyped-decorator]
def logistic(x: Any) -> Any:
    """1 / (1 + exp(-x))"""
    return f32(1.0) / (f32(1.0) + exp(-x))


@njit(inline="always")  # type: ignore[untyped-decorator]
def full_logistic(x: Any) -> Any:
    """The same, where the exponential's results may be subnormal."""
    return f32(1.0) / (full_exp(-x) + f32(1.0))


LEAST_KEY, GREATEST_KEY = i32(-0x7F800001), i32(0x7F800000)
"""The keys of minus infinity and of infinity: NaN's are beyond them."""
_DIGITS = i32(0x7FFFFFFF)


@njit(inline="always")  # type: ignore[untyped-decorator]
def key_of(number: Any) -> Any:
    """An integer for a number, in the same order, whose maximum the compiler vectorises."""
    bits = signed_bits(number)
    return bits ^ ((bits >> i32(31)) & _DIGITS)


@njit(inline="always")  # type: ignore[untyped-decorator]
def number_of(key: Any) -> Any:
    """The number that has a key."""
    return as_float(i32(key ^ ((key >> i32(31)) & _DIGITS)))


@njit  # type: ignore[untyped-decorator]
def largest(row: Any, count: int) -> Any:
    """The largest of the first elements, -inf of none; NaN may count as an infinity of its sign."""
    top = LEAST_KEY
    for i in range(count):
        top = max(top, key_of(row[i]))
    return number_of(top)

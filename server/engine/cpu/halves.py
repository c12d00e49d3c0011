"""Conversions between half precision and float32 on the host.

Compiled loops do it in one pass. Where there are none, integer arithmetic on bits is vectorised, whereas NumPy converts
between float16 and float32 one element at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from server.engine import compiled

from .memory import filled, scratch

Array = Any
_REBIAS = np.float32(2.0**112)
"""The factor that corrects a float16 exponent that was read as one of float32: the biases are 15 and 127."""
_KEPT_BITS = np.int32(-0x70002000)
"""A mask of the sign and of the bits to which a shift by 13 moves float16's exponent and mantissa."""
_INFINITY = np.int16(0x7C00)
"""The bits of float16's infinity; without the sign, those of infinities and NaN are at or above it."""

_LEAST = 1 << 11
"""Elements from which on a compiled loop is faster than NumPy's functions: its call takes a microsecond."""


def is_half(array: Array) -> bool:
    """Whether elements are float16 or bfloat16."""
    return array.dtype.char in "eE"


_WORDS = {"e": np.dtype(np.uint16), "E": np.dtype(np.int16)}
"""What compiled loops take for half precision, as ``compiled.arithmetic.typed`` says."""


def words(array: Array) -> Array:
    """An array as compiled loops take it: half precision as integers of 16 bits."""
    kind = _WORDS.get(array.dtype.char)
    return array if kind is None else array.view(kind)


def widen(source: Array, target: Array) -> None:
    """Write a half-precision array as float32, exactly."""
    are_plain = source.flags.c_contiguous and target.flags.c_contiguous and source.size
    loops = compiled.kernels("elementwise") if are_plain and source.size >= _LEAST else None
    if loops is not None:
        loops.widen[source.dtype.char](words(_vector(source)), _vector(target))
    elif source.dtype.char == "e" and are_plain and not _has_infinity_or_nan(source):
        bits = target.view(np.int32)
        np.left_shift(source.view(np.int16), 13, out=bits, dtype=np.int32)
        np.bitwise_and(bits, _KEPT_BITS, out=bits)
        np.multiply(target, _REBIAS, out=target)
    else:
        np.copyto(target, source)


def _vector(array: Array) -> Array:
    return array if array.ndim == 1 else array.reshape(-1)


def _has_infinity_or_nan(source: Array) -> bool:
    sizes = scratch("sizes", source.shape, "h")
    np.bitwise_and(source.view(np.int16), np.int16(0x7FFF), out=sizes)
    return bool(np.maximum.reduce(sizes, axis=None) >= _INFINITY)


def narrow(source: Array, target: Array) -> None:
    """Round a float32 array to half precision, to the nearest even."""
    are_plain = source.flags.c_contiguous and target.flags.c_contiguous and source.size
    loops = compiled.kernels("elementwise") if are_plain and source.size >= _LEAST else None
    if loops is not None:
        loops.narrow[target.dtype.char](_vector(source), words(_vector(target)))
    elif target.dtype.char != "e" or not are_plain or not _narrow_regular(source, target):
        np.copyto(target, source, casting="unsafe")


_EXPONENT = np.int32(0x7F800000)
"""The mask of the exponent of a float32."""
_LEAST_NORMAL = 2.0**-14
"""The smallest normal number of float16."""
_TOO_LARGE = 2.0**15
"""From this power of two on, rounding may overflow float16."""
_ROUNDING_FACTOR = np.float32(1.5 * 2.0**13)
"""Adding a number's power of two times this factor rounds the number to the precision of float16."""


def _narrow_regular(source: Array, target: Array) -> bool:
    """Write float32 as float16 by arithmetic on bits; False, and nothing written, for large or not finite numbers."""
    bits = source.view(np.int32)
    magic, rounded = scratch("magic", source.shape, "f"), scratch("rounded half", source.shape, "f")
    np.bitwise_and(bits, _EXPONENT, out=magic.view(np.int32))
    if not np.maximum.reduce(magic, axis=None) < _TOO_LARGE:
        return False
    np.maximum(magic, filled(_LEAST_NORMAL, magic.shape, "f"), out=magic)
    np.multiply(magic, _ROUNDING_FACTOR, out=magic)
    np.subtract(np.add(source, magic, out=rounded), magic, out=rounded)
    np.divide(rounded, _REBIAS, out=rounded)
    digits, sign = rounded.view(np.int32), magic.view(np.int32)
    np.bitwise_and(np.right_shift(digits, 13, out=digits), np.int32(0x7FFF), out=digits)
    np.bitwise_and(np.right_shift(bits, 16, out=sign), np.int32(0x8000), out=sign)
    np.bitwise_or(digits, sign, out=digits)
    np.copyto(target.view(np.uint16), digits, casting="unsafe")
    return True


def widened(source: Array, name: str) -> Array:
    """``source``, or if it has half precision a float32 copy in the scratch memory called ``name``."""
    if not is_half(source):
        return source
    copy = scratch(name, source.shape, "f")
    widen(source, copy)
    return copy

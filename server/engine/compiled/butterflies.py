"""Discrete Fourier transforms of a few complex vectors in registers, each lane by itself.

Forward ones: factors are exp(-2 pi i k / n). A backward one is a forward one of numbers whose two parts are exchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from server.engine.array_library.fourier_tables import roots

from .signals import instructions
from .vectors import LONG, Pair, SparseVectors, Vectors

_DIAGONAL = math.sqrt(0.5)


def _turned(v: Vectors, a: Pair) -> Pair:
    """The product with -i."""
    return a[1], v.negative(a[0])


def _of_two(v: Vectors, x: list[Pair]) -> list[Pair]:
    return [v.plus(*x), v.minus(*x)]


def _of_four(v: Vectors, x: list[Pair]) -> list[Pair]:
    even, odd = _of_two(v, x[::2]), _of_two(v, x[1::2])
    (real, imag), (a, b) = even[1], odd[1]
    plus, minus = v.builder.fadd, v.builder.fsub
    return [
        v.plus(even[0], odd[0]), (plus(real, b), minus(imag, a)), v.minus(even[0], odd[0]),
        (minus(real, b), plus(imag, a)),
    ]  # fmt: skip


def _of_eight(v: Vectors, x: list[Pair]) -> list[Pair]:
    even, odd = _of_four(v, x[::2]), _of_four(v, x[1::2])
    plus, minus = v.builder.fadd, v.builder.fsub
    half, opposite = v.constant(_DIAGONAL), v.constant(-_DIAGONAL)
    results: list[Any] = [None] * 8
    for k in (0, 2):
        (real, imag), (a, b) = even[k], odd[k] if k == 0 else (odd[k][1], v.negative(odd[k][0]))
        results[k], results[k + 4] = (plus(real, a), plus(imag, b)), (minus(real, a), minus(imag, b))
    turned = {
        1: (plus(*odd[1]), minus(odd[1][1], odd[1][0])), 3: (minus(odd[3][1], odd[3][0]), v.negative(plus(*odd[3])))
    }  # fmt: skip
    for k, (a, b) in turned.items():
        real, imag = even[k]
        results[k] = v.fma(half, a, real), v.fma(half, b, imag)
        results[k + 4] = v.fma(opposite, a, real), v.fma(opposite, b, imag)
    return results


def _of_odd(v: Vectors, x: list[Pair]) -> list[Pair]:
    """Of an odd number: by the sums and differences of the vectors that are as far from the first one."""
    n, half = len(x), len(x) // 2
    sums = [v.plus(x[k], x[n - k]) for k in range(1, half + 1)]
    differences = [v.minus(x[k], x[n - k]) for k in range(1, half + 1)]
    results: list[Any] = [x[0]] * n
    for each in sums:
        results[0] = v.plus(results[0], each)
    for p in range(1, half + 1):
        (real, imag), (a, b) = x[0], (None, None)
        for k in range(1, half + 1):
            root = complex(roots(np.array(p * k % n), n))
            cosine, sine = v.constant(root.real), v.constant(-root.imag)
            real, imag = v.fma(cosine, sums[k - 1][0], real), v.fma(cosine, sums[k - 1][1], imag)
            if a is None:
                a, b = v.times(sine, differences[k - 1][0]), v.times(sine, differences[k - 1][1])
            else:
                a, b = v.fma(sine, differences[k - 1][0], a), v.fma(sine, differences[k - 1][1], b)
        turned = _turned(v, (a, b))
        results[p], results[n - p] = v.plus((real, imag), turned), v.minus((real, imag), turned)
    return results


def _of_product(v: Vectors, x: list[Pair], parts: int) -> list[Pair]:
    """Of a product of two numbers: so many transforms of the other one, factors, and transforms of so many."""
    n = len(x)
    inner = [transformed(v, x[first::parts]) for first in range(parts)]
    results: list[Any] = [None] * n
    for k in range(n // parts):
        turned = [_times_root(v, part[k], first * k, n) for first, part in enumerate(inner)]
        results[k :: n // parts] = transformed(v, turned)
    return results


def _times_root(v: Vectors, a: Pair, turn: int, n: int) -> Pair:
    """The product with exp(-2 pi i turn / n)."""
    if turn == 0:
        return a
    if 4 * turn == n:
        return _turned(v, a)
    if 2 * turn == n:
        return v.negative(a[0]), v.negative(a[1])
    root = complex(roots(np.array(turn), n))
    return v.product(a, (v.constant(root.real), v.constant(root.imag)))


_POWERS: dict[int, Callable[[Vectors, list[Pair]], list[Pair]]] = {2: _of_two, 4: _of_four, 8: _of_eight}
_PARTS = {6: 2, 9: 3, 10: 2, 12: 4, 14: 2, 15: 3, 16: 4}
"""How many parts a transform of so many numbers has, where it is several transforms."""


def transformed(v: Vectors, x: list[Pair]) -> list[Pair]:
    """Write the instructions of a transform of a few complex vectors."""
    n = len(x)
    return _of_product(v, x, _PARTS[n]) if n in _PARTS else _POWERS.get(n, _of_odd)(v, x)


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def butterfly(
    typing: Any, number: Any, radix: Any, is_twiddled: Any, source: Any, source_step: Any, target: Any,
    target_step: Any, twiddles: Any,
) -> Any:  # fmt: skip
    """Transform ``radix`` complex vectors that are so many bytes apart, which are first multiplied by factors if so.

    Numbers are of the type of ``number``; ``twiddles`` are the complex factors of all but the first vector.
    """
    return types.void(number, radix, is_twiddled, *[types.int64] * 5), _generate


def _generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    size = signature.args[0].bitwidth // 8
    radix, is_twiddled = [kind.literal_value for kind in signature.args[1:3]]
    source, source_step, target, target_step, twiddles = args[3:]
    v = Vectors(builder, size)
    x = [v.pair_at(builder.add(source, v.scaled(k, source_step))) for k in range(radix)]
    if is_twiddled:
        factors = [v.number_at(v.moved(twiddles, 2 * k * size)) for k in range(radix - 1)]
        x = [x[0], *[v.product(a, b) for a, b in zip(x[1:], factors, strict=True)]]
    for k, value in enumerate(transformed(v, x)):
        v.write_pair(value, builder.add(target, v.scaled(k, target_step)))
    return context.get_dummy_value()


def _whole(name: str, write: Callable[[Any, int, int, Any, Any], None]) -> Any:
    """A function of the number of slots, and of where they are read and written one behind the other."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        write(builder, signature.args[0].bitwidth // 8, signature.args[1].literal_value, args[2], args[3])
        return context.get_dummy_value()

    def function(typing: Any, number: Any, n: Any, source: Any, target: Any) -> Any:
        return types.void(number, n, types.int64, types.int64), generate

    function.__name__ = function.__qualname__ = name
    return intrinsic(prefer_literal=True)(function)


def _complex(builder: Any, size: int, n: int, source: Any, target: Any) -> None:
    v = Vectors(builder, size)
    slot = 2 * v.lanes * size
    x = [v.pair_at(v.moved(source, k * slot)) for k in range(n)]
    for k, value in enumerate(transformed(v, x)):
        v.write_pair(value, v.moved(target, k * slot))


def _real(builder: Any, size: int, n: int, source: Any, target: Any) -> None:
    v = SparseVectors(builder, size)
    slot = 2 * v.lanes * size
    x = [(v.load(v.moved(source, k * slot)), None) for k in range(n)]
    for k, (real, imag) in enumerate(transformed(v, x)[: n // 2 + 1]):
        v.write_pair((real, v.constant(0.0) if imag is None else imag), v.moved(target, k * slot))


def _hermitian(builder: Any, size: int, n: int, source: Any, target: Any) -> None:
    v = SparseVectors(builder, size)
    slot = 2 * v.lanes * size
    half = [v.pair_at(v.moved(source, k * slot)) for k in range(n // 2 + 1)]
    half[0] = half[0][0], None
    if n % 2 == 0:
        half[-1] = half[-1][0], None
    mirrored = [(real, v.negative(imag)) for real, imag in half[(n - 1) // 2 : 0 : -1]]
    exchanged = [(imag, real) for real, imag in (*half, *mirrored)]
    for k, (_, real) in enumerate(transformed(v, exchanged)):
        v.store(real, v.moved(target, k * slot))


transform_complex, transform_real, transform_hermitian = [
    _whole(write.__name__, write) for write in (_complex, _real, _hermitian)
]
"""Transform ``n`` slots: complex ones, real ones to the first n // 2 + 1, or such of a Hermitian signal to real ones.

Only the first parts of slots that are real are looked at, and written. The last of the three is a backward transform.
"""


@instructions
def add_odd(
    v: Vectors, _: Any, first: Any, sums: Any, count: Any, roots: Any, low: Any, high: Any
) -> None:  # fmt: skip
    """Write two of the results of an odd number of slots, given the first of them, and sums and differences of others.

    ``roots`` are ``count`` cosines and sines.
    """
    builder = v.builder
    before, loop, after = builder.block, builder.append_basic_block("sums"), builder.append_basic_block("results")
    start, zero = v.pair_at(first), v.constant(0.0)
    builder.branch(loop)
    builder.position_at_end(loop)
    number = builder.phi(LONG)
    totals = [builder.phi(v.vector) for _ in range(4)]
    slot = 2 * v.lanes * v.bytes
    place = builder.add(sums, v.scaled(2 * slot, number))
    cosine, sine = v.number_at(builder.add(roots, v.scaled(2 * v.bytes, number)))
    values = *v.pair_at(place), *v.pair_at(v.moved(place, slot))
    following = [v.fma(f, x, t) for f, x, t in zip((cosine, cosine, sine, sine), values, totals, strict=True)]
    next_number = builder.add(number, ir.Constant(LONG, 1))
    for phi, initial, then in zip(
        (number, *totals), (ir.Constant(LONG, 0), *start, zero, zero), (next_number, *following), strict=True
    ):
        phi.add_incoming(initial, before)
        phi.add_incoming(then, loop)
    builder.cbranch(builder.icmp_signed("<", next_number, count), loop, after)
    builder.position_at_end(after)
    even, turned = (following[0], following[1]), _turned(v, (following[2], following[3]))
    v.write_pair(v.plus(even, turned), low)
    v.write_pair(v.minus(even, turned), high)

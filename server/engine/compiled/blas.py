"""Products of matrices by BLAS, which is called by its address, and what attention does between two of them.

Matrices are row-major; addresses count bytes, all else counts elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .arithmetic import compiled, f32
from .loops import attention_changes, attention_weights, whole
from .tiles import write

Array = Any
_int, _byte = ir.IntType(32), ir.IntType(8)


@intrinsic  # type: ignore[untyped-decorator]
def product(
    typing: Any, function: Any, trans_a: Any, trans_b: Any, m: Any, n: Any, k: Any, a: Any, lda: Any, b: Any, ldb: Any,
    beta: Any, c: Any, ldc: Any,
) -> Any:  # fmt: skip
    """Call BLAS's product of column-major matrices of beta's type at an address: c = op(a) op(b) + beta * c.

    The letters of op are codes.
    """
    integers = types.int64
    return types.void(*[integers] * 10, beta, *[integers] * 2), _generate_gemm


def _generate_gemm(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    function, *given = args
    number = context.get_value_type(signature.args[10])
    kinds = [_byte, _byte, _int, _int, _int, number, None, _int, None, _int, number, None, _int]
    given.insert(5, ir.Constant(number, 1.0))
    pointers = []
    for value, kind in zip(given, kinds, strict=True):
        if kind is None:
            pointers.append(builder.inttoptr(value, _byte.as_pointer()))
            continue
        slot = cgutils.alloca_once(builder, kind)
        builder.store(builder.trunc(value, kind) if isinstance(value.type, ir.IntType) else value, slot)
        pointers.append(builder.bitcast(slot, _byte.as_pointer()))
    kind = ir.FunctionType(ir.VoidType(), [pointer.type for pointer in pointers])
    builder.call(builder.inttoptr(function, kind.as_pointer()), pointers)
    return context.get_dummy_value()


_N, _T = ord("N"), ord("T")


def _product(number: str) -> Any:
    """Only what a file can hold may be an outer name here: machine code is kept by it."""
    one, zero = (f32(1), f32(0)) if number == "float32" else (1.0, 0.0)

    @compiled(*["int64"] * 12, f"{number}[::1]")
    def multiply(
        function: int, a_turned: int, b_turned: int, m: int, n: int, k: int, a: int, lda: int, b: int, ldb: int,
        out: int, ldo: int, bias: Array,
    ) -> None:  # fmt: skip
        """out = a b + bias, where a is (m, k), or (k, m) if it is turned, and b (k, n); an empty bias is none."""
        for r in range(m if bias.size else 0):
            row = out + r * ldo * bias.itemsize
            for c in range(n):
                write(row + c * bias.itemsize, bias[c])
        product(
            function, _T if b_turned else _N, _T if a_turned else _N, n, m, k, b, ldb, a, lda,
            one if bias.size else zero, out, ldo,
        )  # fmt: skip

    return multiply


multiply = {"f": _product("float32"), "d": _product("float64")}
"""By the character of the type."""


@compiled("int64", "int64[:,::1]", "int64[::1]", "float32", "boolean", "boolean", "int64", "int64", "float32[:,::1]",
          "float32[::1]")  # fmt: skip
def attention(
    gemm: int, places: Array, sizes: Array, scale: float, is_causal: bool, trains: bool, first: int, last: int,
    logsumexp: Array, memory: Array,
) -> None:  # fmt: skip
    """Attend, for some blocks of rows of some heads. ``places`` has addresses and strides of query, key, value, output:
    of samples, heads and rows. ``sizes``: heads, those that share a key, rows, columns, width, value's width, block's
    rows. ``logsumexp`` is (samples * heads, rows); ``memory`` is scratch, of a block's scores, in ``whole`` rows,
    and twice its rows.
    """
    heads, shared, length, columns, width, depth, rows = sizes
    blocks = (length + rows - 1) // rows
    for task in range(first, last):
        at, block = task // blocks, task % blocks
        n, h = at // heads, at % heads
        start = block * rows
        count = min(rows, length - start)
        seen = min(start + count, columns) if is_causal else columns
        q = places[0, 0] + 4 * (n * places[0, 1] + h * places[0, 2] + start * places[0, 3])
        k = places[1, 0] + 4 * (n * places[1, 1] + h // shared * places[1, 2])
        v = places[2, 0] + 4 * (n * places[2, 1] + h // shared * places[2, 2])
        o = places[3, 0] + 4 * (n * places[3, 1] + h * places[3, 2] + start * places[3, 3])
        step, behind = whole(seen), rows * whole(columns)
        scores = memory[: count * step].reshape(1, count, step)
        tops = memory[behind : behind + count].reshape(1, count)
        totals = memory[behind + rows : behind + rows + count].reshape(1, count)
        s = memory.ctypes.data
        product(gemm, _T, _N, seen, count, width, k, places[1, 3], q, places[0, 3], f32(0), s, step)
        attention_weights(scores, scale, start if is_causal else -1, seen, tops, totals)
        for r in range(count):
            factor = f32(1) / totals[0, r] if totals[0, r] > f32(0) else totals[0, r] + f32(1)
            for c in range(step):
                scores[0, r, c] *= factor
            if trains:
                logsumexp[at, start + r] = tops[0, r] + np.log(totals[0, r])
        product(gemm, _N, _N, depth, count, seen, v, places[2, 3], s, step, f32(0), o, places[3, 3])


@compiled("int64", "int64[:,::1]", "int64[::1]", "float32", "boolean", "int64", "int64", "float32[:,::1]",
          "float32[::1]")  # fmt: skip
def attention_gradients(
    gemm: int, places: Array, sizes: Array, scale: float, is_causal: bool, first: int, last: int, logsumexp: Array,
    memory: Array,
) -> None:  # fmt: skip
    """The gradients of attention, for some heads of keys: ``places`` has query, key, value, the output's gradient, and
    the gradients of the first three, which are zeros at first. The rest is as in ``attention``; ``memory`` is two
    blocks' scores.
    """
    heads, shared, length, columns, width, depth, rows = sizes
    keys = heads // shared
    for task in range(first, last):
        n, own = task // keys, task % keys
        k = places[1, 0] + 4 * (n * places[1, 1] + own * places[1, 2])
        v = places[2, 0] + 4 * (n * places[2, 1] + own * places[2, 2])
        dk = places[5, 0] + 4 * (n * places[5, 1] + own * places[5, 2])
        dv = places[6, 0] + 4 * (n * places[6, 1] + own * places[6, 2])
        for h in range(own * shared, (own + 1) * shared):
            for start in range(0, length, rows):
                count = min(rows, length - start)
                seen = min(start + count, columns) if is_causal else columns
                q = places[0, 0] + 4 * (n * places[0, 1] + h * places[0, 2] + start * places[0, 3])
                g = places[3, 0] + 4 * (n * places[3, 1] + h * places[3, 2] + start * places[3, 3])
                dq = places[4, 0] + 4 * (n * places[4, 1] + h * places[4, 2] + start * places[4, 3])
                step, behind = whole(seen), rows * whole(columns)
                weights = memory[: count * step].reshape(1, count, step)
                changes = memory[behind : behind + count * step].reshape(1, count, step)
                w, c = memory.ctypes.data, memory.ctypes.data + 4 * behind
                product(gemm, _T, _N, seen, count, width, k, places[1, 3], q, places[0, 3], f32(0), w, step)
                product(gemm, _T, _N, seen, count, depth, v, places[2, 3], g, places[3, 3], f32(0), c, step)
                shifts = logsumexp[n * heads + h, start : start + count].reshape(1, count)
                attention_changes(weights, changes, scale, start if is_causal else -1, seen, shifts)
                product(gemm, _N, _T, depth, seen, count, g, places[3, 3], w, step, f32(1), dv, places[6, 3])
                product(gemm, _N, _T, width, seen, count, q, places[0, 3], c, step, f32(1), dk, places[5, 3])
                product(gemm, _N, _N, width, count, seen, k, places[1, 3], c, step, f32(0), dq, places[4, 3])

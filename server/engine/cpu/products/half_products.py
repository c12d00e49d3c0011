"""Products of matrices of half precision, which are computed in single precision.

Operands are widened, and results are rounded, by compiled loops that threads share, instead of by NumPy, which takes a
nanosecond or two for each element. Where the processor multiplies pairs of bfloat16 in less time than numbers in single
precision, products of two matrices are made of these (``compiled/tensors/pairs``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from server.engine import compiled, keys
from server.engine.array_library.addresses import data_address
from server.engine.array_library.dtypes import HALVES
from server.engine.cpu.halves import narrow, widen, words
from server.engine.device import threads
from server.engine.operators import OPERATORS, Request
from server.engine.registry import prepares
from server.engine.value import Launch, Value
from telegrad_protocol.dtypes import bfloat16
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.linear_algebra import linalg as ops

Array = Any


def _in_memory_order(array: Array) -> Array:
    """A view of an array whose dimensions are ordered as they lie in memory."""
    return array.transpose(sorted(range(array.ndim), key=lambda d: -array.strides[d]))


def _wide(array: Array) -> Array:
    """A copy in single precision, in the same order in memory."""
    copy = np.empty_like(array, np.float32)
    source, target = _in_memory_order(array), _in_memory_order(copy)
    loops = compiled.kernels("elementwise")
    if loops is not None and source.flags.c_contiguous and target.flags.c_contiguous:
        threads.run_vectors(loops.widen[array.dtype.char], words(source), target)
    else:
        widen(array, copy)
    return copy


def _round_into(target: Array, source: Array) -> None:
    loops = compiled.kernels("elementwise")
    if loops is not None and target.flags.c_contiguous:
        threads.run_vectors(loops.narrow[target.dtype.char], source, words(target))
    else:
        narrow(source, target)


_LEAST_PRODUCTS = 1 << 20
"""Multiply-adds from which on a product is worth packing its right side."""


def multiply_pairs(left: Array, right: Array, bias: Array | None, out: Array) -> bool:
    """Write a product of bfloat16, and a bias that is added to its rows, on all threads.

    False, and nothing written, where the processor has no fast instruction for that, or the sides do not suit it.
    """
    (m, k), n = left.shape, right.shape[1]
    pairs = (
        compiled.kernels("tensors.pairs") if out.dtype.char == "E" and out.flags.c_contiguous and not k % 2 else None
    )
    if pairs is None or not pairs.PAIRS_PAY or m * n * k < _LEAST_PRODUCTS:
        return False
    rows = np.ascontiguousarray(words(left))
    is_turned = right.T.flags.c_contiguous and not right.flags.c_contiguous
    packed = np.ascontiguousarray(words(right.T if is_turned else right))
    added = np.zeros(0, np.float32) if bias is None else bias.astype(np.float32)
    blocks = -(-n // pairs.WIDTH)
    wanted = len(threads.shares_of_products(m * n * k, m * n * k))
    splits = -(-wanted // blocks)
    calls = [
        (units.start, units.stop, splits, data_address(rows), packed, is_turned, added, words(out))
        for units in threads.parts_of(blocks * splits, min(wanted, blocks * splits))
    ]
    threads.run_loop(pairs.multiply, calls)
    return True


def _as_pairs(name: str, args: Any, out: Value) -> bool:
    """Compute ``mm`` or ``linear`` of values in that way, if it does."""
    if name == "mm":
        return multiply_pairs(args[0].array, args[1].array, None, out.array)
    input, weight, bias = args[:3]
    target, width = out.array, weight.array.shape[-1]
    if name != "linear" or weight.array.ndim != 2 or not target.flags.c_contiguous:
        return False
    added = None if bias is None else bias.array
    if added is not None and added.ndim != 1:
        return False
    rows = target.reshape(-1, target.shape[-1])
    return multiply_pairs(input.array.reshape(-1, width), weight.array.T, added, rows)


def _are_large_halves(metas: Iterable[Meta]) -> bool:
    """Whether all have half precision, and one of them is worth a compiled loop."""
    metas = list(metas)
    return all([meta.dtype in HALVES for meta in metas]) and max([meta.numel for meta in metas]) >= compiled.LEAST


def _prepare(request: Request) -> Launch | None:
    given = [arg for arg in request.args if isinstance(arg, Meta)]
    if not _are_large_halves([*given, *request.outs]) or not all([meta.numel for meta in given]):
        return None
    op = request.op
    function = OPERATORS[op.name].kernels[keys.CPU].function
    names = [param.name for param in op.params[op.positional :]]
    fixed = dict(zip(names, request.args[op.positional :], strict=True))
    shapes = [meta.shape for meta in request.outs]
    is_single = isinstance(op.infer(request.args), Meta)
    others = request.args
    is_bfloat16 = op.name in ("mm", "linear") and all([meta.dtype is bfloat16 for meta in given])

    def launch(args: Any, outs: Any) -> None:
        if is_bfloat16 and _as_pairs(op.name, args, outs[0]):
            return
        pairs = zip(args[: op.positional], others, strict=False)
        operands = [_wide(arg.array) if arg.__class__ is Value else other for arg, other in pairs]
        results = [np.empty(shape, np.float32) for shape in shapes]
        function(np, *operands, **fixed, out=results[0] if is_single else tuple(results))
        for out, result in zip(outs, results, strict=True):
            _round_into(out.array, result)

    return launch


for _op in (ops.mm, ops.bmm, ops.addmm, ops.baddbmm, ops.linear, ops._linear_backward):
    prepares(_op, keys.CPU)(_prepare)

"""Dropout in one pass: random words are drawn, compared and used while they are in the first-level cache."""

from __future__ import annotations

import math
from typing import Any

from server.engine import compiled, keys
from server.engine.array_library.random_words import philox
from server.engine.device import threads
from server.engine.ops.layers import nn as generic
from server.engine.registry import kernel
from telegrad_protocol.ops.layers import nn as ops

Array = Any
_COST = 4
"""How many times as long an element takes as one that is only copied."""


def _loops(mask: Array, *arrays: Array) -> Any:
    """The compiled loops if they take these arrays, and there are elements enough for them; else None."""
    if mask.size < compiled.LEAST or mask.dtype.char != "?" or not mask.flags.c_contiguous:
        return None
    if not all([array.dtype.char == "f" and array.flags.c_contiguous for array in arrays]):
        return None
    return compiled.kernels("philox")


@kernel(ops.native_dropout, keys.CPU)
def native_dropout(xp, input, p, train, *, generator, out):
    output, mask = out
    loops = None if train is False else _loops(mask, input, output)
    if loops is None:
        generic.native_dropout(xp, input, p, train, generator=generator, out=out)
        return
    seed, block = generator.initial_seed(), generator.reserve(input.size)
    limit, scale = math.ceil((1.0 - p) * 2.0**32), generic.dropout_scale(p)
    source, result, are_kept = (array.reshape(-1) for array in (input, output, mask))
    calls = []
    for share in threads.shares_of(input.size, _COST * input.nbytes, threads.VECTOR):
        first = block + share.start // philox.WORDS_PER_BLOCK
        numbers = philox.signed(seed), philox.signed(first), limit, scale
        calls.append((*numbers, source[share], result[share], are_kept[share]))
    threads.run_loop(loops.dropout, calls)


@kernel(ops.native_dropout_backward, keys.CPU)
def native_dropout_backward(xp, grad_output, mask, scale, *, out):
    loops = _loops(mask, grad_output, out)
    if loops is None:
        generic.native_dropout_backward(xp, grad_output, mask, scale, out=out)
        return
    arrays = [array.reshape(-1) for array in (grad_output, mask, out)]
    shares = threads.shares_of(out.size, 2 * out.nbytes, threads.VECTOR)
    threads.run_loop(loops.dropout_backward, [(*[array[share] for array in arrays], scale) for share in shares])

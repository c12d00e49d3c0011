"""Batch normalization of float32 in training, and the gradient of an embedding: compiled loops that threads share."""

from __future__ import annotations

from typing import Any

import numpy as np

from server.engine import compiled, keys
from server.engine.array_library.indexing import check_index
from server.engine.device import threads
from server.engine.ops import indexing as generic_indexing
from server.engine.ops import normalization as generic
from server.engine.registry import kernel
from telegrad_protocol.ops import indexing
from telegrad_protocol.ops import normalization as ops

Array = Any


def _loops(*arrays: Array | None) -> Any:
    """The compiled loops if all arrays are row-major float32, the first of which is large; else None."""
    if not all([a is None or (a.dtype.char == "f" and a.flags.c_contiguous) for a in arrays]):
        return None
    return compiled.kernels() if arrays[0].size >= compiled.LEAST else None  # type: ignore[union-attr]


def _stack(array: Array) -> Array:
    """(n, channels, ...) as (n, channels, positions)"""
    return array.reshape(*array.shape[:2], -1)


def _on_parts(loop: Any, before: tuple[Any, ...], after: tuple[Any, ...], length: int, nbytes: int) -> None:
    """Call ``loop(*before, first, last, *after)`` for parts of a dimension, on all threads."""
    shares = threads.shares_of(length, nbytes)
    threads.run_loop(loop, [(*before, share.start, share.stop, *after) for share in shares])


@kernel(ops._batch_norm, keys.CPU)
def batch_norm(xp, input, weight, bias, eps, *, out):
    result, mean, var, rstd = out
    loops = _loops(input, weight, bias, *out) if input.ndim > 2 else None
    if loops is None:
        generic._batch_norm(xp, input, weight, bias, eps, out=out)
        return
    channels = input.shape[1]
    x, y = _stack(input), _stack(result)
    weight = np.ones(channels, "f") if weight is None else weight
    bias = np.zeros(channels, "f") if bias is None else bias
    _on_parts(loops.batch_norm, (x, weight, bias, eps), (y, mean, var, rstd), channels, 2 * input.nbytes)


@kernel(ops._batch_norm_gradients, keys.CPU)
def batch_norm_gradients(xp, grad_out, input, mean, rstd, weight, *, out):
    loops = _loops(input, grad_out, mean, rstd, weight, *out) if input.ndim > 2 else None
    if loops is None:
        generic._batch_norm_gradients(xp, grad_out, input, mean, rstd, weight, out=out)
        return
    by_input, by_weight, by_bias = out
    grad, x, result = _stack(grad_out), _stack(input), _stack(by_input)
    weight = np.ones(input.shape[1], "f") if weight is None else weight
    before, after = (grad, x, mean, rstd, weight), (result, by_weight, by_bias)
    _on_parts(loops.batch_norm_gradients, before, after, input.shape[1], 3 * input.nbytes)


@kernel(indexing.embedding_dense_backward, keys.CPU, movement=True)
def embedding_dense_backward(xp, grad_output, indices, num_weights, padding_idx, scale_grad_by_freq, *, out):
    loops = None if scale_grad_by_freq or grad_output.dtype.char != "f" else _loops(out)
    if loops is None:
        generic_indexing.embedding_dense_backward(
            xp, grad_output, indices, num_weights, padding_idx, scale_grad_by_freq, out=out
        )
        return
    check_index("embedding_dense_backward", indices, num_weights, f"a table of {num_weights} rows")
    places = np.ascontiguousarray(indices.reshape(-1), np.int64)
    rows = np.ascontiguousarray(grad_output.reshape(places.size, out.shape[1]))
    _on_parts(loops.sum_rows, (rows, places), (out,), len(out), rows.nbytes + out.nbytes)
    if 0 <= padding_idx < num_weights:
        out[padding_idx] = 0

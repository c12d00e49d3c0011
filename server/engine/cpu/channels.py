"""Batch and group normalization, and the gradient of an embedding: compiled loops that threads share."""

from __future__ import annotations

from typing import Any

import numpy as np

from server.engine import compiled, keys
from server.engine.array_library.indexing import check_index
from server.engine.device import threads
from server.engine.ops import indexing as generic_indexing
from server.engine.ops.layers import group_norms as generic_groups
from server.engine.ops.layers import normalization as generic
from server.engine.registry import kernel
from telegrad_protocol.ops import indexing
from telegrad_protocol.ops.layers import normalization as ops

from .fallback import call_generic
from .halves import words

Array = Any


def _loops(*arrays: Array | None) -> Any:
    """The compiled loops if all arrays are row-major and of one type, and the first is large; else None."""
    first = arrays[0]
    if first is None or first.size < compiled.LEAST or first.ndim < 3 or first.dtype.char not in "feE":
        return None
    are_alike = all([a is None or (a.dtype is first.dtype and a.flags.c_contiguous) for a in arrays])
    return compiled.kernels("images.channels") if are_alike else None


def _stack(array: Array) -> Array:
    """(n, channels, ...) as (n, channels, positions), as compiled loops take it"""
    return words(array).reshape(*array.shape[:2], -1)


def _parameter(parameter: Array | None, channels: int, otherwise: float) -> Array:
    """A parameter, of any type, in single precision; the same number for each channel where there is none."""
    if parameter is None:
        return np.full(channels, otherwise, "f")
    return parameter if parameter.dtype.char == "f" and parameter.flags.c_contiguous else parameter.astype("f")


@kernel(ops._batch_norm, keys.CPU, movement=True)
def batch_norm(xp, input, weight, bias, eps, *, out):
    result, mean, var, rstd = out
    loops, channels = _loops(input, result), input.shape[1]
    if loops is None:
        call_generic(generic._batch_norm, input, weight, bias, eps, out=out)
        return
    parameters = _parameter(weight, channels, 1), _parameter(bias, channels, 0)
    given = _stack(input), *parameters, eps, _stack(result), mean, var, rstd
    threads.run_units(loops.batch_norm[input.dtype.char], threads.shares_of(channels, 2 * input.nbytes), given)


@kernel(ops._batch_norm_gradients, keys.CPU, movement=True)
def batch_norm_gradients(xp, grad_out, input, mean, rstd, weight, *, out):
    by_input, by_weight, by_bias = out
    loops, channels = _loops(input, grad_out, by_input), input.shape[1]
    if loops is None or mean.dtype.char != "f" or rstd.dtype.char != "f":
        call_generic(generic._batch_norm_gradients, grad_out, input, mean, rstd, weight, out=out)
        return
    sums = np.empty((2, channels), "f")
    given = (
        _stack(grad_out), _stack(input), _parameter(mean, channels, 0), _parameter(rstd, channels, 1),
        _parameter(weight, channels, 1), _stack(by_input), *sums,
    )  # fmt: skip
    shares = threads.shares_of(channels, 3 * input.nbytes)
    threads.run_units(loops.batch_norm_gradients[input.dtype.char], shares, given)
    by_weight[...], by_bias[...] = sums


@kernel(ops._group_norm, keys.CPU, movement=True)
def group_norm(xp, input, num_groups, weight, bias, eps, *, out):
    result, mean, rstd = out
    loops, channels = _loops(input, result), input.shape[1]
    if loops is None:
        call_generic(generic_groups._group_norm, input, num_groups, weight, bias, eps, out=out)
        return
    parameters = _parameter(weight, channels, 1), _parameter(bias, channels, 0)
    given = _stack(input), num_groups, *parameters, eps, _stack(result), mean.reshape(-1), rstd.reshape(-1)
    shares = threads.shares_of(mean.size, 2 * input.nbytes)
    threads.run_units(loops.group_norm[input.dtype.char], shares, given)


@kernel(ops._group_norm_gradients, keys.CPU, movement=True)
def group_norm_gradients(xp, grad_out, input, mean, rstd, weight, num_groups, *, out):
    by_input, by_weight, by_bias = out
    loops, channels = _loops(input, grad_out, by_input), input.shape[1]
    if loops is None or mean.dtype.char != "f" or rstd.dtype.char != "f":
        call_generic(
            generic_groups._group_norm_gradients, grad_out, input, mean, rstd, weight, num_groups, out=out
        )  # fmt: skip
        return
    sums = np.empty((2, len(input), channels), "f")
    given = (
        _stack(grad_out), _stack(input), num_groups, _parameter(mean.reshape(-1), 0, 0),
        _parameter(rstd.reshape(-1), 0, 1), _parameter(weight, channels, 1), _stack(by_input), *sums,
    )  # fmt: skip
    shares = threads.shares_of(mean.size, 3 * input.nbytes)
    threads.run_units(loops.group_norm_gradients[input.dtype.char], shares, given)
    by_weight[...], by_bias[...] = sums.sum(axis=1, dtype=np.float64)


@kernel(indexing.embedding_dense_backward, keys.CPU, movement=True)
def embedding_dense_backward(xp, grad_output, indices, num_weights, padding_idx, scale_grad_by_freq, *, out):
    is_taken = out.dtype.char == "f" and out.flags.c_contiguous and out.size >= compiled.LEAST
    loops = compiled.kernels() if is_taken and not scale_grad_by_freq and grad_output.dtype.char == "f" else None
    if loops is None:
        generic_indexing.embedding_dense_backward(
            xp, grad_output, indices, num_weights, padding_idx, scale_grad_by_freq, out=out
        )
        return
    check_index("embedding_dense_backward", indices, num_weights, f"a table of {num_weights} rows")
    places = np.ascontiguousarray(indices.reshape(-1), np.int64)
    rows = np.ascontiguousarray(grad_output.reshape(places.size, out.shape[1]))
    shares = threads.shares_of(len(out), rows.nbytes + out.nbytes)
    threads.run_loop(loops.sum_rows, [(rows, places, share.start, share.stop, out) for share in shares])
    if 0 <= padding_idx < num_weights:
        out[padding_idx] = 0

"""Cross-entropy and negative log-likelihood for a matrix of scores (rows, classes) with one target class per row."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from server.engine import keys
from server.engine.device import threads
from server.engine.ops.layers import losses as generic
from server.engine.registry import kernel
from telegrad_protocol.ops.layers import losses as ops

from .memory import in_pieces, scratch
from .row_loops import loops_for, on_row_blocks, run_rows
from .rows import is_fast, row_sums, times_column
from .softmax import PRECISE, exponentials

Array = Any
_INT64 = np.dtype(np.int64)


@lru_cache(maxsize=16)
def _starts(rows: int, length: int) -> Array:
    """The flat indices at which the rows of a matrix begin."""
    starts = np.arange(0, rows * length, length)
    starts.flags.writeable = False
    return starts


def _positions(shape: tuple[int, ...], target: Array, ignore_index: int) -> Array | None:
    """The flat index of every target's class; None if a target is to be ignored or no class."""
    if len(shape) != 2 or target.dtype is not _INT64 or not target.size or not target.flags.c_contiguous:
        return None
    rows, classes = shape
    largest = np.maximum.reduce(target.view(np.uint64))  # negative classes are large as unsigned numbers
    if 0 <= ignore_index < classes or largest >= classes:
        return None
    return _starts(rows, classes) + target


@kernel(ops._nll_loss_forward, keys.CPU)
def nll_loss(xp, input, target, weight, reduction, ignore_index, *, out):
    positions = _positions(input.shape, target, ignore_index) if weight is None else None
    if positions is None or not input.flags.c_contiguous:
        generic._nll_loss_forward(xp, input, target, weight, reduction, ignore_index, out=out)
        return
    loss, total = out
    picked = input.reshape(-1)[positions]
    total[...] = len(positions)
    if reduction == "none":
        np.negative(picked, out=loss)
    else:
        loss[...] = -np.add.reduce(picked) / (len(positions) if reduction == "mean" else 1)


@kernel(ops._nll_loss_backward, keys.CPU)
def nll_loss_backward(xp, grad_output, target, weight, total_weight, size, reduction, ignore_index, *, out):
    positions = _positions(size, target, ignore_index) if weight is None else None
    if positions is None or not out.flags.c_contiguous:
        generic._nll_loss_backward(
            xp, grad_output, target, weight, total_weight, size, reduction, ignore_index, out=out
        )
        return
    out.fill(0)
    out.reshape(-1)[positions] = -grad_output / len(positions) if reduction == "mean" else -grad_output


@kernel(ops._softmax_cross_entropy, keys.CPU)
def cross_entropy(xp, input, target, reduction, ignore_index, *, out):
    loss, probabilities = out
    positions = _positions(input.shape, target, ignore_index)
    if positions is None or not is_fast(input) or not probabilities.flags.c_contiguous:
        generic._softmax_cross_entropy(xp, input, target, reduction, ignore_index, out=out)
        return
    losses = np.negative(input.reshape(-1)[positions], out=loss if reduction == "none" else None)

    loops = loops_for(input, probabilities, losses, module="loops")
    if loops is not None:
        tops, logarithms = np.empty((2, len(input)), "f")
        run_rows(
            loops.softmax_parts, (input, probabilities), lambda rows, x, y: (x, y, tops[rows], logarithms[rows])
        )  # fmt: skip
        losses += tops  # first, since they are often the target's, so that nothing is rounded
        losses += logarithms
    else:
        _add_logarithms(input, probabilities, losses)
    if reduction != "none":
        loss[...] = row_sums(losses[None])[0] / (len(losses) if reduction == "mean" else 1)


def _add_logarithms(input: Array, probabilities: Array, losses: Array) -> None:
    """Write the softmax of every row, and add the logarithms of the sums of exponentials to the losses."""

    def work(_: int, rows: slice, x: Array, y: Array) -> None:
        sums, inverses, shifts = exponentials(x, y, PRECISE)
        times_column(y, inverses, y)
        if shifts is not None:
            losses[rows] += shifts
        losses[rows] += np.log(sums, out=sums)

    on_row_blocks(work, (input,), (probabilities,))


@kernel(ops._softmax_cross_entropy_backward, keys.CPU)
def cross_entropy_backward(xp, grad_loss, input, probabilities, target, reduction, ignore_index, *, out):
    positions = _positions(probabilities.shape, target, ignore_index)
    if positions is None or not out.flags.c_contiguous:
        generic._softmax_cross_entropy_backward(
            xp, grad_loss, input, probabilities, target, reduction, ignore_index, out=out
        )
        return
    scale = grad_loss / len(positions) if reduction == "mean" else grad_loss
    loops = loops_for(out, probabilities, module="loops") if reduction != "none" and out.dtype.char == "f" else None
    if loops is not None:
        _scale(loops, probabilities, float(scale), out)
    else:
        np.multiply(probabilities, scale[:, None] if reduction == "none" else scale, out=out)
    out.reshape(-1)[positions] -= scale


def _scale(loops: Any, x: Array, factor: float, out: Array) -> None:
    x, out = x.reshape(-1), out.reshape(-1)
    shares = threads.shares_of(x.size, 2 * x.nbytes, threads.VECTOR)
    threads.run_loop(loops.scaled, [(x[share], factor, out[share]) for share in shares])


@kernel(ops._huber_error, keys.CPU)
def huber_error(xp, input, target, delta, *, out):
    """m * (|d| - m / 2), where d = input - target and m = min(|d|, delta)"""
    if out.dtype.char not in "fd" or not input.shape == target.shape == out.shape:
        generic._huber_error(xp, input, target, delta, out=out)
        return
    for x, y, error in in_pieces(input, target, out):
        size = np.subtract(x, y, out=scratch("size", error.shape, error.dtype.char))
        np.absolute(size, out=size)
        least = size.clip(0, delta, out=scratch("least", error.shape, error.dtype.char))
        np.multiply(least, 0.5, out=error)
        np.subtract(size, error, out=error)
        np.multiply(error, least, out=error)

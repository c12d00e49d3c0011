"""Fused attention in single precision: heads are shared among threads, and a compiled loop makes the weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from server.engine import compiled, keys
from server.engine.array_library.addresses import data_address
from server.engine.device import threads
from server.engine.ops.layers import attention_blockwise as generic
from server.engine.registry import kernel
from telegrad_protocol.ops.layers import attention as ops

from .blocks import gemm

Array = Any
_LONGEST = 1 << 30
"""Multiply-adds of a thread, some 30 ms, after which it is seen whether the work is to end."""
_ROWS = 128
"""Rows of scores in a block of causal attention: of what is right of the diagonal, little is computed in vain."""
_SCORES = 1 << 17
"""Scores of a block: half of a second-level cache of 1 MiB."""


def _loops(*arrays: Array | None) -> Any:
    """The compiled loops if all operands are float32 and there is enough to do; else None."""
    if not all([a is None or a.dtype.char in "f?" for a in arrays]):
        return None
    query, key = arrays[0], arrays[1]
    if not key.shape[2] or query.size // max(query.shape[3], 1) * key.shape[2] < compiled.LEAST:  # type: ignore[union-attr]
        return None
    return compiled.kernels()


def _blocks(shape: tuple[int, ...], columns: int, is_causal: bool) -> list[list[slice]]:
    """Heads that are computed together, and for each such group the rows of its blocks: [heads, rows, rows, ...]"""
    _, heads, length, _ = shape
    rows = max(1, min(length, _SCORES // columns, _ROWS if is_causal else length))
    together = max(1, min(heads, _SCORES // (rows * columns)))
    steps = [slice(start, min(start + rows, length)) for start in range(0, length, rows)]
    return [[slice(head, min(head + together, heads)), *steps] for head in range(0, heads, together)]


def _mask_scores(scores: Array, scale: float, mask: Array) -> None:
    """scores * scale + mask, or -inf where a mask of truth values is False"""
    if mask.dtype == bool:
        np.multiply(scores, scale, out=scores)
        np.copyto(scores, -math.inf, where=~mask)
    else:
        np.multiply(scores, scale, out=scores)
        np.add(scores, mask, out=scores)


@kernel(ops._attention, keys.CPU)
def attention(xp, query, key, value, attn_mask, is_causal, scale, trains, *, out):
    output, logsumexp = out
    loops = _loops(query, key, value, attn_mask)
    if loops is None or not output.size:
        generic._attention(xp, query, key, value, attn_mask, is_causal, scale, trains, out=out)
        return
    if attn_mask is None and _attend(query, key, value, is_causal, scale, trains, output, logsumexp):
        return
    batch, heads, length, _ = query.shape
    columns = key.shape[2]
    key, value = (_repeated(v, heads) for v in (key, value))
    mask = None if attn_mask is None else np.broadcast_to(attn_mask, (batch, heads, length, columns))
    groups = _blocks(query.shape, columns, is_causal)
    tasks = [(n, group, rows) for n in range(batch) for group, *steps in groups for rows in steps]

    def run(task: int) -> None:
        n, group, rows = tasks[task]
        seen = slice(0, min(rows.stop, columns) if is_causal else columns)
        scores = np.matmul(query[n, group, rows], key[n, group, seen].swapaxes(-1, -2))
        if mask is not None:
            _mask_scores(scores, scale, mask[n, group, rows])
        tops, totals = np.empty((2, *scores.shape[:2]), "f")
        factor = scale if mask is None else 1.0
        loops.attention_weights(scores, factor, rows.start if is_causal else -1, scores.shape[2], tops, totals)
        result = np.matmul(scores, value[n, group, seen])
        np.divide(result, np.where(totals == 0, np.float32(1), totals)[..., None], out=output[n, group, rows])
        if trains:
            np.add(tops, np.log(totals, out=totals), out=logsumexp[n, group, rows])

    threads.run(run, len(tasks))


def _attend(
    query: Array, key: Array, value: Array, is_causal: bool, scale: float, trains: bool, output: Array,
    logsumexp: Array,
) -> bool:  # fmt: skip
    """Attend in compiled loops alone; False, and nothing written, where they do not take the operands."""
    loops = compiled.kernels("blas")
    if loops is None or not _are_rows(query, key, value, output) or not logsumexp.flags.c_contiguous:
        return False
    sizes, rows = _sizes(query, key, value, is_causal)
    columns, length = key.shape[2], query.shape[2]
    count = query.shape[0] * query.shape[1] * -(-length // rows)
    shares = threads.shares_of(count, 4 * count * rows * columns)
    sums = logsumexp.reshape(-1, length) if trains else np.empty((0, 0), "f")
    given = gemm("f"), _places(query, key, value, output), sizes, scale, is_causal, trains
    scratch = [np.empty(rows * _whole(columns) + 2 * rows, "f") for _ in shares]
    products = count * rows * columns * (query.shape[3] + value.shape[3])
    for turn in _turns(shares, products):
        calls = [(*given, first, last, sums, memory) for (first, last), memory in zip(turn, scratch)]
        threads.run_loop(loops.attention, calls, calls_blas=True)
    return True


def _turns(shares: Sequence[slice], products: int) -> Iterator[list[tuple[int, int]]]:
    """Yield parts of the shares, one of each at a time: between calls of a loop it is seen whether work is to end."""
    most = max([share.stop - share.start for share in shares])
    number = max(1, min(most, products // (len(shares) * _LONGEST)))
    parts = [threads.parts_of(share.stop - share.start, number) for share in shares]
    for turn in range(number):
        yield [(s.start + part[turn].start, s.start + part[turn].stop) for s, part in zip(shares, parts)]


def _gradients(
    grad_output: Array, query: Array, key: Array, value: Array, logsumexp: Array, is_causal: bool, scale: float,
    out: Any,
) -> bool:  # fmt: skip
    """Write the gradients in compiled loops alone; False, and nothing written, where they do not take the operands."""
    loops = compiled.kernels("blas")
    if loops is None or not _are_rows(query, key, value, grad_output, *out) or not logsumexp.flags.c_contiguous:
        return False
    for target in out[1:]:
        target.fill(0)
    sizes, rows = _sizes(query, key, value, is_causal)
    columns, length = key.shape[2], query.shape[2]
    count = key.shape[0] * key.shape[1]
    shares = threads.shares_of(count, 8 * query.shape[0] * query.shape[1] * length * columns)
    given = gemm("f"), _places(query, key, value, grad_output, *out), sizes, scale, is_causal
    scratch, sums = [np.empty(2 * rows * _whole(columns), "f") for _ in shares], logsumexp.reshape(-1, length)
    products = query.shape[0] * query.shape[1] * length * columns * (3 * query.shape[3] + 2 * value.shape[3])
    for turn in _turns(shares, products):
        calls = [(*given, first, last, sums, memory) for (first, last), memory in zip(turn, scratch)]
        threads.run_loop(loops.attention_gradients, calls, calls_blas=True)
    return True


def _are_rows(*arrays: Array) -> bool:
    """Whether all are float32 whose last dimension is side by side, in rows that BLAS takes."""
    for array in arrays:
        steps, width = array.strides, array.shape[3] * 4
        if array.dtype.char != "f" or not array.shape[3] or (array.shape[3] > 1 and steps[3] != 4):
            return False
        if array.shape[2] > 1 and (steps[2] < width or steps[2] % 4):
            return False
    return True


def _sizes(query: Array, key: Array, value: Array, is_causal: bool) -> tuple[Array, int]:
    """The sizes that the compiled loops get, and the rows of a block among them."""
    (_, heads, length, width), columns = query.shape, key.shape[2]
    rows = max(1, min(length, _SCORES // columns, _ROWS if is_causal else length))
    numbers = heads, heads // key.shape[1], length, columns, width, value.shape[3], rows
    return np.array(numbers, np.int64), rows


def _whole(columns: int) -> int:
    """The elements between two rows of scores, as the compiled loops have them."""
    multiple = compiled.kernels().WHOLE
    return int(-(-columns // multiple) * multiple)


def _places(*arrays: Array) -> Array:
    """Addresses, and strides in elements of samples, heads and rows."""
    steps = [(data_address(a), *[s // 4 for s in a.strides[:2]], max(a.strides[2] // 4, a.shape[3])) for a in arrays]
    return np.array(steps, np.int64)


def _repeated(array: Array, heads: int) -> Array:
    """Key or value heads repeated for grouped-query attention: (n, shared, l, e) -> (n, heads, l, e)"""
    return array if array.shape[1] == heads else np.repeat(array, heads // array.shape[1], axis=1)


@kernel(ops._attention_backward, keys.CPU)
def attention_backward(
    xp, grad_output, query, key, value, attn_mask, output, logsumexp, is_causal, scale, *, out
):  # fmt: skip
    loops = _loops(query, key, value, attn_mask, grad_output, logsumexp)
    if loops is None or not grad_output.size:
        generic._attention_backward(
            xp, grad_output, query, key, value, attn_mask, output, logsumexp, is_causal, scale, out=out
        )
        return
    by_query, by_key, by_value = out
    if attn_mask is None and _gradients(grad_output, query, key, value, logsumexp, is_causal, scale, out):
        return
    (batch, heads, length, _), columns, shared = query.shape, key.shape[2], key.shape[1]
    key, value = (_repeated(v, heads) for v in (key, value))
    mask = None if attn_mask is None else np.broadcast_to(attn_mask, (batch, heads, length, columns))
    key_sums, value_sums = np.empty(key.shape, "f"), np.empty(value.shape, "f")
    tasks = [(n, *group) for n in range(batch) for group in _blocks(query.shape, columns, is_causal)]

    def run(task: int) -> None:
        n, group, *steps = tasks[task]
        key_sums[n, group], value_sums[n, group] = 0, 0
        for rows in steps:
            seen = slice(0, min(rows.stop, columns) if is_causal else columns)
            left, right, grad = query[n, group, rows], key[n, group, seen], grad_output[n, group, rows]
            weights = np.matmul(left, right.swapaxes(-1, -2))
            changes = np.matmul(grad, value[n, group, seen].swapaxes(-1, -2))
            if mask is None:
                shift = np.ascontiguousarray(logsumexp[n, group, rows])
                loops.attention_changes(
                    weights, changes, scale, rows.start if is_causal else -1, weights.shape[2], shift
                )
            else:
                _mask_scores(weights, scale, mask[n, group, rows])
                shift = np.ascontiguousarray(logsumexp[n, group, rows])
                loops.attention_changes(weights, changes, 1.0, -1, weights.shape[2], shift)
                np.multiply(changes, scale, out=changes)
            value_sums[n, group, seen] += np.matmul(weights.swapaxes(-1, -2), grad)
            key_sums[n, group, seen] += np.matmul(changes.swapaxes(-1, -2), left)
            by_query[n, group, rows] = np.matmul(changes, right)

    threads.run(run, len(tasks))
    for target, sums in ((by_key, key_sums), (by_value, value_sums)):
        target[...] = sums if heads == shared else sums.reshape(batch, shared, -1, *sums.shape[2:]).sum(axis=2)

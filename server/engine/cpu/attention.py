"""Fused attention in single precision: heads are shared among threads, and a compiled loop makes the weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from server.engine import compiled, keys
from server.engine.device import threads
from server.engine.ops import attention_blockwise as generic
from server.engine.registry import kernel
from telegrad_protocol.ops import attention as ops

Array = Any
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
        loops.attention_weights(scores, factor, rows.start if is_causal else -1, tops, totals)
        result = np.matmul(scores, value[n, group, seen])
        np.divide(result, np.where(totals == 0, np.float32(1), totals)[..., None], out=output[n, group, rows])
        if trains:
            np.add(tops, np.log(totals, out=totals), out=logsumexp[n, group, rows])

    threads.run(run, len(tasks))


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
                loops.attention_changes(weights, changes, scale, rows.start if is_causal else -1, shift)
            else:
                _mask_scores(weights, scale, mask[n, group, rows])
                shift = np.ascontiguousarray(logsumexp[n, group, rows])
                loops.attention_changes(weights, changes, 1.0, -1, shift)
                np.multiply(changes, scale, out=changes)
            value_sums[n, group, seen] += np.matmul(weights.swapaxes(-1, -2), grad)
            key_sums[n, group, seen] += np.matmul(changes.swapaxes(-1, -2), left)
            by_query[n, group, rows] = np.matmul(changes, right)

    threads.run(run, len(tasks))
    for target, sums in ((by_key, key_sums), (by_value, value_sums)):
        target[...] = sums if heads == shared else sums.reshape(batch, shared, -1, *sums.shape[2:]).sum(axis=2)

"""Generic kernels of fused attention: scores are computed for a block of rows at a time, and again in backward.

The algorithm is that of T. Dao et al., FlashAttention (2022), without the fusion into one kernel, which GPUs have.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from server.engine import functional as F
from server.engine.device import cancellation
from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS
from server.engine.registry import implements
from telegrad_protocol.ops.layers import attention as ops

from .attention import attention_weights, repeat_heads, transposed, upcast

_BACKWARD = OPERATORS["_attention_backward"]
_HOST_SCORES = 1 << 17
"""The number of scores of a block on the host: in float32 they take half of a second-level cache of 1 MiB."""
_DEVICE_SCORES = 1 << 26
"""The number of scores of a block on a GPU, which bounds the temporary memory."""


def _repeat_heads(xp: Any, array: Any, heads: int) -> Any:
    """Key or value heads repeated for grouped-query attention: (n, shared, l, e) -> (n, heads, l, e)"""
    return array if array.shape[1] == heads else xp.repeat(array, heads // array.shape[1], axis=1)


def _row_blocks(xp: Any, shape: tuple[int, ...], columns: int) -> Iterator[tuple[int, slice, slice]]:
    """Sample, heads and rows of (n, heads, rows, width) whose scores with all columns fit into a block."""
    batch, heads, length, _ = shape
    limit = (_HOST_SCORES if xp is np else _DEVICE_SCORES) // max(columns, 1)
    rows = max(min(limit, length), 1)
    heads_per_block = max(limit // max(length, 1), 1) if rows == length else 1
    for n in range(batch):
        for head in range(0, heads, heads_per_block):
            for row in range(0, length, rows):
                if cancellation.requested:
                    cancellation.stop()
                yield n, slice(head, head + heads_per_block), slice(row, min(row + rows, length))


def _scores(xp: Any, query: Any, key: Any, mask: Any, first_row: int | None, scale: float) -> Any:
    """query @ key.T * scale (+ mask), of shape (heads, rows, columns); -inf where masked, or right of the diagonal"""
    scores = xp.matmul(query * scale, key.swapaxes(-1, -2))
    if first_row is not None:
        rows = xp.arange(first_row, first_row + scores.shape[1])
        xp.copyto(scores, -math.inf, where=rows[:, None] < xp.arange(scores.shape[2]))
    if mask is None:
        return scores
    if mask.dtype == bool:
        xp.copyto(scores, -math.inf, where=~mask)
    else:
        scores += mask
    return scores


def _broadcast_mask(xp: Any, mask: Any, shape: tuple[int, ...]) -> Any:
    return None if mask is None else xp.broadcast_to(mask, shape)


def _visible(rows: slice, columns: int, is_causal: bool) -> slice:
    """The columns that at least one of these rows attends to."""
    return slice(0, min(rows.stop, columns) if is_causal else columns)


def _attention_gradients(grad_output, query, key, value, attn_mask, output, logsumexp, is_causal, scale):
    if grad_output.device.type != "cpu" and grad_output.meta.strides != output.meta.strides:
        grad_output = F._in_layout(grad_output, output.meta.strides)  # the fused kernel takes one layout for both
    operands = (grad_output, query, key, value, attn_mask, output, logsumexp)
    return dispatch(_BACKWARD, (*operands, is_causal, scale))


@implements(
    ops._attention,
    query=lambda grad_output, query, key, value, attn_mask, output, logsumexp, is_causal, scale: _attention_gradients(
        grad_output, query, key, value, attn_mask, output, logsumexp, is_causal, scale
    )[0],
    key=lambda grad_output, query, key, value, attn_mask, output, logsumexp, is_causal, scale: _attention_gradients(
        grad_output, query, key, value, attn_mask, output, logsumexp, is_causal, scale
    )[1],
    value=lambda grad_output, query, key, value, attn_mask, output, logsumexp, is_causal, scale: _attention_gradients(
        grad_output, query, key, value, attn_mask, output, logsumexp, is_causal, scale
    )[2],
    together=_attention_gradients,
)
def _attention(xp, query, key, value, attn_mask, is_causal, scale, trains, *, out):
    output, logsumexp = out
    batch, heads, length, _ = query.shape
    columns = key.shape[2]
    if not columns or not output.size:
        output[...], logsumexp[...] = 0, -math.inf
        return
    key, value = (_repeat_heads(xp, v, heads) for v in (key, value))
    mask = _broadcast_mask(xp, attn_mask, (batch, heads, length, columns))
    for n, group, rows in _row_blocks(xp, query.shape, columns):
        visible = _visible(rows, columns, is_causal)
        part = None if mask is None else mask[n, group, rows]
        scores = _scores(
            xp, query[n, group, rows], key[n, group, visible], part, rows.start if is_causal else None, scale
        )
        weights, total, top = _exponentials(xp, scores)
        result = xp.matmul(weights, value[n, group, visible])
        result /= xp.where(total == 0, 1, total)
        output[n, group, rows] = result
        if trains:
            logsumexp[n, group, rows] = (top + xp.log(total))[..., 0]


def _exponentials(xp: Any, scores: Any) -> tuple[Any, Any, Any]:
    """exp(scores - top) in the memory of the scores, the sum of each row, and the row maxima ``top``.

    A row that is masked completely has the sum 0.
    """
    top = scores.max(axis=-1, keepdims=True)
    top[top == -math.inf] = 0
    scores -= top
    weights = xp.exp(scores, out=scores)
    return weights, weights.sum(axis=-1, keepdims=True), top


def _attention_double_backward(grads, grad_output, query, key, value, attn_mask, is_causal, scale):
    """The gradients of ``_attention_backward``, by differentiating <a, dQ> + <b, dK> + <v, dV>.

    P are the weights, dP = dO V' and dS = P (dP - sum(P dP)), where a prime transposes and sums run over rows; a, b, v
    are the gradients of dQ, dK and dV. The expression equals <Z, dP> + <P, dO v'>, where X = scale (a K' + Q b') and
    Z = P (X - sum(P X)).
    """
    dtype = query.dtype
    a, b, v, grad_output, query, key, value = (upcast(t) for t in (*grads, grad_output, query, key, value))
    heads = query.shape[1]
    shared = key.shape[1]
    b, v, key, value = (repeat_heads(t, heads) for t in (b, v, key, value))
    weights = attention_weights(F.mul(F.matmul(query, transposed(key)), scale), attn_mask, is_causal)
    by_weights = F.matmul(grad_output, transposed(value))
    x = F.mul(F.add(F.matmul(a, transposed(key)), F.matmul(query, transposed(b))), scale)
    mean, mean_x = _row_sums(weights, by_weights), _row_sums(weights, x)
    z = F.mul(weights, F.sub(x, mean_x))
    by_scores = F.mul(weights, F.sub(by_weights, mean))
    through = F.sub(F.sub(F.mul(by_weights, x), F.mul(by_weights, mean_x)), F.mul(x, mean))
    through = F.add(through, F.matmul(grad_output, transposed(v)))
    through = F.mul(weights, F.sub(through, _row_sums(weights, through)))
    by_query = F.mul(F.add(F.matmul(through, key), F.matmul(by_scores, b)), scale)
    by_key = F.mul(F.add(F.matmul(transposed(through), query), F.matmul(transposed(by_scores), a)), scale)
    by_value, by_grad = F.matmul(transposed(z), grad_output), F.add(F.matmul(z, value), F.matmul(weights, v))
    gradients = (by_grad, by_query, _sum_heads(by_key, shared), _sum_heads(by_value, shared))
    return tuple([F._to_copy(t, dtype=dtype) if t.dtype is not dtype else t for t in gradients])


def _row_sums(left, right):
    return F.sum(F.mul(left, right), -1, True)


def _sum_heads(value, shared):
    """The sum over the query heads that share one key or value head: (n, heads, l, e) -> (n, shared, l, e)"""
    batch, heads, length, width = value.shape
    if heads == shared:
        return value
    return F.sum(F.reshape(value, (batch, shared, heads // shared, length, width)), 2)


@implements(
    ops._attention_backward,
    grad_output=lambda grads, grad_output, query, key, value, attn_mask, is_causal, scale: _attention_double_backward(
        grads, grad_output, query, key, value, attn_mask, is_causal, scale
    )[0],
    query=lambda grads, grad_output, query, key, value, attn_mask, is_causal, scale: _attention_double_backward(
        grads, grad_output, query, key, value, attn_mask, is_causal, scale
    )[1],
    key=lambda grads, grad_output, query, key, value, attn_mask, is_causal, scale: _attention_double_backward(
        grads, grad_output, query, key, value, attn_mask, is_causal, scale
    )[2],
    value=lambda grads, grad_output, query, key, value, attn_mask, is_causal, scale: _attention_double_backward(
        grads, grad_output, query, key, value, attn_mask, is_causal, scale
    )[3],
    together=_attention_double_backward,
)
def _attention_backward(
    xp, grad_output, query, key, value, attn_mask, output, logsumexp, is_causal, scale, *, out
):  # fmt: skip
    """The derivatives by query, key and value include what depends on them through ``output`` and ``logsumexp``."""
    by_query, by_key, by_value = out
    heads, columns, shared = query.shape[1], key.shape[2], key.shape[1]
    wide_key, wide_value = (_repeat_heads(xp, v, heads) for v in (key, value))
    mask = _broadcast_mask(xp, attn_mask, (*query.shape[:3], columns))
    key_sums, value_sums = xp.zeros(wide_key.shape, by_key.dtype), xp.zeros(wide_value.shape, by_value.dtype)
    by_query[...] = 0
    for n, group, rows in _row_blocks(xp, query.shape, columns) if columns and grad_output.size else ():
        visible, first = _visible(rows, columns, is_causal), rows.start if is_causal else None
        part = None if mask is None else mask[n, group, rows]
        left, right, grad = query[n, group, rows], wide_key[n, group, visible], grad_output[n, group, rows]
        weights, total, _ = _exponentials(xp, _scores(xp, left, right, part, first, scale))
        weights /= xp.where(total == 0, 1, total)  # more exact than exp(scores - logsumexp)
        value_sums[n, group, visible] += xp.matmul(weights.swapaxes(-1, -2), grad)
        change = xp.matmul(grad, wide_value[n, group, visible].swapaxes(-1, -2))
        change -= xp.sum(change * weights, axis=-1, keepdims=True)
        change *= weights
        change *= scale
        by_query[n, group, rows] = xp.matmul(change, right)
        key_sums[n, group, visible] += xp.matmul(change.swapaxes(-1, -2), left)
    for target, sums in ((by_key, key_sums), (by_value, value_sums)):
        target[...] = sums.reshape(len(sums), shared, heads // shared, *sums.shape[2:]).sum(axis=2)

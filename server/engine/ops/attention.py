"""Attention. Scores are made a block of rows at a time and never kept: backward computes them anew.

T. Dao et al., FlashAttention (2022), without its fusion; cuDNN has that. Masks that require a gradient, dropout and
operands that broadcast go through ``_plainly``, step by step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import attention as ops

from .. import context, keys
from .. import functional as F
from ..autograd.inplace import requires_grad
from ..backend import HALVES
from ..dispatcher import dispatch
from ..operators import OPERATORS, composite, implements

_ATTENTION, _ATTENTION_BACKWARD = OPERATORS["_attention"], OPERATORS["_attention_backward"]
_HOST_SCORES = 1 << 17
"""Scores that are made at a time: they stay in a core's second-level cache."""
_DEVICE_SCORES = 1 << 26


@composite(ops.scaled_dot_product_attention)
def scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, *, scale, enable_gqa):
    factor = 1.0 / math.sqrt(max(query.shape[-1], 1)) if scale is None else scale
    constant_mask = attn_mask is None or not requires_grad(attn_mask)
    metas = (query.meta, key.meta, value.meta, None if attn_mask is None else attn_mask.meta)
    if dropout_p == 0.0 and constant_mask and _is_regular(*metas, enable_gqa):
        operands = [_with_heads(v) for v in (query, key, value)]
        found = _fused(operands, attn_mask, is_causal, factor)
        return F.reshape(found, (*query.shape[:-1], value.shape[-1])) if found.ndim != query.ndim else found
    result = _plainly(query, key, value, attn_mask, dropout_p, is_causal, factor, enable_gqa)
    strides = ops.result_of(query.meta, result.shape).strides
    return result if result.meta.strides == strides else F._in_layout(result, strides)


def _fused(operands, mask, is_causal, factor):
    """Attention of operands with heads, by the operation that keeps no scores."""
    trains = _is_recording() and any(map(requires_grad, operands))
    query, key, _ = operands
    if mask is None or query.device.type == "cpu":
        return dispatch(_ATTENTION, (*operands, mask, is_causal, factor, trains))[0]
    bias, hidden = _finite_bias(mask, query.dtype, (query.shape[2], key.shape[2]))
    found = dispatch(_ATTENTION, (*operands, bias, is_causal, factor, trains))[0]
    return F.masked_fill(found, hidden, 0)


def _finite_bias(mask, dtype, size):
    """What is added to scores, of full size and without infinities, which fused kernels make NaN of; and rows that see
    nothing.
    """
    mask = F.expand(_with_heads(mask), (-1, -1, *size))
    if mask.dtype is dtypes.bool_:
        hidden = F.logical_not(mask)
        return F.masked_fill(F.zeros(mask.shape, dtype=dtype, device=mask.device), hidden, _LEAST[dtype]), F.all(
            hidden, -1, True
        )
    return F.contiguous(F.clamp_min(mask, _LEAST[dtype])), F.all(F.eq(mask, -math.inf), -1, True)


_LEAST = {dtypes.float16: -65504.0, dtypes.bfloat16: -1e30}
"""So low that exp gives 0, and so high that a sum or a change of base does not overflow."""


def _is_recording():
    return context.current.grad_enabled and not context.current.inference


def _with_heads(value):
    """(n, heads, length, width), dimensions of one in front."""
    return value if value.ndim == 4 else F.reshape(value, (*(1,) * (4 - value.ndim), *value.shape))


@lru_cache(maxsize=1 << 12)
def _is_regular(query: Meta, key: Meta, value: Meta, mask: Meta | None, enable_gqa: bool) -> bool:
    """Whether the steps that keep no scores take these: nothing broadcasts."""
    if not query.ndim == key.ndim == value.ndim or query.ndim > 4:
        return False
    lead = 3 if enable_gqa else 2
    if not query.shape[:-lead] == key.shape[:-lead] == value.shape[:-lead] or key.shape[:-2] != value.shape[:-2]:
        return False
    if query.device.type == "cpu":
        return True
    suits = suits_cudnn(query, key, value) or (mask is None and suits_tiles(query, key, value))
    return keys.CUDA in _ATTENTION.preparers and suits


def suits_tiles(query: Meta, key: Meta, value: Meta) -> bool:
    """Whether our own fused kernels take these operands without a mask, in whatever layout."""
    is_float = query.dtype is dtypes.float32 or query.dtype in HALVES
    fits_grid = max(query.shape[:-2], default=1) < _LARGEST_GRID
    is_narrow = max(query.shape[-1], value.shape[-1]) <= _WIDEST
    return is_float and fits_grid and is_narrow and all(meta.numel for meta in (query, key, value))


def suits_cudnn(query: Meta, key: Meta, value: Meta) -> bool:
    """Whether cuDNN's fused kernels are made for these operands, with or without a dimension of heads."""
    operands = (query, key, value)
    if query.dtype not in HALVES or not all(m.numel for m in operands):
        return False
    return max(query.shape[-1], value.shape[-1]) <= _WIDEST and all(map(_is_read_in_vectors, operands))


def _is_read_in_vectors(meta: Meta) -> bool:
    """Whether rows of heads lie apart and begin at multiples of 16 bytes."""
    steps = [step for size, step in zip(meta.shape[:-1], meta.strides[:-1], strict=True) if size > 1]
    if min(steps, default=1) <= 0 or meta.strides[-1] != 1:
        return False
    return not any(number % _VECTOR for number in (*steps, meta.shape[-1], meta.offset))


_LARGEST_GRID = 1 << 16
"""Heads, and samples, of which each has blocks of its own."""
_VECTOR = 8
"""Halves in 16 bytes."""
_WIDEST = 128
"""Heads up to this width have a fused backward pass."""


def _shared_out(xp: Any, array: Any, heads: int) -> Any:
    """Each head as often as query heads share it."""
    return array if array.shape[1] == heads else xp.repeat(array, heads // array.shape[1], axis=1)


def _pieces(xp: Any, shape: tuple[int, ...], columns: int) -> Iterator[tuple[int, slice, slice]]:
    """Batch, heads and rows of (n, heads, rows, width) whose scores with all columns fit into a piece."""
    batch, heads, length, _ = shape
    limit = (_HOST_SCORES if xp is np else _DEVICE_SCORES) // max(columns, 1)
    rows = max(min(limit, length), 1)
    together = max(limit // max(length, 1), 1) if rows == length else 1
    for n in range(batch):
        for head in range(0, heads, together):
            for row in range(0, length, rows):
                yield n, slice(head, head + together), slice(row, min(row + rows, length))


def _scores(xp: Any, query: Any, key: Any, mask: Any, first_row: int | None, scale: float) -> Any:
    """query @ key.T * scale, -inf where the mask hides, or where a column is beyond its row: (h, rows, columns)"""
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


def _spread_mask(xp: Any, mask: Any, shape: tuple[int, ...]) -> Any:
    return None if mask is None else xp.broadcast_to(mask, shape)


def _visible(rows: slice, columns: int, is_causal: bool) -> slice:
    """The columns that any of these rows sees."""
    return slice(0, min(rows.stop, columns) if is_causal else columns)


def _attention_gradients(grad_output, query, key, value, attn_mask, output, logsumexp, is_causal, scale):
    if grad_output.device.type != "cpu" and grad_output.meta.strides != output.meta.strides:
        grad_output = F._in_layout(grad_output, output.meta.strides)  # the fused kernel wants them alike
    operands = (grad_output, query, key, value, attn_mask, output, logsumexp)
    return dispatch(_ATTENTION_BACKWARD, (*operands, is_causal, scale))


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
    key, value = (_shared_out(xp, v, heads) for v in (key, value))
    mask = _spread_mask(xp, attn_mask, (batch, heads, length, columns))
    for n, group, rows in _pieces(xp, query.shape, columns):
        seen = _visible(rows, columns, is_causal)
        part = None if mask is None else mask[n, group, rows]
        scores = _scores(xp, query[n, group, rows], key[n, group, seen], part, rows.start if is_causal else None, scale)
        weights, total, top = _exponentials(xp, scores)
        found = xp.matmul(weights, value[n, group, seen])
        found /= xp.where(total == 0, 1, total)
        output[n, group, rows] = found
        if trains:
            logsumexp[n, group, rows] = (top + xp.log(total))[..., 0]


def _exponentials(xp: Any, scores: Any) -> tuple[Any, Any, Any]:
    """exp(scores - top) in place of the scores, its row sums, and the tops; a row that sees nothing has the sum 0."""
    top = scores.max(axis=-1, keepdims=True)
    top[top == -math.inf] = 0
    scores -= top
    weights = xp.exp(scores, out=scores)
    return weights, weights.sum(axis=-1, keepdims=True), top


def _second_gradients(grads, grad_output, query, key, value, attn_mask, is_causal, scale):
    """With weights P of rows, dP = dO V', dS = P (dP - sum(P dP)), and a, b, v the gradients of dQ, dK, dV:

    <a, dQ> + <b, dK> + <v, dV> = <Z, dP> + <P, dO v'>, with X = scale (a K' + Q b') and Z = P (X - sum(P X)).
    """
    dtype = query.dtype
    a, b, v, grad_output, query, key, value = (_widened(t) for t in (*grads, grad_output, query, key, value))
    heads = query.shape[1]
    shared = key.shape[1]
    b, v, key, value = (_repeated_heads(t, heads) for t in (b, v, key, value))
    weights = _weights(F.mul(F.matmul(query, _turned(key)), scale), attn_mask, is_causal)
    by_weights = F.matmul(grad_output, _turned(value))
    x = F.mul(F.add(F.matmul(a, _turned(key)), F.matmul(query, _turned(b))), scale)
    mean, mean_x = _row_sums(weights, by_weights), _row_sums(weights, x)
    z = F.mul(weights, F.sub(x, mean_x))
    by_scores = F.mul(weights, F.sub(by_weights, mean))
    through = F.sub(F.sub(F.mul(by_weights, x), F.mul(by_weights, mean_x)), F.mul(x, mean))
    through = F.add(through, F.matmul(grad_output, _turned(v)))
    through = F.mul(weights, F.sub(through, _row_sums(weights, through)))
    by_query = F.mul(F.add(F.matmul(through, key), F.matmul(by_scores, b)), scale)
    by_key = F.mul(F.add(F.matmul(_turned(through), query), F.matmul(_turned(by_scores), a)), scale)
    by_value, by_grad = F.matmul(_turned(z), grad_output), F.add(F.matmul(z, value), F.matmul(weights, v))
    found = (by_grad, by_query, _joined_heads(by_key, shared), _joined_heads(by_value, shared))
    return tuple([F._to_copy(t, dtype=dtype) if t.dtype is not dtype else t for t in found])


def _turned(value):
    return F.transpose(value, -2, -1)


def _row_sums(left, right):
    return F.sum(F.mul(left, right), -1, True)


def _joined_heads(value, shared):
    """The sum over the query heads that share each head."""
    batch, heads, length, width = value.shape
    if heads == shared:
        return value
    return F.sum(F.reshape(value, (batch, shared, heads // shared, length, width)), 2)


@implements(
    ops._attention_backward,
    grad_output=lambda grads, grad_output, query, key, value, attn_mask, is_causal, scale: _second_gradients(
        grads, grad_output, query, key, value, attn_mask, is_causal, scale
    )[0],
    query=lambda grads, grad_output, query, key, value, attn_mask, is_causal, scale: _second_gradients(
        grads, grad_output, query, key, value, attn_mask, is_causal, scale
    )[1],
    key=lambda grads, grad_output, query, key, value, attn_mask, is_causal, scale: _second_gradients(
        grads, grad_output, query, key, value, attn_mask, is_causal, scale
    )[2],
    value=lambda grads, grad_output, query, key, value, attn_mask, is_causal, scale: _second_gradients(
        grads, grad_output, query, key, value, attn_mask, is_causal, scale
    )[3],
    together=_second_gradients,
)
def _attention_backward(
    xp, grad_output, query, key, value, attn_mask, output, logsumexp, is_causal, scale, *, out
):  # fmt: skip
    """The formulas of its inputs are total: they count what goes through ``output`` and ``logsumexp``."""
    by_query, by_key, by_value = out
    heads, columns, shared = query.shape[1], key.shape[2], key.shape[1]
    wide_key, wide_value = (_shared_out(xp, v, heads) for v in (key, value))
    mask = _spread_mask(xp, attn_mask, (*query.shape[:3], columns))
    sums_key, sums_value = xp.zeros(wide_key.shape, by_key.dtype), xp.zeros(wide_value.shape, by_value.dtype)
    by_query[...] = 0
    for n, group, rows in _pieces(xp, query.shape, columns) if columns and grad_output.size else ():
        seen, first = _visible(rows, columns, is_causal), rows.start if is_causal else None
        part = None if mask is None else mask[n, group, rows]
        left, right, grad = query[n, group, rows], wide_key[n, group, seen], grad_output[n, group, rows]
        weights, total, _ = _exponentials(xp, _scores(xp, left, right, part, first, scale))
        weights /= xp.where(total == 0, 1, total)  # more exact than exp(scores - logsumexp)
        sums_value[n, group, seen] += xp.matmul(weights.swapaxes(-1, -2), grad)
        change = xp.matmul(grad, wide_value[n, group, seen].swapaxes(-1, -2))
        change -= xp.sum(change * weights, axis=-1, keepdims=True)
        change *= weights
        change *= scale
        by_query[n, group, rows] = xp.matmul(change, right)
        sums_key[n, group, seen] += xp.matmul(change.swapaxes(-1, -2), left)
    for target, sums in ((by_key, sums_key), (by_value, sums_value)):
        target[...] = sums.reshape(len(sums), shared, heads // shared, *sums.shape[2:]).sum(axis=2)


def _widened(value):
    """In float32, where scores have the digits that a half lacks."""
    return F._to_copy(value, dtype=dtypes.float32) if value.dtype in HALVES else value


def _plainly(query, key, value, attn_mask, dropout_p, is_causal, factor, enable_gqa):
    """Attention step by step, all scores at once."""
    dtype = query.dtype
    query, key, value = (_widened(v) for v in (query, key, value))
    if enable_gqa:
        key, value = (_repeated_heads(v, query.shape[-3]) for v in (key, value))
    weights = _weights(F.matmul(F.mul(query, factor), _turned(key)), attn_mask, is_causal)
    if dropout_p > 0.0:
        weights = F.dropout(weights, dropout_p)
    result = F.matmul(weights, value)
    return result if result.dtype is dtype else F._to_copy(result, dtype=dtype)


def _repeated_heads(value, heads):
    """Each head as often as query heads share it."""
    *batch, shared, length, width = value.shape
    if shared == heads:
        return value
    spread = F.expand(F.unsqueeze(value, -3), (*batch, shared, heads // shared, length, width))
    return F.reshape(spread, (*batch, heads, length, width))


def _weights(scores, mask, is_causal):
    if is_causal:
        rows, columns = (F.arange(n, device=scores.device) for n in scores.shape[-2:])
        scores = F.masked_fill(scores, F.lt(F.unsqueeze(rows, 1), columns), -math.inf)
    if mask is None:
        return F.softmax(scores, -1)
    if mask.dtype is dtypes.bool_:
        scores = F.masked_fill(scores, F.logical_not(mask), -math.inf)
    else:
        scores = F.add(scores, mask)
    unseeing = F.all(F.eq(scores, -math.inf), -1, True)  # rows that see nothing get no weights instead of NaN
    return F.masked_fill(F.softmax(F.masked_fill(scores, unseeing, 0), -1), unseeing, 0)

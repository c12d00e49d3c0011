"""Attention: which way it is computed. Where nothing broadcasts, by the steps that keep no scores.

Masks that require a gradient, operands that broadcast, and dropout that no kernel has go step by step.
"""

from __future__ import annotations

import math
from functools import lru_cache

from server.engine import context, keys
from server.engine import functional as F
from server.engine.array_library.dtypes import HALVES
from server.engine.autograd.inplace import requires_grad
from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS
from server.engine.registry import composite
from telegrad_protocol import dtypes
from telegrad_protocol.errors import NotSupportedError
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import attention as ops

_ATTENTION = OPERATORS["_attention"]
_DROPPING = OPERATORS["_attention_dropout"]


@composite(ops.scaled_dot_product_attention)
def scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, *, scale, enable_gqa):
    factor = 1.0 / math.sqrt(max(query.shape[-1], 1)) if scale is None else scale
    constant_mask = attn_mask is None or not requires_grad(attn_mask)
    metas = (query.meta, key.meta, value.meta, None if attn_mask is None else attn_mask.meta)
    if constant_mask and _is_regular(*metas, enable_gqa) and _may_drop(*metas[:3], dropout_p):
        operands = [_with_heads(v) for v in (query, key, value)]
        found = _fused(operands, attn_mask, dropout_p, is_causal, factor)
        if found is not None:
            return F.reshape(found, (*query.shape[:-1], value.shape[-1])) if found.ndim != query.ndim else found
    result = _plainly(query, key, value, attn_mask, dropout_p, is_causal, factor, enable_gqa)
    strides = ops.result_of(query.meta, result.shape).strides
    return result if result.meta.strides == strides else F._in_layout(result, strides)


def _may_drop(query: Meta, key: Meta, value: Meta, dropout_p: float) -> bool:
    """Whether there may be a kernel that drops weights with this probability, or none are to be dropped."""
    return dropout_p == 0.0 or (dropout_p < 1.0 and query.device.type != "cpu" and suits_cudnn(query, key, value))


def _fused(operands, mask, dropout_p, is_causal, factor):
    """Attention of operands with heads, by an operation that keeps no scores; None if there is none after all."""
    trains = _is_recording() and any(map(requires_grad, operands))
    query, key, _ = operands
    if mask is None or query.device.type == "cpu":
        return _attended(operands, mask, dropout_p, is_causal, factor, trains)
    bias, hidden = _finite_bias(mask, query.dtype, (query.shape[2], key.shape[2]))
    found = _attended(operands, bias, dropout_p, is_causal, factor, trains)
    return None if found is None else F.masked_fill(found, hidden, 0)


def _attended(operands, bias, dropout_p, is_causal, factor, trains):
    if not dropout_p:
        return dispatch(_ATTENTION, (*operands, bias, is_causal, factor, trains))[0]
    state = F.randint(0, _LARGEST_STATE, (2,), dtype=dtypes.int64, device=operands[0].device)
    try:
        return dispatch(_DROPPING, (*operands, bias, state, dropout_p, is_causal, factor, trains))[0]
    except NotSupportedError:
        return None


def _finite_bias(mask, dtype, size):
    """What is added to scores, of full size and without infinities, which fused kernels make NaN of; and rows that see
    nothing.
    """
    mask, least = F.expand(_with_heads(mask), (-1, -1, *size)), _LEAST[dtype]
    if mask.dtype is dtypes.bool_:
        hidden = F.logical_not(mask)
        bias = F.masked_fill(F.zeros(mask.shape, dtype=dtype, device=mask.device), hidden, least)
    else:
        hidden = F.eq(mask, -math.inf)
        bias = F.contiguous(F.clamp_min(mask, least))
    return bias, F.all(hidden, -1, True)


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


_LARGEST_STATE = 1 << 32
_LARGEST_GRID = 1 << 16
"""Heads, and samples, of which each has blocks of its own."""
_VECTOR = 8
"""Halves in 16 bytes."""
_WIDEST = 128
"""Heads up to this width have a fused backward pass."""


def turned(value):
    return F.transpose(value, -2, -1)


def widened(value):
    """In float32, where scores have the digits that a half lacks."""
    return F._to_copy(value, dtype=dtypes.float32) if value.dtype in HALVES else value


def _plainly(query, key, value, attn_mask, dropout_p, is_causal, factor, enable_gqa):
    """Attention step by step, all scores at once."""
    dtype = query.dtype
    query, key, value = (widened(v) for v in (query, key, value))
    if enable_gqa:
        key, value = (repeated_heads(v, query.shape[-3]) for v in (key, value))
    weights = weights_of(F.matmul(F.mul(query, factor), turned(key)), attn_mask, is_causal)
    if dropout_p > 0.0:
        weights = F.dropout(weights, dropout_p)
    result = F.matmul(weights, value)
    return result if result.dtype is dtype else F._to_copy(result, dtype=dtype)


def repeated_heads(value, heads):
    """Each head as often as query heads share it."""
    *batch, shared, length, width = value.shape
    if shared == heads:
        return value
    spread = F.expand(F.unsqueeze(value, -3), (*batch, shared, heads // shared, length, width))
    return F.reshape(spread, (*batch, heads, length, width))


def weights_of(scores, mask, is_causal):
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

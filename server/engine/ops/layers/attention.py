"""``scaled_dot_product_attention``: the choice between fused attention and its definition, as in PyTorch.

Fused attention (``_attention``, ``_attention_dropout``) never holds all scores in memory. The "math" implementation
serves what fused attention does not take: masks that require a gradient, operands that broadcast against each other,
and dropout for which the device has no kernel.
"""

from __future__ import annotations

import math
from functools import lru_cache

from server.engine import context, keys
from server.engine import functional as F
from server.engine.array_library.dtypes import HALVES
from server.engine.autograd.inplace import requires_grad
from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS, Single
from server.engine.registry import comes_to, composite
from telegrad_protocol import dtypes
from telegrad_protocol.errors import NotSupportedError
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.layers import attention as ops

_ATTENTION = OPERATORS["_attention"]
_ATTENTION_DROPOUT = OPERATORS["_attention_dropout"]


@composite(ops.scaled_dot_product_attention)
def scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, *, scale, enable_gqa):
    factor = _factor(query, scale)
    constant_mask = attn_mask is None or not requires_grad(attn_mask)
    trains = context.current.is_recording and any(map(requires_grad, (query, key, value)))
    metas, is_inference = (query.meta, key.meta, value.meta), not (trains or dropout_p)
    fits = constant_mask and _fits_fused(*metas, attn_mask is not None, is_inference, enable_gqa)
    if fits and _may_fuse_dropout(*metas, dropout_p):
        operands = [_with_heads(v) for v in (query, key, value)]
        output = _fused_attention(operands, attn_mask, dropout_p, is_causal, factor, trains)
        if output is not None:
            return F.reshape(output, (*query.shape[:-1], value.shape[-1])) if output.ndim != query.ndim else output
    result = _attention_math(query, key, value, attn_mask, dropout_p, is_causal, factor, enable_gqa)
    strides = ops.result_of(query.meta, result.shape).strides
    return result if result.meta.strides == strides else F._in_layout(result, strides)


@comes_to(ops.scaled_dot_product_attention)
def _only_attention(records, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    if records or dropout_p or query.ndim != 4:
        return None
    if not _fits_fused(query, key, value, attn_mask is not None, True, enable_gqa):
        return None
    if attn_mask is not None and not _takes_mask(query, key, value, True):
        return None
    rest = (is_causal, _factor(query, scale), False)
    return Single(_ATTENTION, lambda args: args[:4] + rest, 0)


def _factor(query, scale):
    """What scores are multiplied by; ``query`` is a value or its meta."""
    return 1.0 / math.sqrt(max(query.shape[-1], 1)) if scale is None else scale


def _may_fuse_dropout(query: Meta, key: Meta, value: Meta, dropout_p: float) -> bool:
    """Whether fused attention may take this dropout probability: it is 0, or cuDNN may have a kernel for it."""
    return dropout_p == 0.0 or (dropout_p < 1.0 and query.device.type != "cpu" and suits_cudnn(query, key, value))


def _fused_attention(operands, mask, dropout_p, is_causal, factor, trains):
    """Fused attention of operands of shape (n, heads, length, width); None if the device has no kernel for them."""
    query, key, value = operands
    if mask is None or _takes_mask(query.meta, key.meta, value.meta, not (trains or dropout_p)):
        return _dispatch_fused(operands, mask, dropout_p, is_causal, factor, trains)
    bias, masked = _finite_bias(mask, query.dtype, (query.shape[2], key.shape[2]))
    output = _dispatch_fused(operands, bias, dropout_p, is_causal, factor, trains)
    return None if output is None else F.masked_fill(output, masked, 0)


def _dispatch_fused(operands, bias, dropout_p, is_causal, factor, trains):
    if not dropout_p:
        return dispatch(_ATTENTION, (*operands, bias, is_causal, factor, trains))[0]
    state = F.randint(0, _LARGEST_STATE, (2,), dtype=dtypes.int64, device=operands[0].device)
    try:
        return dispatch(_ATTENTION_DROPOUT, (*operands, bias, state, dropout_p, is_causal, factor, trains))[0]
    except NotSupportedError:
        return None


def _finite_bias(mask, dtype, size):
    """The mask as a bias of full size (n, heads, rows, columns), and which rows are masked completely.

    The bias has no infinities, because fused kernels would turn them into NaN.
    """
    mask, least = F.expand(_with_heads(mask), (-1, -1, *size)), _LEAST[dtype]
    if mask.dtype is dtypes.bool_:
        masked = F.logical_not(mask)
        bias = F.masked_fill(F.zeros(mask.shape, dtype=dtype, device=mask.device), masked, least)
    else:
        masked = F.eq(mask, -math.inf)
        bias = F.contiguous(F.clamp_min(mask, least))
    return bias, F.all(masked, -1, True)


_LEAST = {dtypes.float16: -65504.0, dtypes.bfloat16: -1e30}
"""The bias of a masked score: low enough for exp to give 0, and high enough not to overflow when scaled or added to."""


def _with_heads(value):
    """The operand as (n, heads, length, width), with dimensions of size 1 put in front."""
    return value if value.ndim == 4 else F.reshape(value, (*(1,) * (4 - value.ndim), *value.shape))


def _takes_mask(query: Meta, key: Meta, value: Meta, is_inference: bool) -> bool:
    """Whether fused attention takes any mask as it is; ``is_inference``: without a backward pass and dropout."""
    return query.device.type == "cpu" or (is_inference and suits_few_rows(query, key, value))


@lru_cache(maxsize=1 << 12)
def _fits_fused(
    query: Meta, key: Meta, value: Meta, is_masked: bool, is_inference: bool, enable_gqa: bool
) -> bool:  # fmt: skip
    """Whether fused attention takes these operands: none of them broadcasts, and the device has kernels for them."""
    if not query.ndim == key.ndim == value.ndim or query.ndim > 4:
        return False
    lead = 3 if enable_gqa else 2
    if not query.shape[:-lead] == key.shape[:-lead] == value.shape[:-lead] or key.shape[:-2] != value.shape[:-2]:
        return False
    if query.device.type == "cpu":
        return True
    suits = suits_cudnn(query, key, value) or (not is_masked and suits_tiles(query, key, value))
    suits = suits or (is_inference and suits_few_rows(query, key, value))
    return keys.CUDA in _ATTENTION.preparers and suits


def suits_tiles(query: Meta, key: Meta, value: Meta) -> bool:
    """Whether our own fused kernels take these operands without a mask; they read any layout."""
    return _suits_own(query, key, value, _WIDEST)


def suits_few_rows(query: Meta, key: Meta, value: Meta) -> bool:
    """Whether our kernel for few rows of queries takes these operands, with any mask but without a backward pass."""
    heads, shared = [meta.shape[-3] if meta.ndim > 2 else 1 for meta in (query, key)]
    is_few = query.shape[-2] * heads <= _FEW * shared and _TILES_OF_FEW * shared < _LARGEST_GRID
    return is_few and _suits_own(query, key, value, _WIDEST_OF_FEW)


def _suits_own(query: Meta, key: Meta, value: Meta, widest: int) -> bool:
    is_float = query.dtype is dtypes.float32 or query.dtype in HALVES
    fits_grid = max(query.shape[:-2], default=1) < _LARGEST_GRID
    is_narrow = max(query.shape[-1], value.shape[-1]) <= widest
    return is_float and fits_grid and is_narrow and all(meta.numel for meta in (query, key, value))


def suits_cudnn(query: Meta, key: Meta, value: Meta) -> bool:
    """Whether cuDNN's fused kernels are made for these operands, with or without a dimension of heads."""
    operands = (query, key, value)
    if query.dtype not in HALVES or not all(m.numel for m in operands):
        return False
    return max(query.shape[-1], value.shape[-1]) <= _WIDEST and all(map(_is_read_in_vectors, operands))


def _is_read_in_vectors(meta: Meta) -> bool:
    """Whether the rows of all heads are contiguous, do not overlap, and begin at multiples of 16 bytes."""
    steps = [step for size, step in zip(meta.shape[:-1], meta.strides[:-1], strict=True) if size > 1]
    if min(steps, default=1) <= 0 or meta.strides[-1] != 1:
        return False
    return not any(number % _VECTOR for number in (*steps, meta.shape[-1], meta.offset))


_LARGEST_STATE = 1 << 32
"""Seed and offset of the dropout state are drawn below this number."""
_LARGEST_GRID = 1 << 16
"""The largest size of a CUDA grid's second and third dimension, which count heads and samples."""
_VECTOR = 8
"""Elements of half precision in a vector load of 16 bytes."""
_WIDEST = 128
"""The largest width of a head for which there is a fused backward kernel."""
_WIDEST_OF_FEW = 256
_FEW = 16
"""Rows of queries for each head of keys that a kernel for few rows takes, all heads that share these together."""
_TILES_OF_FEW = 2
"""Blocks that these rows take, at most."""


def transposed(value):
    """The value with its last two dimensions exchanged: (..., m, n) -> (..., n, m)"""
    return F.transpose(value, -2, -1)


def upcast(value):
    """The value in float32 if it has half precision, which is too coarse for scores."""
    return F._to_copy(value, dtype=dtypes.float32) if value.dtype in HALVES else value


def _attention_math(query, key, value, attn_mask, dropout_p, is_causal, factor, enable_gqa):
    """Attention by its definition, with all scores in memory: softmax(query @ key.T * factor + mask) @ value"""
    dtype = query.dtype
    query, key, value = (upcast(v) for v in (query, key, value))
    if enable_gqa:
        key, value = (repeat_heads(v, query.shape[-3]) for v in (key, value))
    weights = attention_weights(F.matmul(F.mul(query, factor), transposed(key)), attn_mask, is_causal)
    if dropout_p > 0.0:
        weights = F.dropout(weights, dropout_p)
    result = F.matmul(weights, value)
    return result if result.dtype is dtype else F._to_copy(result, dtype=dtype)


def repeat_heads(value, heads):
    """Key or value heads repeated for grouped-query attention: (..., shared, l, e) -> (..., heads, l, e)"""
    *batch, shared, length, width = value.shape
    if shared == heads:
        return value
    spread = F.expand(F.unsqueeze(value, -3), (*batch, shared, heads // shared, length, width))
    return F.reshape(spread, (*batch, heads, length, width))


def attention_weights(scores, mask, is_causal):
    """The softmax of the masked scores over the last dimension; a row that is masked completely gets zeros."""
    if is_causal:
        rows, columns = (F.arange(n, device=scores.device) for n in scores.shape[-2:])
        scores = F.masked_fill(scores, F.lt(F.unsqueeze(rows, 1), columns), -math.inf)
    if mask is None:
        return F.softmax(scores, -1)
    if mask.dtype is dtypes.bool_:
        scores = F.masked_fill(scores, F.logical_not(mask), -math.inf)
    else:
        scores = F.add(scores, mask)
    fully_masked = F.all(F.eq(scores, -math.inf), -1, True)  # their softmax would be NaN
    return F.masked_fill(F.softmax(F.masked_fill(scores, fully_masked, 0), -1), fully_masked, 0)

"""Contracts of attention: the function of users, and the steps that keep no scores between forward and backward."""

from __future__ import annotations

from telegrad_protocol.dtypes import FLOAT, DType, bool_, float32, int64
from telegrad_protocol.errors import ArgumentError, DTypeError, ShapeError
from telegrad_protocol.layout import Size, broadcast_shapes, result_strides
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.contract import op

_NAME = "scaled_dot_product_attention"


def _check_attention(query: Meta, key: Meta, value: Meta, attn_mask: Meta | None, is_causal: bool) -> None:
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise ShapeError(f"{_NAME}: operands need at least two dimensions, got {query}, {key} and {value}")
    if not (query.dtype is key.dtype is value.dtype) or query.dtype.category != FLOAT:
        raise DTypeError(f"{_NAME}: operands must have one floating-point type, got {query}, {key} and {value}")
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise ShapeError(f"{_NAME}: {query}, {key} and {value} do not go together")
    if attn_mask is not None and is_causal:
        raise ArgumentError(f"{_NAME}: give either attn_mask or is_causal")
    if attn_mask is not None and attn_mask.dtype is not bool_ and attn_mask.dtype is not query.dtype:
        raise DTypeError(f"{_NAME}: the mask must be bool or {query.dtype.name}, got {attn_mask}")


def _grouped_heads(query: Meta, shared: Meta) -> Size:
    """Return the batch dimensions of a key or value whose heads several query heads share."""
    heads = query.shape[-3] if query.ndim > 2 and shared.ndim > 2 else 0
    if not heads or not shared.shape[-3] or heads % shared.shape[-3]:
        raise ShapeError(f"{_NAME}: {shared} does not divide the heads of {query}")
    return (*shared.shape[:-3], heads)


def _check_mask(attn_mask: Meta | None, scores: Size) -> None:
    if attn_mask is not None and broadcast_shapes(_NAME, scores, attn_mask.shape) != scores:
        raise ShapeError(f"{_NAME}: the mask {attn_mask} does not expand to {list(scores)}")


def result_of(query: Meta, shape: Size) -> Meta:
    """Return the meta of a result in the memory order of the query's dimensions, so that heads join without a copy."""
    if len(shape) != query.ndim or shape[:-1] != query.shape[:-1]:
        return query.like(shape)
    return query.like(shape, strides=result_strides(shape, [(shape, query.strides)]))


@op(out=False, method=False, random=True, module="nn.functional")
def scaled_dot_product_attention(
    query: Meta, key: Meta, value: Meta, attn_mask: Meta | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    *, scale: float | None = None, enable_gqa: bool = False,
) -> Meta:  # fmt: skip
    """Compute softmax(query @ key.T * scale + mask) @ value: (..., l, e), (..., s, e), (..., s, v) -> (..., l, v).

    A bool mask says what takes part. ``is_causal`` lets row i see columns up to i. ``scale`` is 1 / sqrt(e) by default.
    """
    _check_attention(query, key, value, attn_mask, is_causal)
    if not 0.0 <= dropout_p <= 1.0:
        raise ArgumentError(f"{_NAME}: dropout_p must be between 0 and 1, got {dropout_p}")
    batches = [_grouped_heads(query, m) if enable_gqa else m.shape[:-2] for m in (key, value)]
    batch = broadcast_shapes(_NAME, query.shape[:-2], *batches)
    _check_mask(attn_mask, (*batch, query.shape[-2], key.shape[-2]))
    return result_of(query, (*batch, query.shape[-2], value.shape[-1]))


def _check_heads(query: Meta, key: Meta, value: Meta) -> None:
    """Refuse what is not (n, heads, l, e), (n, shared heads, s, e) and (n, shared heads, s, v)."""
    if not query.ndim == key.ndim == value.ndim == 4 or not query.shape[0] == key.shape[0] == value.shape[0]:
        raise ShapeError(f"{_NAME}: {query}, {key} and {value} are not (n, heads, length, width) of one batch")
    if key.shape[1] != value.shape[1] or not key.shape[1] or query.shape[1] % key.shape[1]:
        raise ShapeError(f"{_NAME}: the heads of {key} and {value} do not divide those of {query}")


def _statistic_type(dtype: DType) -> DType:
    return float32 if dtype.itemsize == 2 else dtype


@op(out=False, method=False, returns=("output", "logsumexp"), no_grad=("attn_mask",))
def _attention(
    query: Meta, key: Meta, value: Meta, attn_mask: Meta | None, is_causal: bool, scale: float, trains: bool
) -> tuple[Meta, Meta]:
    """Compute attention of (n, heads, l, e) on (n, shared heads, s, e), and the log-sum-exp of every row of scores.

    Only backward needs the latter: it is empty unless ``trains``.
    """
    _check_attention(query, key, value, attn_mask, is_causal)
    _check_heads(query, key, value)
    _check_mask(attn_mask, (*query.shape[:3], key.shape[2]))
    statistic = query.like(query.shape[:3] if trains else (0,), dtype=_statistic_type(query.dtype))
    return result_of(query, (*query.shape[:3], value.shape[3])), statistic


@op(out=False, method=False, returns=("grad_query", "grad_key", "grad_value"),
    no_grad=("attn_mask", "output", "logsumexp"))  # fmt: skip
def _attention_backward(
    grad_output: Meta, query: Meta, key: Meta, value: Meta, attn_mask: Meta | None, output: Meta, logsumexp: Meta,
    is_causal: bool, scale: float,
) -> tuple[Meta, Meta, Meta]:  # fmt: skip
    """Compute the gradients of the operands of ``_attention``; scores are computed again from its ``logsumexp``."""
    result, statistic = _attention.infer((query, key, value, attn_mask, is_causal, scale, True))  # type: ignore[misc]
    for given, expected in ((grad_output, result), (output, result), (logsumexp, statistic)):
        if given.shape != expected.shape or given.dtype is not expected.dtype:
            raise ShapeError(f"_attention_backward: {given} should be {expected}, for {query}, {key} and {value}")
    return tuple(result_of(m, m.shape) for m in (query, key, value))  # type: ignore[return-value]


def _check_state(state: Meta) -> None:
    if state.shape != (2,) or state.dtype is not int64 or not state.is_contiguous:
        raise ShapeError(f"{_NAME}: the state of dropout must be two integers, a seed and an offset, got {state}")


@op(out=False, method=False, returns=("output", "logsumexp"), no_grad=("attn_mask", "state"))
def _attention_dropout(
    query: Meta, key: Meta, value: Meta, attn_mask: Meta | None, state: Meta, dropout_p: float, is_causal: bool,
    scale: float, trains: bool,
) -> tuple[Meta, Meta]:  # fmt: skip
    """Compute ``_attention`` with weights dropped with probability ``dropout_p``, drawn from generator ``state``."""
    _check_state(state)
    return _attention.infer((query, key, value, attn_mask, is_causal, scale, trains))  # type: ignore[return-value]


@op(out=False, method=False, returns=("grad_query", "grad_key", "grad_value"),
    no_grad=("attn_mask", "state", "output", "logsumexp"))  # fmt: skip
def _attention_dropout_backward(
    grad_output: Meta, query: Meta, key: Meta, value: Meta, attn_mask: Meta | None, state: Meta, output: Meta,
    logsumexp: Meta, dropout_p: float, is_causal: bool, scale: float,
) -> tuple[Meta, Meta, Meta]:  # fmt: skip
    """Compute the gradients of the operands of ``_attention_dropout``."""
    _check_state(state)
    operands = (grad_output, query, key, value, attn_mask, output, logsumexp, is_causal, scale)
    return _attention_backward.infer(operands)  # type: ignore[return-value]

"""Attention with several heads in all its variants, as one function of parameters; ``nn.functional`` re-exports it."""

from __future__ import annotations

import math
from typing import Any

from telegrad._ops.functions import function
from telegrad._ops.operands.asserted_errors import AssertedArgumentError, AssertedShapeError, AssertedTypeError
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import bool_
from telegrad_protocol.errors import ArgumentError, ShapeError


def additive(mask: Tensor, like: Tensor) -> Tensor:
    """Return a mask as numbers to be added to scores; of bools, -inf where true and 0 elsewhere."""
    if mask.dtype is not bool_:
        if not mask.dtype.is_floating_point:
            raise AssertedTypeError(f"only bool and floating types of masks are supported, got {mask._meta}")
        return mask.to(like.dtype)
    return like.new_zeros(mask.shape).masked_fill_(mask, -math.inf)


def projected(
    query: Tensor, key: Tensor, value: Tensor, in_proj: Tensor | list[Tensor], in_bias: Tensor | None
) -> list[Tensor]:
    """Return query, key and value after their projections, whose weights are one tensor or three."""
    linear = function("linear")
    if isinstance(in_proj, Tensor) and query is key and key is value:
        return list(linear(query, in_proj, in_bias).chunk(3, -1))
    weights = in_proj.chunk(3) if isinstance(in_proj, Tensor) else in_proj
    biases: Any = (None, None, None) if in_bias is None else in_bias.chunk(3)
    return [linear(t, w, b) for t, w, b in zip((query, key, value), weights, biases, strict=True)]


def check_attended(query: Tensor, key: Tensor, value: Tensor, size: int) -> None:
    """Refuse operands of attention that are not all of two, or all of three dimensions, and queries of another size."""
    if query.ndim not in (2, 3) or key.ndim != query.ndim or value.ndim != query.ndim:
        raise AssertedShapeError(
            "query should be unbatched 2D or batched 3D tensor and key and value like it, "
            f"got {query._meta}, {key._meta} and {value._meta}"
        )
    if query.shape[-1] != size:
        raise AssertedShapeError(f"was expecting embedding dimension of {size}, but got {query.shape[-1]}")


def check_masks(
    query: Tensor, key: Tensor, mask: Tensor | None, padding: Tensor | None, heads: int, is_batch_first: bool = False
) -> None:
    """Refuse keys of other samples than the queries', and masks that are not (l, s) or (n * heads, l, s) and (n, s)."""
    batch_at, length_at = (0, 1) if is_batch_first else (1, 0)
    is_batched = query.ndim == 3
    batch = query.shape[batch_at] if is_batched else 1
    if is_batched and key.shape[batch_at] != batch:
        raise AssertedShapeError(
            f"attention: query {query._meta} and key {key._meta} differ in their number of samples"
        )
    lengths = [tensor.shape[length_at if is_batched else 0] for tensor in (query, key)]
    if mask is not None and tuple(mask.shape) not in (tuple(lengths), (batch * heads, *lengths)):
        raise AssertedShapeError(
            f"attention: The shape of attn_mask is {mask._meta}, but should be {tuple(lengths)} or "
            f"{(batch * heads, *lengths)}"
        )
    wanted = (batch, lengths[1]) if is_batched else (lengths[1],)
    if padding is not None and tuple(padding.shape) != wanted:
        raise AssertedShapeError(f"attention: key_padding_mask should be of shape {wanted}, got {padding._meta}")


def multi_head_attention_forward(
    query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int, in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None, bias_k: Tensor | None, bias_v: Tensor | None, add_zero_attn: bool, dropout_p: float,
    out_proj_weight: Tensor, out_proj_bias: Tensor | None, training: bool = True,
    key_padding_mask: Tensor | None = None, need_weights: bool = True, attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False, q_proj_weight: Tensor | None = None, k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None, static_k: Tensor | None = None, static_v: Tensor | None = None,
    average_attn_weights: bool = True, is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Attention of (l, n, e) or (l, e) to keys and values (s, n, e) or (s, e); returns its weights, too.

    ``bias_k``, ``bias_v`` and zeros are appended to the keys and values; ``static_k`` and ``static_v``, of the shape
    (n * num_heads, s, e / num_heads), take the place of projected ones.
    """
    check_attended(query, key, value, embed_dim_to_check)
    compared = key.ndim - 1 if use_separate_proj_weight else key.ndim
    if key.shape[:compared] != value.shape[:compared]:
        raise AssertedShapeError(f"key shape {key.shape} does not match value shape {value.shape}")
    if embed_dim_to_check % num_heads:
        raise AssertedArgumentError(f"embed_dim {embed_dim_to_check} not divisible by num_heads {num_heads}")
    if is_causal and attn_mask is None:
        raise ArgumentError("Need attn_mask if specifying the is_causal hint.")
    check_masks(query, key, attn_mask, key_padding_mask, num_heads)
    is_batched = query.ndim == 3
    in_proj: Any = [q_proj_weight, k_proj_weight, v_proj_weight] if use_separate_proj_weight else in_proj_weight
    q, k, v = projected(query, key, value, in_proj, in_proj_bias)
    if not is_batched:
        q, k, v = (t.unsqueeze(1) for t in (q, k, v))
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, batch, _ = q.shape
    if bias_k is not None and bias_v is not None:
        if static_k is not None or static_v is not None:
            raise ArgumentError("bias cannot be added to static key and value.")
        k, v = (function("cat")([t, bias.expand(1, batch, -1)]) for t, bias in ((k, bias_k), (v, bias_v)))
    q, k, v = (_by_head(t, num_heads) for t in (q, k, v))
    k = k if static_k is None else static_k.unflatten(0, (batch, num_heads))
    v = v if static_v is None else static_v.unflatten(0, (batch, num_heads))
    if add_zero_attn:
        k, v = (function("pad")(t, (0, 0, 0, 1)) for t in (k, v))
    only_hint = is_causal and key_padding_mask is None and not need_weights  # as in PyTorch, for appended keys too
    mask = None if only_hint else _mask(attn_mask, key_padding_mask, q, k, num_heads)
    attended, weights = _attend(q, k, v, mask, dropout_p if training else 0.0, only_hint, need_weights)
    output = function("linear")(attended.permute(2, 0, 1, 3).reshape(length, batch, -1), out_proj_weight, out_proj_bias)
    output = output if is_batched else output.squeeze(1)
    if weights is None:
        return output, None
    shown = weights.mean(1) if average_attn_weights else weights
    return output, shown if is_batched else shown.squeeze(0)


def _by_head(tensor: Tensor, num_heads: int) -> Tensor:
    """(l, n, e) -> (n, h, l, e / h)"""
    length, batch, width = tensor.shape
    return tensor.reshape(length, batch, num_heads, width // num_heads).permute(1, 2, 0, 3)


def _mask(
    attn_mask: Tensor | None, padding: Tensor | None, query: Tensor, key: Tensor, num_heads: int
) -> Tensor | None:
    """Return what is added to the scores (n, h, l, s), None where nothing is masked; appended keys are seen."""
    batch, _, length, _ = query.shape
    sources = key.shape[2]
    mask: Tensor | None = None
    if attn_mask is not None:
        mask = additive(attn_mask, query)
        mask = mask if mask.shape[-1] == sources else function("pad")(mask, (0, sources - mask.shape[-1]))
        expected = (length, sources) if mask.ndim == 2 else (batch * num_heads, length, sources)
        if tuple(mask.shape) != expected:
            raise ShapeError(f"The shape of the attn_mask is {attn_mask._meta}, but should be {list(expected)}.")
        if mask.ndim == 3:
            mask = mask.reshape(batch, num_heads, length, sources)
    if padding is not None:
        hidden = additive(padding, query)
        hidden = hidden if hidden.shape[-1] == sources else function("pad")(hidden, (0, sources - hidden.shape[-1]))
        hidden = hidden.reshape(batch, 1, 1, sources)
        mask = hidden if mask is None else mask + hidden
    return mask


def _attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, is_causal: bool, need_weights: bool
) -> tuple[Tensor, Tensor | None]:
    if not need_weights:
        attend = function("scaled_dot_product_attention")
        return attend(query, key, value, mask, dropout, is_causal), None
    weights = attention_weights(query, key, mask)
    weights = function("dropout")(weights, dropout, True) if dropout else weights
    return weights.matmul(value), weights


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    """Return the softmax of the scaled and masked scores: (n, h, l, s)."""
    scores = query.div(math.sqrt(query.shape[-1])).matmul(key.transpose(-2, -1))
    return function("softmax")(scores if mask is None else scores.add(mask), -1)  # type: ignore[no-any-return]

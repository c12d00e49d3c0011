"""Attention with several heads.

A. Vaswani et al., Attention is all you need (2017).
"""

from __future__ import annotations

import math

from telegrad._session.devices import DeviceLike
from telegrad._tensor.tensor import Tensor
from telegrad.nn import functional as F
from telegrad.nn import init
from telegrad.nn.parameter import Parameter, new_parameter
from telegrad_protocol.dtypes import DType, bool_
from telegrad_protocol.errors import ArgumentError, NotSupportedError, ShapeError

from .linear import Linear
from .module import Module

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Attention of ``num_heads`` heads on projections of query, key and value; masks say True where nothing is seen."""

    in_proj_weight: Parameter
    in_proj_bias: Parameter | None

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False,
        add_zero_attn: bool = False, kdim: int | None = None, vdim: int | None = None, batch_first: bool = False,
        device: DeviceLike = None, dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads:
            raise ArgumentError(f"MultiheadAttention: embed_dim {embed_dim} must be divisible by num_heads {num_heads}")
        if add_bias_kv or add_zero_attn or (kdim or embed_dim) != embed_dim or (vdim or embed_dim) != embed_dim:
            raise NotSupportedError(
                "MultiheadAttention: add_bias_kv, add_zero_attn, and other sizes of keys and values"
            )
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.in_proj_weight = new_parameter(3 * embed_dim, embed_dim, device=device, dtype=dtype)
        made = new_parameter(3 * embed_dim, device=device, dtype=dtype) if bias else None
        self.register_parameter("in_proj_bias", made)
        self.out_proj = Linear(embed_dim, embed_dim, bias, device, dtype)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        init.xavier_uniform_(self.in_proj_weight)
        if self.in_proj_bias is not None and self.out_proj.bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None, average_attn_weights: bool = True, is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        if is_causal and attn_mask is None:
            raise ArgumentError("MultiheadAttention: is_causal is a hint about attn_mask, which is missing")
        if query.ndim not in (2, 3) or key.ndim != query.ndim or value.ndim != query.ndim:
            raise ShapeError(
                f"MultiheadAttention: expected two or three dimensions, got {query._meta}, {key._meta}, {value._meta}"
            )
        is_batched = query.ndim == 3
        q, k, v = (self._heads(t, is_batched) for t in self._projected(query, key, value))
        is_causal = is_causal and key_padding_mask is None and not need_weights  # then the hint says all
        mask = None if is_causal else self._mask(attn_mask, key_padding_mask, q, k)
        dropout = self.dropout if self.training else 0.0
        if need_weights:
            weights = _weights(q, k, mask)
            attended = (F.dropout(weights, dropout) if dropout else weights).matmul(v)
        else:
            weights = None
            attended = F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal)
        output = self._joined(attended, is_batched)
        if weights is None:
            return output, None
        shown = weights.mean(1) if average_attn_weights else weights
        return output, shown if is_batched else shown.squeeze(0)

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        if query is key and key is value:
            return list(F.linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1))
        weights = self.in_proj_weight.chunk(3)
        biases = self.in_proj_bias.chunk(3) if self.in_proj_bias is not None else (None, None, None)
        return [F.linear(t, w, b) for t, w, b in zip((query, key, value), weights, biases, strict=True)]

    def _heads(self, tensor: Tensor, is_batched: bool) -> Tensor:
        """(n, l, e) or (l, n, e) or (l, e) -> (n, h, l, e / h)"""
        if not is_batched:
            tensor = tensor.unsqueeze(0)
        elif not self.batch_first:
            tensor = tensor.transpose(0, 1)
        batch, length, _ = tensor.shape
        return tensor.reshape(batch, length, self.num_heads, self.head_dim).transpose(1, 2)

    def _joined(self, heads: Tensor, is_batched: bool) -> Tensor:
        batch, _, length, _ = heads.shape
        if not is_batched:
            joined = heads.transpose(1, 2).reshape(length, self.embed_dim)
        elif self.batch_first:
            joined = heads.transpose(1, 2).reshape(batch, length, self.embed_dim)
        else:
            joined = heads.permute(2, 0, 1, 3).reshape(length, batch, self.embed_dim)
        return self.out_proj(joined)  # type: ignore[no-any-return]

    def _mask(self, attn_mask: Tensor | None, padding: Tensor | None, query: Tensor, key: Tensor) -> Tensor | None:
        """Return what is added to the scores (n, h, l, s), None where nothing is masked."""
        mask: Tensor | None = None
        if attn_mask is not None:
            mask = _additive(attn_mask, query)
            if mask.ndim == 3:
                mask = mask.view(query.shape[0], self.num_heads, query.shape[2], key.shape[2])
        if padding is not None:
            hidden = _additive(padding, query).view(-1, 1, 1, key.shape[2])
            mask = hidden if mask is None else mask + hidden
        return mask


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    """Return a mask as numbers to be added to scores; of bools, -inf where true and 0 elsewhere."""
    if mask.dtype is not bool_:
        return mask.to(like.dtype)
    return like.new_zeros(mask.shape).masked_fill_(mask, -math.inf)


def _weights(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    scores = query.div(math.sqrt(query.shape[-1])).matmul(key.transpose(-2, -1))
    return F.softmax(scores if mask is None else scores.add(mask), -1)

"""Attention with several heads.

A. Vaswani et al., Attention is all you need (2017).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from telegrad._ops.operands.asserted_errors import AssertedArgumentError, AssertedShapeError
from telegrad._session.devices import DeviceLike
from telegrad._session.grad_mode import is_grad_enabled
from telegrad._tensor.tensor import Tensor
from telegrad.nn import functional as F
from telegrad.nn import init
from telegrad.nn._functional.attention import (
    additive,
    attention_weights,
    check_attended,
    check_masks,
    multi_head_attention_forward,
    projected,
)
from telegrad.nn.parameter import Parameter, new_parameter
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError

from .linear import NonDynamicallyQuantizableLinear
from .module import Module

__all__ = ["MultiheadAttention"]


class NestedAttentionError(ArgumentError, AssertionError):
    """Attention of nested tensors was asked for in a way that it does not have."""


class MultiheadAttention(Module):
    """Attention of ``num_heads`` heads on projections of query, key and value; masks say True where nothing is seen."""

    in_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    q_proj_weight: Parameter | None
    k_proj_weight: Parameter | None
    v_proj_weight: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False,
        add_zero_attn: bool = False, kdim: int | None = None, vdim: int | None = None, batch_first: bool = False,
        device: DeviceLike = None, dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads:
            raise AssertedArgumentError(
                f"embed_dim must be divisible by num_heads, got embed_dim {embed_dim} and num_heads {num_heads}"
            )
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.add_zero_attn = add_zero_attn
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        widths = {"q_proj_weight": embed_dim, "k_proj_weight": self.kdim, "v_proj_weight": self.vdim}
        if self._qkv_same_embed_dim:
            self.in_proj_weight = new_parameter(3 * embed_dim, embed_dim, **place)
            for name in widths:
                self.register_parameter(name, None)
        else:
            for name, width in widths.items():
                self.register_parameter(name, new_parameter(embed_dim, width, **place))
            self.register_parameter("in_proj_weight", None)
        self.register_parameter("in_proj_bias", new_parameter(3 * embed_dim, **place) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias, device, dtype)
        for name in ("bias_k", "bias_v"):
            self.register_parameter(name, new_parameter(1, 1, embed_dim, **place) if add_bias_kv else None)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None and self.out_proj.bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None, average_attn_weights: bool = True, is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        if is_causal and attn_mask is None:
            raise ArgumentError("MultiheadAttention: is_causal is a hint about attn_mask, which is missing")
        if query.is_nested or key.is_nested or value.is_nested:
            return self._of_nested(query, key, value, (key_padding_mask, attn_mask), need_weights, average_attn_weights)
        check_attended(query, key, value, self.embed_dim)
        is_batched = query.ndim == 3
        # A program may have put another function in the place of our own.
        is_own = F.multi_head_attention_forward is multi_head_attention_forward
        if self.bias_k is not None or self.add_zero_attn or not (self._qkv_same_embed_dim and is_own):
            return self._general(
                query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal
            )
        check_masks(query, key, attn_mask, key_padding_mask, self.num_heads, self.batch_first)
        if key.shape != value.shape:
            raise AssertedShapeError(f"key shape {key.shape} does not match value shape {value.shape}")
        together: Any = self.in_proj_weight
        parts = projected(query, key, value, together, self.in_proj_bias)
        q, k, v = (self._heads(t, is_batched) for t in parts)
        is_causal = is_causal and key_padding_mask is None and not need_weights  # then the hint says all
        mask = None if is_causal else self._mask(attn_mask, key_padding_mask, q, k)
        dropout = self.dropout if self.training else 0.0
        if need_weights:
            weights = attention_weights(q, k, mask)
            attended = (F.dropout(weights, dropout) if dropout else weights).matmul(v)
        else:
            weights = None
            attended = F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal)
        if weights is None:
            return self._joined(attended, is_batched), None
        is_by_position = is_batched and self.batch_first and not self._is_at_once(query, key, value)
        output = self._joined(attended, is_batched, not is_by_position)
        shown = weights.mean(1) if average_attn_weights else weights
        return output, shown if is_batched else shown.squeeze(0)

    def _of_nested(
        self, query: Tensor, key: Tensor, value: Tensor, masks: tuple[Any, Any], need_weights: bool, average: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Attend within each element of a nested batch; weights are padded with zeros."""
        is_plain = self._qkv_same_embed_dim and self.bias_k is None and not self.add_zero_attn and self.batch_first
        if not is_plain or query.ndim != 3 or any(mask is not None for mask in masks):
            raise NestedAttentionError(
                "MultiheadAttention: nested tensors need three dimensions, batch_first=True, keys and values of the "
                "size of queries, and no masks: each element of the batch attends to its own rows"
            )
        parts = projected(query, key, value, self.in_proj_weight, self.in_proj_bias)  # type: ignore[arg-type]
        size = (query.size(0), -1, self.num_heads, self.head_dim)
        q, k, v = (part.reshape(size).transpose(1, 2) for part in parts)
        attend = import_module("telegrad._nested.multihead").attend
        attended, weights = attend(q, k, v, self.dropout if self.training else 0.0, need_weights)
        output = self.out_proj(attended.transpose(1, 2).reshape(query.size(0), -1, self.embed_dim))
        return output, weights.mean(1) if weights is not None and average else weights

    def _general(
        self, query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, need_weights: bool,
        attn_mask: Tensor | None, average: bool, is_causal: bool,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Attend with appended keys, or with keys and values of other sizes."""
        is_swapped = self.batch_first and query.ndim == 3
        if is_swapped:
            query, key, value = (t.transpose(0, 1) for t in (query, key, value))
        output, weights = F.multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k,
            self.bias_v, self.add_zero_attn, self.dropout, self.out_proj.weight, self.out_proj.bias, self.training,
            padding, need_weights, attn_mask, not self._qkv_same_embed_dim, self.q_proj_weight, self.k_proj_weight,
            self.v_proj_weight, average_attn_weights=average, is_causal=is_causal,
        )  # fmt: skip
        return output.transpose(0, 1) if is_swapped else output, weights

    def _heads(self, tensor: Tensor, is_batched: bool) -> Tensor:
        """(n, l, e) or (l, n, e) or (l, e) -> (n, h, l, e / h)"""
        if not is_batched:
            tensor = tensor.unsqueeze(0)
        elif not self.batch_first:
            tensor = tensor.transpose(0, 1)
        batch, length, _ = tensor.shape
        return tensor.reshape(batch, length, self.num_heads, self.head_dim).transpose(1, 2)

    def _is_at_once(self, query: Tensor, key: Tensor, value: Tensor) -> bool:
        """Whether PyTorch's fast path computes this, whose results have the order of their dimensions."""
        if self.training or query is not key or key is not value or self.num_heads % 2:
            return False
        return not is_grad_enabled() or not any(tensor.requires_grad for tensor in (query, *self.parameters()))

    def _joined(self, heads: Tensor, is_batched: bool, is_by_batch: bool = True) -> Tensor:
        """(n, h, l, e / h) -> (n, l, e) or (l, n, e) or (l, e); elements lie by batch first, or by position first."""
        batch, _, length, _ = heads.shape
        if not is_batched:
            joined = heads.transpose(1, 2).reshape(length, self.embed_dim)
        elif self.batch_first and is_by_batch:
            joined = heads.transpose(1, 2).reshape(batch, length, self.embed_dim)
        else:
            joined = heads.permute(2, 0, 1, 3).reshape(length, batch, self.embed_dim)
        output: Tensor = self.out_proj(joined)
        return output.transpose(0, 1) if self.batch_first and not is_by_batch else output

    def _mask(self, attn_mask: Tensor | None, padding: Tensor | None, query: Tensor, key: Tensor) -> Tensor | None:
        """Return what is added to the scores (n, h, l, s), None where nothing is masked."""
        mask: Tensor | None = None
        if attn_mask is not None:
            mask = additive(attn_mask, query)
            if mask.ndim == 3:
                mask = mask.view(query.shape[0], self.num_heads, query.shape[2], key.shape[2])
        if padding is not None:
            hidden = additive(padding, query).view(-1, 1, 1, key.shape[2])
            mask = hidden if mask is None else mask + hidden
        return mask

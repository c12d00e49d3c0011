"""Attention with several heads, and the encoder of a transformer.

A. Vaswani et al., Attention is all you need (2017).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType, bool_
from telegrad_protocol.errors import ArgumentError, NotSupportedError, ShapeError

from . import functional as F
from . import init
from .containers import ModuleList
from .dropout import Dropout
from .linear import Linear, Place, new_parameter
from .module import Module
from .normalization import LayerNorm
from .parameter import Parameter


class MultiheadAttention(Module):
    """Attention of ``num_heads`` heads on projections of query, key and value; masks say True where nothing is seen."""

    in_proj_weight: Parameter
    in_proj_bias: Parameter | None

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False,
        add_zero_attn: bool = False, kdim: int | None = None, vdim: int | None = None, batch_first: bool = False,
        device: Place = None, dtype: DType | None = None,
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
            found = (F.dropout(weights, dropout) if dropout else weights).matmul(v)
        else:
            weights = None
            found = F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal)
        output = self._joined(found, is_batched)
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
        """What is added to the scores (n, h, l, s)."""
        found: Tensor | None = None
        if attn_mask is not None:
            found = _additive(attn_mask, query)
            if found.ndim == 3:
                found = found.view(query.shape[0], self.num_heads, query.shape[2], key.shape[2])
        if padding is not None:
            hidden = _additive(padding, query).view(-1, 1, 1, key.shape[2])
            found = hidden if found is None else found + hidden
        return found


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    """A mask of bools as one of numbers: -inf where nothing is seen."""
    if mask.dtype is not bool_:
        return mask.to(like.dtype)
    return like.new_zeros(mask.shape).masked_fill_(mask, -math.inf)


def _weights(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    scores = query.div(math.sqrt(query.shape[-1])).matmul(key.transpose(-2, -1))
    return F.softmax(scores if mask is None else scores.add(mask), -1)


class TransformerEncoderLayer(Module):
    """Self-attention and a feed-forward network, each with a residual connection and a norm."""

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = F.relu, layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, device: Place = None, dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **place)
        self.linear1 = Linear(d_model, dim_feedforward, bias, **place)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **place)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, **place)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, **place)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.activation = _activation(activation)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        if self.norm_first:
            src = src.add(self._attend(self.norm1(src), src_mask, src_key_padding_mask, is_causal))
            return src.add(self._feed(self.norm2(src)))
        src = self.norm1(src.add(self._attend(src, src_mask, src_key_padding_mask, is_causal)))
        return self.norm2(src.add(self._feed(src)))  # type: ignore[no-any-return]

    def _attend(self, x: Tensor, mask: Tensor | None, padding: Tensor | None, is_causal: bool) -> Tensor:
        found, _ = self.self_attn(x, x, x, padding, need_weights=False, attn_mask=mask, is_causal=is_causal)
        return self.dropout1(found)  # type: ignore[no-any-return]

    def _feed(self, x: Tensor) -> Tensor:
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))  # type: ignore[no-any-return]


def _activation(given: str | Callable[[Tensor], Tensor]) -> Any:
    if not isinstance(given, str):
        return given
    if given not in ("relu", "gelu"):
        raise ArgumentError(f"activation should be relu/gelu, not {given}")
    return F.relu if given == "relu" else F.gelu


class TransformerEncoder(Module):
    """Copies of one encoder layer, one after the other."""

    def __init__(
        self, encoder_layer: Module, num_layers: int, norm: Module | None = None, enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.layers = ModuleList(copy.deepcopy(encoder_layer) for _ in range(num_layers))
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, bool(is_causal))
        return src if self.norm is None else self.norm(src)

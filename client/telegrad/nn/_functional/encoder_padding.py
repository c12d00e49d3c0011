"""What ``TransformerEncoder`` makes of padding outside of training: PyTorch's nested tensors drop it.

There, the input becomes a nested tensor whose padding is gone, and the output is padded with zeros. Here the layers
compute the padding too and it is set to zero behind them, which gives the same output and waits for nothing.
"""

from __future__ import annotations

import math
from typing import Any

from telegrad._ops.functions import function
from telegrad._session.grad_mode import is_grad_enabled
from telegrad._tensor.tensor import Tensor
from telegrad.amp.autocast_mode import is_autocast_enabled
from telegrad_protocol.dtypes import bool_


def why_not_nested(layer: Any) -> str:
    """Return why PyTorch keeps the padding of an encoder with copies of a layer; an empty text if it drops it."""
    attention = getattr(layer, "self_attn", None)
    if attention is None or not hasattr(layer, "activation_relu_or_gelu"):
        return "encoder_layer was not TransformerEncoderLayer"
    checks = (
        (layer.norm_first, "encoder_layer.norm_first was True"),
        (
            not attention.batch_first,
            "encoder_layer.self_attn.batch_first was not True(use batch_first for better inference performance)",
        ),
        (not attention._qkv_same_embed_dim, "encoder_layer.self_attn._qkv_same_embed_dim was not True"),
        (attention.in_proj_bias is None, "encoder_layer.self_attn was passed bias=False"),
        (not layer.activation_relu_or_gelu, "encoder_layer.activation_relu_or_gelu was not True"),
        (layer.norm1.eps != layer.norm2.eps, "encoder_layer.norm1.eps was not equal to encoder_layer.norm2.eps"),
        (attention.num_heads % 2 == 1, "encoder_layer.self_attn.num_heads is odd"),
    )
    return next((reason for holds, reason in checks if holds), "")


def drops_padding(encoder: Any, src: Tensor) -> bool:
    """Tell whether PyTorch drops the padding of an input: where nothing is trained or differentiated."""
    first = encoder.layers[0]
    if not getattr(encoder, "use_nested_tensor", False) or first.training or src.ndim != 3 or src.is_nested:
        return False
    if is_autocast_enabled(src.device.type):
        return False
    return not (is_grad_enabled() and any(tensor.requires_grad for tensor in (src, *first.parameters())))


def without_padding(padding: Tensor, checks: bool) -> tuple[Tensor, Tensor]:
    """Return the mask that layers are given, and what is set to zero behind them: the padding, if it is all at the end.

    Where it is not, and ``checks`` holds, nothing is set to zero. The server decides that: nothing is read.
    """
    is_padding = padding if padding.dtype is bool_ else padding != 0
    if checks:
        ordered = (is_padding[:, 1:] >= is_padding[:, :-1]).all()
        hidden = is_padding & ordered
    else:
        places = function("arange")(padding.shape[1], device=padding.device)
        hidden = places >= (~is_padding).sum(1, True)
        return hidden, hidden
    return (padding if padding.dtype is bool_ else padding.masked_fill(hidden, -math.inf)), hidden

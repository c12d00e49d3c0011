"""Attention of several heads within each element of a nested batch, with its weights where they are asked for."""

from __future__ import annotations

from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad.nn._functional.attention import attention_weights

from .functions import run
from .strided import StridedNestedTensor


def attend(query: Any, key: Any, value: Any, dropout: float, need_weights: bool) -> tuple[Any, Tensor | None]:
    """Attend from (n, h, j, e); the weights are (n, h, longest query, longest key), zero where there is padding."""
    if not need_weights:
        return run("scaled_dot_product_attention", query, key, value, None, dropout), None
    weights = [attention_weights(q, k, None) for q, k in zip(query.unbind(), key.unbind(), strict=True)]
    nested = StridedNestedTensor.of(weights)
    shown: Tensor = nested.to_padded_tensor(0.0)
    used = [run("dropout", weight, dropout, True) if dropout else weight for weight in weights]
    parts = [weight.matmul(v) for weight, v in zip(used, value.unbind(), strict=True)]
    if isinstance(query, StridedNestedTensor):
        return StridedNestedTensor.of(parts), shown
    return query.like(run("cat", parts, query._dim - 1)), shown

"""Causal masks that attention is given as objects, against PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from telegrad_protocol.errors import NotSupportedError


@pytest.mark.parametrize(("name", "sizes"), [
    ("causal_lower_right", (3, 7)), ("causal_upper_left", (3, 7)), ("causal_lower_right", (7, 7)),
])  # fmt: skip
def test_attention_under_a_causal_bias_is_that_of_pytorch(
    tg: Any, name: str, sizes: tuple[int, int], seed: int
) -> None:
    draw = np.random.default_rng(seed)
    arrays = [draw.standard_normal((2, 2, size, 8)).astype(np.float32) for size in (*sizes, sizes[1])]
    results = []
    for t in (torch, tg):
        attention = t.nn.functional.scaled_dot_product_attention
        bias = getattr(__import__(f"{t.__name__}.nn.attention.bias", fromlist=[name]), name)(*sizes)
        query, key, value = map(t.tensor, arrays)
        results.append([attention(query, key, value, bias, scale=0.2), attention(query, key, value, attn_mask=bias)])
        with pytest.raises(ValueError, match="CausalBias should not be used with causal=True"):
            attention(query, key, value, attn_mask=bias, is_causal=True)
    for expected, mine in zip(*results, strict=True):
        np.testing.assert_allclose(mine.numpy(), expected.numpy(), rtol=1e-4, atol=1e-6)


def test_what_a_causal_bias_is_not_for_is_refused(tg: Any) -> None:
    from telegrad.nn.attention.bias import causal_lower_right

    with pytest.raises(NotSupportedError, match="only scaled_dot_product_attention"):
        tg.nn.functional.softmax(causal_lower_right(2, 3), 0)
    with pytest.raises(ValueError, match="only supports 2D"):
        causal_lower_right(2, 3, 4)

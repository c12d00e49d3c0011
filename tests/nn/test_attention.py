"""``MultiheadAttention`` with every combination of its options."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch

from .pairs import Pair

LENGTH, SOURCES, BATCH, WIDTH = 4, 5, 2, 8


def _masks(kind: str, is_batched: bool) -> dict[str, Any]:
    causal = torch.full((LENGTH, SOURCES), -torch.inf, dtype=torch.float64).triu(1)
    hidden = torch.arange(SOURCES) > (torch.tensor([[3], [2]]) if is_batched else 3)
    return {
        "none": {},
        "bool": {"attn_mask": torch.rand(LENGTH, SOURCES) > 0.8, "key_padding_mask": hidden},
        "float": {"attn_mask": torch.randn(LENGTH, SOURCES, dtype=torch.float64)},
        "causal": {"attn_mask": causal, "is_causal": True},
        "causal and padding": {"attn_mask": causal, "is_causal": True, "key_padding_mask": hidden},
    }[kind]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mask", ["none", "bool", "float", "causal", "causal and padding"])
@pytest.mark.parametrize("appended", ["nothing", "bias", "zero", "both"])
def test_attention_with_all_options_is_pytorchs(tg: Any, appended: str, mask: str, seed: int) -> None:
    torch.manual_seed(seed)
    for is_batched, batch_first, width, weights in product((True, False), (False, True), (None, 6), (True, False)):
        options: dict[str, Any] = {
            "add_bias_kv": appended in ("bias", "both"), "add_zero_attn": appended in ("zero", "both"),
            "kdim": width, "batch_first": batch_first,
        }  # fmt: skip
        pair = Pair.of(
            tg,
            torch.nn.MultiheadAttention(WIDTH, 2, dtype=torch.float64, **options),
            tg.nn.MultiheadAttention(WIDTH, 2, dtype=tg.float64, **options),
        )
        operands = []
        for steps, size in ((LENGTH, WIDTH), (SOURCES, width or WIDTH), (SOURCES, WIDTH)):
            lead = (BATCH, steps) if batch_first else (steps, BATCH)
            shape = (*lead, size) if is_batched else (steps, size)
            operands.append(torch.randn(shape, dtype=torch.float64, requires_grad=True))
        called = {**_masks(mask, is_batched), "need_weights": weights, "average_attn_weights": not batch_first}
        pair.compare(tg, operands, called)


@pytest.mark.parametrize("needs_weights", ["attended", "itself", "itself without gradients", "itself in training"])
def test_results_with_weights_lie_in_memory_as_pytorchs(needs_weights: str, tg: Any) -> None:
    for is_batch_first, average in product((True, False), (True, False)):
        seen = []
        for t in (tg, torch):
            layer = t.nn.MultiheadAttention(WIDTH, 2, batch_first=is_batch_first)
            layer.train("training" in needs_weights)
            x = t.ones(BATCH, LENGTH, WIDTH)
            other = t.ones(BATCH, LENGTH, WIDTH) if needs_weights == "attended" else x
            with t.set_grad_enabled("without" not in needs_weights):
                output, weights = layer(x, other, other, average_attn_weights=average)
            seen.append((tuple(output.stride()), tuple(weights.stride())))
        assert seen[0] == seen[1], (is_batch_first, average)

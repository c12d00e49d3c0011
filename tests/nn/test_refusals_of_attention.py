"""What attention with several heads refuses, as PyTorch does, by an ``assert``."""

from __future__ import annotations

from typing import Any

import pytest
import torch


@pytest.mark.parametrize("options", [{}, {"add_zero_attn": True}], ids=str)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "shapes",
    [
        ((3, 2, 4), (5, 1, 4), (5, 2, 4)),
        ((3, 2, 7), (5, 2, 4), (5, 2, 4)),
        ((3, 4), (5, 2, 4), (5, 2, 4)),
        ((3, 2, 4), (5, 2, 4), (6, 2, 4)),
    ],
    ids=str,
)
def test_shapes_that_do_not_go_together(tg: Any, shapes: Any, training: bool, options: dict[str, Any]) -> None:
    for t in (torch, tg):
        attention = t.nn.MultiheadAttention(4, 2, **options).train(training)
        with pytest.raises(AssertionError):
            attention(*[t.ones(shape) for shape in shapes])


@pytest.mark.parametrize("mask", ["attn_mask", "key_padding_mask"])
def test_masks_of_integers(tg: Any, mask: str) -> None:
    shape = (3, 5) if mask == "attn_mask" else (2, 5)
    for t in (torch, tg):
        query, key = t.ones(3, 2, 4), t.ones(5, 2, 4)
        with pytest.raises(AssertionError, match="only bool and floating types"):
            t.nn.MultiheadAttention(4, 2)(query, key, key, **{mask: t.ones(shape, dtype=t.int32)})

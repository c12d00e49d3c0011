"""Lengths and indices of losses and bags that do not fit are refused as PyTorch refuses them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from telegrad_protocol.errors import TelegradError

REFUSED = [
    ("loss([5, 5, 5], [2, 2])", "input_lengths must be of size batch_size"),
    ("loss([5, 5], [2, 2, 2])", "target_lengths must be of size batch_size"),
    ("loss(t.tensor([5.0, 5.0]), t.tensor([2, 2]))", "input_lengths must be integral"),
    ("loss(t.tensor([5, 5]), t.tensor([2.0, 2.0]))", "target_lengths must be integral"),
    ("loss(t.tensor([6, 5]), t.tensor([2, 2]))", "Expected input_lengths to have value at most 5, but got value 6"),
    ("loss(t.tensor([5, 5]), t.tensor([2, 3]))", "but got "),
    (
        "loss(t.tensor([5, 5]), t.tensor([2, 1]), [1, 2, 1, 2])",
        "Expected tensor to have size 3 at dimension 0, but got",
    ),
    ("bag(5)", "padding_idx must be within the number of embeddings, -3 through 2, but got 5"),
    ("bag(-4)", "padding_idx must be within the number of embeddings, -3 through 2, but got -4"),
]


@pytest.mark.parametrize(("program", "words"), REFUSED)
def test_lengths_and_indices_are_refused(tg: Any, program: str, words: str) -> None:
    for t in (torch, tg):
        probs, functions = t.zeros(5, 2, 3).log_softmax(-1), t.nn.functional

        def loss(inputs: Any, targets: Any, labels: Any = ((1, 2), (1, 2)), t: Any = t, probs: Any = probs) -> Any:
            return t.nn.functional.ctc_loss(probs, t.tensor(labels), inputs, targets).item()

        def bag(padding: int, t: Any = t, functions: Any = functions) -> Any:
            index, offsets = t.tensor([1, 2, 0]), t.tensor([0, 2])
            return functions.embedding_bag(index, t.ones(3, 2), offsets, padding_idx=padding)

        with pytest.raises((RuntimeError, TelegradError)) as error:
            eval(program, {"t": t, "loss": loss, "bag": bag})  # noqa: S307 - the test's own expressions
        assert words in str(error.value)

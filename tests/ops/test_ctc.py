"""The connectionist temporal classification loss on every device: values and gradients, lost alignments, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from telegrad_protocol.errors import ArgumentError, DTypeError, ShapeError
from tests.gpus import ALL_DEVICES

from .adapters import EngineAdapter


@pytest.fixture(params=ALL_DEVICES)
def engine(request: pytest.FixtureRequest) -> EngineAdapter:
    return EngineAdapter(request.param)


def _operands() -> list[torch.Tensor]:
    """Six steps of three sequences of four classes; the last labelling cannot be aligned."""
    probs = torch.randn(6, 3, 4, dtype=torch.float64).log_softmax(-1)
    targets = torch.tensor([[1, 1, 2], [3, 0, 0], [1, 1, 1]])
    return [probs, targets, torch.tensor([6, 5, 4]), torch.tensor([3, 1, 3])]


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_losses_and_gradients(engine: EngineAdapter, zero_infinity: bool, seed: int) -> None:
    torch.manual_seed(seed)
    probs, *others = _operands()
    value = engine.tensor(probs, True)
    loss, _ = engine.functional._ctc_loss(value, *map(engine.tensor, others), 0, zero_infinity)
    probs.requires_grad_()
    expected = torch.nn.functional.ctc_loss(probs, *others, reduction="none", zero_infinity=zero_infinity)
    np.testing.assert_allclose(engine.numpy(loss), expected.detach().numpy(), rtol=1e-10)
    (gradient,) = engine.grad([engine.functional.sum(loss)], [None], [value], False)
    expected.sum().backward()
    np.testing.assert_allclose(engine.numpy(gradient), probs.grad.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("change", "error", "match"), [
    ({4: 4}, ArgumentError, "blank must be in label range, which is 0 to 3"),
    ({1: torch.zeros(2, 3, dtype=torch.int64)}, ShapeError, "expected targets and lengths of 3 sequences"),
    ({2: torch.zeros(3)}, DTypeError, "targets and lengths must be int64"),
    ({0: torch.zeros(6, 3)}, ShapeError, "expected elements of"),
])  # fmt: skip
def test_refusals(change: dict[int, Any], error: type[Exception], match: str) -> None:
    engine = EngineAdapter()
    operands: list[Any] = [*_operands(), 0, False]
    for place, value in change.items():
        operands[place] = value
    values = [engine.tensor(v) if isinstance(v, torch.Tensor) else v for v in operands]
    with pytest.raises(error, match=match):
        engine.functional._ctc_loss(*values)


def test_labels_that_are_no_classes_are_refused(seed: int) -> None:
    torch.manual_seed(seed)
    engine = EngineAdapter()
    probs, targets, *lengths = _operands()
    with pytest.raises(IndexError):
        engine.functional._ctc_loss(*map(engine.tensor, (probs, targets + 3, *lengths)), 0, False)

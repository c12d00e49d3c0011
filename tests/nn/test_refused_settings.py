"""Settings and inputs of layers that PyTorch refuses, and what it promotes or shapes otherwise than one may think."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

REFUSED = """
nn.HuberLoss(delta=1j)
nn.LinearCrossEntropyLoss(4, 2, weight=t.ones(3))
nn.LinearCrossEntropyLoss(4, 2, label_smoothing=2.0)
nn.CircularPad1d(1)(t.ones(2, 3, 4, 5))
nn.CircularPad2d(1)(t.ones(2, 3))
nn.CircularPad3d(1)(t.ones(2, 3))
nn.GRU(3, 5)(t.ones(2, 3, dtype=t.float64))
nn.LSTM(3, 5)(t.ones(2, 3, dtype=t.int64))
"""
ACCEPTED = """
t.addcmul(x, x, y, value=True)
t.addcdiv(x, x, y, value=False)
fun.margin_ranking_loss(k, k + 1, k * 2, reduction="sum")
fun.multi_margin_loss(x[0], t.tensor([2]), reduction="none")
fun.multi_margin_loss(x[0], t.tensor(2), reduction="none")
"""


def _names(t: Any) -> dict[str, Any]:
    x = t.arange(1.0, 7).reshape(2, 3)
    return {"t": t, "nn": t.nn, "fun": t.nn.functional, "x": x, "y": x.sqrt(), "k": t.arange(4)}


@pytest.mark.parametrize("call", REFUSED.strip().splitlines())
def test_layers_refuse_what_pytorchs_refuse_in_its_words(tg: Any, call: str) -> None:
    with pytest.raises((RuntimeError, TypeError, ValueError)) as theirs:
        eval(call, _names(torch))  # noqa: S307 - the expressions above
    with pytest.raises(theirs.type) as ours:
        eval(call, _names(tg))  # noqa: S307
    assert str(ours.value).replace("telegrad.", "torch.").startswith(str(theirs.value))


@pytest.mark.parametrize("call", ACCEPTED.strip().splitlines())
def test_results_have_pytorchs_types_and_shapes(tg: Any, call: str) -> None:
    ours, theirs = (eval(call, _names(t)) for t in (tg, torch))  # noqa: S307 - the expressions above
    assert ours.dtype.name == str(theirs.dtype).removeprefix("torch.")
    assert tuple(ours.shape) == tuple(theirs.shape)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)


def test_classes_of_tensors_show_contents_of_their_own(tg: Any) -> None:
    def shown(t: Any) -> list[str]:
        class Labelled(t.Tensor):  # type: ignore[misc,name-defined]
            def __repr__(self) -> str:
                text: str = super().__repr__(tensor_contents="label=1")
                return text

        values = t.ones(2, dtype=t.float64)
        return [repr(values.as_subclass(Labelled)), t.Tensor.__repr__(t.ones(1), tensor_contents="x")]

    assert [text.replace("telegrad.", "torch.") for text in shown(tg)] == shown(torch)

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

REFUSED_IN_OTHER_WORDS = """
fun.embedding_bag(k[None], x.T.repeat(2, 1), mode="max", sparse=True)
fun.embedding_bag(k[None], x.T.repeat(2, 1), mode="max", scale_grad_by_freq=True)
fun.embedding_bag(k, x.T.repeat(2, 1), k[:1, None])
fun.interpolate(t.ones(1, 1, 3, 3), size=0)
fun.affine_grid(t.ones(1, 2, 4), (1, 1, 2, 3), False)
nn.Unflatten(1, [1.5])
nn.Unflatten(1, ((1, 2), 3))
"""
WARNED_OF = """
fun.dropout3d(x, 1.0)
nn.InstanceNorm1d(4)(t.ones(2, 3, 5))
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


@pytest.mark.parametrize("call", REFUSED_IN_OTHER_WORDS.strip().splitlines())
def test_functions_refuse_what_pytorchs_refuse(tg: Any, call: str) -> None:
    with pytest.raises((RuntimeError, TypeError, ValueError)) as theirs:
        eval(call, _names(torch))  # noqa: S307 - the expressions above
    with pytest.raises(theirs.type):
        eval(call, _names(tg))  # noqa: S307


@pytest.mark.parametrize("call", WARNED_OF.strip().splitlines())
def test_inputs_of_other_sizes_are_taken_with_pytorchs_warning(tg: Any, call: str) -> None:
    results = []
    for t in (torch, tg):
        with pytest.warns(UserWarning) as told:
            results.append([eval(call, _names(t)).tolist(), *[str(one.message)[:60] for one in told]])  # noqa: S307
    assert results[0] == results[1]


def test_a_module_is_cast_to_a_type_that_is_named(tg: Any) -> None:
    for t in (torch, tg):
        assert t.nn.Linear(1, 1).type("torch.DoubleTensor").weight.dtype is t.float64


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

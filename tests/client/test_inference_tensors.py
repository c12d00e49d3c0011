"""Tensors made in inference mode are operands of recorded operations that do not save them, and of no others."""

from __future__ import annotations

from typing import Any

import pytest
import torch

_MADE = """
with t.inference_mode():
    x, m, c, lin = t.ones(3), t.ones(3, 3), t.ones(1, 1, 2, 2), t.nn.Linear(3, 3)
w, W, F = t.ones(3, requires_grad=True), t.ones(3, 3, requires_grad=True), t.nn.functional
"""
CALLS = [
    "w * x", "x * w", "w + x", "x - w", "w / x", "x / w", "w ** x", "W @ m", "m @ W", "lin(W)", "F.linear(m, W)",
    "F.conv2d(c, t.ones(1, 1, 1, 1, requires_grad=True))", "t.cat([x, w])", "t.stack([x, w])",
    "t.where(x > 0, w, x)", "F.mse_loss(w, x)", "F.l1_loss(w, x)", "F.binary_cross_entropy(w.sigmoid(), x)",
    "F.layer_norm(W, (3,), x, x)", "F.layer_norm(m, (3,), w, w)", "w[x.long() * 0]", "F.embedding(x.long(), W)",
    "t.einsum('ij,jk->ik', m, W)", "F.scaled_dot_product_attention(W[None], m[None], m[None])",
    "W.masked_fill(m > 0, 1.)", "x.exp() + w", "x.view(3, 1) * w", "x.clone() * w", "t.addmm(x, W, W)",
    "W.gather(1, m.long() * 0)", "t.maximum(w, x)", "t.lerp(w, x, 0.5)", "(w * 1).mul_(x)", "(w * 1).add_(x)",
]  # fmt: skip


def _refusal(call: str, t: Any) -> str | None:
    names: dict[str, Any] = {"t": t}
    exec(_MADE, names)  # noqa: S102 - the tests' own programs
    try:
        eval(call, names)  # noqa: S307
    except RuntimeError as error:
        return "Inference tensors cannot be saved for backward" in str(error) or str(error)
    return None


@pytest.mark.parametrize("call", CALLS)
def test_operations_that_save_inference_tensors_are_refused(tg: Any, call: str) -> None:
    assert _refusal(call, tg) == _refusal(call, torch)


def test_under_no_grad_and_in_inference_mode_nothing_is_saved(tg: Any) -> None:
    with tg.inference_mode():
        x = tg.ones(3)
    w = tg.ones(3, requires_grad=True)
    with tg.no_grad():
        assert (w * x).tolist() == [1.0, 1.0, 1.0]
    with tg.inference_mode():
        assert (w * x).tolist() == [1.0, 1.0, 1.0]


CHANGED_SHAPES = [
    "x.transpose_(0, 1)", "x.unsqueeze_(0)", "x.squeeze_(0)", "x.swapaxes_(0, 1)", "x.as_strided_((3, 2), (1, 3))",
    "x.set_(t.ones(4))", "x.add_(1)", "x.copy_(t.zeros(1, 2, 3))",
]  # fmt: skip


@pytest.mark.parametrize("call", CHANGED_SHAPES)
def test_what_was_made_in_inference_mode_keeps_its_shape_outside_of_it(tg: Any, call: str) -> None:
    with tg.inference_mode():
        x = tg.ones(1, 2, 3)
        eval(call, {"t": tg, "x": x})  # noqa: S307 - the tests' own programs
        assert x.is_inference()
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
        eval(call, {"t": tg, "x": x})  # noqa: S307


OF_NO_OTHERS = ["x.view(-1)", "x * x", "x.exp()", "t.cat([x, x])", "x[0]", "x + x", "x.detach()"]


@pytest.mark.parametrize("call", OF_NO_OTHERS)
def test_calls_on_what_was_made_in_inference_mode_alone_are_not_recorded(tg: Any, call: str) -> None:
    told = []
    for t in (tg, torch):
        with t.inference_mode():
            x = t.ones(3, requires_grad=True)
        y = eval(call, {"t": t, "x": x})  # noqa: S307
        told.append((y.requires_grad, y.is_leaf, y.is_inference(), y._is_view()))
    assert told[0] == told[1]

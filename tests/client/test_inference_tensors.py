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

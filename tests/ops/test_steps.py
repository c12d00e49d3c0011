"""Kernels prepared for training steps of small models, against PyTorch in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch


@pytest.mark.parametrize("rows", [1, 7, 130, 3000])
@pytest.mark.parametrize("frozen", ["", "input", "weight", "bias"])
def test_gradients_of_linear_agree_whichever_are_wanted(tg: Any, rng: Any, rows: int, frozen: str) -> None:
    made = {
        "input": rng.standard_normal((rows, 5)),
        "weight": rng.standard_normal((3, 5)),
        "bias": rng.standard_normal(3),
    }
    grad = rng.standard_normal((rows, 3))
    found, wanted = _gradients(tg, made, frozen, grad), _gradients(torch, made, frozen, grad)
    for mine, reference in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, reference, rtol=1e-12, atol=1e-12)


def _gradients(lib: Any, made: dict[str, Any], frozen: str, grad: Any) -> list[Any]:
    tensors = {name: lib.tensor(array, requires_grad=name != frozen) for name, array in made.items()}
    result = lib.nn.functional.linear(tensors["input"], tensors["weight"], tensors["bias"])
    result.backward(lib.tensor(grad))
    return [tensor.grad.numpy() for name, tensor in tensors.items() if name != frozen]


def test_what_an_unwanted_gradient_needs_may_be_modified(tg: Any, rng: Any) -> None:
    """The weight is named by the input's gradient alone, which nobody wants here."""
    x, weight = tg.tensor(rng.standard_normal((4, 5))), tg.tensor(rng.standard_normal((3, 5)), requires_grad=True)
    bias = tg.tensor(rng.standard_normal(3), requires_grad=True)
    result = tg.nn.functional.linear(x, weight, bias)
    with tg.no_grad():
        weight.mul_(2)
    result.sum().backward()
    np.testing.assert_allclose(weight.grad.numpy(), np.tile(x.sum(0).numpy(), (3, 1)), rtol=1e-12)


@pytest.mark.parametrize("size", [1, 100_003])
@pytest.mark.parametrize("maximize", [False, True])
def test_plain_sgd_agrees_over_several_blocks(tg: Any, rng: Any, size: int, maximize: bool) -> None:
    start, grad = rng.standard_normal((2, size)), rng.standard_normal((2, size))
    results = []
    for lib in (tg, torch):
        param = lib.tensor(start.copy(), requires_grad=True)
        param.grad = lib.tensor(grad)
        lib.optim.SGD([param], lr=0.3, maximize=maximize).step()
        results.append(param.detach().numpy())
    np.testing.assert_allclose(results[0], results[1], rtol=1e-13, atol=1e-14)

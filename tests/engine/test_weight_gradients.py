"""Gradients of several layers' weights and biases are one launch, which computes what the layers' operations compute.

Without a GPU the host executes the text of the kernel; ``host_kernels`` says how.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("cuda.bindings.nvrtc")

from server.engine import functional as F
from server.engine import keys
from server.engine.cuda import families
from server.engine.cuda.layers import weight_gradients
from server.engine.programs.expansion import traced
from server.engine.programs.joined import WEIGHTS, Joined
from server.engine.programs.specialise import specialise
from server.engine.value import Value

from ..ops.adapters import EngineAdapter
from .cuda_registrations import registrations, withdraw
from .host_kernels import HostKernel
from .joined_steps import noting_kernels

_ = registrations
families.import_families()
withdraw()
Layer = tuple[int, int, bool]
"""Features that a layer makes and takes, and whether it has a bias."""
STACKS: list[tuple[tuple[int, ...], Sequence[Layer]]] = [
    ((2, 19), ((132, 64, True), (64, 128, False), (128, 64, True))),
    ((70,), ((10, 34, True), (34, 66, True))),
    ((3, 5), ((7, 33, False), (33, 9, True), (9, 5, True), (5, 1, True))),
]
"""Sizes of rows and layers, the last one first: rows are read in vectors of four, two and one."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where texts are compiled for the host, each once."""
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[Joined]:
    """What the host joins and executes by the text for a GPU."""
    monkeypatch.setattr(weight_gradients, "load_kept", functools.partial(HostKernel, folder=folder))
    return noting_kernels(monkeypatch, keys.CPU, WEIGHTS)


def _backward(layers: Sequence[Layer]) -> Callable[..., Any]:
    """The backward pass of a stack of layers with activations between them."""

    def function(grad: Value, *operands: Value) -> Any:
        made = []
        for number, (_, _, has_bias) in enumerate(layers):
            input, weight = operands[2 * number : 2 * number + 2]
            grad, *others = F._linear_backward(grad, input, weight, has_bias)
            made += others
            grad = F._relu_backward(grad, input)
        return grad, *made

    return function


def _drawn(rows: tuple[int, ...], layers: Sequence[Layer]) -> list[torch.Tensor]:
    drawn = [torch.randn(*rows, layers[0][0])]
    for made, taken, _ in layers:
        drawn += [torch.randn(*rows, taken), torch.randn(made, taken) / taken**0.5]
    return drawn


def _expected(layers: Sequence[Layer], drawn: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The same in higher precision."""
    grad, *operands = [tensor.double() for tensor in drawn]
    made = []
    for number, (_, _, has_bias) in enumerate(layers):
        input, weight = operands[2 * number : 2 * number + 2]
        rows = grad.flatten(0, -2)
        made += [rows.T @ input.flatten(0, -2), *([rows.sum(0)] if has_bias else [])]
        grad = (grad @ weight) * (input > 0)
    return [grad, *made]


def _check(adapter: EngineAdapter, function: Any, drawn: Sequence[torch.Tensor], expected: Sequence[Any]) -> None:
    values = [adapter.tensor(tensor.clone()) for tensor in drawn]
    metas = [value.meta for value in values]
    found = specialise(traced(function, metas), metas, [*range(len(metas))]).run(values)
    for mine, right in zip(found, expected, strict=True):
        bound = 2e-6 * max(1.0, float(right.abs().max()))
        np.testing.assert_allclose(adapter.numpy(mine), right.numpy(), rtol=2e-5, atol=bound)


@pytest.mark.parametrize("rows, layers", STACKS, ids=["vectors of 4", "vectors of 2", "single elements"])
def test_gradients_are_those_of_the_layers(
    adapter: EngineAdapter, seed: int, joined: list[Joined], rows: tuple[int, ...], layers: Sequence[Layer]
) -> None:
    torch.manual_seed(seed)
    drawn = _drawn(rows, layers)
    _check(adapter, _backward(layers), drawn, _expected(layers, drawn))
    assert [weight_gradients.count_of(one) for one in joined] == [len(layers)]


@pytest.mark.gpu
@pytest.mark.parametrize(
    "rows, layers",
    [*STACKS, ((12, 64), ((128, 512, True), (512, 128, True), (128, 384, False), (384, 128, True))),
     ((2048,), ((64, 96, True), (96, 64, True)))],
    ids=str,
)  # fmt: skip
def test_gradients_on_a_gpu_are_those_of_the_layers(
    cuda_device: str, seed: int, monkeypatch: pytest.MonkeyPatch, rows: tuple[int, ...], layers: Sequence[Layer]
) -> None:
    torch.manual_seed(seed)
    joined = noting_kernels(monkeypatch, keys.CUDA, WEIGHTS)
    drawn = _drawn(rows, layers)
    _check(EngineAdapter(cuda_device), _backward(layers), drawn, _expected(layers, drawn))
    assert [weight_gradients.count_of(one) for one in joined] == [len(layers)]


def test_layers_are_left_alone_where_their_gradients_are_read_in_between(
    adapter: EngineAdapter, seed: int, joined: list[Joined]
) -> None:
    """The second layer's gradient is computed of the first one's, so that one must come before the other."""

    def function(grad: Value, x: Value, weight: Value) -> Any:
        _, first = F._linear_backward(grad, x, weight)
        _, second = F._linear_backward(F.linear(grad, first), x, weight)
        return first, second

    torch.manual_seed(seed)
    grad, x, _ = drawn = [torch.randn(6, 8) for _ in range(2)] + [torch.randn(8, 8)]
    first = grad.double().T @ x.double()
    second = (grad.double() @ first.T).T @ x.double()
    _check(adapter, function, drawn, [first, second])
    assert not joined


def test_what_writes_to_an_input_comes_after_the_gradient(
    adapter: EngineAdapter, seed: int, joined: list[Joined]
) -> None:
    """So the layer before and the one after it are not joined."""

    def function(grad: Value, x: Value, weight: Value) -> Any:
        _, first = F._linear_backward(grad, x, weight)
        x.mul_(2.0)
        _, second = F._linear_backward(grad, x, weight)
        return first, second

    torch.manual_seed(seed)
    grad, x, weight = [torch.randn(6, 8) for _ in range(2)] + [torch.randn(8, 8)]
    first = grad.double().T @ x.double()
    _check(adapter, function, [grad, x, weight], [first, 2 * first])
    assert not joined

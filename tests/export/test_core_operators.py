"""Programs taken apart without a table consist of PyTorch's core operators, as far as these take others' places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

MODULES: dict[str, tuple[Any, tuple[int, ...], set[str]]] = {
    "linear": (lambda nn: nn.Linear(4, 3), (2, 4), {"addmm.default", "permute.default"}),
    "silu": (lambda nn: nn.SiLU(), (2, 4), {"mul.Tensor", "sigmoid.default"}),
    "convolution": (
        lambda nn: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2)), (1, 3, 8, 8),
        {"convolution.default", "relu.default", "max_pool2d_with_indices.default"},
    ),
    "transposed": (lambda nn: nn.ConvTranspose1d(2, 3, 2), (1, 2, 4), {"convolution.default"}),
    "layer_norm": (lambda nn: nn.LayerNorm(4), (3, 4), {"native_layer_norm.default"}),
    "pad": (lambda nn: nn.ConstantPad1d(1, 0.0), (3, 4), {"constant_pad_nd.default"}),
}  # fmt: skip
"""What makes a module, the shape of its input, and PyTorch's operators for it."""


def _operators(program: Any) -> set[str]:
    targets = [node.target for node in program.graph.nodes if node.op == "call_function"]
    return {str(target) for target in targets if hasattr(target, "overloadpacket")}


@pytest.mark.parametrize("name", MODULES)
def test_operators_are_those_of_pytorch(tg: Any, rng: np.random.Generator, name: str) -> None:
    make, shape, wanted = MODULES[name]
    module, x = make(tg.nn), tg.tensor(rng.standard_normal(shape).astype(np.float32))
    apart = tg.export.export(module, (x,)).run_decompositions()
    assert _operators(apart) == {f"aten.{operator}" for operator in wanted}
    tg.testing.assert_close(apart.module()(x), module(x))


def _applied(lib: Any, x: Any) -> Any:
    functional = lib.nn.functional
    turned = functional.linear(x.transpose(0, 1), lib.ones(3, 4)).transpose(0, 1)
    stacked = lib.stack([turned[..., 0].square(), functional.silu(x[..., 1].clone(), inplace=True)], -1)
    products = lib.matmul(x.unsqueeze(0), x.transpose(1, 2).unsqueeze(0)).sum((0, 2))
    padded = functional.pad(x, (1, 1), "reflect").lerp(lib.zeros(()), 0.75).sum(-1)
    return lib.addcmul(padded, stacked.sum(-1), functional.softplus(products), value=2)


def test_programs_with_sizes_that_differ_are_taken_apart(tg: Any, rng: np.random.Generator) -> None:
    class Applied(tg.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return _applied(tg, x)

    sizes = {0: tg.export.Dim("rows", min=2), 1: tg.export.Dim("columns", min=2)}
    program = tg.export.export(Applied(), (tg.ones(4, 5, 4),), dynamic_shapes=(sizes,)).run_decompositions()
    operators = _operators(program)
    assert {"aten.addmm.default", "aten.mm.default"} & operators
    assert not {"aten.linear.default", "aten.stack.default", "aten.silu.default", "aten.addcmul.default"} & operators
    for rows, columns in ((2, 3), (4, 5), (7, 2)):
        array = rng.standard_normal((rows, columns, 4)).astype(np.float32)
        made = program.module()(tg.tensor(array))
        np.testing.assert_allclose(made.numpy(), _applied(torch, torch.tensor(array)).numpy(), rtol=1e-4, atol=1e-5)


def test_operators_may_be_left_out_of_the_table(tg: Any) -> None:
    program = tg.export.export(tg.nn.Sequential(tg.nn.Linear(4, 3), tg.nn.SiLU()), (tg.ones(2, 4),))
    table = tg.export.default_decompositions()
    del table[tg.ops.aten.silu.default]
    assert _operators(program.run_decompositions(table)) == {
        "aten.permute.default", "aten.addmm.default", "aten.silu.default"
    }  # fmt: skip
    assert _operators(program.run_decompositions({})) == {"aten.linear.default", "aten.silu.default"}

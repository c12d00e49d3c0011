"""Gradients of biases made with what they are sums of, and attention's gradients side by side, on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from server.engine import functional as F
from server.engine.programs.expansion import traced
from server.engine.programs.graph import run
from server.engine.programs.specialise import specialise

from ..ops.adapters import EngineAdapter, to_torch

pytestmark = pytest.mark.gpu

DIGITS = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 2e-2}
Function = Callable[..., Any]


@pytest.fixture(scope="module")
def engine(cuda_device: str) -> EngineAdapter:
    return EngineAdapter(cuda_device)


@pytest.fixture(autouse=True)
def activated(engine: EngineAdapter, seed: int) -> None:
    engine.activate()
    torch.manual_seed(seed)


def _both(engine: EngineAdapter, function: Function, tensors: list[torch.Tensor], fused: tuple[str, ...]) -> Any:
    """The results of single operations, and those of a program with such a kernel, which are the same in each run."""
    values = [engine.tensor(tensor) for tensor in tensors]
    metas = [value.meta for value in values]
    graph = traced(function, metas)
    executable = specialise(graph, metas)
    assert fused in executable.describe().fused
    runs = [[engine.numpy(value) for value in executable.run(values)] for _ in range(3)]
    for other in runs[1:]:
        assert [one.tobytes() for one in other] == [one.tobytes() for one in runs[0]]
    return [to_torch(engine.numpy(value)) for value in run(graph, values)], [to_torch(one) for one in runs[0]]


def _close(mine: torch.Tensor, reference: torch.Tensor, digits: float) -> None:
    scale = max(1.0, float(reference.abs().max()))
    torch.testing.assert_close(mine.double(), reference.double(), rtol=digits, atol=digits * scale)


@pytest.mark.parametrize("dtype", DIGITS, ids=str)
@pytest.mark.parametrize("shape", [(16, 256, 1536), (4099, 520), (70_001, 33), (2, 600_001)], ids=str)
def test_an_activations_gradient_is_summed_as_it_is_made(
    engine: EngineAdapter, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    grad, x, weight = (torch.randn(size, dtype=torch.float64).to(dtype) for size in (shape, shape, (shape[-1], 8)))

    def function(grad: Any, x: Any, weight: Any) -> Any:
        made = F._gelu_backward(grad, x, approximate="tanh")
        by_input, by_bias = F._linear_backward(made, None, weight, True)
        return made, by_input, by_bias

    single, program = _both(engine, function, [grad, x, weight], ("_gelu_backward", "sum"))
    assert torch.equal(program[0], single[0])
    assert program[2].dtype is dtype
    _close(program[2], program[0].double().flatten(0, -2).sum(0), DIGITS[dtype])
    wide = x.double().requires_grad_()
    torch.nn.functional.gelu(wide, approximate="tanh").backward(grad.double())
    assert wide.grad is not None
    _close(program[0], wide.grad, DIGITS[dtype])


@pytest.mark.parametrize("name", ["layer", "rms"])
@pytest.mark.parametrize("length", [40, 128, 384, 768, 2000])
@pytest.mark.parametrize("narrow", [True, False])
def test_a_normalizations_gradient_is_summed_as_it_is_made(
    engine: EngineAdapter, length: int, name: str, narrow: bool
) -> None:
    grad, x, other = (torch.randn(7, 301, length) for _ in range(3))
    weight, layer = torch.randn(length), torch.randn(length, 8)
    tensors = [grad.bfloat16() if narrow else grad, x, other, weight, layer.bfloat16() if narrow else layer]

    def function(grad: Any, x: Any, other: Any, weight: Any, layer: Any) -> Any:
        statistics = (
            F._layer_norm(x, (length,), weight, None, 1e-5)
            if name == "layer"
            else F._rms_norm(x, (length,), weight, 1e-5)
        )[1:]
        wide = F._to_copy(grad, dtype=x.dtype) if narrow else grad
        by_norm = getattr(F, f"_{name}_norm_gradients")(wide, x, *statistics, weight, (length,))
        made = F.add(other, by_norm[0])
        given = F._to_copy(made, dtype=grad.dtype) if narrow else made
        return made, given, *by_norm[1:], *F._linear_backward(given, None, layer, True)

    casts = ("_to_copy",) if narrow else ()
    fused = (*casts, f"_{name}_norm_gradients", "add", *casts, "sum")
    single, program = _both(engine, function, tensors, fused)
    digits = DIGITS[torch.bfloat16 if narrow else torch.float32]
    for mine, reference in zip(program[:-2], single[:-2], strict=True):
        _close(mine, reference, 1e-4)
    _close(program[-1], program[1].double().flatten(0, -2).sum(0), digits)


@pytest.mark.parametrize("plan", ["own", "cudnn"])
@pytest.mark.parametrize("dtype", DIGITS, ids=str)
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)], ids=str)
@pytest.mark.parametrize("sizes", [(3, 4, 100, 64), (2, 6, 256, 64), (1, 2, 33, 128), (2, 3, 50, 24)], ids=str)
def test_attentions_gradients_are_made_side_by_side(
    engine: EngineAdapter, sizes: tuple[int, ...], order: tuple[int, ...], dtype: torch.dtype, plan: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from server.engine.cuda.attention import choices

    monkeypatch.setattr(choices, "_PLAN_SECONDS", 0.0 if plan == "cudnn" else 1e9)
    n, heads, t, e = sizes
    width = heads * e
    product, grad = torch.randn(n, t, 3 * width).to(dtype), torch.randn(n, t, width).to(dtype)

    def heads_of(rows: Any, lib: Any) -> Any:
        return lib.transpose(lib.reshape(rows, (n, t, heads, e)), 1, 2)

    def function(product: Any, grad: Any) -> Any:
        parts = F.split(product, width, 2)
        operands = [heads_of(parts[place], F) for place in order]
        output, statistic = F._attention(*operands, None, True, e**-0.5, True)
        made = F._attention_backward(heads_of(grad, F), *operands, None, output, statistic, True, e**-0.5)
        rows = [F.reshape(F.transpose(one, 1, 2), (n, t, width)) for one in made]
        return F.cat(tuple([rows[order.index(place)] for place in range(3)]), 2)

    views = ("transpose", "view") * 3
    values = [engine.tensor(tensor) for tensor in (product, grad)]
    metas = [value.meta for value in values]
    executable = specialise(traced(function, metas), metas)
    assert [one for one in executable.describe().fused if one[0] == "_attention_backward"] == [
        ("_attention_backward", *views, "cat")
    ]
    (made,) = executable.run(values)
    wide = product.double().requires_grad_()
    operands = [heads_of(wide.split(width, 2)[place], torch) for place in order]
    expected = torch.nn.functional.scaled_dot_product_attention(*operands, is_causal=True)
    expected.backward(heads_of(grad.double(), torch))
    assert wide.grad is not None
    _close(to_torch(engine.numpy(made)), wide.grad, DIGITS[dtype])

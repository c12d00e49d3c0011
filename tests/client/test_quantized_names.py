"""Names of quantised layers: models in float that have operations as methods compute what PyTorch's do."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from telegrad._programs import quantized_layers
from telegrad.errors import NotSupportedError

CALLS = [
    "f.add(x, y)", "f.add_scalar(x, 2.0)", "f.mul(x, y)", "f.mul_scalar(x, -3.0)", "f.cat([x, y], 1)",
    "f.add_relu(x, y)", "f.matmul(x, y)",
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.filterwarnings("ignore")
def test_operations_as_methods_are_pytorchs(call: str, tg: Any) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed = {seed}")
    x, y = torch.randn(2, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    names = {"x": tg.tensor(x.tolist(), dtype=tg.float64), "y": tg.tensor(y.tolist(), dtype=tg.float64)}
    mine = eval(call, {"f": quantized_layers.FloatFunctional(), **names})  # noqa: S307
    other = eval(call, {"f": torch.nn.quantized.FloatFunctional(), "x": x, "y": y})  # noqa: S307
    torch.testing.assert_close(torch.tensor(mine.tolist(), dtype=torch.float64), other)


def test_a_model_with_operations_as_methods_has_no_state_of_theirs(tg: Any) -> None:
    model = tg.nn.Sequential(quantized_layers.FloatFunctional())
    assert (
        not list(model.state_dict()) and [name for name, _ in model.named_modules()][-1] == "0.activation_post_process"
    )
    with pytest.raises(RuntimeError, match="not intended to use the forward"):
        model(tg.ones(2))


def test_quantised_layers_are_names_only(tg: Any) -> None:
    for made in (quantized_layers.Linear, quantized_layers.Linear.with_args(dtype=tg.qint8)):  # type: ignore[attr-defined]
        with pytest.raises(NotSupportedError, match="half precision"):
            made()

"""Classes whose objects are compiled, or are not to be; and a compiled step of L-BFGS."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

CALLS = 5


def _module(lib: Any, decorate: Any) -> Any:
    class Scaled(lib.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, factor: int) -> None:
            super().__init__()
            self.factor = factor
            self.register_buffer("calls", lib.zeros(1))

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return x * self.factor + self.calls

    return decorate(Scaled)


def test_objects_of_a_compiled_class_do_what_they_do_without(tg: Any) -> None:
    made = []
    for lib, decorate in ((torch, lambda cls: cls), (tg, tg.compile(backend="inductor"))):
        scaled = _module(lib, decorate)

        class Twice(scaled):  # type: ignore[misc, valid-type]
            def forward(self, x: Any) -> Any:
                return super().forward(x) * 2

        assert scaled.__name__ == "Scaled"
        objects = [scaled(1), scaled(2), Twice(3)]
        objects.append(copy.deepcopy(objects[1]))
        results = []
        for call in range(CALLS):
            for one in objects:
                x = lib.full((2 + call % 2,), 3.0, requires_grad=True)
                y = one(x)
                y.sum().backward()
                results.append((y.tolist(), x.grad.tolist(), one.calls.tolist()))
        objects[0].register_forward_hook(lambda module, args, output: output * 0)
        results.append(objects[0](lib.ones(1)).tolist())
        made.append(results)
    assert made[0] == made[1]


def test_a_class_without_calls_is_returned_as_it_is(tg: Any) -> None:
    class Plain:
        pass

    assert tg.compile(Plain) is Plain and isinstance(Plain(), Plain)


def test_objects_of_a_class_that_is_not_to_be_compiled_break_the_graph(tg: Any) -> None:
    class Shift:
        def __call__(self, x: Any) -> Any:
            return x + 1

    disabled = tg.compiler.disable(Shift)
    assert isinstance(disabled(), Shift)

    def function(x: Any) -> Any:
        return disabled()(x * 2)

    assert tg.compile(function)(tg.ones(1)).item() == 3.0
    with pytest.raises(RuntimeError, match="is not to be compiled"):
        tg.compile(function, fullgraph=True)(tg.ones(1))


def test_what_is_not_to_be_compiled_is_called_as_it_is_with_fullgraph(tg: Any) -> None:
    function = tg.compiler.disable(lambda x: x.sum().item() + 1)
    assert tg.compile(function, fullgraph=True)(tg.ones(2)) == 3.0


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_a_compiled_step_of_lbfgs_is_pytorchs(tg: Any, rng: np.random.Generator, search: str | None) -> None:
    weight, inputs = rng.standard_normal((3, 4)), rng.standard_normal((2, 8, 4))
    made = []
    for lib in (torch, tg):
        parameter = lib.nn.Parameter(lib.tensor(weight))
        optimizer = lib.optim.LBFGS([parameter], lr=0.5, max_iter=4, history_size=3, line_search_fn=search)

        def step(x: Any, *, lib: Any = lib, parameter: Any = parameter, optimizer: Any = optimizer) -> Any:
            def closure() -> Any:
                optimizer.zero_grad()
                loss = ((x @ parameter.t()).cos() ** 2).sum() + (parameter**2).sum()
                loss.backward()
                return loss

            return optimizer.step(closure)

        compiled = step if lib is torch else tg.compile(step)
        losses = [compiled(lib.tensor(inputs[call // 3])).item() for call in range(CALLS)]
        state = optimizer.state_dict()["state"][0]
        made.append((losses, parameter.detach().numpy(), sorted(state), len(state["al"]), state["func_evals"]))
    np.testing.assert_allclose(made[1][0], made[0][0], rtol=1e-7)
    np.testing.assert_allclose(made[1][1], made[0][1], rtol=1e-6, atol=1e-8)
    assert made[0][2:] == made[1][2:]

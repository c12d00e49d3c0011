"""``make_fx`` without elements of functions that read some, and whose results have a length that elements decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from telegrad.fx.experimental.proxy_tensor import make_fx
from telegrad.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode


def _filled(lib: Any, x: Any, n: Any) -> Any:
    size = n[0].item()
    return lib.ones(size, 2 * size + 1).sum() + x.sum().item() * x


def _found(lib: Any, x: Any, n: Any) -> Any:
    rows = x[x > 0.5]
    return rows.exp().sum(), lib.zeros(rows.shape[0] * 3), x.nonzero() + n[0], lib.where(x < 0)[1]


def _counted(lib: Any, x: Any, n: Any) -> Any:
    return lib.repeat_interleave(x, n, dim=1), lib.repeat_interleave(n), lib.bincount(n), lib.unique(n)


def _taken(lib: Any, x: Any, n: Any) -> Any:
    return x.reshape(-1)[: n[1].item()], x[0][n[1].item() - 1], lib.arange(n.sum().item()), x.masked_select(x > 0)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "filled": _filled, "found": _found, "counted": _counted, "taken": _taken,
}  # fmt: skip


def _leaves(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in _leaves(part)] if isinstance(value, (list, tuple)) else [value]


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_graphs_read_what_they_are_given(tg: Any, name: str, mode: str, rng: np.random.Generator) -> None:
    function = FUNCTIONS[name]
    graph = make_fx(lambda x, n: function(tg, x, n), tracing_mode=mode)(tg.ones(2, 3), tg.tensor([2, 1, 3]))
    for shift, numbers in ((0.0, [2, 1, 3]), (0.3, [5, 2, 0]), (-9.0, [4, 3, 1])):
        array = rng.standard_normal((2, 3)).astype(np.float32) + np.float32(shift)
        made = _leaves(graph(tg.tensor(array), tg.tensor(numbers)))
        wanted = _leaves(function(torch, torch.tensor(array), torch.tensor(numbers)))
        for one, reference in zip(made, wanted, strict=True):
            np.testing.assert_allclose(one.numpy(), reference.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "decides",
    [
        lambda x, n: x if n[0].item() > 2 else -x,
        lambda x, n: x if n[0].item() < 5000 else -x,
        lambda x, n: x if x.sum() > 0 else -x,
        lambda x, n: x if x.sum().item() > 7 else -x,
        lambda x, n: sum(x * k for k in range(n[0].item())),
        lambda x, n: x if x.nonzero().shape[0] != 4 else -x,
        lambda x, n: x * (x.sum().item() * 2),
    ],
)
def test_functions_that_decide_by_elements_are_refused(tg: Any, decides: Callable[..., Any]) -> None:
    with pytest.raises(GuardOnDataDependentSymNode):
        make_fx(decides, tracing_mode="fake")(tg.ones(2, 3), tg.tensor([2, 1, 3]))


def test_a_number_for_which_the_function_does_something_else_fails(tg: Any) -> None:
    from telegrad._programs.private.checks import _check

    def checked(n: Any) -> Any:
        _check(n.item() < 10)
        return tg.ones(3) * max(n.item(), 0)

    graph = make_fx(checked, tracing_mode="fake")(tg.tensor(4))
    graph.graph.eliminate_dead_code()
    graph.recompile()
    for number in (0, 9):
        assert graph(tg.tensor(number)).tolist() == [number] * 3
    for number in (-1, 10):
        with pytest.raises(RuntimeError, match="for which the graph was traced"):
            graph(tg.tensor(number))

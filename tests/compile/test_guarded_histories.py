"""Histories of results whose calls are left out: they are those of the function, made when they are asked for."""

from __future__ import annotations

from typing import Any

import pytest

from .guarded import called_often, calls_of
from .harness import exactly


def test_histories_are_those_of_the_function(tg: Any) -> None:
    layer = tg.nn.Linear(4, 2)

    def function(x: Any) -> Any:
        hidden = layer(x).relu()
        return hidden, (hidden * 2).sum()

    compiled = tg.compile(function)
    x = tg.ones(3, 4)
    called_often(compiled, x)
    assert calls_of(compiled).replayed
    for hidden, loss in (compiled(x), function(x)):
        assert [hidden.grad_fn.name(), loss.grad_fn.name()] == ["ReluBackward0", "SumBackward0"]
        assert loss.grad_fn.next_functions[0][0].next_functions[0][0].name() == "ReluBackward0"
        (first,) = tg.autograd.grad(loss, layer.weight, create_graph=True)
        assert first.shape == layer.weight.shape
        seen: list[Any] = []
        hidden.register_hook(lambda gradient, seen=seen: seen.append(gradient.shape))
        hidden.sum().backward()
        assert seen == [(3, 2)]


def _nodes_behind(node: Any) -> Any:
    """The names of a node and of all that its gradients flow to, as a tree."""
    return node.name(), [None if behind is None else _nodes_behind(behind) for behind, _ in node.next_functions]


@pytest.mark.parametrize("asks_first", [False, True])
def test_the_history_of_one_result_is_made_when_it_is_asked_for(tg: Any, asks_first: bool) -> None:
    model = tg.nn.Sequential(tg.nn.Linear(4, 3), tg.nn.GELU(), tg.nn.LayerNorm(3), tg.nn.Linear(3, 2))
    first, last = model[0], model[-1]

    def function(x: Any) -> Any:
        return (model(x) + x.sum()).sum()

    compiled = tg.compile(function)
    x = tg.linspace(-1, 1, 12).reshape(3, 4)
    called_often(compiled, x)
    assert calls_of(compiled).replayed
    told = []
    for chosen in (compiled, function):
        seen: list[Any] = []
        loss = chosen(x)
        if asks_first:
            behind = loss.grad_fn.next_functions[0][0]
            behind.register_hook(lambda given, taken, seen=seen: seen.append([one is None for one in given]))
            seen.append(_nodes_behind(loss.grad_fn))
        loss.backward()
        gradients = [exactly(tg, parameter.grad) for parameter in model.parameters()]
        model.zero_grad()
        (inner,) = tg.autograd.grad(chosen(x), first.weight, create_graph=True)
        (second,) = tg.autograd.grad(inner.square().sum(), last.weight)
        told.append([seen, gradients, exactly(tg, second)])
    assert told[0] == told[1]

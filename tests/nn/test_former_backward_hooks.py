"""Backward hooks of modules in the former way, and what warnings tell of them."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

BODIES = {
    "one operation": lambda t: lambda x: x.exp(),
    "two operations": lambda t: lambda x: x.exp().sin(),
    "two operands": lambda t: lambda x, y: x * y,
    "two results": lambda t: lambda x: (x.exp(), x.sin()),
    "a dict": lambda t: lambda x: {"none": 1, "a": x.exp()},
    "a list": lambda t: lambda x: [x.exp()],
    "a list is taken": lambda t: lambda listed: listed[0].exp(),
    "nothing": lambda t: lambda x: x,
}


def _calls(t: Any, body: str, takes: int, needs: bool) -> Any:
    class Layer(t.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, *args: Any) -> Any:
            return BODIES[body](t)(*args)

    layer, calls = Layer(), []

    def hook(module: Any, grad_input: Any, grad_output: Any) -> None:
        calls.append(
            [module is layer, *[[None if g is None else g.tolist() for g in gs] for gs in (grad_input, grad_output)]]
        )

    layer.register_backward_hook(hook)
    w = t.ones(2, requires_grad=True)
    operands = [(w * 2 if needs else w) for _ in range(takes)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = layer(operands if "is taken" in body else operands[0], *operands[1:])
        while not isinstance(result, t.Tensor):
            result = result["a"] if isinstance(result, dict) else result[0]
        result.sum().backward()
    return calls, [(one.category.__name__, str(one.message)) for one in caught], w.grad.tolist()


@pytest.mark.parametrize("needs", [False, True], ids=["leaves", "results"])
@pytest.mark.parametrize("body", BODIES)
def test_a_former_hook_is_one_of_the_last_node_with_pytorchs_warnings(tg: Any, body: str, needs: bool) -> None:
    takes = 2 if body == "two operands" else 1
    (calls, told, grad), (their_calls, their_told, their_grad) = (_calls(t, body, takes, needs) for t in (tg, torch))
    assert told == their_told
    assert repr(_rounded(calls)) == repr(_rounded(their_calls))
    assert grad == pytest.approx(their_grad, rel=1e-5)


def test_a_full_hook_warns_where_no_input_has_a_gradient(tg: Any) -> None:
    told = []
    for t in (tg, torch):
        layer = t.nn.Linear(2, 2)
        layer.register_full_backward_hook(lambda *_: None)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            layer(t.ones(1, 2)).sum().backward()
        told.append([(one.category, str(one.message)) for one in caught])
    assert told[0] == told[1] and told[0]


def _rounded(value: Any) -> Any:
    return (
        [_rounded(one) for one in value]
        if isinstance(value, list)
        else round(value, 4)
        if type(value) is float
        else value
    )


def _refused(t: Any, register: str) -> list[Any]:
    """What becomes of results of a node's hook that are no tuple of as many tensors as there are gradients."""
    results = []
    for make in (
        lambda g: g[0],
        list,
        lambda g: 3,
        lambda g: (3,),
        lambda g: (),
        lambda g: tuple(2 * one for one in g),
    ):
        x = t.ones(2, requires_grad=True)
        hook = (lambda g, *_, make=make: make(g)) if register == "register_hook" else make
        y = x.exp()
        getattr(y.grad_fn, register)(hook)
        try:
            y.sum().backward()
            results.append([round(one, 5) for one in x.grad.tolist()])
        except (TypeError, RuntimeError) as error:
            results.append(next(kind for kind in (TypeError, RuntimeError) if isinstance(error, kind)))
    return results


@pytest.mark.parametrize("register", ["register_hook", "register_prehook"])
def test_hooks_of_nodes_return_tuples_of_tensors(tg: Any, register: str) -> None:
    assert _refused(tg, register) == _refused(torch, register)


def _global_calls(t: Any) -> list[Any]:
    modules, calls = t.nn.modules.module, []
    with modules.register_module_backward_hook(lambda m, *_: calls.append("all")):
        layer = t.nn.Sigmoid()
        layer.register_backward_hook(lambda m, *_: calls.append("own"))
        layer(t.ones(2, requires_grad=True)).sum().backward()
        for refused in (modules.register_module_full_backward_hook, layer.register_full_backward_hook):
            with pytest.raises(RuntimeError, match="both regular backward hooks and full"):
                refused(print)
    return calls


@pytest.mark.filterwarnings("ignore:Using a non-full backward hook:FutureWarning")
def test_former_hooks_of_all_modules_exclude_full_ones(tg: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(torch.nn.modules.module, "_global_is_full_backward_hook", None)
    monkeypatch.setattr("telegrad.nn._hooks.GLOBAL.is_full_backward_hook", None)
    assert _global_calls(tg) == _global_calls(torch) == ["all", "own"]


def test_full_hooks_see_zeros_where_no_gradient_arrives(tg: Any) -> None:
    def gradients(t: Any) -> list[Any]:
        class Pair(t.nn.Module):  # type: ignore[misc,name-defined]
            def forward(self, a: Any, b: Any, c: Any) -> Any:
                return a.exp(), b * 2

        layer, seen = Pair(), []
        layer.register_full_backward_hook(
            lambda m, grads, outs: seen.append([None if g is None else g.tolist() for g in grads])
        )
        a, b = (t.zeros(1, requires_grad=True) for _ in range(2))
        first, _ = layer(a, b, t.zeros(1))
        first.sum().backward()
        assert type(first.grad_fn).__name__ == "BackwardHookFunctionBackward"
        return [*seen, a.grad.tolist(), b.grad.tolist()]

    assert gradients(tg) == gradients(torch) == [[[1.0], [0.0], [0.0]], [1.0], [0.0]]

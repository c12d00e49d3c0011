"""``cond``, ``while_loop``, ``map``, ``scan`` and ``associative_scan`` within ``make_fx``: nodes that take graphs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from telegrad._programs.private import higher_order as ours
from telegrad.fx import Interpreter
from telegrad.fx.experimental.proxy_tensor import make_fx


def _choice(lib: Any, ops: Any, x: Any, y: Any) -> Any:
    def nested(a: Any) -> Any:
        return ops.cond(a.mean() > 1, lambda b: b + y, lambda b: b.exp() * x, (a,))

    return ops.cond(x.sum() > 0, nested, lambda a: a - y, (x,)).sin() + y


def _trees(lib: Any, ops: Any, x: Any, y: Any) -> Any:
    made = ops.cond(
        x.sum() > 0, lambda d: {"r": [d["a"] * 1, d["b"] + y]}, lambda d: {"r": [y * 1, y]}, ({"a": x, "b": y},)
    )
    return made["r"]


def _loop(lib: Any, ops: Any, x: Any, y: Any) -> Any:
    start = (x * 0).sum()
    return ops.while_loop(lambda i, z: i < y[0].abs() * 3, lambda i, z: (i + 1, z * 0.5 + y), (start, x))


def _mapped(lib: Any, ops: Any, x: Any, y: Any) -> Any:
    return ops.map(lambda row, other, n: row.sum() * other + n * y, lib.stack([x, y]), y, 3)


def _scanned(lib: Any, ops: Any, x: Any, y: Any) -> Any:
    xs = lib.stack([x, y, x])
    return ops.scan(
        lambda c, row: ({"c": c["c"] * y + row["a"]}, [row["a"] * c["c"]]), {"c": x}, {"a": xs}, reverse=True
    )


def _associative(lib: Any, ops: Any, x: Any, y: Any) -> Any:
    xs = lib.stack([x, y, x, y, x])
    return ops.associative_scan(
        lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1] + y * 0), (xs, xs), 0, combine_mode="generic"
    )


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "choice": _choice, "trees": _trees, "loop": _loop, "mapped": _mapped, "scanned": _scanned,
    "associative": _associative,
}  # fmt: skip
OPERATORS = {"choice": "cond", "trees": "cond", "loop": "while_loop", "mapped": "map_impl", "scanned": "scan"}


class _Reference:
    """The operators as Python says what they do."""

    @staticmethod
    def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any) -> Any:
        return (true_fn if pred else false_fn)(*operands)

    @staticmethod
    def while_loop(cond_fn: Any, body_fn: Any, carried: Any) -> Any:
        while cond_fn(*carried):
            carried = body_fn(*carried)
        return carried

    @staticmethod
    def map(f: Any, xs: Any, *args: Any) -> Any:
        return torch.stack([f(x, *args) for x in xs])

    @staticmethod
    def scan(f: Any, init: Any, xs: Any, reverse: bool) -> Any:
        outputs = []
        for row in reversed(xs["a"]):
            init, (made,) = f(init, {"a": row})
            outputs.insert(0, made)
        return init, [torch.stack(outputs)]

    @staticmethod
    def associative_scan(f: Any, xs: Any, dim: int, combine_mode: str) -> Any:
        made = [tuple(x[0] for x in xs)]
        for place in range(1, len(xs[0])):
            made.append(f(made[-1], tuple(x[place] for x in xs)))
        return tuple([torch.stack(parts) for parts in zip(*made, strict=True)])


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for part in value for leaf in _leaves(part)] if isinstance(value, (list, tuple)) else [value]


@pytest.mark.parametrize("mode", ["real", "fake"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_graphs_choose_and_repeat_by_what_they_are_given(
    tg: Any, name: str, mode: str, rng: np.random.Generator
) -> None:
    function = FUNCTIONS[name]
    arrays = [rng.standard_normal((2, 4)).astype(np.float32) + shift for shift in (3, 0.5, -3)]
    given = [tg.tensor(array) for array in arrays[0]]
    graph = make_fx(lambda x, y: function(tg, ours, x, y), tracing_mode=mode)(*given)
    targets = [node.target for node in graph.graph.nodes]
    wanted = OPERATORS.get(name, name + "_scan")
    assert getattr(tg.ops.higher_order, wanted) in targets and f".{wanted}(" in graph.code
    for array in arrays:
        reference = _leaves(function(torch, _Reference, *map(torch.tensor, array)))
        for module in (graph, copy.deepcopy(graph), Interpreter(graph).run):
            made = _leaves(module(*map(tg.tensor, array)))
            for one, other in zip(made, reference, strict=True):
                np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=1e-5)


def test_what_a_function_captures_is_an_argument_of_its_graph(tg: Any) -> None:
    weight = tg.full((3,), 2.0)
    x, y = tg.ones(3), tg.arange(3.0)
    graph = make_fx(lambda x, y: ours.cond(x[0] > 0, lambda a: a * weight, lambda a: y, (x,)) + y)(x, y)
    assert graph(x, y).tolist() == [2.0, 3.0, 4.0] and graph(-x, y).tolist() == [0.0, 2.0, 4.0]
    bodies = [graph.get_submodule(name) for name in ("true_graph_0", "false_graph_0")]
    inputs = [[node.name for node in body.graph.nodes if node.op == "placeholder"] for body in bodies]
    assert inputs == [["arg0_1", "arg1_1", "arg2_1"]] * 2


def test_functions_of_a_choice_return_what_is_alike(tg: Any) -> None:
    with pytest.raises(RuntimeError, match="differ in 'dtype"):
        make_fx(lambda x: ours.cond(x[0] > 0, lambda a: a, lambda a: a.int(), (x,)))(tg.ones(3))
    with pytest.raises(RuntimeError, match="a trace carries tensors alone"):
        make_fx(lambda x: ours.while_loop(lambda i, z: i < 2, lambda i, z: (i + 1, z), (0, x)))(tg.ones(3))

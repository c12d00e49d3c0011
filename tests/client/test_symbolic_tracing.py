"""``make_fx`` with ``tracing_mode="symbolic"``: one graph for all sizes at which the function does the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental import proxy_tensor as theirs

from telegrad.fx.experimental import proxy_tensor as ours

Shapes = tuple[tuple[int, ...], ...]


def _attention(lib: Any, x: Any, y: Any) -> Any:
    batch, length, width = x.shape
    heads = x.view(batch, length, 2, width // 2).transpose(1, 2)
    mask = lib.ones(length, length).tril()
    return (lib.softmax(heads @ heads.mT * length**-0.5 + mask.log(), -1) @ heads).transpose(1, 2).reshape(
        batch * length, -1
    ) + y


def _gradient(lib: Any, x: Any, y: Any) -> Any:
    return lib.func.grad(lambda z: (z.reshape(-1)[: x.shape[0]] ** 3).sum() + (z @ y).mean())(x)


def _pieces(lib: Any, x: Any, y: Any) -> Any:
    rows = lib.cat([x, y]) * lib.arange(x.shape[0] + y.shape[0])[:, None]
    return rows[x.shape[0] - 1 :: 2], rows.shape[0], x.new_zeros(x.numel() // 2, 3), {"mean": y.sum(0) / y.size(0)}


def _branches(lib: Any, x: Any, y: Any) -> Any:
    made = x.sin() if x.shape[0] > 2 else x.cos()
    for _ in range(y.shape[1]):
        made = made * 2 + y.sum()
    return made


CASES: dict[str, tuple[Callable[..., Any], Shapes, Shapes]] = {
    "attention": (_attention, ((2, 3, 8), (8,)), ((5, 7, 8), (8,))),
    "gradient": (_gradient, ((3, 4), (4, 6)), ((7, 5), (5, 2))),
    "pieces": (_pieces, ((3, 2), (5, 2)), ((4, 6), (9, 6))),
    "branches": (_branches, ((4, 5), (3, 6)), ((9, 2), (7, 6))),
}


def _leaves(value: Any) -> list[Any]:
    value = list(value.values()) if isinstance(value, dict) else value
    return [leaf for part in value for leaf in _leaves(part)] if isinstance(value, (list, tuple)) else [value]


@pytest.mark.parametrize("name", CASES)
def test_a_graph_is_for_all_sizes(tg: Any, name: str, rng: np.random.Generator) -> None:
    function, example, other = CASES[name]
    graph = ours.make_fx(lambda x, y: function(tg, x, y), tracing_mode="symbolic")(
        *[tg.ones(*size) for size in example]
    )
    for shapes in (example, other):
        arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
        made = _leaves(graph(*map(tg.tensor, arrays)))
        wanted = _leaves(function(torch, *map(torch.tensor, arrays)))
        for one, reference in zip(made, wanted, strict=True):
            np.testing.assert_allclose(np.asarray(one), np.asarray(reference), rtol=1e-4, atol=1e-4)


def test_sizes_are_nodes_as_in_pytorchs_graphs(tg: Any) -> None:
    def code(make_fx: Any, lib: Any) -> list[str]:
        function = lambda x, n: x.view(x.shape[0] * x.shape[1]).repeat(n)
        lines: list[str] = make_fx(function, tracing_mode="symbolic")(lib.ones(2, 3), 4).code.split("\n")
        return lines

    assert [line.replace("telegrad", "torch") for line in code(ours.make_fx, tg)] == code(theirs.make_fx, torch)


def test_arguments_that_are_numbers_and_layouts_are_kept(tg: Any) -> None:
    graph = ours.make_fx(lambda x, n: (x.reshape(-1) * n).view(n, -1), tracing_mode="symbolic")(tg.ones(4, 3).t(), 6)
    x = tg.arange(20.0).view(5, 4).t()
    assert tg.equal(graph(x, 2), (x.reshape(-1) * 2).view(2, -1))


def test_what_no_formula_says_is_a_number(tg: Any) -> None:
    graph = ours.make_fx(lambda x: x.view(2, 3) + x.shape[0].bit_count(), tracing_mode="symbolic")(tg.ones(6))
    assert graph(tg.ones(6)).tolist() == [[3.0] * 3] * 2
    graph = ours.make_fx(lambda x: x * x.shape[0].bit_count(), tracing_mode="symbolic")(tg.ones(6))
    assert graph(tg.ones(6)).tolist() == [2.0] * 6
    with pytest.raises(RuntimeError, match="of at least 6 and of at most 6, for which the graph was traced, not 3"):
        graph(tg.ones(3))


def test_floors_are_told_from_products(tg: Any) -> None:
    graph = ours.make_fx(lambda x: x[: (x.shape[0] + 1) // 2].flatten(0, 1), tracing_mode="symbolic")(tg.ones(4, 6, 5))
    assert graph(tg.ones(7, 9, 8)).shape == (36, 8)


def test_what_is_another_graph_for_the_next_size_is_for_one_size(tg: Any) -> None:
    function = lambda x: tg.nn.functional.interpolate(tg.nn.functional.max_pool1d(x, 2), scale_factor=2.0)
    graph = ours.make_fx(function, tracing_mode="symbolic")(tg.ones(3, 4, 5))
    assert graph(tg.ones(6, 7, 5)).shape == (6, 7, 4)
    with pytest.raises(RuntimeError, match="for which the graph was traced, not 8"):
        graph(tg.ones(3, 4, 8))


def test_tensors_of_the_program_are_constants_of_fake_traces(tg: Any) -> None:
    layer, x = tg.nn.Linear(3, 2), tg.ones(4, 3)
    function = lambda x: layer(x) + tg.tensor([1.0, 2.0])
    for mode in ("fake", "symbolic"):
        graph = ours.make_fx(function, tracing_mode=mode, _allow_non_fake_inputs=True)(x)
        assert tg.equal(graph(x), function(x)) and dict(graph.named_parameters())["_param_constant0"] is layer.weight
        with pytest.raises(TypeError, match="Please convert all Tensors to FakeTensors first"):
            ours.make_fx(function, tracing_mode=mode)(x)


def test_an_isolated_graph_takes_leaves(tg: Any) -> None:
    x = tg.ones(2)
    graph = ours.get_isolated_graphmodule(lambda pair, scale: (pair[0] + pair[1]) * scale, ((x, x),), {"scale": x})
    assert graph([x, x * 2, x * 3]).tolist() == [9.0, 9.0]

"""Compilers of forward and of backward passes are given PyTorch's graphs, and compute results and gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from functorch import compile as theirs

from telegrad.compiler.aot import functions as ours

Case = tuple[Callable[[Any], Callable[..., Any]], list[tuple[int, ...]]]

CASES: dict[str, Case] = {
    "sums": (lambda t: lambda a, b, c, d: (a + b + c + d).cos().cos(), [(2, 4)] * 4),
    "product": (
        lambda t: lambda x, w: {"y": t.relu(x @ w).view(-1)[1:], "count": 3, "places": x > 0},
        [(2, 3), (3, 2)],
    ),
    "unused": (lambda t: lambda x, y: (x * 2, x.detach(), None), [(3,), (3,)]),
    "in place": (lambda t: lambda x: x.clone().mul_(2).add_(x * t.ones(3)), [(2, 3)]),
    "layers": (
        lambda t: lambda x, w, b: t.nn.functional.layer_norm(t.nn.functional.linear(x, w, b), (2,)).softmax(-1),
        [(3, 4), (2, 4), (2,)],
    ),
    "convolution": (
        lambda t: lambda x, w: t.nn.functional.max_pool2d(t.nn.functional.conv2d(x, w, padding=1), 2).sum(0),
        [(2, 3, 4, 4), (2, 3, 3, 3)],
    ),
    "attention": (
        lambda t: lambda q, k, v: t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        [(1, 2, 5, 4)] * 3,
    ),
    "indices": (lambda t: lambda x: x[t.tensor([0, 2, 0])].cumsum(0).amax(0) * x.std(), [(3, 4)]),
}
SAME_GRAPHS = ("sums", "unused")


def _outcome(lib: Any, compilers: Any, name: str, arrays: list[np.ndarray]) -> tuple[Any, list[Any], list[list[str]]]:
    """Return results, gradients, and the operators of the graphs that compilers were given."""
    make, _ = CASES[name]
    graphs: list[list[str]] = []

    def noted(graph: Any, inputs: list[Any]) -> Any:
        graphs.append([str(node.target) for node in graph.graph.nodes])
        return compilers.make_boxed_func(graph.forward)

    compiled = compilers.aot_function(make(lib), fw_compiler=noted, bw_compiler=noted)
    for _ in range(2):
        given = [lib.tensor(array, requires_grad=True) for array in arrays]
        result = compiled(*given)
        leaves = [*result.values()] if isinstance(result, dict) else list(result) if name == "unused" else [result]
        told = [leaf.detach().numpy() if isinstance(leaf, lib.Tensor) else leaf for leaf in leaves]
        sum((leaf * leaf).sum() for leaf in leaves if getattr(leaf, "requires_grad", False)).backward()
    return told, [None if one.grad is None else one.grad.numpy() for one in given], graphs


@pytest.mark.parametrize("name", CASES)
def test_passes_are_graphs_as_in_pytorch(tg: Any, rng: np.random.Generator, name: str) -> None:
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in CASES[name][1]]
    (told, gradients, graphs), expected = _outcome(tg, ours, name, arrays), _outcome(torch, theirs, name, arrays)
    for mine, other in zip([*told, *gradients], [*expected[0], *expected[1]], strict=True):
        if isinstance(other, np.ndarray):
            np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)
        else:
            assert mine == other
    assert len(graphs) == len(expected[2]) == 2
    if name in SAME_GRAPHS:
        assert graphs == expected[2]


def test_a_backend_of_compilers_trains_a_module(tg: Any, rng: np.random.Generator) -> None:
    array, counts = rng.standard_normal((5, 3)).astype(np.float32), {"forward": 0, "backward": 0}

    def counting(which: str) -> Any:
        def compiler(graph: Any, inputs: list[Any]) -> Any:
            counts[which] += 1
            return ours.make_boxed_func(graph.forward)

        return compiler

    def trained(compiles: bool) -> list[Any]:
        tg.manual_seed(3)
        model = tg.nn.Sequential(tg.nn.Linear(3, 4), tg.nn.BatchNorm1d(4), tg.nn.GELU(), tg.nn.Linear(4, 1))
        optimizer = tg.optim.SGD(model.parameters(), lr=0.1)
        backend = ours.aot_autograd(fw_compiler=counting("forward"), bw_compiler=counting("backward"))
        called = tg.compile(model, backend=backend) if compiles else model
        for _ in range(3):
            optimizer.zero_grad()
            called(tg.tensor(array)).pow(2).mean().backward()
            optimizer.step()
        return [tensor.numpy() for tensor in model.state_dict().values()]

    for mine, other in zip(trained(True), trained(False), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)
    assert counts == {"forward": 1, "backward": 1}


def test_modules_are_compiled_with_their_parameters(tg: Any, capsys: pytest.CaptureFixture[str]) -> None:
    layer, x = tg.nn.Linear(3, 2), tg.ones(4, 3)
    compiled = ours.aot_module(layer, fw_compiler=ours.print_compile)
    compiled(x).sum().backward()
    assert layer.weight.grad.tolist() == [[4.0] * 3] * 2 and capsys.readouterr().out.count("def forward") == 2
    with tg.no_grad():
        tg.testing.assert_close(compiled(x), layer(x))
    simplified = ours.aot_module_simplified(lambda x: (x.sin(),), [x], fw_compiler=ours.nop)
    tg.testing.assert_close(simplified([x])[0], x.sin())


def test_arguments_with_gradients_that_are_modified_are_refused(tg: Any) -> None:
    compiled = ours.aot_function(lambda x: x.mul_(2), ours.nop)
    with pytest.raises(RuntimeError, match="a leaf"):
        compiled(tg.ones(2, requires_grad=True) * 1)


def test_writes_to_memory_that_is_shared_are_refused_where_gradients_flow(tg: Any) -> None:
    def rows(x: Any) -> Any:
        y = x * 1
        y[0].mul_(3)
        return y

    def buffer(x: Any) -> Any:
        y = tg.zeros(2, 2)
        y[0].copy_(x[0])
        return y

    for function in (rows, buffer):
        with pytest.raises(tg.errors.NotSupportedError, match="modifies a view"):
            ours.aot_function(function, ours.nop)(tg.ones(2, 2, requires_grad=True))
        tg.testing.assert_close(ours.aot_function(function, ours.nop)(tg.ones(2, 2)), function(tg.ones(2, 2)))


@pytest.mark.parametrize("entry", ["aot_function", "memory_efficient_fusion"])
def test_options_that_there_are_not_are_refused(tg: Any, entry: str) -> None:
    make = getattr(ours, entry)
    given = [] if entry == "memory_efficient_fusion" else [ours.nop]
    make(lambda x: x.sin(), *given, dynamic=True, keep_inference_input_mutations=True)
    with pytest.raises(TypeError, match="bw_compilr"):
        make(lambda x: x.sin(), *given, bw_compilr=ours.nop)


CUT: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "chain": (lambda tg, x: x.sin().cos().sin().cos().exp(), 2),
    "views": (lambda tg, x: (x.view(2, 8).t() * 2).sin().reshape(4, 4) @ x, 1),
    "product": (lambda tg, x: tg.tanh(tg.nn.functional.gelu(x @ x) * 2) @ x, 3),
    "norm": (lambda tg, x: tg.nn.functional.layer_norm(x * 3, (4,)).sigmoid(), 5),
    "in_place": (lambda tg, x: x.mul(2).add_(1).sin().mul_(2).cos(), 2),
}
"""Functions, and how many values a minimal cut saves of each at most."""


@pytest.mark.parametrize("name", CUT)
def test_a_minimal_cut_saves_little_and_what_is_left_out_is_computed_anew(tg: Any, name: str) -> None:
    function, most = CUT[name]
    given = tg.randn(4, 4)
    wanted = given.clone().requires_grad_()
    function(tg, wanted).sum().backward()
    saved = []
    for partition in (ours.default_partition, ours.min_cut_rematerialization_partition):

        def forward(graph: Any, inputs: Any) -> Any:
            saved.append(len(graph.graph.output_node().args[0]) - 1)
            return graph

        x = given.clone().requires_grad_()
        compiled = ours.aot_function(partial(function, tg), forward, lambda g, i: g, partition_fn=partition)
        compiled(x).sum().backward()
        assert tg.allclose(x.grad, wanted.grad, rtol=1e-5, atol=1e-6), partition
    assert saved[1] <= min(saved[0], most), saved


def test_results_that_the_function_computes_without_gradients_have_none(tg: Any) -> None:
    def f(x: Any) -> Any:
        with tg.no_grad():
            return x * 2

    x = tg.ones(3, requires_grad=True)
    assert not ours.aot_function(f, ours.nop)(x).requires_grad
    assert not tg.compile(f, backend=ours.aot_autograd(fw_compiler=ours.nop))(x).requires_grad

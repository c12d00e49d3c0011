"""``functionalize`` within ``make_fx``: graphs without writes compute what functions with writes do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental import proxy_tensor as theirs

from telegrad.fx.experimental import proxy_tensor as ours


def _views(x: Any) -> Any:
    flat = x.reshape(-1)
    flat[1:3] = 5.0
    first, last = x.chunk(2)
    first.add_(1)
    x.t().sub_(0.5)
    x.diagonal().zero_()
    x.view(2, 2, 2)[:, 1, 0].mul_(3)
    x.unbind(1)[2].neg_()
    x.detach().unsqueeze(0).exp_()
    x.permute(1, 0)[3] = 9
    x.as_strided((2,), (3,), 1).fill_(2)
    return x, flat * 2, last


def _complex(x: Any) -> Any:
    z = x.view(2, 2, 2).view(x.dtype).clone()
    pairs = z.new_tensor([1.0]) * z
    seen = pairs.view(-1)
    pairs[0].copy_(pairs[1])
    pairs.ge_(0.1)
    return seen, pairs


def _conditions(x: Any) -> Any:
    y = x.clone()
    y[x > 0] = 0
    y.masked_fill_(x < -1, 7).clamp_(max=3)
    y.index_add_(0, y.new_zeros(1).long(), x[:1])
    return y.relu_(), y


FUNCTIONS: dict[str, Callable[..., Any]] = {"views": _views, "copies": _complex, "conditions": _conditions}


def _traced(lib: Any, name: str, remove: str, x: Any) -> Any:
    make_fx = (theirs if lib is torch else ours).make_fx
    return make_fx(lib.func.functionalize(FUNCTIONS[name], remove=remove))(x)


@pytest.mark.parametrize("remove", ["mutations", "mutations_and_views"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_graphs_without_writes_compute_the_same(tg: Any, name: str, remove: str, rng: np.random.Generator) -> None:
    array = rng.standard_normal((2, 4)).astype(np.float32)
    graph = _traced(tg, name, remove, tg.tensor(array))
    given, wanted = tg.tensor(array), torch.tensor(array)
    for made, reference in zip(graph(given), FUNCTIONS[name](wanted), strict=True):
        np.testing.assert_allclose(made.numpy(), reference.numpy(), rtol=1e-6)
    np.testing.assert_allclose(given.numpy(), wanted.numpy(), rtol=1e-6)
    called = [node for node in graph.graph.nodes if hasattr(node.target, "overloadpacket")]
    written = [node for node in called if node.target.name().partition(".")[0].endswith("_")]
    assert all(str(node.args[0].op) == "placeholder" or "clone" in str(node.args[0]) for node in written)


def test_the_graph_of_a_write_is_pytorchs(tg: Any) -> None:
    def f(x: Any) -> Any:
        x.add_(1)
        return x * 2

    def targets(lib: Any) -> list[str]:
        make_fx = (theirs if lib is torch else ours).make_fx
        return [str(node.target) for node in make_fx(lib.func.functionalize(f))(lib.ones(2, 2)).graph.nodes]

    assert targets(tg) == targets(torch)


def test_writes_that_cannot_be_said_otherwise_are_refused(tg: Any) -> None:
    with pytest.raises(NotImplementedError, match=r"writes into what aten\.unfold\.default returns"):
        ours.make_fx(tg.func.functionalize(lambda x: x.unfold(0, 2, 2).add_(1)))(tg.ones(4))


@pytest.mark.parametrize("name", ["gelu", "_softmax", "_log_softmax", "addmm"])
def test_core_operators_are_taken_apart_where_they_are_asked_for(tg: Any, name: str, rng: np.random.Generator) -> None:
    from telegrad._library.compiled.decompositions import core_aten_decompositions, get_decompositions

    array = rng.standard_normal((4, 4)).astype(np.float32)
    given = {"gelu": {"approximate": "tanh"}, "addmm": {"beta": 2, "alpha": 3}}.get(name, {})

    def call(lib: Any, x: Any) -> Any:
        others = {"addmm": (x, x.t()), "gelu": ()}.get(name, (1, False))
        return getattr(lib.ops.aten, name).default(x, *others, **given)

    x = tg.tensor(array)
    table = get_decompositions([getattr(tg.ops.aten, name)])
    graph = ours.make_fx(lambda x: call(tg, x), decomposition_table=table)(x)
    assert f"aten.{name}.default" not in [str(node.target) for node in graph.graph.nodes]
    np.testing.assert_allclose(graph(x).numpy(), call(torch, torch.tensor(array)).numpy(), rtol=1e-5, atol=1e-6)
    assert getattr(tg.ops.aten, name).default not in core_aten_decompositions()  # which gives what is not core

"""Walks over graphs in C find what those in Python find, in the same order; views are refused in the same words."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from server.engine import functional as F
from server.engine import view_plan
from server.engine.autograd import apart, graph_task
from server.engine.autograd.graph import AccumulateGrad, Node
from server.engine.autograd.inplace import set_requires_grad
from server.engine.replay import backward_program
from server.engine.value import Value
from telegrad_protocol.dtypes import float32
from telegrad_protocol.errors import ShapeError
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import contract
from tests.ops.adapters import EngineAdapter
from tests.support.compilers import needs_calls_in_c

pytestmark = needs_calls_in_c


@pytest.fixture
def adapter() -> EngineAdapter:
    return EngineAdapter()


def _graph(adapter: EngineAdapter, rng: random.Random) -> list[Node]:
    """Nodes with edges to some of those before them, to leaves, and to nothing; lists of edges as well as tuples."""
    leaves: list[Node] = []
    for size in range(1, 5):
        leaf = adapter.tensor(torch.zeros(size))
        leaves.append(AccumulateGrad(leaf))
    nodes: list[Node] = []
    for _ in range(40):
        ends = rng.choices([*nodes[-6:], *leaves, None], k=rng.randrange(4))
        edges = [None if end is None else (end, rng.randrange(3)) for end in ends]
        nodes.append(Node(rng.choice((tuple, list))(edges), (Meta.of((len(edges),), float32),)))
    return nodes


@pytest.mark.parametrize("part", range(8))
def test_random_graphs_are_walked_in_the_same_way(adapter: EngineAdapter, part: int, seed: int) -> None:
    rng = random.Random(seed + part)
    nodes = _graph(adapter, rng)
    starts = set(rng.sample(nodes, rng.randint(1, 3)))
    in_c = graph_task.count_gradients(starts, list(starts))
    assert list(in_c.items()) == list(graph_task._counted(starts, list(starts)).items())
    for node in starts:
        assert backward_program._identities(node) == backward_program._identities_in_python(node)
        for number in (0, nodes[0].sequence, rng.choice(nodes).sequence, node.sequence + 1):
            assert apart.begins_before(node, number) is apart._begins_before(node, number)


def test_graphs_of_operations_are_told_by_their_plans(adapter: EngineAdapter) -> None:
    one, other = (_result(adapter).autograd.grad_fn for _ in range(2))  # type: ignore[union-attr]
    assert backward_program._identities(one) == backward_program._identities(other)
    assert len(set(backward_program._identities(one))) > 2


def _result(adapter: EngineAdapter) -> Value:
    value = adapter.tensor(torch.ones(3, 3))
    set_requires_grad(value, True)
    result: Value = F.mean(F.matmul(F.sin(value), value))
    return result


@pytest.mark.parametrize("edges", [[3], ["ab"], [()], [(3, 0)], 5], ids=range(5))
def test_what_is_no_graph_is_refused(edges: Any) -> None:
    node = Node(edges, (Meta.of((1,), float32),))
    for walk in (lambda: graph_task.count_gradients({node}, [node]), lambda: backward_program._identities(node)):
        with pytest.raises(TypeError):
            walk()


@pytest.mark.parametrize("given", [(), (set(),), ([], []), (set(), set())], ids=range(4))
def test_arguments_of_a_walk_are_checked(given: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match="count_gradients: expected a set and a list"):
        graph_task.count_gradients(*given)


def test_a_view_beyond_its_memory_is_refused_in_the_same_words(adapter: EngineAdapter) -> None:
    assert view_plan.view_in_c is not None
    source, op, meta = adapter.tensor(torch.zeros(4)), contract("view"), Meta.of((9,), float32)
    bound = op, 0, meta.extent * meta.dtype.itemsize, meta
    said = []
    for make in (view_plan.view_in_c(bound), lambda args: view_plan.view(*bound, args)):
        with pytest.raises(ShapeError) as caught:
            make((source,))
        said.append(str(caught.value))
    assert said[0] == said[1]


@pytest.mark.parametrize("args", [(), (3,), ("a",), [1]], ids=range(4))
def test_a_view_of_no_tensor_is_refused_as_by_python(args: Any) -> None:
    assert view_plan.view_in_c is not None
    meta = Meta.of((1,), float32)
    bound = contract("view"), 0, 4, meta
    errors = []
    for make in (view_plan.view_in_c(bound), lambda args: view_plan.view(*bound, args)):
        with pytest.raises((TypeError, IndexError, AttributeError)) as caught:
            make(args)
        errors.append(caught.type)
    assert errors[0] is errors[1]

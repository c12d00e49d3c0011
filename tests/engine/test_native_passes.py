"""Passes and nodes in C do as in Python while what they work on changes, and refuse what is no part of a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from server.engine import functional as F
from server.engine.autograd import node_program
from server.engine.autograd.graph import Node, SavedTensor
from server.engine.autograd.graph_task import GraphTask
from server.engine.autograd.inplace import set_requires_grad
from server.engine.autograd.node import OpNode
from server.engine.autograd.node_program import NodeProgram, NodeStep
from server.engine.device.launch_queue import LaunchQueue
from server.engine.in_c import histories, launches
from server.engine.value import Value
from tests.ops.adapters import EngineAdapter
from tests.support.compilers import needs_calls_in_c

pytestmark = needs_calls_in_c
Visit = Callable[[GraphTask, list[Node], dict[Node, int]], None]


@pytest.fixture
def adapter() -> EngineAdapter:
    return EngineAdapter()


def _in_c(task: GraphTask, ready: list[Node], counts: dict[Node, int]) -> None:
    assert node_program.drain_in_c is not None
    node_program.drain_in_c(task, ready, counts, None, True, None, None)


def _in_python(task: GraphTask, ready: list[Node], counts: dict[Node, int]) -> None:
    task._visit_all(ready, counts, None, None, None)


class Giver(Node):
    """A node with these gradients for its edges."""

    def __init__(self, edges: list[Any], gradients: list[Any]) -> None:
        super().__init__(edges, ())
        self.gradients = gradients

    def apply(self, grads: Sequence[Value | None]) -> list[Any]:
        return self.gradients


class Clearing(Node):
    """A node that empties lists when it is looked for."""

    def __init__(self, *metas: Any) -> None:
        super().__init__((), metas)
        self.lists: list[list[Any]] = []
        self.given: list[Any] = []

    def __hash__(self) -> int:
        for items in self.lists:
            items.clear()
        return 1

    def apply(self, grads: Sequence[Value | None]) -> Sequence[Value | None]:
        self.given += grads
        return ()


@pytest.mark.parametrize("visit_all", [_in_c, _in_python])
@pytest.mark.parametrize("outputs", [1, 2])
def test_edges_and_gradients_may_go_while_they_are_handed_on(
    adapter: EngineAdapter, visit_all: Visit, outputs: int
) -> None:
    start, gradient = adapter.tensor(torch.ones(2)), adapter.tensor(torch.full((3,), 7.0))
    clearing = Clearing(*[gradient.meta] * outputs)
    giver = Giver([(clearing, 0), (clearing, 0)], [gradient, gradient])
    del gradient
    task, counts = GraphTask(False, False, ()), {clearing: 1}
    task.pending[giver] = [start]
    clearing.lists = [giver.edges, giver.gradients]  # type: ignore[list-item]
    visit_all(task, [giver], counts)
    (given, *others) = clearing.given
    assert adapter.numpy(given).tolist() == [7.0] * 3 and others == [None] * (outputs - 1)


class Emptying:
    """A saved tensor that empties a list when it is unpacked."""

    def __init__(self, saved: SavedTensor, items: list[Any]) -> None:
        self.saved, self.items = saved, items

    def unpack(self, node: Node) -> Value:
        self.items.clear()
        return self.saved.unpack(node)


def _node(adapter: EngineAdapter) -> Any:
    x = adapter.tensor(torch.zeros(3))
    set_requires_grad(x, True)
    return F.exp(x).autograd.grad_fn  # type: ignore[attr-defined]


@pytest.mark.parametrize("in_c", [False, True])
def test_a_gradient_may_go_while_a_program_unpacks_what_was_saved(adapter: EngineAdapter, in_c: bool) -> None:
    apply = node_program.apply if in_c else histories.apply_program_in_python
    assert in_c is (apply is not histories.apply_program_in_python)
    node, gradients, modes = _node(adapter), [adapter.tensor(torch.full((3,), 7.0))], ("modes",)
    step = NodeStep(lambda args: args[0], (None,), ((0, 2),), 3, (2,))
    program, before = NodeProgram(gradients[0].meta, modes, 4, [step], [3]), node.plan.program
    node.saved = [Emptying(node.saved[0], gradients), node.saved[0]]
    node.plan.program = program
    (result,) = apply(node, gradients, modes, True)
    node.plan.program = before
    assert adapter.numpy(result).tolist() == [7.0] * 3


def test_a_gradient_may_go_while_a_node_unpacks_what_was_saved(adapter: EngineAdapter) -> None:
    """Python looks at the list again by then, and finds no gradient; C has it from the beginning."""
    node, gradients = _node(adapter), [adapter.tensor(torch.full((3,), 7.0))]
    assert OpNode.apply is not histories.apply_in_python
    node.saved = [Emptying(node.saved[0], gradients)]
    (result,) = node.apply(gradients)
    assert adapter.numpy(result).tolist() == [7.0] * 3


@pytest.mark.parametrize("thing", [object(), None, 3, (), (object(), 0)], ids=range(5))
def test_what_is_no_part_of_a_graph_is_refused(adapter: EngineAdapter, thing: Any) -> None:
    gradient = adapter.tensor(torch.ones(2))
    with pytest.raises(TypeError, match="expected a node"):
        _in_c(GraphTask(False, False, ()), [thing], {})
    with pytest.raises(TypeError, match="expected a pass"):
        _in_c(GraphTask.__new__(GraphTask), [], {})
    giver = Giver([thing], [gradient])
    task = GraphTask(False, False, ())
    task.pending[giver] = [gradient]
    if thing is None:
        return _in_c(task, [giver], {})
    with pytest.raises(TypeError, match="expected an edge"):
        _in_c(task, [giver], {})


def test_queues_that_are_not_complete_are_refused() -> None:
    for queue in (LaunchQueue.__new__(LaunchQueue), object()):
        with pytest.raises(TypeError, match="expected a queue"):
            launches.deferring(queue, lambda args, outs: None)

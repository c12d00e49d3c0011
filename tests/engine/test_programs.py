"""Lists of operations: what they refuse, and that their plain execution is that of the single operations."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from server.engine import functional as F
from server.engine.operators import OPERATORS
from server.engine.programs.graph import Graph, Slot, Step, run
from server.engine.value import Value
from telegrad_protocol.errors import ArgumentError, AutogradError

from ..ops.adapters import EngineAdapter

x, y, z, u, v = map(Slot, range(5))


def step(name: str, args: tuple, *outs: Slot) -> Step:
    return Step(OPERATORS[name], args, outs)


def test_a_graph_runs_as_its_operations_do(adapter: EngineAdapter) -> None:
    """Views, in-place steps, lists, several results and constants."""
    a, b = torch.randn(3, 4), torch.randn(3, 4)
    graph = Graph(
        [
            step("add", (x, y, 2), z),
            step("t", (z,), u),
            step("mul_", (u, 3.0), v),
            step("cat", ((z, x, Slot(9)), 0), Slot(5)),
            step("max.dim", (Slot(5), 1, False), Slot(6), Slot(7)),
        ],
        [x, y],
        [z, Slot(6), Slot(7), x],
        {Slot(9): adapter.tensor(b)},
    )
    got = run(graph, [adapter.tensor(a), adapter.tensor(b)])
    sums = (a + 2 * b) * 3
    for mine, wanted in zip(got, (sums, *torch.cat((sums, a, b)).max(1), a), strict=True):
        assert (adapter.numpy(mine) == wanted.numpy()).all()
    assert repr(graph).splitlines()[0] == "%2 = add(%0, %1, 2)"


def test_values_are_dropped_after_their_last_use(adapter: EngineAdapter) -> None:
    """At most two results of a chain are held at once."""
    slots = [Slot(number) for number in range(20)]
    graph = Graph([step("exp", (a,), b) for a, b in pairwise(slots)], slots[:1], slots[-1:])
    allocator = adapter.backends[adapter.device].allocator
    value = adapter.tensor(torch.zeros(1 << 16))
    allocator.reset_peak()
    before = allocator.memory_stats()["allocated_bytes.all.current"]
    run(graph, [value])
    assert allocator.memory_stats()["allocated_bytes.all.peak"] - before == 2 * value.storage.nbytes


def test_what_makes_no_sense_is_refused(adapter: EngineAdapter) -> None:
    """Slots that are read too early or filled twice, a wrong number of inputs, and inputs that require a gradient."""
    with pytest.raises(ArgumentError, match=r"%1 is read before it is filled, by step 0, add"):
        Graph([step("add", (x, y, 1), z)], [x], [z])
    with pytest.raises(ArgumentError, match=r"%0 is filled a second time, by step 0, exp"):
        Graph([step("exp", (x,), x)], [x], [x])
    with pytest.raises(ArgumentError, match=r"%3 is read before it is filled, by the outputs"):
        Graph([], [x], [u])
    graph = Graph([step("exp", (x,), y)], [x], [y])
    leaf = adapter.tensor(torch.ones(2), requires_grad=True)
    with pytest.raises(ArgumentError, match="takes 1 inputs, got 2"):
        run(graph, [leaf, leaf])
    with pytest.raises(AutogradError, match="input 0, float32\\[2\\], requires a gradient"):
        run(graph, [leaf])
    (result,) = run(graph, [F.detach(leaf)])
    assert isinstance(result, Value)

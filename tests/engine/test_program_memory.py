"""What a program holds at once: values that are computed again, results over operands; results stay the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from server.engine import functional as F
from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS
from server.engine.programs.analysis import Analysis, shared_memory
from server.engine.programs.executable import Executable
from server.engine.programs.expansion import traced
from server.engine.programs.graph import Graph
from server.engine.programs.grouping import Grouping
from server.engine.programs.joined import SUMS, Joined
from server.engine.programs.memory import reuse
from server.engine.programs.memory.reuse import reused
from server.engine.programs.specialise import ALL, Options, specialise
from server.engine.programs.temporaries import Lifetime, peak_of
from server.engine.value import Value
from telegrad_protocol.meta import Meta

from ..ops.adapters import EngineAdapter
from .joined_steps import join_on_the_host
from .random_programs import ELEMENTWISE, RandomProgram
from .test_program_passes import check

ALWAYS = ALL._replace(recompute_from=0, part_moved=1)
NEVER = ALL._replace(recompute_from=1 << 60)
BATCH, WIDTH = 256, 16
ACTIVATIONS = ("tanh", "relu", "sigmoid", "silu")


@pytest.fixture(autouse=True)
def small_values_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have values of any size be written over operands."""
    monkeypatch.setattr(reuse, "least_bytes", 1)


def test_random_programs_compute_what_they_do_without(adapter: EngineAdapter, seed: int) -> None:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    for _ in range(40):
        program = RandomProgram(adapter, rng, large=False)
        program.record(rng.randint(4, 20), ELEMENTWISE)
        check(adapter, program.graph(), program.fresh_inputs, ALWAYS)


def _layer(
    rng: random.Random, x: Value, up: Value, down: Value
) -> tuple[Value, Callable[[Value], tuple[Value, Value]]]:
    """A layer, an activation and another layer, beside a residual path; and the gradients of weight and input."""
    before = F.linear(x, up)
    after = getattr(F, rng.choice(ACTIVATIONS))(before)
    if rng.random() < 0.5:
        after = F.mul(F.view(after, after.shape), 2.0)
    out = F.linear(after, down)

    def backward(grad: Value) -> tuple[Value, Value]:
        to_after, by_weight = dispatch(OPERATORS["_linear_backward"], (grad, after, down, False))
        by_weight = F.mul(by_weight, 0.5)
        to_before = dispatch(OPERATORS["_silu_backward"], (to_after, before))
        return by_weight, dispatch(OPERATORS["_linear_backward"], (to_before, None, up, False))[0]

    return F.add(x, out), backward


def _training(rng: random.Random, layers: int) -> Callable[..., tuple[Value, ...]]:
    def step(x: Value, up: Value, down: Value) -> tuple[Value, ...]:
        passes, results = [], []
        for _ in range(layers):
            x, backward = _layer(rng, x, up, down)
            passes.append(backward)
        grad = F.cos(x)
        for backward in reversed(passes):
            by_weight, grad = backward(grad)
            results.append(by_weight)
        return grad, *results

    return step


def _inputs(adapter: EngineAdapter) -> Callable[[], list[Value]]:
    drawn = [torch.randn(BATCH, WIDTH), torch.randn(4 * WIDTH, WIDTH) / WIDTH, torch.randn(WIDTH, 4 * WIDTH) / WIDTH]
    return lambda: [adapter.tensor(tensor.clone()) for tensor in drawn]


def _held(executable: Executable) -> int:
    return executable.describe().temporary_bytes_after


def _specialised(graph: Graph, values: Sequence[Value], options: Options) -> Executable:
    return specialise(graph, [value.meta for value in values], shared_memory(values), options)


def test_passes_hold_less_and_compute_the_same(adapter: EngineAdapter, seed: int) -> None:
    """To the bit; a backward pass computes activations again, unless nothing may be moved for it."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    held = {"always": 0, "unmoved": 0, "never": 0}
    for _ in range(6):
        fresh = _inputs(adapter)
        graph = traced(_training(rng, rng.randint(4, 8)), [value.meta for value in fresh()])
        held["always"] += _held(check(adapter, graph, fresh, ALWAYS))
        held["unmoved"] += _held(_specialised(graph, fresh(), ALWAYS._replace(part_moved=1 << 40)))
        held["never"] += _held(_specialised(graph, fresh(), NEVER))
    assert held["always"] < 0.95 * held["unmoved"]
    assert held["unmoved"] <= held["never"]


def test_what_is_held_is_what_the_allocator_gives(adapter: EngineAdapter, seed: int) -> None:
    """The description tells the most bytes that a run takes besides its inputs."""
    torch.manual_seed(seed)
    fresh = _inputs(adapter)
    graph = traced(_training(random.Random(seed), 5), [value.meta for value in fresh()])
    allocator = adapter.backends[adapter.device].allocator
    for options in (ALWAYS, NEVER):
        values = fresh()
        executable = _specialised(graph, values, options)
        before = allocator.memory_stats()["allocated_bytes.all.current"]
        allocator.reset_peak()
        executable.run(values)
        taken = allocator.memory_stats()["allocated_bytes.all.peak"] - before
        assert abs(taken - _held(executable)) <= _held(executable) // 20


def test_what_is_written_to_is_not_computed_again(adapter: EngineAdapter, seed: int) -> None:
    """The operand of an activation changes before the backward pass reads the activation."""
    torch.manual_seed(seed)
    fresh = _inputs(adapter)

    def step(x: Value, up: Value, down: Value) -> tuple[Value, ...]:
        before = F.linear(x, up)
        after = F.tanh(before)
        out = F.linear(after, down)
        F.add_(before, 1.0)
        wide = F.sum(F.exp(F.linear(F.linear(out, up), F.t(up))))
        return F.linear(F.mul(F.mul(after, before), wide), down), out

    check(adapter, traced(step, [value.meta for value in fresh()]), fresh, ALWAYS)


def _over(adapter: EngineAdapter, function: Callable[..., Any], metas: Sequence[Meta]) -> int:
    """How many results a function's program writes over operands."""
    graph = traced(function, metas)
    known = dict(zip(graph.inputs, metas, strict=True))
    analysis = Analysis(graph.steps, known, dict(zip(graph.inputs, range(len(metas)), strict=True)))
    keys = {device: backend.key for device, backend in adapter.backends.items()}
    groups = Grouping(graph.steps, analysis, keys).ordered()
    return len(reused(groups, graph.steps, analysis, graph.outputs, keys))


def test_results_lie_over_operands_that_nobody_needs(adapter: EngineAdapter) -> None:
    x, up, down = [value.meta for value in _inputs(adapter)()]
    assert _over(adapter, lambda x, up, down: F.linear(F.exp(F.linear(x, up)), down), (x, up, down)) == 1
    assert _over(adapter, lambda x, up: F.linear(F.exp(x), up), (x, up)) == 0  # the caller has it

    def both(x: Value, up: Value, down: Value) -> tuple[Value, ...]:
        before = F.linear(x, up)
        return F.linear(F.exp(before), down), before

    assert _over(adapter, both, (x, up, down)) == 0  # it is wanted afterwards

    def crossed(x: Value, up: Value, down: Value) -> tuple[Value, ...]:
        a, b = F.linear(x, up), F.linear(F.neg(x), up)
        total, other = F.add(a, b), F.sub(a, b)
        return F.linear(total, down), F.linear(other, down)

    assert _over(adapter, crossed, (x, up, down)) == 1  # each would have to wait for the other


def test_values_of_callers_stay(adapter: EngineAdapter, seed: int) -> None:
    torch.manual_seed(seed)
    fresh = _inputs(adapter)

    def step(x: Value, up: Value, down: Value) -> tuple[Value, ...]:
        scaled = F.mul(x, 2.0)
        made = F.linear(scaled, up)
        return F.exp(made), F.linear(F.tanh(scaled), up), F.sum(F.relu(made))

    check(adapter, traced(step, [value.meta for value in fresh()]), fresh, ALWAYS)


def test_sums_go_with_results_over_operands(adapter: EngineAdapter, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that adds up a result's rows besides adds up what it has written over an operand."""
    made: list[Joined] = join_on_the_host(monkeypatch)
    torch.manual_seed(seed)
    fresh = _inputs(adapter)

    def step(x: Value, up: Value, down: Value) -> tuple[Value, ...]:
        grad = F.mul(F.tanh(F.mm(x, F.t(up))), 0.5)
        gradients = dispatch(OPERATORS["_linear_backward"], (grad, x, up, True))
        return tuple(gradients)

    check(adapter, traced(step, [value.meta for value in fresh()]), fresh, ALWAYS)
    assert any([one.kind == SUMS and one.attributes[0].stores for one in made])


def test_the_peak_is_found() -> None:
    assert peak_of([Lifetime(0, 2, 5), Lifetime(1, 1, 7), Lifetime(2, 3, 6)]) == (12, 1)
    assert peak_of([]) == (0, 0.0)

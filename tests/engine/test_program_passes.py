"""Optimised lists of operations compute what plain execution computes: random programs, and each pass alone."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from server.engine.operators import OPERATORS
from server.engine.programs.analysis import shared_memory
from server.engine.programs.graph import Graph, Slot, Step, run
from server.engine.programs.specialise import ALL, Options, specialise
from server.engine.value import Value
from telegrad_protocol import dtypes
from telegrad_protocol.errors import ArgumentError, AutogradError, ShapeError
from telegrad_protocol.meta import Meta

from ..ops.adapters import EngineAdapter
from .random_programs import ELEMENTWISE, QUICK, RandomProgram

NOTHING = Options(dead=False, common=False, fold=False, fuse=False)
PASSES = {
    "all": ALL._replace(fold=True),
    "dead": NOTHING._replace(dead=True),
    "common": NOTHING._replace(common=True),
    "fold": NOTHING._replace(fold=True),
    "fuse": NOTHING._replace(fuse=True),
    "none": NOTHING,
}


def elements(adapter: EngineAdapter, value: Value) -> np.ndarray:
    """The bits of all elements, with one pattern for all NaN."""
    array = adapter.numpy(value).reshape(-1).copy()
    if array.dtype.kind == "c":
        array = array.view(array.real.dtype)
    if array.dtype.kind == "f":
        array[np.isnan(array)] = np.nan
    return array.view(np.uint8)


def check(adapter: EngineAdapter, graph: Graph, fresh: Any, options: Options) -> Any:
    """Both executions give the same outputs, and leave the same in the inputs; returns the executable."""
    results = []
    plain, optimised = fresh(), fresh()
    executable = specialise(graph, [v.meta for v in optimised], shared_memory(optimised), options)
    generator = adapter.context.generators[adapter.device]
    for execute, values in ((lambda values: run(graph, values), plain), (executable.run, optimised)):
        generator.manual_seed(7)
        results.append([*execute(values), *values])
    for mine, wanted in zip(*reversed(results), strict=True):
        assert mine.meta is wanted.meta
        assert is_same(adapter, mine, wanted), f"{graph}\n\n{executable.describe()}"
    return executable


def is_same(adapter: EngineAdapter, mine: Value, wanted: Value) -> bool:
    """Whether all bits are the same; complex numbers may differ in the last ones.

    NumPy's loops over complex numbers round otherwise where these do not lie next to each other, as fused ones do.
    """
    if not wanted.dtype.is_complex:
        return bool((elements(adapter, mine) == elements(adapter, wanted)).all())
    digits = np.finfo(adapter.numpy(wanted).dtype).eps
    return np.allclose(adapter.numpy(mine), adapter.numpy(wanted), rtol=64 * digits, atol=0, equal_nan=True)


@pytest.mark.parametrize("passes", PASSES)
def test_random_programs(adapter: EngineAdapter, passes: str, seed: int) -> None:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    for number in range(25):
        program = RandomProgram(adapter, rng, large=number % 8 == 7)
        program.record(rng.randint(2, 14), QUICK if number % 8 == 7 else ELEMENTWISE)
        check(adapter, program.graph(), program.fresh_inputs, PASSES[passes])


X, Y = Slot(0), Slot(1)


def step(name: str, args: tuple, *numbers: int) -> Step:
    return Step(OPERATORS[name], args, tuple(map(Slot, numbers)))


def counts(adapter: EngineAdapter, graph: Graph, tensors: list[torch.Tensor], options: Options) -> tuple[int, ...]:
    """What was dead, repeated and folded, and how many kernels are left; results are compared, too."""
    fresh = lambda: [adapter.tensor(tensor) for tensor in tensors]
    done = check(adapter, graph, fresh, options).describe()
    return done.dead, done.repeated, done.folded, done.kernels_after


def test_what_nobody_reads_is_left_out_unless_it_mutates_or_draws(adapter: EngineAdapter) -> None:
    graph = Graph(
        [
            step("exp", (X,), 1),
            step("sin", (Slot(1),), 2),
            step("rand_like", (X, None, None), 3),
            step("t", (X,), 4),
            step("mul_", (Slot(4), 2.0), 5),
            step("cos", (X,), 6),
        ],
        [X],
        [Slot(6)],
    )
    assert counts(adapter, graph, [torch.randn(2, 3)], PASSES["dead"]) == (2, 0, 0, 3)


def test_what_is_computed_twice_is_computed_once_where_nobody_can_tell(adapter: EngineAdapter) -> None:
    """Numbers of other types and signs, writes in between, written results and wanted ones are told apart."""
    steps = [step("mul", (X, 2), 2), step("mul", (X, 2), 3), step("mul", (X, 2.0), 4)]
    steps += [step("copysign", (X, 0.0), 5), step("copysign", (X, -0.0), 6), step("copysign", (X, 0.0), 7)]
    steps += [step("mul_", (X, 3), 8), step("mul", (X, 2), 9), step("t", (X,), 10), step("t", (X,), 11)]
    steps += [step("neg", (Y,), 12), step("neg", (Y,), 13), step("neg_", (Slot(13),), 14), step("neg", (Y,), 15)]
    steps += [step("stack", (tuple(map(Slot, (2, 3, 4, 5, 6, 7, 9))), 0), 16), step("exp", (Y,), 17)]
    steps += [step("exp", (Y,), 18), step("add", (Slot(12), Slot(15), 1), 19), step("t", (Y,), 20)]
    graph = Graph(steps, [X, Y], list(map(Slot, (16, 17, 18, 19, 14, 20))))
    dead, repeated, _, _ = counts(adapter, graph, [torch.randn(2, 2), torch.randn(2, 2)], PASSES["common"])
    assert (dead, repeated) == (0, 3)  # 2 and 3, 5 and 7, 12 and 15


def test_constants_are_folded_where_nothing_writes_to_them(adapter: EngineAdapter) -> None:
    weight, counter = adapter.tensor(torch.randn(3, 3)), adapter.tensor(torch.zeros(3))
    steps = [
        step("t", (Slot(7),), 2),
        step("_to_copy", (Slot(2), dtypes.float64, None), 3),
        step("add_", (Slot(8), 1.0, 1), 4),
        step("exp", (Slot(8),), 5),
        step("mul", (X, Slot(3)), 6),
        step("neg", (Slot(7),), 9),
    ]
    graph = Graph(steps, [X], [Slot(6), Slot(5), Slot(9)], {Slot(7): weight, Slot(8): counter})
    value = adapter.tensor(torch.randn(3, 3))
    executable = specialise(graph, [value.meta], options=PASSES["all"])
    assert executable.describe().folded == 2
    (first, power, _), (second, later, _) = executable.run([value]), run(graph, [value])
    assert (adapter.numpy(first) == adapter.numpy(second)).all()
    assert (adapter.numpy(power) * np.float32(np.e) - adapter.numpy(later) < 1e-5).all()


def test_work_between_two_steps_keeps_them_apart(adapter: EngineAdapter) -> None:
    """A product of matrices needs what is before it; a write to another view of memory is not overtaken."""
    graph = Graph(
        [step("exp", (X,), 1), step("mm", (Slot(1), X), 2), step("add", (Slot(1), Slot(2), 1), 3)], [X], [Slot(3)]
    )
    assert counts(adapter, graph, [torch.randn(3, 3)], ALL)[3] == 3
    steps = [step("t", (X,), 1), step("mul", (X, 2.0), 2), step("add_", (Slot(1), Slot(2), 1), 3)]
    steps += [step("mul", (X, Slot(2)), 4), step("sub", (Slot(4), 1.0, 1), 5)]
    assert counts(adapter, Graph(steps, [X], [Slot(5)]), [torch.randn(3, 3)], ALL)[3] == 3


def test_composites_are_taken_apart(adapter: EngineAdapter) -> None:
    """Their element-wise parts are fused with what is around them; forms of them write into their targets."""
    steps = [step("exp", (X,), 2), step("softsign", (Slot(2),), 3), step("dropout_", (X, 0.5, True), 4)]
    graph = Graph([*steps, step("outer", (Y, Y), 5)], [X, Y], [Slot(3), Slot(5)])
    executable = check(adapter, graph, lambda: [adapter.tensor(torch.ones(4, 4)), adapter.tensor(torch.ones(4))], ALL)
    assert "softsign" not in executable.describe().text
    assert executable.describe().kernels_after < executable.describe().kernels_before


def test_other_operands_than_those_specialised_for_are_refused(adapter: EngineAdapter) -> None:
    graph = Graph([step("exp", (X,), 1)], [X], [Slot(1)])
    executable = specialise(graph, [Meta.of((2, 3), dtypes.float32)])
    with pytest.raises(ArgumentError, match=r"input 0 is float32\[3,2\] .*, and it was specialised for float32\[2,3\]"):
        executable.run([adapter.tensor(torch.ones(3, 2))])
    with pytest.raises(AutogradError, match="requires a gradient"):
        executable.run([adapter.tensor(torch.ones(2, 3), requires_grad=True)])
    with pytest.raises(ShapeError):
        specialise(Graph([step("mm", (X, X), 1)], [X], [Slot(1)]), [Meta.of((2, 3), dtypes.float32)])


def test_numbers_may_be_inputs(adapter: EngineAdapter) -> None:
    graph = Graph([step("mul", (X, Y), 2), step("exp", (Slot(2),), 3)], [X, Y], [Slot(3)])
    value = adapter.tensor(torch.ones(2, 2))
    executable = specialise(graph, [value.meta, float])
    for number in (0.0, 2.0):
        assert (adapter.numpy(executable.run([value, number])[0]) == np.exp(np.float32(number))).all()
    with pytest.raises(ArgumentError, match="input 1 is 1, and a number of type float was expected"):
        executable.run([value, 1])

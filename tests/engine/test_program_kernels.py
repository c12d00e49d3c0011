"""Fused kernels on the CPU: with compiled loops and without, in half precision, within limits, and interrupted."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from server.engine import compiled
from server.engine import functional as F
from server.engine.cpu.fused import machine_code
from server.engine.device import cancellation, work
from server.engine.operators import OPERATORS
from server.engine.programs.analysis import shared_memory
from server.engine.programs.expansion import traced
from server.engine.programs.graph import Graph, Slot, Step, run
from server.engine.programs.specialise import ALL, specialise
from telegrad_protocol.errors import DTypeError, InplaceError, LimitExceededError, OutOfMemoryError
from telegrad_protocol.meta import Meta

from ..ops.adapters import TORCH_TO_OURS, EngineAdapter
from .random_programs import ELEMENTWISE, RandomProgram
from .test_program_passes import check

SIMPLE = (
    "add", "sub", "rsub", "mul", "div", "neg", "square", "abs", "sqrt", "rsqrt", "reciprocal", "pow", "lerp", "addcmul",
    "addcdiv", "maximum", "minimum", "relu", "clamp", "clamp_min", "clamp_max", "hardtanh", "relu6", "isnan", "where",
    "_tanh_backward", "_sigmoid_backward", "_relu_backward", "masked_fill", "logical_and", "logical_or", "logical_xor",
    "logical_not", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "eq", "ne", "lt", "le", "gt", "ge",
    "_to_copy", "copy_", "tanh", "exp",
)  # fmt: skip
"""What compiled loops compute, of which the last two are NumPy's functions for short and oddly laid out tensors."""


@pytest.fixture(params=["compiled", "never"])
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Loops are compiled, or they are not."""
    if request.param == "never":
        monkeypatch.setenv("TELEGRAD_COMPILED_KERNELS", "never")
        for name, value in (("_loaded", {}), ("_next_look", 0.0)):
            monkeypatch.setattr(compiled, name, value)
    machine_code.features.cache_clear()
    yield request.param
    machine_code.features.cache_clear()


def test_loops_compute_what_numpy_computes(adapter: EngineAdapter, loops: str, seed: int) -> None:
    """To the bit, on numbers that include zeros of both signs, NaN and infinities, in blocks and in short tensors."""
    operators = [operator for operator in ELEMENTWISE if operator.op.base.name in SIMPLE]
    rng = random.Random(seed)
    torch.manual_seed(seed)
    for number in range(12):
        program = RandomProgram(adapter, rng, large=number % 6 == 5)
        program.record(rng.randint(6, 20), operators)
        check(adapter, program.graph(), program.fresh_inputs, ALL)


SPECIAL = torch.tensor([0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45, 3e38, 1.0, -2.5])


def test_special_numbers_pass_through_loops(adapter: EngineAdapter, loops: str) -> None:
    """Every pair of special numbers, in a chain of everything that treats them in a way of its own."""
    x, y = (grid.reshape(-1) for grid in torch.meshgrid(SPECIAL, SPECIAL, indexing="ij"))

    def chain(a: F.Value, b: F.Value) -> tuple[F.Value, ...]:
        extremes = F.maximum(a, b), F.minimum(a, b), F.clamp(a, -1.0, 1.0), F.pow(b, -2), F.sqrt(F.neg(a))
        tests = F.lt(a, b), F.ne(a, b), F.isnan(F.div(a, b)), F.logical_and(a, b), F.logical_xor(a, b)
        chosen = F.where(tests[0], extremes[0], extremes[1])
        return (*extremes, *tests, chosen, F.mul_(a, chosen))

    values = [adapter.tensor(x), adapter.tensor(y)]
    graph = traced(chain, [value.meta for value in values])
    executable = check(adapter, graph, lambda: [adapter.tensor(x), adapter.tensor(y)], ALL)
    assert executable.describe().kernels_after == 1


@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid", "silu", "_silu_backward"])
def test_exponentials_of_large_tensors_are_a_part_of_loops(adapter: EngineAdapter, name: str) -> None:
    """To the bit, on numbers whose exponentials are subnormal or infinite, too."""
    x = torch.cat([SPECIAL, torch.randn(72_000) * 40]).reshape(-1, 9)
    arguments = [x.flip(0)] * (name == "_silu_backward") + [x]
    graph = traced(
        lambda *v: F.mul(getattr(F, name)(*v), F.add(v[-1], 1.0)), [adapter.tensor(item).meta for item in arguments]
    )
    executable = check(adapter, graph, lambda: [adapter.tensor(item) for item in arguments], ALL)
    assert executable.describe().kernels_after == 1
    assert "llvm.fmuladd" in executable.describe().text


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [7, 70_000])
def test_half_precision_is_rounded_once(adapter: EngineAdapter, loops: str, dtype: torch.dtype, size: int) -> None:
    """Errors are those of the operands and of one rounding, beside float64; casts that are asked for are made."""
    a, b, c = (torch.randn(size, dtype=dtype) for _ in range(3))
    values = [adapter.tensor(t) for t in (a, b, c)]

    def chain(f, x, y, z):
        gate = f.mul(f.sub(x, f.mul(y, z)), f.tanh(f.add(x, y)))
        return f.add(f.mul(gate, gate), f.mul(x, 0.25)), z.mul_(y)

    graph = traced(lambda *v: chain(F, *v), [value.meta for value in values])
    executable = specialise(graph, [value.meta for value in values], shared_memory(values))
    assert executable.describe().kernels_after == 1
    for mine, exact in zip(executable.run(values), chain(torch, a.double(), b.double(), c.double()), strict=True):
        assert mine.meta.dtype is TORCH_TO_OURS[dtype]
        got = adapter.numpy(mine).astype(np.float64)
        np.testing.assert_allclose(got, exact.numpy(), rtol=torch.finfo(dtype).eps * 0.51, atol=1e-5)


def test_a_cast_to_half_precision_rounds(adapter: EngineAdapter, loops: str) -> None:
    value = torch.linspace(1, 2, 20_000)
    for dtype in (torch.float16, torch.bfloat16):
        graph = traced(
            lambda x, kind=TORCH_TO_OURS[dtype]: F.mul(
                F._to_copy(F._to_copy(F.mul(x, 3.0), dtype=kind), dtype=x.dtype), 0.5
            ),
            [adapter.tensor(value).meta],
        )
        executable = check(adapter, graph, lambda: [adapter.tensor(value)], ALL)
        assert executable.describe().kernels_after == 1


def test_the_description_tells_what_was_done(adapter: EngineAdapter, loops: str) -> None:
    meta = adapter.tensor(torch.ones(3, 4)).meta
    graph = traced(lambda x: F.mm(F.mul(F.add(F.mul(x, x), 1.0), F.exp(x)), F.t(x)), [meta])
    done = specialise(graph, [meta], [0]).describe()
    assert (done.steps, done.kernels_before, done.kernels_after) == (6, 5, 2)
    assert done.fused == (("mul", "add", "exp", "mul"),)
    assert (done.temporary_bytes_before, done.temporary_bytes_after) == (3 * 48, 48 + 36)
    assert "r2 = add(r1, 1.0, 1) as float32" in done.text
    assert ("define void" in done.text) is (loops == "compiled")
    assert "5 kernels before, 2 after" in str(done)


def test_limits_hold(adapter: EngineAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work beyond the limit is refused when a program is specialised; memory beyond the quota when it runs."""
    metas = [Meta.of((64, 64), TORCH_TO_OURS[torch.float32])] * 2
    graph = traced(lambda x, y: F.exp(F.mm(F.exp(x), y)), metas)
    monkeypatch.setattr(work, "limit", 1000.0)
    with pytest.raises(LimitExceededError, match=r"mm: is about 2.6e\+05 multiply-adds"):
        specialise(graph, metas)
    monkeypatch.undo()
    row, column = (adapter.tensor(torch.zeros(shape)) for shape in ((1, 1 << 24), (1 << 24, 1)))
    huge = traced(lambda x, y: F.add(F.mul(x, y), 1.0), [row.meta, column.meta])
    executable = specialise(huge, [row.meta, column.meta])
    with pytest.raises(OutOfMemoryError):
        executable.run([row, column])


def test_refusals_are_those_of_the_single_operations(adapter: EngineAdapter) -> None:
    """An integer division by zero, and a write to elements that share memory."""
    value = adapter.tensor(torch.tensor([4, 0, 2]))
    graph = traced(lambda x: F.mul(F.remainder(F.add(x, x), x), 2), [value.meta])
    with pytest.raises(DTypeError, match="remainder: integer division by zero"):
        specialise(graph, [value.meta]).run([value])
    repeated = Meta.of((3, 2), TORCH_TO_OURS[torch.float32], strides=(1, 0))
    steps = [Step(OPERATORS["mul"], (Slot(0), 2.0), (Slot(1),)), Step(OPERATORS["add_"], (Slot(0), 1.0, 1), (Slot(2),))]
    with pytest.raises(InplaceError, match="share memory"):
        specialise(Graph(steps, [Slot(0)], [Slot(1)]), [repeated])


class Interrupted(Exception):
    """Stands for what ends a program that takes too long."""


def test_a_program_that_takes_too_long_is_ended_between_steps_and_blocks(adapter: EngineAdapter, loops: str) -> None:
    value = adapter.tensor(torch.ones(1 << 20))
    graph = traced(lambda x: F.mul(F.add(x, x), 2.0), [value.meta])

    def end() -> None:
        raise Interrupted

    for execute in (lambda: run(graph, [value]), lambda: specialise(graph, [value.meta]).run([value])):
        cancellation.request(end)
        with pytest.raises(Interrupted):
            execute()
        assert not cancellation.requested

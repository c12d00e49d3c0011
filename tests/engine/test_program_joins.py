"""Steps that are joined around normalizations, and casts that are joined: nothing is computed otherwise by it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from server.engine import functional as F
from server.engine import keys
from server.engine.programs.analysis import Analysis, shared_memory
from server.engine.programs.expansion import traced
from server.engine.programs.graph import Graph
from server.engine.programs.grouping import Grouping
from server.engine.programs.joined import CASTS, GRADIENTS, NORM, PRODUCTS, SUMS, Joined
from server.engine.programs.joins import casts
from server.engine.programs.joins.casts import join_casts
from server.engine.programs.specialise import ALL, specialise
from server.engine.programs.temporaries import peak_bytes
from server.engine.value import Value
from telegrad_protocol import dtypes
from telegrad_protocol.meta import CPU

from ..ops.adapters import EngineAdapter
from .joined_steps import join_on_the_host, shifted
from .test_program_passes import check

ROWS, LENGTH = 6, 24
HALVES = (dtypes.bfloat16, dtypes.float16)


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[Joined]:
    """What is joined, and executed by the roles that it has."""
    return join_on_the_host(monkeypatch)


def _inputs(adapter: EngineAdapter) -> Callable[[], list[Value]]:
    """What makes two matrices, a square one, and a weight; all of them again each time."""
    drawn = [torch.randn(*shape) for shape in ((ROWS, LENGTH), (ROWS, LENGTH), (LENGTH, LENGTH), (LENGTH,))]
    return lambda: [adapter.tensor(tensor.clone()) for tensor in drawn]


def _random_chain(rng: random.Random, count: int) -> Callable[..., tuple[Value, ...]]:
    """A function of random steps, most of them normalizations, sums and casts; some of the results are wanted."""

    def chain(x: Value, y: Value, square: Value, weight: Value) -> tuple[Value, ...]:
        values, norms, squares, sums = [x, y], [], [square, F.t(square)], []
        for _ in range(count):
            a, b = rng.choice(values[-4:]), rng.choice(values)
            wide = a if a.dtype is dtypes.float32 else F._to_copy(a, dtype=dtypes.float32)
            kinds = (
                "norm",
                "norm",
                "gradients",
                "gradients",
                "add",
                "add",
                "cast",
                "mm",
                "mul",
                "write",
                "layer",
                "linear",
            )
            kind = rng.choice(kinds)
            if kind == "norm":
                given = [weight, None][rng.random() < 0.3]
                if rng.random() < 0.3:
                    values.append(F._rms_norm(wide, (LENGTH,), given, 1e-5)[0])
                else:
                    norms.append((wide, F._layer_norm(wide, (LENGTH,), given, given, 1e-5)))
                    values.append(norms[-1][1][0])
            elif kind == "gradients" and norms:
                input, (_, mean, rstd) = rng.choice(norms)
                made = F._layer_norm_gradients(wide, input, mean, rstd, weight, (LENGTH,))
                values += [made[0]]
            elif kind == "linear":
                values += [F.linear(wide, square, None) for _ in range(rng.randint(1, 2))]
            elif kind == "cast":
                values.append(F._to_copy(a, dtype=rng.choice((dtypes.float32, *HALVES))))
            elif kind == "mm":
                narrow = F._to_copy(F.mm(square, rng.choice(squares)), dtype=dtypes.bfloat16)
                values.append(F.mm(a if a.dtype is dtypes.bfloat16 else F._to_copy(a, dtype=dtypes.bfloat16), narrow))
            elif kind == "write" and rng.random() < 0.5:
                a.mul_(0.5)
            elif kind == "layer":
                given = F._to_copy(square, dtype=a.dtype) if rng.random() < 0.7 else None
                made = F._linear_backward(a, None, given, True)
                values += made[:-1]
                sums.append(made[-1])
            else:
                values.append(F.add(a, b, alpha=rng.choice((1, 1, 2))) if kind != "mul" else F.mul(a, b))
        return values[-1], *rng.sample(values, 2), *sums

    return chain


def test_random_programs_compute_what_they_do_without(
    adapter: EngineAdapter, seed: int, joined: list[Joined], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit; memory may grow here, so that more is joined."""
    monkeypatch.setattr(casts, "_MORE", 1)
    rng = random.Random(seed)
    torch.manual_seed(seed)
    kinds = set()
    for _ in range(20):
        fresh = _inputs(adapter)
        graph = traced(_random_chain(rng, rng.randint(12, 24)), [value.meta for value in fresh()])
        values, plain = fresh(), fresh()
        metas, memory = [value.meta for value in values], shared_memory(values)
        executable = specialise(graph, metas, memory)
        joined_results = [*executable.run(values), *values]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("server.engine.programs.joins.passes.joined", lambda grouping, uses, outputs: grouping)
            patch.setattr("server.engine.programs.specialise.with_sums_apart", lambda steps, analysis, keys: steps)
            wanted = [*specialise(graph, metas, memory).run(plain), *plain]
        for mine, other in zip(joined_results, wanted, strict=True):
            assert adapter.numpy(mine).tobytes() == adapter.numpy(other).tobytes(), f"{executable.describe()}"
        kinds |= {one.kind for one in joined}
    assert kinds == {NORM, GRADIENTS, SUMS, CASTS, PRODUCTS}


def test_a_residual_sum_is_read_by_its_normalization(adapter: EngineAdapter, joined: list[Joined]) -> None:
    """The sum is made besides where something else reads it, and the result only in the type that is read."""

    def block(x: Value, y: Value, square: Value, weight: Value) -> tuple[Value, ...]:
        total = F.add(x, F.mm(*[F._to_copy(value, dtype=dtypes.bfloat16) for value in (y, square)]))
        normal = F._layer_norm(total, (LENGTH,), weight, weight, 1e-5)[0]
        narrow = F._to_copy(normal, dtype=dtypes.bfloat16)
        return F.sum(total), F.mm(narrow, F.t(narrow))

    fresh = _inputs(adapter)
    check(adapter, traced(block, [value.meta for value in fresh()]), fresh, ALL)
    (norm,) = [one for one in joined if one.kind == NORM]
    assert {role: meta.dtype for role, meta in norm.loads} == {
        "input": dtypes.float32, "weight": dtypes.float32, "bias": dtypes.float32, "other": dtypes.bfloat16
    }  # fmt: skip
    assert [role for role, _ in norm.news] == ["mean", "rstd", "total", "copy"]


def test_gradients_are_added_to_those_of_the_residual_path(adapter: EngineAdapter, joined: list[Joined]) -> None:
    def backward(x: Value, y: Value, square: Value, weight: Value) -> tuple[Value, ...]:
        _, mean, rstd = F._layer_norm(x, (LENGTH,), weight, weight, 1e-5)
        grad = F._to_copy(F._to_copy(F.mm(y, square), dtype=dtypes.bfloat16), dtype=dtypes.float32)
        by_input, by_weight, by_bias = F._layer_norm_gradients(grad, x, mean, rstd, weight, (LENGTH,))
        total = F.add(y, by_input)
        return total, F._to_copy(total, dtype=dtypes.bfloat16), by_weight, by_bias

    fresh = _inputs(adapter)
    graph = traced(backward, [value.meta for value in fresh()])
    check(adapter, graph, fresh, ALL)
    (gradients,) = [one for one in joined if one.kind == GRADIENTS]
    roles = gradients.roles
    assert roles["other"].dtype is dtypes.float32
    assert [role for role, _ in gradients.news] == ["grad_input", "grad_weight", "grad_bias", "copy"]
    assert roles["copy"].dtype is dtypes.bfloat16


@pytest.mark.parametrize("between", ["write", "reader", "alpha", "broadcast"])
def test_what_is_needed_otherwise_stays_alone(adapter: EngineAdapter, joined: list[Joined], between: str) -> None:
    """Sums that are written to, fused with others, scaled or repeated are made before the normalization."""

    def block(x: Value, y: Value, square: Value, weight: Value) -> tuple[Value, ...]:
        total = F.add(x, weight if between == "broadcast" else y, alpha=2 if between == "alpha" else 1)
        if between == "write":
            total.mul_(2)
        if between == "reader":
            square = F.mul(square, F.sum(F.exp(total)))
        return F.mm(F._layer_norm(total, (LENGTH,), weight, weight, 1e-5)[0], square), total

    fresh = _inputs(adapter)
    check(adapter, traced(block, [value.meta for value in fresh()]), fresh, ALL)
    assert not joined


def _products(count: int, trained: bool) -> Callable[..., Any]:
    """Products with as many weights, which are cast before they are used; backward, they are needed once more."""

    def function(x: Value, *weights: Value) -> tuple[Value, ...]:
        halves = []
        for weight in weights:
            halves.append(F._to_copy(weight, dtype=dtypes.bfloat16))
            x = F.mm(x, halves[-1])
        if trained:
            for half in halves[::-1]:
                x = F.mm(x, half)
        return (x,)

    return function


def _grouped(graph: Graph, values: list[Value]) -> tuple[Grouping, Grouping]:
    """The groups of a graph, without and with joined casts."""
    known = {slot: value.meta for slot, value in zip(graph.inputs, values, strict=True)}
    grouping = Grouping(graph.steps, Analysis(graph.steps, known), {CPU: keys.CPU})
    return grouping, join_casts(grouping, graph.outputs)


def _peak(grouping: Grouping, graph: Graph) -> int:
    groups = [group.positions for group in grouping.ordered()]
    return peak_bytes(groups, graph.steps, grouping.analysis, graph.outputs)


@pytest.mark.parametrize("trained", [False, True], ids=["forward", "with a backward pass"])
def test_casts_are_joined_as_memory_allows(adapter: EngineAdapter, trained: bool) -> None:
    """Casts of weights that are held anyway are one kernel; those that are freed one after the other stay apart."""
    values = [adapter.tensor(torch.ones(8, 64, dtype=torch.bfloat16))]
    values += [adapter.tensor(torch.ones(64, 64)) for _ in range(12)]
    graph = traced(_products(12, trained), [value.meta for value in values])
    before, after = _grouped(graph, values)
    sizes = [len(group.positions) for group in after.ordered() if group.kind == CASTS]
    assert sizes == ([12] if trained else [])
    assert _peak(after, graph) <= _peak(before, graph) * 65 // 64


def test_casts_that_wait_for_each_other_are_not_joined(adapter: EngineAdapter, joined: list[Joined]) -> None:
    def function(x: Value, y: Value, square: Value, weight: Value) -> tuple[Value, ...]:
        first = F.sum(F._to_copy(x, dtype=dtypes.bfloat16))
        second = F._to_copy(F.mul(y, F.exp(F.sum(x))), dtype=dtypes.bfloat16)
        third = F._to_copy(F.mm(square, F._to_copy(F.mm(square, square), dtype=dtypes.float32)), dtype=dtypes.float16)
        y.zero_()
        fourth = F._to_copy(y, dtype=dtypes.bfloat16)
        return first, second, third, fourth

    fresh = _inputs(adapter)
    check(adapter, traced(function, [value.meta for value in fresh()]), fresh, ALL)
    for one in joined:
        assert len({meta.dtype for _, meta in one.news}) == 1


@pytest.mark.gpu
@pytest.mark.parametrize("length", [8, 33, 384, 768, 1600, 5000])
@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("rms", [False, True], ids=["layer", "rms"])
def test_joined_norms_on_a_gpu(cuda_device: str, seed: int, length: int, offset: int, rms: bool) -> None:
    """Forward and backward in bfloat16 and float32: what single operations compute, to the bit where no sum is made."""
    adapter = EngineAdapter(cuda_device)
    torch.manual_seed(seed)
    wide, half = torch.float32, torch.bfloat16
    shapes = [((37, length), wide), ((37, length), half), ((37, length), half), ((length,), wide), ((length,), wide)]
    drawn = [torch.randn(*shape).to(dtype) for shape, dtype in shapes]

    def block(x: Value, y: Value, grad: Value, weight: Value, bias: Value) -> tuple[Value, ...]:
        total = F.add(x, y)
        if rms:
            out, *statistics = F._rms_norm(total, (length,), weight, 1e-5)
            name = "_rms_norm_gradients"
        else:
            out, *statistics = F._layer_norm(total, (length,), weight, bias, 1e-5)
            name = "_layer_norm_gradients"
        narrow = F._to_copy(out, dtype=dtypes.bfloat16)
        # a cumulative sum is no part of a chain, which would round once where single operations round twice
        grad = F._to_copy(F.cumsum(F.mul(grad, F.sum(narrow)), 0), dtype=dtypes.float32)
        made = getattr(F, name)(grad, total, *statistics, weight, (length,))
        residual = F.add(made[0], total)
        return total, narrow, *statistics, residual, F._to_copy(residual, dtype=dtypes.bfloat16), *made[1:]

    values = [shifted(adapter, tensor, offset) for tensor in drawn]
    graph = traced(block, [value.meta for value in values])
    executable = specialise(graph, [value.meta for value in values], shared_memory(values))
    fused = executable.describe().fused
    assert any(["_norm" in name for names in fused for name in names]), fused
    plain = specialise(graph, [value.meta for value in values], shared_memory(values), ALL._replace(fuse=False))
    for place, (mine, other) in enumerate(zip(executable.run(values), plain.run(values), strict=True)):
        assert mine.meta is other.meta
        got, wanted = (adapter.numpy(one).astype(np.float64) for one in (mine, other))
        if place < 2:
            np.testing.assert_array_equal(got, wanted)
        else:
            digits = 2.0**-7 if mine.meta.dtype is dtypes.bfloat16 else 1e-5
            np.testing.assert_allclose(got, wanted, rtol=digits, atol=digits * np.abs(wanted).max())


@pytest.mark.gpu
@pytest.mark.parametrize("count", [2, 9, 49, 300])
def test_joined_casts_on_a_gpu(cuda_device: str, seed: int, count: int) -> None:
    """Tensors of all sizes, aligned and not, to half precision and back, equal to the bit."""
    adapter, rng = EngineAdapter(cuda_device), random.Random(seed)
    torch.manual_seed(seed)
    drawn = [torch.randn(rng.choice((1, 3, 8, 1000, 4096, 70_001))) for _ in range(count)]
    values = [shifted(adapter, tensor, rng.choice((0, 0, 1, 4))) for tensor in drawn]

    def function(*given: Value) -> tuple[Value, ...]:
        narrow = [F._to_copy(value, dtype=dtypes.bfloat16) for value in given]
        return *narrow, *[F._to_copy(F.cumsum(value, 0), dtype=dtypes.float32) for value in narrow]

    graph = traced(function, [value.meta for value in values])
    executable = specialise(graph, [value.meta for value in values], shared_memory(values))
    fused = executable.describe().fused
    assert {name for names in fused for name in names} == {"_to_copy"} and len(fused) < 2 * count
    plain = specialise(graph, [value.meta for value in values], shared_memory(values), ALL._replace(fuse=False))
    for mine, other in zip(executable.run(values), plain.run(values), strict=True):
        np.testing.assert_array_equal(adapter.numpy(mine), adapter.numpy(other))

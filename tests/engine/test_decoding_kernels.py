"""How many kernels a decoded token takes on a GPU, and what is not joined: looked at without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

pytest.importorskip("cuda.bindings.nvrtc")

from server.engine import context, keys
from server.engine import functional as F
from server.engine.cuda import families
from server.engine.cuda.runtime.launch import collecting
from server.engine.cuda.texts import DEVICE, DescribedDevice
from server.engine.programs.analysis import Analysis
from server.engine.programs.expansion import traced
from server.engine.programs.grouping import Grouping
from server.engine.programs.joins.norms import join_norms
from server.engine.programs.joins.products import join_products
from server.engine.programs.joins.uses import Uses
from server.engine.programs.joins.writes import join_writes
from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta

from .cuda_registrations import registrations, withdraw

_ = registrations
families.import_families()
withdraw()
WIDTH, HEADS, PLACES = 64, 4, 32
HALF = dtypes.bfloat16


@pytest.fixture(autouse=True)
def described() -> Iterator[None]:
    """A session of a described GPU."""
    before = context.current
    context.activate(context.Context({DEVICE: DescribedDevice()}))  # type: ignore[dict-item]
    with collecting("sm_90"):
        yield
    context.activate(before)


def _of(*shape: int, dtype: Any = HALF) -> Meta:
    return Meta.of(shape, dtype, DEVICE)


def _kernels(function: Callable[..., Any], metas: Sequence[Meta]) -> list[str]:
    """The operations of each kernel, after its kind where steps are joined."""
    graph = traced(function, metas)
    analysis = Analysis(graph.steps, dict(zip(graph.inputs, metas)), {s: n for n, s in enumerate(graph.inputs)})
    uses = Uses(graph.steps, analysis, graph.outputs)
    grouping = join_products(Grouping(graph.steps, analysis, {DEVICE: keys.CUDA}), uses)
    join_norms(grouping, uses)
    join_writes(grouping)
    told = []
    for group in grouping.ordered():
        operators = [graph.steps[p].operator.op for p in group.positions]
        if len(operators) > 1 or operators[0].view_of is None:
            told.append(" ".join([*([f"{group.kind}:"] if group.kind else []), *[op.name for op in operators]]))
    return told


def _attended(q: Any, new: Sequence[Any], caches: Sequence[Any], index: Any, mask: Any) -> Any:
    for cache, one in zip(caches, new, strict=True):
        cache.index_copy_(2, index, one)
    mixed = F.scaled_dot_product_attention(q, *caches, mask)
    return F.reshape(F.transpose(mixed, 1, 2), (1, 1, WIDTH))


def _by_heads(rows: Any) -> Any:
    return F.transpose(F.reshape(rows, (1, 1, HEADS, -1)), 1, 2)


CACHES = [_of(1, HEADS, PLACES, WIDTH // HEADS)] * 2 + [_of(1, dtype=dtypes.int64), _of(1, PLACES, dtype=dtypes.bool_)]


def test_a_block_in_the_shape_of_gpt_is_six_kernels() -> None:
    def block(x: Any, norm: Any, shift: Any, qkv: Any, of_qkv: Any, out: Any, up: Any, down: Any, *cache: Any) -> Any:
        normal = F._layer_norm(x, (WIDTH,), norm, shift, 1e-5)[0]
        q, k, v = [_by_heads(part) for part in F.chunk(F.linear(normal, qkv, of_qkv), 3, 2)]
        x = F.add(x, F.linear(_attended(q, (k, v), cache[:2], *cache[2:]), out, shift))
        inner = F.gelu(F.linear(F._layer_norm(x, (WIDTH,), norm, shift, 1e-5)[0], up), approximate="tanh")
        return F.add(x, F.linear(inner, down, shift))

    weights = [_of(WIDTH)] * 2 + [_of(3 * WIDTH, WIDTH), _of(3 * WIDTH), _of(WIDTH, WIDTH)]
    assert _kernels(block, [_of(1, 1, WIDTH), *weights, _of(256, WIDTH), _of(WIDTH, 256), *CACHES]) == [
        "products: _layer_norm linear", "writes: index_copy_ index_copy_", "_attention", "products: linear add",
        "products: _layer_norm linear gelu", "products: linear add",
    ]  # fmt: skip


def test_a_gated_block_with_three_products_of_the_same_rows_is_six_kernels() -> None:
    def block(x: Any, norm: Any, q: Any, k: Any, v: Any, out: Any, gate: Any, up: Any, down: Any, *cache: Any) -> Any:
        normal = F._rms_norm(x, (WIDTH,), norm, 1e-6)[0]
        query, *new = [_by_heads(F.linear(normal, weight)) for weight in (q, k, v)]
        x = F.add(x, F.linear(_attended(query, new, cache[:2], *cache[2:]), out))
        normal = F._rms_norm(x, (WIDTH,), norm, 1e-6)[0]
        return F.add(x, F.linear(F.mul(F.silu(F.linear(normal, gate)), F.linear(normal, up)), down))

    weights = [_of(WIDTH), *[_of(WIDTH, WIDTH)] * 4, *[_of(176, WIDTH)] * 2, _of(WIDTH, 176)]
    assert _kernels(block, [_of(1, 1, WIDTH), *weights, *CACHES]) == [
        "products: _rms_norm linear linear linear", "writes: index_copy_ index_copy_", "_attention",
        "products: linear add", "products: _rms_norm linear silu linear mul", "products: linear add",
    ]  # fmt: skip


def _rows(x: Any, norm: Any) -> Any:
    return F._layer_norm(x, (WIDTH,), norm, norm, 1e-5)[0]


def _read_twice(x: Any, w: Any, norm: Any) -> Any:
    rows = _rows(x, norm)
    return F.add(rows, F.linear(rows, w))


def _wanted(x: Any, w: Any, norm: Any) -> Any:
    rows = _rows(x, norm)
    return F.linear(rows, w), rows


def _overwritten(x: Any, w: Any, norm: Any) -> Any:
    return x.add_(F.linear(x, w))


def _one_after_the_other(x: Any, w: Any, norm: Any) -> Any:
    return F.add(F.linear(F.linear(x, w), w), F.linear(x, w))


def _weights_are_made(x: Any, w: Any, norm: Any) -> Any:
    made = F.linear(x, w)
    w.mul_(2)
    return F.add(made, F.linear(x, w))


@pytest.mark.parametrize(
    "function, expected",
    [
        (_read_twice, ["_layer_norm", "products: linear add"]), (_wanted, ["_layer_norm", "linear"]),
        (_overwritten, ["linear", "add_"]),
        (_one_after_the_other, ["products: linear linear", "products: linear add"]),
        (_weights_are_made, ["linear", "mul_", "products: linear add"]),
    ],
    ids=lambda one: one.__name__.strip("_") if callable(one) else "",
)  # fmt: skip
def test_what_others_read_or_overwrite_stays_apart(function: Any, expected: list[str]) -> None:
    assert _kernels(function, [_of(1, WIDTH), _of(WIDTH, WIDTH), _of(WIDTH)]) == expected


@pytest.mark.parametrize("rows, dtype", [(3, HALF), (5, dtypes.float32), (1, dtypes.float64)], ids=str)
def test_products_of_more_rows_or_other_types_are_those_of_libraries(rows: int, dtype: Any) -> None:
    metas = [_of(rows, WIDTH, dtype=dtype), _of(WIDTH, WIDTH, dtype=dtype), _of(WIDTH, dtype=dtype)]
    kernels = _kernels(lambda x, w, norm: F.relu(F.linear(_rows(x, norm), w)), metas)
    assert kernels == ["_layer_norm", "linear", "relu"]


def test_a_chosen_library_computes_products(monkeypatch: pytest.MonkeyPatch) -> None:
    switches = context.current.switches
    monkeypatch.setattr(context.current, "switches", switches.of({"preferred_blas_library": "cublaslt"}))
    assert _kernels(lambda x, w: F.relu(F.linear(x, w)), [_of(1, WIDTH), _of(WIDTH, WIDTH)]) == ["linear", "relu"]


def _same_cache(cache: Any, other: Any, index: Any, new: Any) -> Any:
    cache.index_copy_(2, index, new)
    return cache.index_copy_(2, index, F.mul(new, 2))


def _one_reads_the_other(cache: Any, other: Any, index: Any, new: Any) -> Any:
    cache.index_copy_(2, index, new)
    return other.index_copy_(2, index, F.narrow(cache, 2, 0, 1))


@pytest.mark.parametrize("function", [_same_cache, _one_reads_the_other])
def test_writes_that_depend_on_each_other_stay_apart(function: Any) -> None:
    kernels = _kernels(function, [*CACHES[:3], _of(1, HEADS, 1, WIDTH // HEADS)])
    assert [name for name in kernels if "index_copy_" in name] == ["index_copy_"] * 2

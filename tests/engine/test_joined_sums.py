"""Which sums over rows, and which gradients of attention, are made by the kernels of other steps; no GPU is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

pytest.importorskip("cuda.bindings.nvrtc")

from server.engine import functional as F
from server.engine.cuda import families
from server.engine.cuda.attention import choices, parts
from server.engine.cuda.rows import column_sums
from server.engine.cuda.runtime.launch import collecting
from server.engine.cuda.texts import DEVICE
from server.engine.programs.expansion import traced
from server.engine.programs.joined import GRADIENTS, PARTS, SUMS, WEIGHTS, Joined
from server.engine.programs.specialise import ALL, specialise
from server.engine.value import Value
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import Meta

from ..ops.adapters import EngineAdapter
from .cuda_registrations import registrations, withdraw
from .joined_steps import ExecutorDevice, join_on_the_host
from .test_program_passes import check

_ = registrations
families.import_families()
withdraw()
ROWS, LENGTH = 6, 24
HEADS, WIDTH = 2, 8


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[Joined]:
    """What is joined, and executed by the roles that it has."""
    return join_on_the_host(monkeypatch)


def _drawn(adapter: EngineAdapter, seed: int, *shapes: tuple[int, ...]) -> Callable[[], list[Value]]:
    torch.manual_seed(seed)
    tensors = [torch.randn(shape) for shape in shapes]
    return lambda: [adapter.tensor(tensor.clone()) for tensor in tensors]


@pytest.mark.parametrize("way", ["joined", "alone", "written", "columns", "wider", "viewed"])
def test_a_sum_is_joined_where_its_rows_are_made(
    adapter: EngineAdapter, seed: int, joined: list[Joined], way: str
) -> None:
    """Unless nobody else wants the rows, something writes to them in between, or it is another sum."""

    def function(x: Value, square: Value) -> tuple[Value, ...]:
        made = F.exp(F.mul(x, 0.5))
        product = F.mm(made, square) if way != "alone" else square
        if way == "written":
            made.mul_(product)
        source = F.reshape(made, (2, ROWS // 2, LENGTH)) if way == "viewed" else made
        dims = (1,) if way == "columns" else tuple(range(source.ndim - 1))
        return product, F.sum(source, dims, dtype=dtypes.float64 if way == "wider" else None)

    fresh = _drawn(adapter, seed, (ROWS, LENGTH), (LENGTH, LENGTH))
    metas = [value.meta for value in fresh()]
    results = specialise(traced(function, metas), metas).run(fresh())
    assert [one.kind for one in joined] == ([SUMS] if way == "joined" else [])
    expected = function(*fresh())
    for mine, other in zip(results, expected, strict=True):
        torch.testing.assert_close(*[torch.from_numpy(adapter.numpy(one)) for one in (mine, other)])


@pytest.mark.parametrize("asked", ["all", "weight", "bias"])
def test_a_layers_bias_gradient_is_a_sum_where_that_is_joined(
    adapter: EngineAdapter, seed: int, joined: list[Joined], asked: str
) -> None:
    """Whatever other gradients the layer is asked for; a gradient that comes from outside is summed by the layer."""

    def function(grad: Value, x: Value, weight: Value) -> tuple[Value, ...]:
        by_relu = F._relu_backward(grad, x)
        input, weight_ = {"all": (x, weight), "weight": (x, None), "bias": (None, None)}[asked]
        first = F._linear_backward(by_relu, input, weight_, True)
        return F.mul(by_relu, 2), *first, *F._linear_backward(grad, input, weight_, True)

    fresh = _drawn(adapter, seed, (2, ROWS, LENGTH), (2, ROWS, LENGTH), (LENGTH, LENGTH))
    check(adapter, traced(function, [value.meta for value in fresh()]), fresh, ALL)
    assert [one.kind for one in joined] == ([SUMS] if asked == "bias" else [SUMS, WEIGHTS])


def test_a_normalizations_gradient_is_summed_in_the_type_that_it_has_last(
    adapter: EngineAdapter, seed: int, joined: list[Joined]
) -> None:
    def function(grad: Value, x: Value, weight: Value, square: Value) -> tuple[Value, ...]:
        _, mean, rstd = F._layer_norm(x, (LENGTH,), weight, weight, 1e-5)
        by_input, by_weight, by_bias = F._layer_norm_gradients(grad, x, mean, rstd, weight, (LENGTH,))
        narrow = F._to_copy(by_input, dtype=dtypes.bfloat16)
        return *F._linear_backward(narrow, None, F._to_copy(square, dtype=dtypes.bfloat16), True), by_weight, by_bias

    fresh = _drawn(adapter, seed, (ROWS, LENGTH), (ROWS, LENGTH), (LENGTH,), (LENGTH, LENGTH))
    check(adapter, traced(function, [value.meta for value in fresh()]), fresh, ALL)
    (gradients,) = [one for one in joined if one.kind == GRADIENTS]
    assert [role for role, _ in gradients.news] == ["grad_weight", "grad_bias", "copy", "sums"]
    assert gradients.roles["sums"].dtype is dtypes.bfloat16


def _attended(way: str) -> Callable[..., Any]:
    """The gradients of attention put together in some way."""

    def function(product: Value, grad: Value) -> tuple[Value, ...]:
        n, t, _ = product.shape
        width = HEADS * WIDTH
        rows = F.split(product, width, 2)
        operands = [F.transpose(F.reshape(one, (n, t, HEADS, WIDTH)), 1, 2) for one in rows]
        output, statistic = F._attention(*operands, None, True, 0.5, True)
        made = F._attention_backward(grad, *operands, None, output, statistic, True, 0.5)
        if way == "written":
            made[1].mul_(2)
        seen = [F.reshape(F.transpose(one, 1, 2), (n, t, width)) for one in made]
        if way == "two":
            seen = seen[:2]
        if way == "twice":
            seen[2] = seen[1]
        whole = F.cat(tuple(seen), 1 if way == "below" else 2)
        return (whole, seen[0]) if way == "output" else (whole, F.exp(made[2])) if way == "reader" else (whole,)

    return function


@pytest.mark.parametrize("way", ["joined", "written", "two", "twice", "below", "output", "reader"])
def test_attention_makes_its_gradients_side_by_side_where_nothing_else_sees_them(
    adapter: EngineAdapter, seed: int, joined: list[Joined], way: str
) -> None:
    fresh = _drawn(adapter, seed, (2, 5, 3 * HEADS * WIDTH), (2, HEADS, 5, WIDTH))
    check(adapter, traced(_attended(way), [value.meta for value in fresh()]), fresh, ALL)
    assert [one.kind for one in joined] == ([PARTS] if way == "joined" else [])


def _gelu(dtype: DType, shape: tuple[int, ...]) -> Joined:
    described = column_sums._example("_gelu_backward", ("tanh",), dtype, shape[-1])
    kernel, _ = described.attributes
    meta = Meta.of(shape, dtype, described.device)
    kernel = kernel._replace(shape=shape, loads=(meta, meta), news=tuple([(r, meta) for r, _ in kernel.news]))
    return described._replace(attributes=(kernel, 0))


def test_kernels_take_what_pays() -> None:
    """Many elements, of one shape and in order."""
    many = (1 << 14, 256)
    assert column_sums.takes(_gelu(dtypes.bfloat16, many))
    assert not column_sums.takes(_gelu(dtypes.bfloat16, (64, 256)))
    assert not column_sums.takes(_gelu(dtypes.float64, many))
    full = _gelu(dtypes.float32, many)
    kernel, meta = full.attributes[0], full.attributes[0].loads[0]
    for other in (meta.like((256,)), Meta.of(many, meta.dtype, meta.device, (1, many[0]))):
        loads = (meta, other)
        assert not column_sums.takes(full._replace(attributes=(kernel._replace(loads=loads), 0)))
    assert not column_sums.takes(full._replace(attributes=(kernel._replace(stores=((0, kernel.news[0][0]),)), 0)))


def _parts(dtype: DType, width: int) -> tuple[Joined, list[Meta]]:
    """Attention's gradients as parts, and the operands that are such parts of another tensor."""
    n, t = 2, 5
    whole = Meta.of((n, t, 3 * HEADS * width), dtype, DEVICE)
    strides = (3 * t * HEADS * width, width, 3 * HEADS * width, 1)
    places = [place * HEADS * width for place in range(3)]
    query, key, value = [Meta.of((n, HEADS, t, width), dtype, DEVICE, strides, place) for place in places]
    output = Meta.of((n, HEADS, t, width), dtype, DEVICE, (t * HEADS * width, width, HEADS * width, 1))
    statistic = Meta.of((n, HEADS, t), dtypes.float32, DEVICE)
    loads = {
        "grad_output": output, "query": query, "key": key, "value": value, "output": output, "logsumexp": statistic
    }  # fmt: skip
    attributes = (True, 0.5, (0, 1, 2))
    described = Joined(PARTS, "_attention_backward", attributes, tuple(loads.items()), (("out", whole),))
    return described, [query, key, value]


@pytest.mark.parametrize(("dtype", "width", "is_taken"), [
    (dtypes.bfloat16, 64, True), (dtypes.bfloat16, 12, True), (dtypes.float32, 12, True), (dtypes.float32, 256, False),
])  # fmt: skip
def test_parts_lie_side_by_side(dtype: DType, width: int, is_taken: bool) -> None:
    described, operands = _parts(dtype, width)
    assert parts.takes(described) is is_taken
    assert parts._parts(described) == operands
    masked = described._replace(loads=(*described.loads, ("attn_mask", operands[0])))
    assert not parts.takes(masked)


def test_layers_that_are_alike_share_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that all of them have a plan once it has paid for itself; what is only collected is not kept."""
    device, described = ExecutorDevice(), _parts(dtypes.float32, 32)[0]
    asked: list[Any] = []

    def gradients(request: Any, by_cudnn: Any) -> Any:
        asked.append(request)
        return lambda args, outs: None

    monkeypatch.setattr(choices, "gradients", gradients)
    with collecting("sm_90"):
        parts.makes(device, described)  # type: ignore[arg-type]
    assert len(asked) == 1
    for _ in range(3):
        parts.makes(device, described)  # type: ignore[arg-type]
    assert len(asked) == 2

"""Indexing kernels of the GPU against the host: values, gradients, layouts, and indices out of range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from telegrad_protocol.errors import IndexOutOfRangeError

from .adapters import TORCH_TO_OURS, EngineAdapter, to_torch
from .harness import assert_close, flatten

pytestmark = pytest.mark.gpu

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
DTYPES = [*FLOATS, torch.complex64, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool]


@pytest.fixture(scope="module")
def engine(cuda_device: str) -> EngineAdapter:
    return EngineAdapter(cuda_device)


@pytest.fixture(autouse=True)
def seeded(engine: EngineAdapter) -> None:
    engine.activate()


def numbers(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=torch.complex128 if dtype.is_complex else torch.float64).to(dtype)
    return torch.randint(0, 2 if dtype is torch.bool else 50, shape).to(dtype)


def views(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The same elements aligned, misaligned, transposed in memory, and with gaps."""
    holder = torch.empty(tensor.numel() + 1, dtype=tensor.dtype)
    shifted = holder[1:].view(tensor.shape).copy_(tensor)
    gaps = torch.empty((*tensor.shape, 2), dtype=tensor.dtype)[..., 1].copy_(tensor)
    turned = tensor.clone().t().contiguous().t() if tensor.ndim == 2 else tensor.clone()
    return [tensor, shifted, turned, gaps]


def check(engine: EngineAdapter, mine: Callable[..., Any], theirs: Callable[..., Any], *inputs: torch.Tensor) -> None:
    """The same in PyTorch on the host, for every layout of the first input; with gradients for floating types."""
    dtype = inputs[0].dtype
    for first in views(inputs[0]):
        given = [first, *inputs[1:]]
        leaves = [x.detach().clone().requires_grad_(x.dtype in FLOATS) for x in given]
        wide = [x.double() if x.dtype in (torch.float16, torch.bfloat16) else x for x in leaves]
        expected = theirs(*wide)
        values = [engine.tensor(x, x.dtype in FLOATS) for x in given]
        found = mine(*values)
        for result, reference in zip(flatten(found), flatten(expected), strict=True):
            assert_close(to_torch(engine.numpy(result)), reference.detach().to(dtype), "result", sums=True)
        if dtype in FLOATS:
            grad = torch.randn(expected.shape).to(dtype)
            wanted = [x for x in leaves if x.requires_grad]
            gradients = torch.autograd.grad(expected, wanted, grad.to(expected.dtype), allow_unused=True)
            mine_wanted = [v for v, x in zip(values, leaves, strict=True) if x.requires_grad]
            for result, reference in zip(
                engine.grad([found], [engine.tensor(grad)], mine_wanted, False), gradients, strict=True
            ):
                if reference is not None:
                    assert_close(to_torch(engine.numpy(result)), reference.to(dtype), "gradient", sums=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("shape", [(7, 5), (40, 64), (3, 129)])
def test_reading_along_a_dimension(
    engine: EngineAdapter, shape: tuple[int, int], kind: torch.dtype, dtype: torch.dtype
) -> None:
    functional = engine.functional
    # ruff: noqa: B023  (each function is called before its variables change)
    for dim in (0, 1):
        index = torch.randint(0, shape[dim], (11,)).to(kind)
        spread = torch.randint(0, shape[dim], (shape[0], 2) if dim else (3, shape[1])).to(kind)
        one, many = engine.tensor(index), engine.tensor(spread)
        check(
            engine,
            lambda x: functional.index_select(x, dim, one),
            lambda x: torch.index_select(x, dim, index),
            numbers(shape, dtype),
        )
        check(
            engine,
            lambda x: functional.gather(x, dim, many),
            lambda x: torch.gather(x, dim, spread.long()),
            numbers(shape, dtype),
        )
    flat = torch.randint(-shape[0] * shape[1], shape[0] * shape[1], (4, 3)).to(kind)
    check(
        engine,
        lambda x: functional.take(x, engine.tensor(flat)),
        lambda x: torch.take(x, flat.long()),
        numbers(shape, dtype),
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_indexing_with_several_tensors(engine: EngineAdapter, dtype: torch.dtype) -> None:
    x = numbers((6, 5, 8), dtype)
    rows, columns = torch.randint(-6, 6, (4, 1)), torch.randint(-5, 5, (3,))
    last = torch.randint(-8, 8, (3,)).to(torch.int32)
    for key in (
        (rows, columns, None),
        (None, rows % 5, last),
        (rows, None, last),
        (rows, None, None),
        (rows, columns, last),
    ):
        theirs = tuple(slice(None) if k is None else k.long() for k in key)
        mine = [None if k is None else engine.tensor(k) for k in key]
        check(engine, lambda x: engine.functional.index(x, mine), lambda x: x[theirs], x)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("width", [1, 3, 64, 1000, 1024, 5000])
@pytest.mark.parametrize("by_count", [False, True])
def test_embedding(engine: EngineAdapter, by_count: bool, width: int, dtype: torch.dtype) -> None:
    table = numbers((50, width), dtype)
    index = torch.randint(0, 50, (9, 31))
    index[3:7] = 17  # so many that they fill chunks
    index[8, 30] = 0
    check(
        engine,
        lambda w: engine.functional.embedding(engine.tensor(index), w, 4, scale_grad_by_freq=by_count),
        lambda w: torch.nn.functional.embedding(index, w, 4, scale_grad_by_freq=by_count),
        table,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_gradient_of_an_embedding_is_the_same_each_time(engine: EngineAdapter, dtype: torch.dtype) -> None:
    grad, index = engine.tensor(torch.randn(20_000, 96).to(dtype)), engine.tensor(torch.randint(0, 64, (20_000,)))
    results = {
        engine.numpy(engine.functional.embedding_dense_backward(grad, index, 64, -1, False)).tobytes() for _ in range(5)
    }
    assert len(results) == 1


@pytest.mark.parametrize("count", [70, 3_000, 20_000])
@pytest.mark.parametrize("rows", [1, 200, 256, 257, 65_537])
@pytest.mark.parametrize("kind", [torch.int64, torch.int32], ids=str)
def test_the_gradient_of_an_embedding_of_so_many_rows(
    engine: EngineAdapter, kind: torch.dtype, rows: int, count: int
) -> None:
    index = torch.randint(0, rows, (count,)).to(kind)
    index[:3] = torch.tensor([rows - 1, 0, rows - 1])
    mine, given = engine.tensor(index), numbers((count, 4), torch.float32)
    check(
        engine, lambda grad: engine.functional.embedding_dense_backward(grad, mine, rows, -1, False),
        lambda grad: torch.zeros(rows, 4, dtype=grad.dtype).index_add(0, index, grad), given,
    )  # fmt: skip


@pytest.mark.parametrize("count", [3_000, 20_000])
def test_an_index_far_out_of_range_is_reported_among_many(engine: EngineAdapter, count: int) -> None:
    for bad in (300 + 256, 300 + 65_536, -1, -(1 << 40)):
        index = torch.randint(0, 300, (count,))
        index[int(torch.randint(0, count, ()))] = bad
        grad = engine.tensor(torch.randn(count, 4))
        with pytest.raises(IndexOutOfRangeError, match=str(bad)):
            engine.numpy(engine.functional.embedding_dense_backward(grad, engine.tensor(index), 300, -2, False))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(7, 5), (40, 64)])
def test_writing_along_a_dimension(engine: EngineAdapter, shape: tuple[int, int], dtype: torch.dtype) -> None:
    functional = engine.functional
    for dim in (0, 1):
        size = shape[dim]
        own = torch.stack([torch.randperm(size) for _ in range(shape[1 - dim])], 1 - dim)[: shape[0], : shape[1]]
        often = torch.randint(0, max(size // 2, 1), shape)
        source = numbers(shape, dtype)
        for name, index in (("scatter", own), ("scatter_add", often)):
            mine = engine.tensor(index)
            check(
                engine, lambda x, s: getattr(functional, name)(x, dim, mine, s),
                lambda x, s: getattr(torch, name)(x, dim, index, s), numbers(shape, dtype), source,
            )  # fmt: skip
        part = torch.randperm(size)[: size // 2 + 1]
        lengths = list(shape)
        lengths[dim] = len(part)
        parts, mine = numbers(tuple(lengths), dtype), engine.tensor(part.to(torch.int32))
        for name in ("index_copy", "index_add"):
            check(
                engine, lambda x, s: getattr(functional, name)(x, dim, mine, s),
                lambda x, s: getattr(torch, name)(x, dim, part, s), numbers(shape, dtype), parts,
            )  # fmt: skip
        check(
            engine, lambda x: functional.index_fill(x, dim, mine, 1), lambda x: x.index_fill(dim, part, 1),
            numbers(shape, dtype),
        )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize(("shape", "dim"), [((7, 192), 0), ((3, 7, 256), 1), ((3, 7, 256), 0), ((2, 3, 4, 128), -2)])
def test_columns_with_indices_of_their_own(
    engine: EngineAdapter, shape: tuple[int, ...], dim: int, dtype: torch.dtype
) -> None:
    functional = engine.functional
    own = torch.rand(shape).argsort(dim)
    often = torch.randint(0, shape[dim], shape)
    source = numbers(shape, dtype)
    chosen, many = engine.tensor(own), engine.tensor(often)
    check(engine, lambda x: functional.gather(x, dim, many), lambda x: x.gather(dim, often), numbers(shape, dtype))
    check(
        engine, lambda x, s: functional.scatter(x, dim, chosen, s), lambda x, s: x.scatter(dim, own, s),
        numbers(shape, dtype), source,
    )  # fmt: skip
    check(
        engine, lambda x, s: functional.scatter_add(x, dim, many, s), lambda x, s: x.scatter_add(dim, often, s),
        numbers(shape, dtype), source,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8], ids=str)
@pytest.mark.parametrize(("shape", "dim"), [((9, 4096), 0), ((3, 9, 2048), 1), ((9, 2, 8192), 0), ((2, 9, 6144), -2)])
def test_wide_rows(engine: EngineAdapter, shape: tuple[int, ...], dim: int, dtype: torch.dtype) -> None:
    functional, part = engine.functional, torch.randperm(9)[:5]
    mine, lengths = engine.tensor(part), list(shape)
    lengths[dim] = 5
    rows = numbers(tuple(lengths), dtype)
    check(
        engine, lambda x: functional.index_select(x, dim, mine), lambda x: x.index_select(dim, part),
        numbers(shape, dtype),
    )  # fmt: skip
    for name in ("index_copy", "index_add"):
        check(
            engine, lambda x, s: getattr(functional, name)(x, dim, mine, s),
            lambda x, s: getattr(torch, name)(x, dim, part, s), numbers(shape, dtype), rows,
        )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("width", [129, 256, 5000])
@pytest.mark.parametrize("kind", [torch.int64, torch.int32], ids=str)
def test_many_rows_of_half_precision_are_added_up_without_rounding_between(
    engine: EngineAdapter, kind: torch.dtype, width: int, dtype: torch.dtype
) -> None:
    functional, count = engine.functional, (1 << 18) // width + 2500
    index = torch.randint(-9, 9, (count,)).to(kind)
    index[100:2100] = 4
    x, rows = numbers((9, width), dtype), numbers((count, width), dtype)
    spaced = torch.stack([index, index], 1)
    for given in (engine.tensor(index), functional.select(engine.tensor(spaced), 1, 0)):
        found = functional.index_put(engine.tensor(x), [given], engine.tensor(rows), True)
        expected = x.double().index_put([index.long()], rows.double(), True)
        assert_close(to_torch(engine.numpy(found)), expected.to(dtype), "index_put", sums=True)
    known = engine.tensor(index % 9)
    found = functional.index_add(engine.tensor(x), 0, known, engine.tensor(rows), alpha=-0.5)
    expected = x.double().index_add(0, index % 9, rows.double(), alpha=-0.5)
    assert_close(to_torch(engine.numpy(found)), expected.to(dtype), "index_add", sums=True)
    ones = functional.index_add(engine.tensor(x * 0), 0, known, engine.tensor(torch.ones_like(rows)))
    assert_close(to_torch(engine.numpy(ones))[:, 0], (index % 9).bincount(minlength=9).to(dtype), "counts")
    index[7] = 9
    with pytest.raises(IndexOutOfRangeError, match="9"):
        engine.numpy(functional.index_put(engine.tensor(x), [engine.tensor(index)], engine.tensor(rows), True))


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin", "mean"])
@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int16, torch.uint8],
    ids=str,
)
def test_scatter_reduce(engine: EngineAdapter, dtype: torch.dtype, reduce: str, include_self: bool) -> None:
    index = torch.randint(0, 6, (8, 33))
    x, source = numbers((8, 33), dtype), numbers((8, 33), dtype)
    if reduce == "prod" and dtype not in FLOATS:
        source %= 3
    mine = engine.functional.scatter_reduce(
        engine.tensor(x), 0, engine.tensor(index), engine.tensor(source), reduce, include_self=include_self
    )
    wide = torch.float64 if dtype in FLOATS else dtype
    expected = torch.scatter_reduce(x.to(wide), 0, index, source.to(wide), reduce, include_self=include_self)
    assert_close(to_torch(engine.numpy(mine)), expected.to(dtype), "result", 4, sums=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put_and_put(engine: EngineAdapter, accumulate: bool, dtype: torch.dtype) -> None:
    functional = engine.functional
    rows = torch.tensor([0, -1, 2, 3])
    columns = torch.tensor([[1], [3], [-1]])
    for values in (numbers((3, 4, 8), dtype), numbers((8,), dtype)):
        check(
            engine,
            lambda x, v: functional.index_put(x, [engine.tensor(rows), engine.tensor(columns)], v, accumulate),
            lambda x, v: x.index_put([rows, columns], v, accumulate), numbers((6, 5, 8), dtype), values,
        )  # fmt: skip
    places = torch.tensor([[1, -2], [7, 5]])
    check(
        engine,
        lambda x, v: functional.put(x, engine.tensor(places), v, accumulate),
        lambda x, v: x.put(places, v, accumulate),
        numbers((5, 3), dtype),
        numbers((4,), dtype),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int16], ids=str)
def test_in_place_on_views(engine: EngineAdapter, dtype: torch.dtype) -> None:
    index, source = torch.randint(0, 9, (9, 5)), numbers((9, 5), dtype)
    for name in ("scatter_add_", "scatter_"):
        chosen = index if name == "scatter_add_" else torch.stack([torch.randperm(9) for _ in range(5)], 1)
        base = numbers((9, 12), dtype)
        value, expected = engine.tensor(base), base.clone()
        part = engine.functional.narrow(value, 1, 3, 5)
        getattr(engine.functional, name)(part, 0, engine.tensor(chosen), engine.tensor(source))
        wide = expected.double() if dtype.is_floating_point else expected
        getattr(wide[:, 3:8], name)(0, chosen, source.to(wide.dtype))
        assert_close(to_torch(engine.numpy(value)), wide.to(dtype), name, sums=True)
    square = engine.tensor(torch.arange(25.0).view(5, 5))
    engine.functional.scatter_(square, 0, engine.tensor(torch.tensor([[4, 3, 2, 1, 0]])), square)
    expected = torch.arange(25.0).view(5, 5).scatter(0, torch.tensor([[4, 3, 2, 1, 0]]), torch.arange(25.0).view(5, 5))
    assert_close(to_torch(engine.numpy(square)), expected, "source and target are one")


def test_one_hot_and_empty_indices(engine: EngineAdapter) -> None:
    numbers_ = torch.randint(0, 7, (4, 9))
    found = engine.functional.one_hot(engine.tensor(numbers_), 7)
    assert_close(to_torch(engine.numpy(found)), torch.nn.functional.one_hot(numbers_, 7), "one_hot")
    nothing = engine.tensor(torch.empty(0, dtype=torch.int64))
    x = engine.tensor(torch.randn(3, 4))
    assert engine.functional.index_select(x, 0, nothing).shape == (0, 4)
    assert engine.functional.gather(x, 0, engine.tensor(torch.empty(0, 4, dtype=torch.int64))).shape == (0, 4)
    same = engine.functional.index_add(x, 0, nothing, engine.tensor(torch.empty(0, 4)))
    np.testing.assert_array_equal(engine.numpy(same), engine.numpy(x))


CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "embedding": lambda F, x, i: F.embedding(i, x),
    "index_select": lambda F, x, i: F.index_select(x, 0, i),
    "gather": lambda F, x, i: F.gather(x, 0, F.unsqueeze(i, 1)),
    "take": lambda F, x, i: F.take(x, F.mul(i, 3)),
    "index": lambda F, x, i: F.index(x, [i]),
    "scatter": lambda F, x, i: F.scatter(x, 0, F.unsqueeze(i, 1), F.ones_like(x)),
    "scatter_add": lambda F, x, i: F.scatter_add(x, 0, F.unsqueeze(i, 1), F.ones_like(x)),
    "index_add": lambda F, x, i: F.index_add(x, 0, i, F.index_select(x, 0, F.zeros_like(i))),
    "index_copy": lambda F, x, i: F.index_copy(x, 0, i, F.index_select(x, 0, F.zeros_like(i))),
    "index_fill": lambda F, x, i: F.index_fill(x, 0, i, 2.0),
    "index_put": lambda F, x, i: F.index_put(x, [i], 1.0, True),
    "cross_entropy": lambda F, x, i: F.cross_entropy(F.expand(F.select(x, 0, 0), (3, 3)), i),
    "nll_loss": lambda F, x, i: F.nll_loss(F.expand(F.select(x, 0, 0), (3, 3)), i),
    "embedding_dense_backward": lambda F, x, i: F.embedding_dense_backward(
        F.index_select(x, 0, F.zeros_like(i)), i, 5, -1, False
    ),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("bad", [1000, -1000])
def test_an_index_out_of_range_is_reported_when_a_value_is_read(engine: EngineAdapter, name: str, bad: int) -> None:
    x, index = engine.tensor(torch.randn(5, 3)), engine.tensor(torch.tensor([1, bad, 2]))
    with pytest.raises(IndexOutOfRangeError, match=str(bad if name != "take" else 3 * bad)):
        engine.numpy(CALLS[name](engine.functional, x, index))
    good = engine.tensor(torch.tensor([1, 0, 2]))
    assert engine.numpy(CALLS[name](engine.functional, x, good)) is not None


@pytest.mark.parametrize("name", ["index_add_", "index_fill_", "index_copy_", "index_put_"])
def test_nothing_is_written_in_place_where_an_index_is_out_of_range(engine: EngineAdapter, name: str) -> None:
    before = torch.randn(5, 3)
    x, index = engine.tensor(before), engine.tensor(torch.tensor([1, 5, 2]))
    rows = engine.tensor(torch.ones(3, 3))
    version = x.storage.version
    arguments = {"index_fill_": (0, index, 2.0), "index_put_": ([index], rows)}.get(name, (0, index, rows))
    with pytest.raises(IndexOutOfRangeError):
        getattr(engine.functional, name)(x, *arguments)
        engine.backends[engine.device].synchronize()
    np.testing.assert_array_equal(engine.numpy(x), before.numpy())
    assert x.storage.version == version
    engine.functional.index_fill_(x, 0, engine.tensor(torch.tensor([0])), 7.0)
    assert (engine.numpy(x)[0] == 7).all()


@pytest.mark.slow
def test_indexing_beyond_32_bits(engine: EngineAdapter) -> None:
    count = (1 << 31) + 100
    table = engine.functional.zeros((count,), dtype=TORCH_TO_OURS[torch.uint8], device=engine.device)
    engine.functional.index_fill_(table, 0, engine.tensor(torch.tensor([count - 3])), 5)
    index = engine.tensor(torch.tensor([count - 4, count - 3]))
    assert engine.numpy(engine.functional.index_select(table, 0, index)).tolist() == [0, 5]

"""Indexing operations that PyTorch's operator database does not cover, bounds, and messages."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from server.engine import functional as F
from telegrad_protocol.errors import IndexOutOfRangeError, TelegradError

from .adapters import EngineAdapter
from .harness import Comparison


@pytest.fixture
def adapter() -> EngineAdapter:
    return EngineAdapter()


def _embed(weight: Any, index: Any, **options: Any) -> Any:
    return torch.nn.functional.embedding(index, weight, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("options", [{}, {"padding_idx": 1}, {"padding_idx": -2}, {"scale_grad_by_freq": True}])
@pytest.mark.parametrize("shape", [(), (7,), (2, 3), (0,), (2, 0)])
def test_embedding(adapter: EngineAdapter, dtype: torch.dtype, options: dict[str, Any], shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    weight = torch.randn(5, 4, dtype=dtype, requires_grad=True)
    for index in (torch.randint(0, 5, shape), torch.randint(0, 5, shape).int()):
        second = "scale_grad_by_freq" not in options and dtype.itemsize >= 4 and 0 not in shape
        Comparison(adapter).run(
            _embed, lambda w, i, **o: F.embedding(i, w, **o), (weight, index), options, second=second
        )


@pytest.mark.parametrize("norm_type", [1.0, 2.0, float("inf")])
def test_embedding_scales_long_rows_down(adapter: EngineAdapter, norm_type: float) -> None:
    weight, index = torch.randn(5, 4) * 3, torch.tensor([0, 3, 3])
    mine = adapter.tensor(weight)
    found = F.embedding(adapter.tensor(index), mine, max_norm=1.0, norm_type=norm_type)
    expected = torch.nn.functional.embedding(index, weight, max_norm=1.0, norm_type=norm_type)
    Comparison(adapter).compare(found, expected)
    Comparison(adapter).compare(mine, weight)


def test_the_gradient_of_a_large_table_adds_up_in_order(adapter: EngineAdapter) -> None:
    """Two runs give the same bits, and they are near those of float64."""
    torch.manual_seed(0)
    index, grad = torch.randint(0, 7, (4096,)), torch.randn(4096, 16)
    run = lambda: adapter.numpy(F.embedding_dense_backward(adapter.tensor(grad), adapter.tensor(index), 7, -1, False))
    assert (run() == run()).all()
    expected = torch.zeros(7, 16, dtype=torch.float64).index_add_(0, index, grad.double())
    assert abs(torch.from_numpy(run()) - expected).max() < 1e-3


@pytest.mark.parametrize("accumulate", [False, True])
def test_put(adapter: EngineAdapter, accumulate: bool) -> None:
    source = torch.randn(3, 4).t().detach().requires_grad_()
    index, values = torch.tensor([[0, -1], [5, 2]]), torch.randn(2, 2, requires_grad=True)
    Comparison(adapter).run(
        lambda x, i, v: torch.clone(x).put_(i, v, accumulate), lambda x, i, v: F.put(x, i, v, accumulate),
        (source, index, values), {},
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put_in_place(adapter: EngineAdapter, dtype: torch.dtype, accumulate: bool) -> None:
    torch.manual_seed(0)
    make = lambda *shape: torch.randint(0, 5, shape).to(dtype)
    cases: list[tuple[list[Any], tuple[int, ...]]] = [
        ([torch.tensor([0, 2])], (2, 4, 5)), ([None, torch.tensor([[1], [3]])], (3, 2, 1, 5)),
        ([torch.tensor([1, 2]), None, torch.tensor([0, 4])], (2, 4)), ([torch.tensor([True, False, True])], (2, 4, 5)),
        ([None, torch.tensor([-1])], (1,)), ([torch.rand(3, 4) < 0.5], (1, 5)),
        ([torch.tensor([], dtype=torch.int64)], (0, 4, 5)),
    ]  # fmt: skip
    for indices, shape in cases:
        for tensor in (make(3, 4, 5), make(5, 4, 3).permute(2, 1, 0)):
            mine, values = adapter.tensor(tensor), make(*shape)
            ours = [None if i is None else adapter.tensor(i) for i in indices]
            found = F.index_put_(mine, ours, adapter.tensor(values), accumulate)
            assert found is mine
            Comparison(adapter).compare(mine, torch.ops.aten.index_put_(tensor, indices, values, accumulate))


def test_in_place_indexing_touches_no_other_memory(adapter: EngineAdapter) -> None:
    """The array is written where it is: a kernel that copied it whole would be slow and would show here."""
    mine = adapter.tensor(torch.zeros(4))
    array = mine.array
    F.index_put_(mine, [adapter.tensor(torch.tensor([1]))], 5.0)
    assert mine.array is array
    assert array.tolist() == [0.0, 5.0, 0.0, 0.0]
    assert mine.storage.version == 1


def test_operands_that_are_the_target_itself(adapter: EngineAdapter) -> None:
    tensor = torch.arange(6.0)
    mine = adapter.tensor(tensor)
    index = torch.tensor([5, 4, 3, 2, 1, 0])
    F.index_copy_(mine, 0, adapter.tensor(index), mine)
    Comparison(adapter).compare(mine, tensor[index])
    places = adapter.tensor(torch.tensor([1, 2, 0]))
    F.scatter_(places, 0, places, places)
    Comparison(adapter).compare(places, torch.tensor([0, 1, 2]))


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda x, i: F.embedding(i, x), "embedding: index 7 is out of range for a table of 5 rows"),
        (lambda x, i: F.index(x, [None, i]), "index: index 7 is out of range for dimension 1 of size 3"),
        (lambda x, i: F.index_put_(x, [i], 1.0), "index_put: index 7 is out of range for dimension 0 of size 5"),
        (lambda x, i: F.index_select(x, 0, i), "index_select: index 7 is out of range for dimension 0 of size 5"),
        (lambda x, i: F.index_add_(x, 0, i, F.zeros(2, 3)),
        "index_add: index 7 is out of range for dimension 0 of size 5"),
        (lambda x, i: F.index_fill_(x, 0, i, 1.0), "index_fill: index 7 is out of range for dimension 0 of size 5"),
        (lambda x, i: F.gather(x, 0, F.view(i, (2, 1))), "gather: index 7 is out of range for dimension 0 of size 5"),
        (lambda x, i: F.scatter_(x, 0, F.view(i, (2, 1)), 1.0),
        "scatter: index 7 is out of range for dimension 0 of size 5"),
        (lambda x, i: F.take(F.select(x, 1, 0), i), "take: index 7 is out of range for 5 elements"),
        (lambda x, i: F.one_hot(i, 5), "one_hot: index 7 is out of range for 5 classes"),
    ],
)  # fmt: skip
def test_an_index_out_of_range_is_named_and_nothing_is_changed(adapter: EngineAdapter, run: Any, message: str) -> None:
    mine = adapter.tensor(torch.zeros(5, 3))
    with pytest.raises(IndexOutOfRangeError, match=message):
        run(mine, adapter.tensor(torch.tensor([0, 7])))
    assert not adapter.numpy(mine).any()


@pytest.mark.parametrize("name", ["gather", "embedding", "index_select", "scatter"])
def test_negative_indices_do_not_wrap_where_pytorch_refuses_them(adapter: EngineAdapter, name: str) -> None:
    mine, index = adapter.tensor(torch.zeros(5)), adapter.tensor(torch.tensor([-1]))
    runs = {
        "gather": lambda: F.gather(mine, 0, index), "embedding": lambda: F.embedding(index, F.view(mine, (5, 1))),
        "index_select": lambda: F.index_select(mine, 0, index), "scatter": lambda: F.scatter(mine, 0, index, 1.0),
    }  # fmt: skip
    with pytest.raises(IndexOutOfRangeError, match="index -1 is out of range"):
        runs[name]()


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda x: F.index(x, [F.ones(2)]), r"index: indices must be int64 or int32, got float32\[2\]"),
        (lambda x: F.index(x, [F.eq(F.zeros(4), 0)]),
        r"index: mask bool\[4\] does not match float32\[5,3\] at dimension 0"),
        (lambda x: F.index_put_(x, [F.eq(x, 0)], F.ones(4)),
        "index_put: values of shape .* do not fit what the masks select"),
        (lambda x: F.gather(x, 0, F.arange(3)),
        r"gather: Index tensor must have the same number of dimensions.*got int64\[3\] and float32\[5,3\]"),
        (lambda x: F.masked_scatter(x, F.eq(x, 0), F.ones(4)), "the mask selects 15 elements, the source has 4"),
        (lambda x: F.embedding(F.arange(3), F.ones(3)), r"embedding: 'weight' must be 2-D, got float32\[3\]"),
        (lambda x: F.take(F.zeros(0), F.arange(1)), r"take: int64\[1\] picks elements of the empty float32\[0\]"),
    ],
)  # fmt: skip
def test_messages(adapter: EngineAdapter, run: Any, message: str) -> None:
    with pytest.raises(TelegradError, match=message):
        run(adapter.tensor(torch.zeros(5, 3)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.int32])
def test_masks_pick_and_positions_tell(adapter: EngineAdapter, dtype: torch.dtype) -> None:
    tensor = (torch.rand(4, 5) < 0.4).to(dtype)
    for source in (tensor, tensor.t(), tensor[0], tensor[0, 0], torch.zeros(0, 3, dtype=dtype)):
        Comparison(adapter).run(torch.nonzero, F.nonzero, (source,), {})
        Comparison(adapter).run(torch.argwhere, F.argwhere, (source,), {})
        Comparison(adapter, check_strides=False).run(torch.masked_select, F.masked_select, (source, source != 0), {})

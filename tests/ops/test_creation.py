"""Tensors out of nothing: sizes, types and refusals as PyTorch has them; filling and copying in place."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from telegrad_protocol.errors import ArgumentError, DTypeError, ShapeError, TelegradError

from .adapters import TORCH_TO_OURS, EngineAdapter
from .harness import Comparison


@pytest.fixture
def adapter() -> EngineAdapter:
    return EngineAdapter()


@pytest.mark.parametrize(
    "args",
    [
        (5,),
        (0,),
        (2, 7),
        (7, 2, -2),
        (0, 1, 0.1),
        (1.5,),
        (-3, 3),
        (0.5, 3),
        (5, 5),
        (0, -1, -1),
        (2**53, 2**53 + 3),
        (1, 2, 0.3),
    ],
)
@pytest.mark.parametrize("dtype", [None, torch.float32, torch.float64, torch.int64, torch.int32, torch.float16])
def test_arange_counts_as_pytorch_does(
    args: tuple[Any, ...], dtype: torch.dtype | None, adapter: EngineAdapter
) -> None:
    if dtype is torch.int64 and args[2:] and 0 < args[2] < 1:  # which is cut to 0
        with pytest.raises(ArgumentError, match="are 0 as int64"):
            adapter.function("arange")(*args, dtype=TORCH_TO_OURS[dtype])
        return
    kwargs = {} if dtype is None else {"dtype": dtype}
    Comparison(adapter).run(torch.arange, adapter.function("arange"), args, kwargs, gradients=False)


@pytest.mark.parametrize(("args", "error"), [((1, 0), ArgumentError), ((0, 1, 0), ArgumentError), ((1j,), DTypeError)])
def test_arange_refuses_what_leads_nowhere(
    args: tuple[Any, ...], error: type[TelegradError], adapter: EngineAdapter
) -> None:
    with pytest.raises(error, match="arange"):
        adapter.function("arange")(*args)


def test_sizes_may_be_given_apart_or_together(adapter: EngineAdapter) -> None:
    zeros = adapter.function("zeros")
    assert zeros(2, 3).shape == zeros((2, 3)).shape == zeros([2, 3]).shape == (2, 3)
    assert zeros(()).shape == () and zeros(0).shape == (0,)


@pytest.mark.parametrize("value", [True, 3, 2.5, 1 + 2j])
def test_full_takes_the_type_of_its_number(value: Any, adapter: EngineAdapter) -> None:
    Comparison(adapter).run(torch.full, adapter.function("full"), [(2, 3), value], {}, gradients=False)


@pytest.mark.parametrize("dtype", list(TORCH_TO_OURS))
def test_every_type_is_made_and_filled(dtype: torch.dtype, adapter: EngineAdapter) -> None:
    F = adapter.functional
    ones = F.ones(3, dtype=TORCH_TO_OURS[dtype])
    Comparison(adapter).compare(ones, torch.ones(3, dtype=dtype))
    Comparison(adapter).compare(F.fill_(ones, 7), torch.full((3,), 7, dtype=dtype))
    Comparison(adapter).compare(F.zero_(ones), torch.zeros(3, dtype=dtype))
    Comparison(adapter).compare(F.eye(2, 3, dtype=TORCH_TO_OURS[dtype]), torch.eye(2, 3).to(dtype))


@pytest.mark.parametrize(
    ("value", "dtype"), [(300, torch.uint8), (1j, torch.float32), (float("nan"), torch.int64), (-300, torch.uint8)]
)
def test_a_number_that_does_not_fit_is_refused(value: Any, dtype: torch.dtype, adapter: EngineAdapter) -> None:
    F = adapter.functional
    target = F.zeros(2, dtype=TORCH_TO_OURS[dtype])
    with pytest.raises(DTypeError, match="fill_"):
        F.fill_(target, value)
    with pytest.raises(DTypeError, match="full"):
        F.full((2,), value, dtype=TORCH_TO_OURS[dtype])


def test_negative_sizes_are_refused(adapter: EngineAdapter) -> None:
    for name in ("zeros", "empty", "rand"):
        with pytest.raises(ArgumentError, match=rf"{name}: negative dimension in \[2, -1\]"):
            adapter.function(name)(2, -1)


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("source", list(TORCH_TO_OURS))
def test_copy_casts_between_all_types(source: torch.dtype, adapter: EngineAdapter) -> None:
    for dtype in TORCH_TO_OURS:
        target, values = torch.zeros(2, 3, dtype=dtype), torch.tensor([0, 1, 3]).to(source)
        mine = adapter.tensor(target)
        assert adapter.functional.copy_(mine, adapter.tensor(values)) is mine
        Comparison(adapter).compare(mine, target.copy_(values))


def test_copy_within_one_memory_reads_before_it_writes(adapter: EngineAdapter) -> None:
    source = torch.arange(10.0)
    mine = adapter.tensor(source)
    adapter.functional.copy_(
        adapter.functional.as_strided(mine, (9,), (1,), 1), adapter.functional.as_strided(mine, (9,), (1,), 0)
    )
    assert adapter.numpy(mine).tolist() == [0, *range(9)]


def test_copy_refuses_what_does_not_broadcast(adapter: EngineAdapter) -> None:
    with pytest.raises(ShapeError, match="copy_"):
        adapter.functional.copy_(adapter.functional.zeros(2), adapter.functional.zeros(3))
    with pytest.raises(ShapeError, match="copy_"):
        adapter.functional.copy_(adapter.functional.zeros(2), adapter.functional.zeros(2, 2))


def test_gradients_of_what_was_overwritten_go_to_the_source(adapter: EngineAdapter) -> None:
    from server.engine.backward import grad

    F = adapter.functional
    leaf, source = (adapter.tensor(torch.rand(2, 3), True) for _ in range(2))
    row = adapter.tensor(torch.rand(3), True)
    target = leaf * 2
    F.copy_(target, source * row)
    result = grad([(target * target).sum()], [None], [leaf, source, row])
    a, b, c = (torch.from_numpy(adapter.numpy(v)).requires_grad_() for v in (leaf, source, row))
    copied = (a * 2).copy_(b * c)
    for mine, theirs in zip(result, torch.autograd.grad((copied * copied).sum(), [a, b, c]), strict=True):
        Comparison(adapter).compare(mine, theirs)


def test_filling_stops_gradients(adapter: EngineAdapter) -> None:
    from server.engine.backward import grad

    F = adapter.functional
    leaf, number = adapter.tensor(torch.rand(4), True), adapter.tensor(torch.tensor(2.0), True)
    target = leaf * 3
    F.fill_(target, number)
    result = grad([target.sum()], [None], [leaf, number])
    assert adapter.numpy(result[0]).tolist() == [0] * 4 and adapter.numpy(result[1]) == 4


@pytest.mark.parametrize("name", ["zeros_like", "ones_like", "empty_like", "clone"])
def test_copies_keep_the_memory_order(name: str, adapter: EngineAdapter) -> None:
    for source in (torch.rand(2, 3, 4).permute(2, 0, 1), torch.rand(4, 6)[:, ::2], torch.rand(1, 3).expand(4, 3)):
        expected = getattr(torch, name)(source)
        result = adapter.function(name)(adapter.tensor(source))
        Comparison(adapter).compare(result, expected, values=name != "empty_like")


@pytest.mark.parametrize("args", [(0, 1, 5), (3.5, -2, 1), (0, 10, 0), (0.5, 10.5, 4), (-5, 5, 11)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.float16])
def test_linspace_meets_both_ends(args: tuple[Any, ...], dtype: torch.dtype, adapter: EngineAdapter) -> None:
    Comparison(adapter).run(torch.linspace, adapter.function("linspace"), args, {"dtype": dtype}, gradients=False)

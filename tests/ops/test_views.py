"""Views and rearranging copies that PyTorch's operator database does not cover, and their messages."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from server.engine import functional as F
from server.engine.autograd.inplace import requires_grad
from telegrad_protocol import dtypes
from telegrad_protocol.errors import ShapeError, TelegradError

from .adapters import OURS_TO_TORCH, EngineAdapter
from .harness import Comparison

UNSIGNED = (dtypes.uint16, dtypes.uint32, dtypes.uint64)
"""Types that few operations of PyTorch take."""


@pytest.fixture
def adapter() -> EngineAdapter:
    return EngineAdapter()


@pytest.mark.parametrize("source", [torch.float32, torch.int16, torch.uint8, torch.complex64, torch.bfloat16])
@pytest.mark.parametrize("target", [torch.int32, torch.float64, torch.uint8, torch.float16, torch.complex64])
def test_bytes_are_seen_as_another_type(adapter: EngineAdapter, source: torch.dtype, target: torch.dtype) -> None:
    tensor = torch.randint(0, 100, (4, 32)).to(source)[1:, 16:]
    mine = adapter.tensor(tensor)
    result = F.view(mine, adapter.convert(target))
    assert result.storage is mine.storage
    Comparison(adapter).compare(result, tensor.view(target))


def test_bytes_that_do_not_divide_are_refused(adapter: EngineAdapter) -> None:
    with pytest.raises(ShapeError, match=r"view: float32\[3\].*does not divide into elements of float64"):
        F.view(adapter.tensor(torch.zeros(3)), dtypes.float64)
    with pytest.raises(ShapeError, match="no dense last dimension"):
        F.view(adapter.tensor(torch.zeros(4, 4).t()), dtypes.uint8)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("swapdims", (0, 2)), ("swapaxes", (0, 2)), ("moveaxis", (0, 2)), ("moveaxis", ((0, 1), (2, 0))),
        ("alias", ()), ("detach", ()), ("unflatten", (1, (1, -1))), ("flatten", (1, 2)), ("squeeze", ((0, 2),)),
        ("unfold", (2, 2, 1)), ("select", (1, -1)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "offset"])
def test_views_agree_with_pytorch(adapter: EngineAdapter, name: str, args: tuple[Any, ...], layout: str) -> None:
    tensor = torch.randn(3, 4, 5)
    tensor = {"contiguous": tensor, "transposed": tensor.transpose(0, 2), "offset": tensor[1:, 1:, 1:]}[layout]
    tensor = tensor.detach().requires_grad_()
    theirs = torch.ops.aten.alias.default if name == "alias" else lambda t, *a: getattr(t, name)(*a)
    Comparison(adapter).run(theirs, getattr(F, name), (tensor, *args), {})


@pytest.mark.parametrize("name", ["concat", "concatenate"])
def test_names_for_cat(adapter: EngineAdapter, name: str) -> None:
    parts = [torch.randn(2, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True)]
    Comparison(adapter).run(getattr(torch, name), getattr(F, name), (parts,), {})
    Comparison(adapter).run(getattr(torch, name), getattr(F, name), ([torch.randn(2, 3), torch.zeros(0).long()],), {})


def test_a_view_shares_memory_and_a_copy_does_not(adapter: EngineAdapter) -> None:
    mine = adapter.tensor(torch.zeros(3, 4))
    for view in (F.reshape(mine, (12,)), F.flatten(mine), F.ravel(mine), F.contiguous(mine), F.expand(mine, (2, 3, 4))):
        assert view.storage is mine.storage
    turned = F.t(mine)
    for copy in (F.reshape(turned, (12,)), F.contiguous(turned), F.flip(mine, (0,)), F.repeat(mine, (1, 1))):
        assert copy.storage is not mine.storage


def test_as_strided_scatter_has_the_gradient_of_its_definition(adapter: EngineAdapter) -> None:
    """PyTorch's own gradient of the input keeps the wrong elements."""
    torch.manual_seed(0)
    size, stride, offset = (2, 2), (1, 2), 1
    source, part, weights = torch.randn(3, 3), torch.randn(2, 2), torch.randn(3, 3)
    mine, our_part = adapter.tensor(source, True), adapter.tensor(part, True)
    result = F.as_strided_scatter(mine, our_part, size, stride, offset)
    Comparison(adapter).compare(result, torch.as_strided_scatter(source, part, size, stride, offset))
    actual = adapter.grad([result], [adapter.tensor(weights)], [mine, our_part], False)
    expected = weights.clone()
    expected.as_strided(size, stride, offset).zero_()
    Comparison(adapter).compare(actual[0], expected)
    Comparison(adapter).compare(actual[1], weights.as_strided(size, stride, offset).clone())


@pytest.mark.parametrize(
    ("make", "size", "stride", "offset"),
    [
        (lambda: torch.randn(4, 4), (3, 3), (4, 1), 5), (lambda: torch.randn(4, 4), (3, 2), (1, 1), 0),
        (lambda: torch.randn(4, 4).t(), (2, 3), (4, 1), 2), (lambda: torch.randn(40)[7:23].view(4, 4), (2, 2),
        (4, 2), None),
        (lambda: torch.randn(4).expand(4, 4), (4,), (1,), 0), (lambda: torch.randn(4, 8)[:, ::2], (3, 2), (8, 2), 0),
    ],
)  # fmt: skip
def test_gradients_of_as_strided(adapter: EngineAdapter, make: Any, size: Any, stride: Any, offset: int | None) -> None:
    torch.manual_seed(1)
    tensor = make().detach().requires_grad_()
    Comparison(adapter).run(torch.as_strided, F.as_strided, (tensor, size, stride, offset), {})


def test_a_view_beyond_its_storage_is_refused(adapter: EngineAdapter) -> None:
    mine = adapter.tensor(torch.zeros(3, 3))
    for size, stride, offset in (((4, 4), (3, 1), 0), ((3,), (1,), 7), ((2,), (1 << 40,), 0), ((1,), (1,), 1 << 60)):
        with pytest.raises(ShapeError, match=r"need .* bytes|beyond what any memory holds"):
            F.as_strided(mine, size, stride, offset)
    with pytest.raises(ShapeError, match="negative"):
        F.as_strided(mine, (2,), (-1,), 0)


def test_detached_tensors_and_type_views_have_no_history(adapter: EngineAdapter) -> None:
    leaf = adapter.tensor(torch.ones(4), True)
    for view in (F.detach(leaf), F.view(F.mul(leaf, 2.0), dtypes.int32)):
        assert not requires_grad(view)
        assert view.base is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.complex64])
def test_repeat_interleave_by_data(adapter: EngineAdapter, dtype: torch.dtype) -> None:
    tensor = torch.randint(0, 2, (3, 4)).to(dtype).requires_grad_(dtype.is_floating_point or dtype.is_complex)
    for repeats, dim in ((torch.tensor([2, 0, 3]), 0), (torch.tensor(2), 1), (torch.tensor([1, 0, 2, 3]), -1)):
        Comparison(adapter).run(torch.repeat_interleave, F.repeat_interleave, (tensor, repeats, dim), {})


def test_empty_and_scalar_tensors(adapter: EngineAdapter) -> None:
    empty, scalar = torch.zeros(0, 3), torch.tensor(2.0)
    cases = [
        (torch.Tensor.view, F.view, (empty, (3, 0, 5))), (torch.Tensor.expand, F.expand, (scalar, (2, 3))),
        (torch.Tensor.expand, F.expand, (empty, (4, 0, 3))), (torch.flatten, F.flatten, (scalar,)),
        (torch.squeeze, F.squeeze, (scalar,)), (torch.chunk, F.chunk, (empty, 3, 0)),
        (torch.stack, F.stack, ([scalar, scalar],)),
        (torch.cat, F.cat, ([empty, empty],)), (torch.Tensor.permute, F.permute, (scalar, ())),
        (torch.t, F.t, (scalar,)),
        (torch.roll, F.roll, (empty, 1)), (torch.flip, F.flip, (empty, (0,))),
    ]  # fmt: skip
    for theirs, ours, args in cases:
        Comparison(adapter).run(theirs, ours, args, {})


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda x: F.view(x, (5, 5)), r"view: shape \[5, 5\] does not hold the 12 elements"),
        (lambda x: F.view(F.t(x),
        (12,)), r"view: float32\[4,3\] with strides \(1, 4\) cannot be seen as \[12\]; use reshape"),
        (lambda x: F.transpose(x, 0, 2), r"transpose: Dimension out of range \(expected to be in range of \[-2, 1\]"),
        (lambda x: F.select(x, 1, 4), r"select: index 4 is out of range for dimension 1 of float32\[3,4\]"),
        (lambda x: F.split(x, (1, 1), 0), r"split: sections \[1, 1\] do not add up to size 3 of dimension 0"),
        (lambda x: F.cat([x, F.t(x)]), r"cat: float32\[4,3\] and float32\[3,4\] differ in a dimension other than 0"),
        (lambda x: F.stack([x, F.t(x)]), r"stack: float32\[4,3\] and float32\[3,4\] differ in shape"),
        (lambda x: F.expand(x, (3, 5)), r"expand: float32\[3,4\] does not expand to \[3, 5\]: dimension 1"),
        (lambda x: F.narrow(x, 0, 2, 2), r"narrow: start \(2\) \+ length \(2\) exceeds dimension size \(3\) of"),
    ],
)  # fmt: skip
def test_messages(adapter: EngineAdapter, run: Any, message: str) -> None:
    with pytest.raises(TelegradError, match=message):
        run(adapter.tensor(torch.zeros(3, 4)))


def test_every_dtype_is_moved_unchanged(adapter: EngineAdapter) -> None:
    for ours, theirs in OURS_TO_TORCH.items():
        tensor = torch.arange(6).to(theirs).view(2, 3)
        for run in (lambda f, x: f.flip(x, (1,)), lambda f, x: f.cat([x, x], 1), lambda f, x: f.roll(x, 1, 0)):
            result = run(F, adapter.tensor(tensor))
            assert result.dtype is ours
            known = {dtypes.complex32: torch.complex64}.get(ours, torch.int64 if ours in UNSIGNED else theirs)
            Comparison(adapter).compare(result, run(torch, tensor.to(known)).to(theirs))

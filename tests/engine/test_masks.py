"""What masks select, and draws that other operations make: the functions of GPUs, called on the host's values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from server.engine import functional as F
from server.engine.cuda.index import masks
from server.engine.cuda.random import weights
from server.engine.cuda.sort import distinct
from server.engine.operators import OPERATORS, Request
from server.engine.value import Value
from telegrad_protocol import dtypes
from telegrad_protocol.errors import ArgumentError, IndexOutOfRangeError, ShapeError
from tests.ops.adapters import EngineAdapter, to_torch

SHAPES = ((7,), (1,), (5, 4), (3, 1, 6), (2, 3, 4, 5))
DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool, torch.complex64)


@pytest.fixture
def adapter() -> EngineAdapter:
    return EngineAdapter()


def _meta(item: Any) -> Any:
    if isinstance(item, tuple):
        return tuple(map(_meta, item))
    return item.meta if isinstance(item, Value) else item


def _request(name: str, args: tuple[Any, ...], outs: tuple[Value, ...] = ()) -> Request:
    backend = next(item.backend for item in args if isinstance(item, Value))
    return Request(OPERATORS[name].op, backend, tuple(map(_meta, args)), tuple([out.meta for out in outs]), None)


def _generic(args: tuple[Any, ...]) -> Any:
    raise AssertionError("the generic kernel has no part in this")


def _found(finder: Any, name: str, *args: Any) -> Value:
    run = finder(_request(name, args), _generic)
    assert run is not None, f"{name} has no run for {list(map(_meta, args))}"
    return run(args)  # type: ignore[no-any-return]


def _mask(shape: tuple[int, ...], share: float) -> torch.Tensor:
    return torch.rand(shape) < share


def _same(adapter: EngineAdapter, found: Value, expected: torch.Tensor) -> None:
    torch.testing.assert_close(to_torch(adapter.numpy(found)), expected, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nonzero_finds_the_places_in_their_order(adapter: EngineAdapter, dtype: torch.dtype, seed: int) -> None:
    torch.manual_seed(seed)
    for shape in SHAPES:
        for share in (0, 0.4, 1):
            source = (torch.randn(shape) * 3).to(dtype).masked_fill(~_mask(shape, share), 0)
            for given in (source, source.transpose(0, -1)):
                found = _found(masks.nonzero, "nonzero", adapter.tensor(given), False)
                _same(adapter, found, given.nonzero())
                assert found.meta.strides == (1, found.shape[0])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_masked_select_broadcasts_both(adapter: EngineAdapter, dtype: torch.dtype, seed: int) -> None:
    torch.manual_seed(seed)
    for shape in SHAPES:
        source = (torch.randn(shape) * 3).to(dtype)
        for mask in (_mask(shape, 0.5), _mask(shape[-1:], 0.5), _mask((2, *shape), 0.3), _mask(shape, 0)):
            found = _found(masks.masked_select, "masked_select", adapter.tensor(source), adapter.tensor(mask))
            _same(adapter, found, source.masked_select(mask))


def _indices(shape: tuple[int, ...]) -> list[tuple[torch.Tensor | None, ...]]:
    """Indices with masks: in front, behind, over several dimensions, beside integers, and bytes in place of bools."""
    found: list[tuple[torch.Tensor | None, ...]] = [(_mask(shape, 0.4),), (_mask(shape[:1], 0.6),)]
    if len(shape) > 1:
        count = int(shape[0])
        first = torch.zeros(count, dtype=torch.bool)
        first[: max(count // 2, 1)] = True
        rows = torch.randint(0, shape[1], (int(first.sum()),))
        found += [(None, _mask(shape[1:2], 0.6)), (first, rows), (_mask(shape[:2], 0.5).to(torch.uint8),)]
    return found


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
def test_indices_with_masks_read_and_write_as_pytorchs(adapter: EngineAdapter, seed: int) -> None:
    torch.manual_seed(seed)
    for shape in SHAPES:
        source = torch.randn(shape)
        for indices in _indices(shape):
            mine = tuple([index if index is None else adapter.tensor(index) for index in indices])
            key = tuple([slice(None) if index is None else index for index in indices])
            _same(adapter, _found(masks.index, "index", adapter.tensor(source), mine), source[key])
            for values in (2.5, torch.tensor(1.5), torch.randn(source[key].shape)):
                for accumulate in (False, True):
                    _check_write(adapter, source, indices, mine, values, accumulate)


def _check_write(
    adapter: EngineAdapter, source: torch.Tensor, indices: Any, mine: Any, values: Any, accumulate: bool
) -> None:
    """Write into a new tensor, and in place."""
    tensor = torch.as_tensor(values)
    kinds = [index.bool() if index is not None and index.dtype is torch.uint8 else index for index in indices]
    full = tuple([slice(None) if index is None else index for index in kinds])  # PyTorch fills by bools alone
    expected = source.clone()
    expected[full] = (source[full] + tensor) if accumulate else tensor
    given = adapter.tensor(values) if isinstance(values, torch.Tensor) else values
    for in_place in (False, True):
        input = adapter.tensor(source.clone())
        out = input if in_place else F.empty_like(input)
        args = (input, mine, given, accumulate)
        launch = masks.index_put(_request("index_put", args, (out,)))
        assert launch is not None
        launch(args, (out,))
        _same(adapter, out, expected)
        if not in_place:
            _same(adapter, input, source)


def test_values_that_do_not_fit_what_masks_select_are_refused(adapter: EngineAdapter) -> None:
    input, mask = adapter.tensor(torch.zeros(4)), adapter.tensor(torch.tensor([True, True, False, True]))
    args = (input, (mask,), adapter.tensor(torch.ones(2)), False)
    launch = masks.index_put(_request("index_put", args, (input,)))
    assert launch is not None
    with pytest.raises(ShapeError, match=r"values of shape \[2\] do not fit what the masks select"):
        launch(args, (input,))


def test_bincount_counts_numbers_and_refuses_negative_ones(adapter: EngineAdapter, seed: int) -> None:
    torch.manual_seed(seed)
    for dtype in (torch.int64, torch.int32, torch.uint8):
        for least in (0, 3, 40):
            source = torch.randint(0, 12, (100,)).to(dtype)
            found = _found(masks.bincount, "bincount", adapter.tensor(source), None, least)
            _same(adapter, found, source.bincount(minlength=least))
    with pytest.raises(IndexOutOfRangeError, match="must not be negative"):
        _found(masks.bincount, "bincount", adapter.tensor(torch.tensor([1, -1])), None, 0)


def test_positions_are_repeated_as_counts_say(adapter: EngineAdapter, seed: int) -> None:
    torch.manual_seed(seed)
    name, finder = "repeat_interleave.repeats", masks.repeat_interleave_positions
    for dtype in (torch.int64, torch.int32):
        counts = torch.randint(0, 4, (50,), dtype=dtype)
        _same(adapter, _found(finder, name, adapter.tensor(counts), None), torch.repeat_interleave(counts))
    ones = adapter.tensor(torch.ones(3, dtype=torch.int64))
    with pytest.raises(ShapeError, match="3 parts, not output_size=4"):
        _found(finder, name, ones, 4)
    with pytest.raises(ArgumentError, match="must not be negative"):
        _found(finder, name, F.neg(ones), None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16], ids=str)
def test_the_source_goes_where_masks_are_set(adapter: EngineAdapter, dtype: torch.dtype, seed: int) -> None:
    torch.manual_seed(seed)
    for shape in SHAPES:
        input, source = ((torch.randn(s) * 9).to(dtype) for s in (shape, (200,)))
        for mask in (_mask(shape, 0.5), _mask(shape[-1:], 0.5)):
            args = tuple(map(adapter.tensor, (input, mask, source)))
            out = F.empty_like(args[0])
            launch = masks.masked_scatter(_request("masked_scatter", args, (out,)))
            assert launch is not None
            launch(args, (out,))
            _same(adapter, out, input.masked_scatter(mask, source))


def test_a_source_that_is_too_short_for_its_mask_is_refused(adapter: EngineAdapter) -> None:
    args = tuple(map(adapter.tensor, (torch.zeros(4), torch.ones(4, dtype=torch.bool), torch.ones(3))))
    launch = masks.masked_scatter(_request("masked_scatter", args, args[:1]))
    assert launch is not None
    with pytest.raises(ShapeError, match="the mask selects 4 elements, the source has 3"):
        launch(args, args[:1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize("consecutive", [False, True], ids=["sorted", "consecutive"])
def test_distinct_rows_are_the_array_librarys(
    adapter: EngineAdapter, dtype: torch.dtype, consecutive: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    for shape in ((1, 1), (40, 1), (60, 2), (200, 3)):
        rows = (torch.randn(shape) * 1.5).round().to(dtype)
        given = adapter.tensor(rows)
        found = distinct.unique_rows(_request("_unique_rows", (given, consecutive)), _generic)
        assert found is not None
        expected = F._unique_rows(given, consecutive)
        for mine, reference in zip(found((given, consecutive)), expected, strict=True):
            np.testing.assert_array_equal(adapter.numpy(mine), adapter.numpy(reference))


@pytest.mark.parametrize("replacement", [True, False], ids=["with replacement", "without"])
@pytest.mark.parametrize("shape", [(9,), (4, 9), (3, 70)], ids=str)
def test_indices_by_weights_are_those_of_the_host(
    adapter: EngineAdapter, shape: tuple[int, ...], replacement: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    given = torch.rand(shape)
    given[..., 2] = 0
    draw = weights._with_replacement if replacement else weights._without_replacement
    for count in (1, 5):
        generator = adapter.context.generators[adapter.device]
        generator.restore(seed, 0)
        expected = F.multinomial(adapter.tensor(given), count, replacement)
        offset = generator.offset
        generator.restore(seed, 0)
        found = draw(F._to_copy(adapter.tensor(given), dtype=dtypes.float64), count)
        assert generator.offset == offset
        np.testing.assert_array_equal(adapter.numpy(found), adapter.numpy(expected))

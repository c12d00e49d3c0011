"""Writing into jagged tensors where tensors of indices say: ``index_put``, and what ``x[indices] = values`` calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import int64
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, DTypeError, IndexOutOfRangeError

from .functions import implements, require_nested, require_packed, run
from .tensor import NestedTensor


@implements("index_put", "_index_put_impl")
def index_put(input: NestedTensor, indices: Sequence[Tensor], values: Tensor, accumulate: bool = False) -> NestedTensor:
    """Return the tensor with ``values`` at places that one tensor of indices for each of the first dimensions names.

    The first chooses elements of the batch, and the one of the ragged dimension counts within each of them. Without
    that one, all rows of the chosen elements get the same values, whose size is 1 there. An index that is no row of
    its element is out of range, negative ones too; the server finds that later.
    """
    _check(input, indices, values)
    if len(indices) > input._dim:
        places = _places(input, tuple(indices))
        return input.like(run("index_put", input._values, places, values, accumulate))
    require_packed("index_put", input)
    return input.like(_in_all_rows(input, indices[0], values, accumulate))


def _check(input: Any, indices: Sequence[Any], values: Any) -> None:
    require_nested("index_put", input)
    for index in indices:
        if not isinstance(index, Tensor) or isinstance(index, NestedTensor):
            raise ArgumentTypeError(f"index_put: expected tensors as indices, not {type(index).__name__}")
    if not 0 < len(indices) <= input.ndim:
        raise IndexOutOfRangeError(
            f"index_put: got {len(indices)} indices for a nested tensor of {input.ndim} dimensions"
        )
    if isinstance(values, NestedTensor):
        raise ArgumentError("index_put: expected values that are not nested")
    if values.dtype is not input.dtype:
        raise DTypeError(f"index_put: expected values of {input.dtype.name}, got {values._meta}")


def _places(input: NestedTensor, indices: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return indices of the packed values; what lies beyond an element's rows lies beyond all rows."""
    chosen, within, ragged = indices[0], indices[input._dim], input._ragged
    is_row = (within >= 0) & (within < ragged.measures()[chosen])
    rows = run("where", is_row, ragged.offsets[:-1][chosen] + within, input._values.shape[input._dim - 1])
    return (*indices[1 : input._dim], rows, *indices[input._dim + 1 :])


def _in_all_rows(input: NestedTensor, chosen: Tensor, values: Tensor, accumulate: bool) -> Tensor:
    """Return the packed values with the same values in all rows of the chosen elements of the batch."""
    packed, offsets, count = input._values, input._ragged.offsets, input._ragged.count
    numbers, inner = chosen.reshape(-1).to(int64), packed.shape[1:]
    each = values.expand((*chosen.shape, 1, *inner)).reshape(numbers.shape[0], *inner)
    rows = run("arange", packed.shape[0], device=packed.device)
    element = run("searchsorted", offsets[1:].contiguous(), rows, right=True)
    if accumulate:
        return packed + packed.new_zeros((count, *inner)).index_add(0, numbers, each)[element]
    order = run("arange", 1, numbers.shape[0] + 1, device=packed.device)
    last = run("zeros", count, dtype=int64, device=packed.device).scatter_reduce(0, numbers, order, "amax")[element]
    kept = (last == 0).reshape(-1, *[1] * len(inner))
    return run("where", kept, packed, run("cat", [packed.new_zeros((1, *inner)), each])[last])  # type: ignore[no-any-return]

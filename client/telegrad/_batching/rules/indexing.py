"""Reading and writing at positions: each element of the batch has a position of its own along the first dimension."""

from __future__ import annotations

from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import bool_, uint8
from telegrad_protocol.meta import Meta

from ..case import Case, Operand, dim_of, rule


class _Positions:
    """The index tensors of a call, as they are for the whole batch.

    ``first`` is the dimension of one element that they begin at, ``count`` how many dimensions they broadcast to,
    ``is_together`` whether they are neighbours: if not, their dimensions come first in the result.
    """

    def __init__(self, indices: tuple[Any, ...], size: int) -> None:
        self.indices = indices
        given = [place for place, index in enumerate(indices) if index is not None]
        self.first = given[0]
        self.is_together = given == list(range(given[0], given[-1] + 1))
        self.count = max([indices[place].ndim for place in given])
        self.is_batched = any([indices[place].is_batched for place in given])
        self.size = size
        self.given = given

    @property
    def at(self) -> int:
        """The dimension of one element's result where the dimensions of the indices begin."""
        return self.first if self.is_together else 0

    def lifted(self) -> list[Any]:
        """Return the indices so that they broadcast with one that counts the elements of the batch."""
        return [None if index is None else index.lifted(self.count) for index in self.indices]

    def counter(self) -> Tensor:
        """Return the index of the batch itself."""
        device = self.indices[self.first].tensor.device
        return function("arange")(self.size, device=device).reshape(self.size, *(1,) * self.count)  # type: ignore[no-any-return]


def _has_mask(indices: tuple[Any, ...]) -> bool:
    return any([index is not None and index.meta.dtype in (bool_, uint8) for index in indices])


@rule("index")
def _index(case: Case) -> Any:
    x, indices = case.args
    if _has_mask(indices):
        return NotImplemented
    return indexed(x, indices, case.size)


def indexed(x: Operand, indices: tuple[Any, ...], size: int) -> Tensor:
    """Return ``x[indices]`` for the whole batch."""
    at = _Positions(indices, size)
    index = function("index")
    if not at.is_batched:
        result = index(x.tensor, [None, *at.lifted()])
        return result if at.is_together else result.movedim(at.count, 0)  # type: ignore[no-any-return]
    if not x.is_batched:
        result = index(x.tensor, at.lifted())
        return result.movedim(at.at, 0)  # type: ignore[no-any-return]
    result = index(x.tensor, [at.counter(), *at.lifted()])
    if at.at == 0:
        return result  # type: ignore[no-any-return]
    # The counter is no neighbour of the others, so that all their dimensions have come first.
    return result.movedim(tuple(range(1, at.count + 1)), tuple(range(at.at + 1, at.at + 1 + at.count)))  # type: ignore[no-any-return]


@rule("index_put", is_direct=True)
def _index_put(case: Case) -> Any:
    x, indices, values, accumulate = case.args
    if _has_mask(indices):
        return _masked_put(case, x, indices, values, accumulate)
    return _put(case, x, indices, values, accumulate)


def _put(case: Case, x: Operand, indices: tuple[Any, ...], values: Any, accumulate: bool) -> Any:
    at = _Positions(indices, case.size)
    place = function("index_put_" if case.name.endswith("_") else "index_put")
    shape = _result_shape(x, at)
    given = values.padded(len(shape)).expand(case.size, *shape) if isinstance(values, Operand) else values
    if at.at and isinstance(given, Tensor):
        given = given.movedim(tuple(range(at.at + 1, at.at + 1 + at.count)), tuple(range(1, at.count + 1)))
    target = x.tensor if case.name.endswith("_") else x.front
    return place(target, [at.counter(), *at.lifted()], given, accumulate)


def _result_shape(x: Operand, at: _Positions) -> tuple[int, ...]:
    """Return the shape of ``x[indices]`` for one element."""
    shapes = [at.indices[place].shape for place in at.given]
    common = [1] * at.count
    for shape in shapes:
        for offset, length in enumerate(reversed(shape), 1):
            common[-offset] = max(common[-offset], length) if length != 0 else 0
    others = [length for dim, length in enumerate(x.shape) if dim not in at.given]
    return (*others[: at.at], *common, *others[at.at :])


def _masked_put(case: Case, x: Operand, indices: tuple[Any, ...], values: Any, accumulate: bool) -> Any:
    """Write one value where a mask holds; more values have positions that depend on elements."""
    masks = [index for index in indices if index is not None]
    if len(masks) != 1 or (isinstance(values, Operand) and any([length != 1 for length in values.shape])):
        return NotImplemented
    mask, before = masks[0], indices.index(masks[0])
    shape = (*(1,) * before, *mask.shape, *(1,) * (x.ndim - before - mask.ndim))
    where = mask.front.reshape(case.size, *shape).to(bool_)
    value = values.front.reshape(case.size, *(1,) * x.ndim) if isinstance(values, Operand) else values
    tensor = x.front
    chosen = function("where")(where, tensor + value if accumulate else value, tensor)
    if not case.name.endswith("_"):
        return chosen
    return tensor.copy_(chosen)


@rule("index_select")
def _index_select(case: Case) -> Any:
    x, dim, index = case.args
    if not index.is_batched and x.ndim:
        return case.call(x.tensor, dim_of(dim, x.ndim), index.tensor)
    if not x.ndim:
        return case.shaped(x.front)
    positions = (*(None,) * (dim_of(dim, x.ndim) - 1), _flat(index))
    return indexed(x, positions, case.size)


def _flat(index: Operand) -> Operand:
    """Return an index of one dimension."""
    if index.ndim:
        return index
    return Operand(
        index.tensor.unsqueeze(-1), Meta.of((1,), index.meta.dtype, index.meta.device), index.is_batched, index.size
    )


@rule("gather", "scatter", "scatter_add", "scatter_reduce", is_direct=True)
def _along_index(case: Case) -> Any:
    x, dim, index, *rest = case.args
    if not x.ndim and case.name.endswith("_"):
        return NotImplemented
    operands = [x, index, *[value for value in rest if isinstance(value, Operand)]]
    tensors = [o.front if x.ndim else o.front.reshape(case.size, -1) for o in operands]
    place = dim_of(dim, x.ndim) if x.ndim else 1
    if x.ndim and not index.ndim:
        tensors[1:] = [tensor.unsqueeze(1) for tensor in tensors[1:]]
    others = iter(tensors[2:])
    rest = [next(others) if isinstance(value, Operand) else value for value in rest]
    result = case.call(tensors[0], place, tensors[1], *rest)
    return result if x.ndim and index.ndim else case.shaped(result)


@rule("index_add", "index_copy", "index_fill", is_direct=True)
def _by_index(case: Case) -> Any:
    x, dim, index, source, *rest = case.args
    is_filled = case.name.startswith("index_fill")
    if not x.ndim or (is_filled and (index.is_batched or (isinstance(source, Operand) and source.is_batched))):
        return NotImplemented
    place = dim_of(dim, x.ndim)
    if not index.is_batched:
        value = source.tensor if isinstance(source, Operand) else source
        if not is_filled:
            value = source.front if source.ndim else source.front.unsqueeze(1)
        return case.call(x.tensor if case.name.endswith("_") else x.front, place, index.tensor, value, *rest)
    positions = (*(None,) * (place - 1), _flat(index))
    is_added = case.name.startswith("index_add")
    if is_added and rest[0] != 1:
        scaled = source.tensor * rest[0]
        source = Operand(scaled, source.meta, source.is_batched, case.size)
    return _put(case, x, positions, source, is_added)


@rule("take")
def _take(case: Case) -> Any:
    x, index = case.args
    flat = x.front.reshape(case.size, -1)
    return case.shaped(flat.gather(1, _wrapped(index.front.reshape(case.size, -1), flat.shape[1])))


def _wrapped(index: Tensor, size: int) -> Tensor:
    return function("where")(index < 0, index + size, index)  # type: ignore[no-any-return]


@rule("take_along_dim")
def _take_along_dim(case: Case) -> Any:
    x, index, dim = case.args
    if dim is None:
        flat = [operand.front.reshape(case.size, -1) for operand in (x, index)]
        return case.call(*flat, 1)
    return case.call(x.front, index.front, dim_of(dim, x.ndim))


@rule("embedding", "_embedding")
def _embedding(case: Case) -> Any:
    index, weight, padding, *rest = case.args
    if case.name == "embedding" and rest[0] is not None:
        return NotImplemented
    if not weight.is_batched:
        return case.call(index.front, weight.tensor, padding, *rest)
    count = weight.shape[0]
    offsets = function("arange")(case.size, device=index.tensor.device) * count
    positions = index.front + offsets.reshape(case.size, *(1,) * index.ndim)
    is_padded = padding is not None and (case.name == "embedding" or padding >= 0)
    table = weight.front
    if is_padded:
        row = padding % count
        keep = function("ne")(function("arange")(count, device=table.device), row).unsqueeze(1)
        table = function("where")(keep, table, table.detach())
    return case.call(positions, table.flatten(0, 1), None if case.name == "embedding" else -1, *rest)


@rule("embedding_dense_backward")
def _embedding_backward(case: Case) -> Any:
    grad, index, count, padding, scales = case.args
    offsets = function("arange")(case.size, device=grad.tensor.device) * count
    positions = index.front + offsets.reshape(case.size, *(1,) * index.ndim)
    result = case.call(grad.front, positions, count * case.size, -1, scales).unflatten(0, (case.size, -1))
    if padding is not None and padding >= 0:
        keep = function("ne")(function("arange")(count, device=result.device), padding).unsqueeze(1)
        result = result * keep
    return result

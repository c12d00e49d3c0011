"""Changes of shape, and parts of tensors: the indices are computed anew, the values taken as they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from telegrad._tensor.layouts import sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, IndexOutOfRangeError, NotSupportedError, ShapeError
from telegrad_protocol.layout import wrap_dim

from .building import empty_compressed, empty_coo
from .conversions import coalesced_order, to_coordinates, to_dense
from .functions import TABLE, implements, run
from .indices import arange, expanded
from .tensor import BLOCKED, SparseTensor

_TRANSPOSED = {sparse_csr: sparse_csc, sparse_csc: sparse_csr, sparse_bsr: sparse_bsc, sparse_bsc: sparse_bsr}


def _wrap(name: str, dim: int, tensor: SparseTensor) -> int:
    return wrap_dim(name, dim, tensor.ndim)


@implements("transpose", "swapaxes", "swapdims", "transpose_copy")
def transpose(input: SparseTensor, dim0: int, dim1: int) -> SparseTensor:
    """Exchange two dimensions: both sparse, or both dense."""
    order = list(range(input.ndim))
    a, b = _wrap("transpose", dim0, input), _wrap("transpose", dim1, input)
    order[a], order[b] = order[b], order[a]
    return permute(input, order)


@implements("t", "t_copy")
def t(input: SparseTensor) -> SparseTensor:
    """Return the transpose of a matrix."""
    if input.ndim > 2:
        raise ShapeError(f"t: expected a tensor with at most two dimensions, got {input._meta}")
    return transpose(input, 0, 1) if input.ndim == 2 else input


def _in_place(name: str) -> Any:
    def change(self: SparseTensor, *args: Any, **kwargs: Any) -> SparseTensor:
        return self.become(TABLE[name](self, *args, **kwargs), f"{name}_")

    change.__name__ = change.__qualname__ = f"{name}_"
    change.__doc__ = f"Change the shape of this tensor as ``{name}`` does."
    return change


@implements("permute", "permute_copy")
def permute(input: SparseTensor, *dims: Any) -> SparseTensor:
    """Reorder the dimensions: the sparse ones among themselves, and the dense ones."""
    given: Sequence[int] = dims[0] if len(dims) == 1 and isinstance(dims[0], (list, tuple)) else dims
    order = [_wrap("permute", dim, input) for dim in given]
    if sorted(order) != list(range(input.ndim)):
        raise ShapeError(f"permute: {tuple(given)} does not name each dimension of {input._meta} once")
    if order == list(range(input.ndim)):
        return input
    if input._kind is not sparse_coo:
        return _flipped(input, order)
    first = input.sparse_dims
    if any((position < first) != (dim < first) for position, dim in enumerate(order)):
        raise NotSupportedError("transpose: a sparse dimension cannot be exchanged with a dense one")
    lines = input._parts[0].unbind(0)
    indices = run("stack", [lines[dim] for dim in order[:first]])
    values = input.stored
    if order[first:] != list(range(first, input.ndim)):
        values = run("permute", values, (0, *[dim - first + 1 for dim in order[first:]]))
    made = SparseTensor(sparse_coo, (indices, values), [input.shape[dim] for dim in order])
    if input.ndim == first == 2:
        made._cell, made._is_flipped = input._cell, not input._is_flipped
    return made


def _flipped(input: SparseTensor, order: list[int]) -> SparseTensor:
    first = input.batch_dims
    wanted = list(range(input.ndim))
    wanted[first], wanted[first + 1] = wanted[first + 1], wanted[first]
    if order != wanted:
        raise NotSupportedError(
            f"transpose: of a {input._kind.name} tensor only rows and columns can be exchanged; use to_sparse_coo()"
        )
    values = input.stored.transpose(first + 1, first + 2) if input._kind in BLOCKED else input.stored
    made = SparseTensor(
        _TRANSPOSED[input._kind], (*input._parts[:-1], values), [input.shape[dim] for dim in order]
    )  # fmt: skip
    made._cell, made._is_flipped = input._cell, not input._is_flipped
    return made


@implements("unsqueeze", "unsqueeze_copy")
def unsqueeze(input: SparseTensor, dim: int) -> SparseTensor:
    """Insert a dimension of size 1."""
    input.require("unsqueeze", sparse_coo)
    at = wrap_dim("unsqueeze", dim, input.ndim + 1)
    shape = (*input.shape[:at], 1, *input.shape[at:])
    indices, values = input._parts
    if at <= input.sparse_dims:
        zeros = indices.new_zeros((1, indices.shape[1]))
        indices = run("cat", [indices[:at], zeros, indices[at:]])
    else:
        values = run("unsqueeze", values, at - input.sparse_dims + 1)
    return SparseTensor(sparse_coo, (indices, values), shape, input._is_coalesced)


@implements("select", "select_copy")
def select(input: SparseTensor, dim: int, index: int) -> Any:
    """Return the part at one index of a dimension; one round trip where that is a sparse one."""
    at = _wrap("select", dim, input)
    size = input.shape[at]
    if not -size <= index < size:
        raise IndexOutOfRangeError(f"select: index {index} is out of range for dimension {at} of size {size}")
    index += size if index < 0 else 0
    if input._kind is not sparse_coo:
        if input.batch_dims and at == 0:
            parts = [run("select", part, 0, index) for part in input._parts]
            return SparseTensor(input._kind, parts, input.shape[1:])
        return select(to_coordinates(input), at, index)
    shape = (*input.shape[:at], *input.shape[at + 1 :])
    indices, values = input._parts
    if at >= input.sparse_dims:
        return SparseTensor(
            sparse_coo, (indices, run("select", values, at - input.sparse_dims + 1, index)), shape, input._is_coalesced
        )
    chosen = run("nonzero", indices[at] == index).reshape(-1)
    if input.sparse_dims == 1:
        return values[chosen].sum(0).to(values.dtype)
    rest = run("cat", [indices[:at], indices[at + 1 :]])[:, chosen]
    return SparseTensor(sparse_coo, (rest, values[chosen]), shape, input._is_coalesced)


@implements("unbind", "unbind_copy")
def unbind(input: SparseTensor, dim: int = 0) -> tuple[Any, ...]:
    """Return the parts at all indices of a dimension."""
    at = _wrap("unbind", dim, input)
    return tuple([select(input, at, index) for index in range(input.shape[at])])


@implements("narrow", "narrow_copy")
def narrow(input: SparseTensor, dim: int, start: int, length: int) -> SparseTensor:
    """Return a part of a dimension; one round trip where that is a sparse one."""
    input.require("narrow_copy", sparse_coo)
    at = _wrap("narrow_copy", dim, input)
    size = input.shape[at]
    start += size if start < 0 else 0
    if not 0 <= start <= start + length <= size:
        raise IndexOutOfRangeError(
            f"narrow_copy: start {start} and length {length} exceed dimension {at} of size {size}"
        )
    shape = (*input.shape[:at], length, *input.shape[at + 1 :])
    indices, values = input._parts
    if at >= input.sparse_dims:
        part = run("narrow", values, at - input.sparse_dims + 1, start, length)
        return SparseTensor(sparse_coo, (indices, part), shape, input._is_coalesced)
    chosen = run("nonzero", (indices[at] >= start) & (indices[at] < start + length)).reshape(-1)
    return SparseTensor(
        sparse_coo, (_moved(indices[:, chosen], at, -start), values[chosen]), shape, input._is_coalesced
    )


def _moved(indices: Tensor, dim: int, step: int) -> Tensor:
    """Return indices with a number added to those of one dimension."""
    if not step:
        return indices
    return run("cat", [indices[:dim], indices[dim : dim + 1] + step, indices[dim + 1 :]])  # type: ignore[no-any-return]


@implements("index_select")
def index_select(input: SparseTensor, dim: int, index: Tensor) -> Any:
    """Return the parts at several indices of a dimension; one round trip where that is a sparse one."""
    source = to_coordinates(input)
    at = _wrap("index_select", dim, source)
    if index.ndim > 1:
        raise ShapeError(f"index_select: expected a vector of indices, got {index._meta}")
    wanted = index.reshape(-1).long()
    shape = (*source.shape[:at], wanted.shape[0], *source.shape[at + 1 :])
    indices, values = source._parts
    if at >= source.sparse_dims:
        chosen = run("index_select", values, at - source.sparse_dims + 1, wanted)
        return SparseTensor(sparse_coo, (indices, chosen), shape, source._is_coalesced)
    wanted = run("where", wanted < 0, wanted + source.shape[at], wanted)
    order = run("argsort", wanted, stable=True)
    ascending, sought = wanted[order], indices[at].contiguous()
    low, high = (run("searchsorted", ascending, sought, right=right) for right in (False, True))
    ends = (high - low).cumsum(0)
    count = int(ends[-1].item()) if source.count else 0
    of = expanded(run("cat", [ends.new_zeros(1), ends]), count)
    position = low[of] + arange(count, sought) - (ends - high + low)[of]
    lines = run("cat", [indices[:at, of], order[position].unsqueeze(0), indices[at + 1 :, of]])
    made = SparseTensor(sparse_coo, (lines, values[of]), shape)
    return coalesced_order(made) if source._is_coalesced else made


@implements("cat", "concat", "concatenate")
def cat(tensors: Sequence[Any], dim: int = 0) -> SparseTensor:
    """Join tensors along a dimension."""
    listed = list(tensors)
    if not all(isinstance(tensor, SparseTensor) for tensor in listed):
        raise NotSupportedError("cat: sparse and dense tensors cannot be joined; use to_dense() or to_sparse()")
    if any(tensor._kind is not sparse_coo for tensor in listed):
        raise NotSupportedError("cat: only sparse_coo tensors can be joined; use to_sparse_coo()")
    first: SparseTensor = listed[0]
    at = _wrap("cat", dim, first)
    if any(
        (tensor.sparse_dims, tensor.shape[:at], tensor.shape[at + 1 :])
        != (first.sparse_dims, first.shape[:at], first.shape[at + 1 :])
        for tensor in listed
    ):
        raise ShapeError("cat: tensors must have the same sizes in all other dimensions, and as many sparse ones")
    lengths = [tensor.shape[at] for tensor in listed]
    shape = (*first.shape[:at], sum(lengths), *first.shape[at + 1 :])
    offsets = [sum(lengths[:number]) for number in range(len(listed))]
    if at < first.sparse_dims:
        indices = [_moved(tensor._parts[0], at, offset) for tensor, offset in zip(listed, offsets, strict=True)]
        values = [tensor.stored for tensor in listed]
    else:
        place = at - first.sparse_dims + 1
        indices = [tensor._parts[0] for tensor in listed]
        values = [
            _padded(tensor.stored, place, offset, shape[at]) for tensor, offset in zip(listed, offsets, strict=True)
        ]
    return SparseTensor(sparse_coo, (run("cat", indices, 1), run("cat", values)), shape)


def _padded(values: Tensor, dim: int, before: int, length: int) -> Tensor:
    sizes = list(values.shape)
    after = length - before - sizes[dim]
    parts = [values.new_zeros([*sizes[:dim], count, *sizes[dim + 1 :]]) for count in (before, after)]
    return run("cat", [parts[0], values, parts[1]], dim)  # type: ignore[no-any-return]


@implements("hstack")
def hstack(tensors: Sequence[SparseTensor]) -> SparseTensor:
    """Join tensors along their columns; vectors along their only dimension."""
    return cat(tensors, min(1, tensors[0].ndim - 1))


@implements("vstack", "row_stack")
def vstack(tensors: Sequence[SparseTensor]) -> SparseTensor:
    """Join tensors along their rows; each vector is a row."""
    return cat([unsqueeze(tensor, 0) if tensor.ndim == 1 else tensor for tensor in tensors])


@implements("stack")
def stack(tensors: Sequence[Any], dim: int = 0) -> SparseTensor:
    """Join tensors along a new dimension."""
    listed = list(tensors)
    if not all(isinstance(tensor, SparseTensor) for tensor in listed):
        raise NotSupportedError("stack: sparse and dense tensors cannot be joined; use to_dense() or to_sparse()")
    return cat([unsqueeze(tensor, dim) for tensor in listed], dim)


@implements("new_zeros", "new_empty")
def new_zeros(input: SparseTensor, *size: Any, dtype: Any = None, device: Any = None) -> SparseTensor:
    """Return a tensor of another size in the same layout without stored elements."""
    shape = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    options: dict[str, Any] = {"dtype": dtype or input.dtype, "device": input.device if device is None else device}
    return empty_coo(shape, **options) if input._kind is sparse_coo else empty_compressed(input._kind, shape, **options)


@implements("zeros_like", "empty_like")
def zeros_like(input: SparseTensor, *, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    """Return a tensor of the same shape and layout without stored elements."""
    dtype, device = dtype or input.dtype, input.device if device is None else device
    if input._kind is sparse_coo:
        return empty_coo(input.shape, dense_dim=input.dense_dims, dtype=dtype, device=device)
    if input._kind in BLOCKED or input.dense_dims:
        values = run("zeros_like", input.stored, dtype=dtype, device=device)
        parts = [part.to(device) for part in input._parts[:-1]]
        return SparseTensor(input._kind, (*parts, values), input.shape)
    return empty_compressed(input._kind, input.shape, dtype=dtype, device=device)


@implements("ones_like")
def ones_like(input: SparseTensor, *, dtype: Any = None, device: Any = None, **_: Any) -> SparseTensor:
    """Return a compressed tensor with ones at the stored elements of ``input``."""
    return full_like(input, 1, dtype=dtype or input.dtype, device=device)


@implements("full_like")
def full_like(
    input: SparseTensor, fill_value: Any, *, dtype: Any = None, device: Any = None, **_: Any
) -> SparseTensor:  # fmt: skip
    """Return a compressed tensor with one value at the stored elements of ``input``."""
    if input._kind is sparse_coo:
        raise NotSupportedError("full_like: a sparse_coo tensor of other elements than zero is dense; use to_dense()")
    place = input.device if device is None else device
    values = run("full_like", input.stored, fill_value, dtype=dtype, device=place)
    return SparseTensor(input._kind, (*[part.to(place) for part in input._parts[:-1]], values), input.shape)


def resize(tensor: SparseTensor, size: Sequence[int], sparse_dim: int, dense_dim: int, clears: bool) -> SparseTensor:
    """Change the size in place; without clearing, no dimension may shrink where elements are stored."""
    tensor.require("sparse_resize_", sparse_coo)
    shape = tuple(int(length) for length in size)
    if len(shape) != sparse_dim + dense_dim:
        raise ShapeError(
            f"sparse_resize_: number of dimensions must be sparse_dim ({sparse_dim}) + dense_dim ({dense_dim}), not "
            f"{len(shape)}"
        )
    if clears or not tensor.count:
        empty = empty_coo(shape, dense_dim=dense_dim, dtype=tensor.dtype, device=tensor.device)
        return tensor.become(empty, "sparse_resize_")
    if (sparse_dim, dense_dim) != (tensor.sparse_dims, tensor.dense_dims):
        raise ArgumentError("sparse_resize_: the numbers of dimensions of a non-empty tensor cannot change")
    if any(new < old for new, old in zip(shape, tensor.shape, strict=True)):
        raise ArgumentError("sparse_resize_: a non-empty tensor cannot shrink; use sparse_resize_and_clear_()")
    if shape[sparse_dim:] != tuple(tensor.shape[sparse_dim:]):
        raise NotSupportedError("sparse_resize_: the dense dimensions of a non-empty tensor cannot change")
    return tensor.become(SparseTensor(sparse_coo, tensor._parts, shape, tensor._is_coalesced), "sparse_resize_")


def resized_as(self: SparseTensor, the_template: SparseTensor) -> SparseTensor:
    """Change the size of a tensor in place to that of another one."""
    return resize(self, the_template.shape, the_template.sparse_dims, the_template.dense_dims, False)


@implements("embedding")
def embedding(input: Tensor, weight: SparseTensor, *_: Any, **__: Any) -> Any:
    """Return rows of a sparse table, by a vector of indices."""
    if input.ndim != 1:
        raise NotSupportedError("embedding: rows of a sparse table are chosen by a vector of indices; use to_dense()")
    return index_select(weight, 0, input)


@implements("linear")
def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """Return input @ weight.T + bias, of which one of the factors is a sparse matrix."""
    rows = input if isinstance(input, SparseTensor) else input.reshape(math.prod(input.shape[:-1]), input.shape[-1])
    product = run("mm", rows, weight.t())
    if isinstance(product, SparseTensor):
        product = to_dense(product)
    product = product if bias is None else product + bias
    return product.reshape(*input.shape[:-1], weight.shape[0])


for _name in ("t", "transpose", "swapaxes", "swapdims"):
    setattr(SparseTensor, f"{_name}_", _in_place(_name))

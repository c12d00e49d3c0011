"""``x[index]`` and ``x[index] = value`` as calls of operations, by PyTorch's rules.

Pure logic: it works on anything with ``shape``, ``ndim`` and ``dtype``. ``call(name, *args)`` runs an operation,
``upload(array)`` makes a tensor of host data. It knows neither sessions nor sockets.

Integers, slices, None and Ellipsis give views. Integer tensors, lists and arrays are looked up together by ``index``;
masks become positions first, which waits for their number unless the mask is host data. Each Ellipsis stands for all
dimensions that are left over, as in PyTorch, so that only None may follow a second one. A 0-d integer tensor counts as
an integer, which is read, since the result has to share memory with the tensor. Where it cannot be read, as in a graph
that is traced, it is looked up on the device, and the result is a copy.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from telegrad_protocol.dtypes import INTEGER, DType, bool_, int32, int64, uint8
from telegrad_protocol.errors import ArgumentTypeError, DimensionError, IndexOutOfRangeError

Call = Callable[..., Any]
Upload = Callable[[np.ndarray[Any, Any]], Any]
Position = Callable[[Any], int | None]
_MASKS = (bool_, uint8)
_LONGEST_LIST_OF_INDICES = 32


def _unread(item: Any) -> None:
    """Leave a 0-d integer tensor to be looked up."""


def getitem(tensor: Any, index: Any, call: Call, upload: Upload, position: Position = _unread) -> Any:
    """``tensor[index]``; ``position`` reads a 0-d integer tensor, and returns None where that is not possible."""
    view = _basic_view(tensor, index, call)
    if view is not None:
        return view
    walk = _Walk(tensor, call, upload, position)
    walk.follow(index)
    if walk.advanced:
        return call("index", walk.view, walk.positions())
    return walk.view if walk.view is not tensor else call("alias", tensor)


def _basic_view(tensor: Any, index: Any, call: Call) -> Any:
    """Return ``tensor[index]`` where plain integers, slices, None and one Ellipsis index; None for other indices.

    It calls what a walk calls, which looks at every kind of index, and says what is wrong with one.
    """
    items = index if type(index) is tuple else (index,)
    used = ellipses = 0
    for item in items:
        kind = type(item)
        if kind is int or kind is slice:
            used += 1
        elif item is Ellipsis:
            ellipses += 1
        elif item is not None:
            return None
    ndim = tensor.ndim
    if used > ndim or ellipses > 1:
        return None
    view, dim, is_alone = tensor, 0, items is not index
    for item in items:
        if type(item) is int:
            view = call("select", view, dim, item)
        elif item is Ellipsis:
            dim += ndim - used
        else:
            view = call("unsqueeze", view, dim) if item is None else _sliced(view, dim, item, call, is_alone)
            dim += 1
    return view if view is not tensor else call("alias", tensor)


def _sliced(view: Any, dim: int, item: slice, call: Call, is_alone: bool = False) -> Any:
    start, stop, step = item.start, item.stop, item.step
    if start is None and stop is None and step is None and not is_alone:
        return view
    return call(
        "slice", view, dim, None if start is None else operator.index(start),
        None if stop is None else operator.index(stop), 1 if step is None else operator.index(step),
    )  # fmt: skip


def setitem(tensor: Any, index: Any, value: Any, call: Call, upload: Upload) -> None:
    """``tensor[index] = value``"""
    walk = _Assignment(tensor, call, upload, operator.index)
    walk.follow(index)
    value = _assignable(value, upload)
    if walk.advanced:
        if is_tensor(value) and value.dtype is not tensor.dtype and walk.converts(value):
            value = call("_to_copy", value, dtype=tensor.dtype)
        call("index_put_", walk.view, walk.listed(), _without_leading_ones(value, walk.result_ndim(), call))
    elif is_tensor(value):
        call("copy_", walk.view, _without_leading_ones(value, walk.view.ndim, call))
    else:
        call("fill_", walk.view, value)


def is_tensor(thing: Any) -> bool:
    """Whether ``thing`` is a tensor of ours."""
    return isinstance(getattr(thing, "dtype", None), DType)


class _Walk:
    """Follows an index through the dimensions of a tensor.

    ``view`` is what basic indexing has made so far, ``dim`` its next dimension, ``advanced`` the index tensors by the
    dimension of ``view`` where they begin. ``given`` are the items of the index that are advanced.
    """

    def __init__(self, tensor: Any, call: Call, upload: Upload, position: Position) -> None:
        self.view = tensor
        self.call = call
        self.upload = upload
        self.position = position
        self.dim = 0
        self.advanced: dict[int, Any] = {}

    def follow(self, index: Any) -> None:
        items = [_plain(item, self.call) for item in _items_of(index)]
        used = sum(map(_dimensions_of, items))
        if used > self.view.ndim:
            raise DimensionError(f"too many indices for {_show(self.view)}: {used}")
        missing = self.view.ndim - used
        self.given = [item for item in items if _is_advanced(item)]
        self.needs_integers = bool(self.given)
        for item in items:
            if item is Ellipsis:
                self.dim += missing
            else:
                self._take(item)

    def _take(self, item: Any) -> None:
        if item is None:
            self._insert()
        elif isinstance(item, bool):
            self._insert(self.upload(np.zeros(int(item), np.int64)))
        elif isinstance(item, int):
            self.view = self.call("select", self.view, self.dim, item)
        elif isinstance(item, slice):
            self._slice(item)
        elif isinstance(item, np.ndarray):
            self._array(item)
        elif item.dtype in _MASKS:
            self._mask(item)
        elif item.ndim:
            self._lookup(item)
        else:
            self._integer(item)

    def _insert(self, index: Any = None) -> None:
        self.view = self.call("unsqueeze", self.view, self.dim)
        if index is not None:
            self.advanced[self.dim] = index
        self.dim += 1

    def _slice(self, item: slice) -> None:
        self.view = _sliced(self.view, self.dim, item, self.call)
        self.dim += 1

    def _array(self, array: np.ndarray[Any, Any]) -> None:
        if array.dtype == np.bool_:
            _check_mask(array, self.view, self.dim)
            for positions in np.nonzero(array):
                self._lookup(self.upload(positions.astype(np.int64)))
        else:
            _check_bounds(array, self.view, self.dim)
            self._lookup(self.upload(array.astype(np.int64)))

    def _lookup(self, index: Any) -> None:
        self.advanced[self.dim] = index
        self.dim += 1

    def _mask(self, mask: Any) -> None:
        if not mask.ndim:
            self._insert(self.call("reshape", mask, (1,)))
            return
        if mask.dtype is uint8:
            warnings.warn(
                "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead",
                UserWarning,
                stacklevel=2,
            )
        _check_mask(mask, self.view, self.dim)
        self.advanced[self.dim] = mask
        self.dim += mask.ndim

    def _integer(self, item: Any) -> None:
        position = self.position(item)
        if position is None:
            self.view = self.call("index", self.view, [*[None] * self.dim, item])
        else:
            self.view = self.call("select", self.view, self.dim, position)

    def positions(self) -> list[Any]:
        """The list that ``index`` takes, masks as positions."""
        return [*self._listed(self._expand)]

    def listed(self) -> list[Any]:
        """The list that ``index_put_`` takes, masks as they are."""
        return [*self._listed(lambda index: [index])]

    def _listed(self, expand: Callable[[Any], list[Any]]) -> Iterator[Any]:
        dim = 0
        for start, index in sorted(self.advanced.items()):
            yield from [None] * (start - dim)
            yield from expand(index)
            dim = start + _dimensions_of(index)

    def _expand(self, index: Any) -> list[Any]:
        if index.dtype not in _MASKS:
            return [index]
        return list(self.call("unbind", self.call("nonzero", index), 1))

    def result_ndim(self) -> int:
        """Dimensions of the indexed part."""
        block = max(1 if index.dtype in _MASKS else index.ndim for index in self.advanced.values())
        return int(self.view.ndim) - sum(map(_dimensions_of, self.advanced.values())) + block


class _Assignment(_Walk):
    """An index that is assigned to: 0-d integer tensors must lead to the memory itself."""

    def converts(self, value: Any) -> bool:
        """Whether elements of another type are converted: one that fills what a mask chooses, and what is copied."""
        is_one_mask = [getattr(item, "dtype", None) for item in self.given] in ([bool_], [np.bool_])
        return not self.needs_integers or (is_one_mask and math.prod(value.shape) == 1)

    def _integer(self, item: Any) -> None:
        if self.needs_integers:
            super()._integer(item)
        else:
            self._lookup(item)


def _items_of(index: Any) -> Sequence[Any]:
    """Return what is taken in turn, as PyTorch does: a short list of more than numbers counts as a tuple of indices."""
    if isinstance(index, tuple):
        return index
    if not isinstance(index, list) or len(index) >= _LONGEST_LIST_OF_INDICES or not any(map(_is_index, index)):
        return (index,)
    warnings.warn(
        "Using a non-tuple sequence for multidimensional indexing is deprecated: x[seq] is taken as x[tuple(seq)], "
        "which says what is meant; for one tensor of positions use x[torch.tensor(seq)]",
        UserWarning,
        stacklevel=2,
    )
    return index


def _is_index(item: Any) -> bool:
    """Tell whether an element of a list is an index of its own, and not one of many numbers."""
    return (
        item is None or item is Ellipsis or is_tensor(item)
        or isinstance(item, (list, tuple, range, slice, np.ndarray))
    )  # fmt: skip


def _plain(item: Any, call: Call) -> Any:
    """An index as one of: None, Ellipsis, bool, int, slice, a tensor, a host array of at least one dimension."""
    if item is None or item is Ellipsis or isinstance(item, (bool, int, slice)):
        return item
    if is_tensor(item):
        if item.dtype not in (*_MASKS, int32, int64):
            if not item.ndim and item.dtype.category == INTEGER:
                return call("_to_copy", item, dtype=int64)
            raise IndexOutOfRangeError(f"tensors that index must be int64, int32, bool or uint8, not {_show(item)}")
        return item
    if isinstance(item, (list, tuple)) and item and all(map(is_tensor, item)):
        return call("stack", list(item))
    return _host_index(item)


def _host_index(item: Any) -> Any:
    if isinstance(item, (str, bytes, dict, set)):
        kind = ArgumentTypeError if isinstance(item, (str, bytes)) else IndexOutOfRangeError
        raise kind(f"only integers, slices, None, Ellipsis, tensors, lists and arrays can index, not {item!r}")
    array = np.asarray(item)
    if array.dtype.kind not in "biu" and array.size:
        raise IndexOutOfRangeError(
            "only integers, slices, None, Ellipsis, and tensors, lists or arrays of integers or bools can index, "
            f"not {item!r}"
        )
    if array.ndim:
        return array if array.size or array.dtype == np.bool_ else array.astype(np.int64)
    return bool(array) if array.dtype == np.bool_ else int(array)


def _dimensions_of(item: Any) -> int:
    """How many dimensions of the tensor an index takes up."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    if isinstance(item, (int, slice)):
        return 1
    is_mask = item.dtype == np.bool_ if isinstance(item, np.ndarray) else item.dtype in _MASKS
    return int(item.ndim) if is_mask else 1


def _is_advanced(item: Any) -> bool:
    """Whether an index has dimensions of its own in the result, so that 0-d tensors beside it must be integers."""
    if isinstance(item, (bool, np.ndarray)):
        return True
    return is_tensor(item) and (item.ndim > 0 or item.dtype in _MASKS)


def _check_mask(mask: Any, view: Any, dim: int) -> None:
    if tuple(view.shape[dim : dim + mask.ndim]) != tuple(mask.shape):
        raise IndexOutOfRangeError(f"mask of shape {list(mask.shape)} does not match {_show(view)} at dimension {dim}")


def _check_bounds(array: np.ndarray[Any, Any], view: Any, dim: int) -> None:
    size = view.shape[dim]
    if array.size and not (-size <= array.min() and array.max() < size):
        offending = array.max() if array.max() >= size else array.min()
        raise IndexOutOfRangeError(
            f"index {offending} is out of range for dimension {dim} of {_show(view)}: index {offending} is out of "
            f"bounds for dimension {dim} with size {size}"
        )


def _show(tensor: Any) -> str:
    return f"{tensor.dtype.name}[{','.join(map(str, tensor.shape))}]"


def _assignable(value: Any, upload: Upload) -> Any:
    if is_tensor(value) or isinstance(value, (bool, int, float, complex)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return upload(value)
    raise ArgumentTypeError(f"only a tensor, an array or a number can be assigned to a part of a tensor, not {value!r}")


def _without_leading_ones(value: Any, ndim: int, call: Call) -> Any:
    """``value`` without dimensions of size 1 in front that the assigned part does not have."""
    if not is_tensor(value) or value.ndim <= ndim:
        return value
    surplus = 0
    while surplus < value.ndim - ndim and value.shape[surplus] == 1:
        surplus += 1
    return call("reshape", value, tuple(value.shape[surplus:])) if surplus else value

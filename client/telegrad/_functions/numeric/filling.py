"""Tensors of given shapes and fillings: ``diagflat``, ``fill``, ``range``, ``index_reduce``, ``resize_`` and others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from telegrad._ops.functions import function
from telegrad._ops.mutation import note_change
from telegrad._session.own_code import note
from telegrad._session.thread_modes import thread
from telegrad._tensor.size import Size
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError, AutogradError, ShapeError
from telegrad_protocol.layout import contiguous_strides, wrap_dim
from telegrad_protocol.memory_format import MemoryFormat, contiguous_format

from ..into import into


def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """Return a matrix with all elements of the input on a diagonal, and zeros elsewhere."""
    return function("diag_embed")(input.reshape(-1), offset)  # type: ignore[no-any-return]


def fill(input: Tensor, value: Any) -> Tensor:
    """Return a tensor of the shape and type of ``input`` with one number everywhere."""
    return input.clone().fill_(value)


def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Write a number on the main diagonal; with ``wrap`` it begins again below the end of a tall matrix."""
    if self.ndim < 2 or (self.ndim > 2 and len(set(self.shape)) > 1):
        raise ShapeError(f"fill_diagonal_: expected a matrix, or a cube of any dimensions, not {self._meta}")
    strides, height, width = self._meta.strides, self.shape[0], self.shape[1]
    step, offset = sum(strides), self.storage_offset()
    self.as_strided((min(self.shape),), (step,), offset).fill_(fill_value)
    if wrap and self.ndim == 2 and height > width + 1:
        below = range_of(width + 1, height, width + 1)
        for top in below:
            count = min(width, height - top)
            self.as_strided((count,), (step,), offset + strides[0] * top).fill_(fill_value)
    return self


range_of = range
"""Python's ``range``, which the function of the same name hides."""


def range(
    start: float = 0, end: float | None = None, step: float = 1, *, out: Tensor | None = None,
    dtype: DType | None = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the numbers from ``start`` to ``end``, which is included, ``step`` apart."""
    note(
        "torch.range is deprecated and will be removed in a future release because its behavior is inconsistent with "
        "Python's range builtin. Instead, use torch.arange, which produces values in [start, end)."
    )
    first, last = (0, start) if end is None else (start, end)
    if step == 0 or (last - first) * step < 0:
        raise ArgumentError(f"range: steps of {step} do not lead from {first} to {last}")
    count = math.floor((last - first) / step) + 1
    places = function("arange")(count, dtype=dtype or function("empty")(0).dtype, device=device)
    numbers = into("range", places * step + first, out)
    return numbers.requires_grad_() if requires_grad else numbers  # type: ignore[no-any-return]


def empty_permuted(
    size: Sequence[int], physical_layout: Sequence[int], *, dtype: DType | None = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Return a tensor of any elements whose dimensions lie in memory in the order ``physical_layout``."""
    order = list(physical_layout)
    if sorted(order) != list(range_of(len(size))):
        raise ArgumentError(
            "empty_permuted: Number of dimensions in size does not match the length of the "
            "physical_layout, or Duplicate dim "
            f"not allowed: {order} does not name each of {len(size)} dimensions once"
        )
    dense = function("empty")([size[d] for d in order], dtype=dtype, layout=layout, device=device)
    made = dense.permute([order.index(d) for d in range_of(len(order))])
    return made.requires_grad_() if requires_grad else made  # type: ignore[no-any-return]


def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Copy ``input`` with ``source`` reduced into the places ``index`` along ``dim`` by prod, mean, amax or amin."""
    places = _places(input, dim, index, source, reduce)
    return into("index_reduce", input.scatter_reduce(dim, places, source, reduce, include_self=include_self), out)  # type: ignore[no-any-return]


def index_reduce_(
    self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Reduce ``source`` into the places ``index`` along ``dim`` of this tensor by prod, mean, amax or amin."""
    places = _places(self, dim, index, source, reduce)
    return self.scatter_reduce_(dim, places, source, reduce, include_self=include_self)


def _places(input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str) -> Tensor:
    """Return the index of each element of ``source``."""
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise ArgumentError(f"index_reduce: reduce must be prod, mean, amax or amin, not {reduce!r}")
    at = wrap_dim("index_reduce", dim, input.ndim)
    if index.ndim > 1 or (source.ndim and index.numel() != source.shape[at]):
        raise ShapeError(f"index_reduce: {index._meta} does not hold one index for each part of {source._meta}")
    if not source.ndim:
        return index.reshape(())
    return index.reshape([-1 if d == at else 1 for d in range_of(source.ndim)]).expand(source.shape)


def resize_(self: Tensor, *sizes: Any, memory_format: MemoryFormat = contiguous_format) -> Tensor:
    """Give this tensor another shape: its elements in the order of memory, and then any."""
    shape = [*Size(sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes)]
    if self.requires_grad and not thread.modes.inference:
        raise AutogradError("resize_: cannot resize variables that require grad; use detach() first")
    if shape == list(self.shape):
        return self
    held = self._meta.extent
    flat = self.detach().as_strided((held,), (1,), self.storage_offset())
    count = math.prod(shape)
    if count > held:
        flat = function("cat")([flat, flat.new_empty(count - held)])
    self._become(flat.as_strided(shape, contiguous_strides(tuple(shape)), flat.storage_offset()))
    if memory_format is not contiguous_format:
        self._become(self.contiguous(memory_format=memory_format))
    note_change(self)
    return self


def resize_as_(self: Tensor, the_template: Tensor, *, memory_format: MemoryFormat = contiguous_format) -> Tensor:
    """Give this tensor the shape of another one; see ``resize_``."""
    return resize_(self, list(the_template.shape), memory_format=memory_format)


METHODS: dict[str, Any] = {
    "diagflat": diagflat, "fill_diagonal_": fill_diagonal_, "index_reduce": index_reduce,
    "index_reduce_": index_reduce_, "resize_": resize_, "resize_as_": resize_as_,
}  # fmt: skip

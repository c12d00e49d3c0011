"""``StridedNestedTensor``: a batch of tensors of any sizes, one after the other in one vector.

It is PyTorch's older layout of nested tensors, whose ``layout`` is ``strided``. The vector carries the autograd
history.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

from telegrad._ops.functions import function
from telegrad._ops.overriding import disabled_torch_function
from telegrad._tensor.composed import ComposedTensor
from telegrad._tensor.layouts import strided
from telegrad._tensor.size import Size
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, DimensionError, ShapeError
from telegrad_protocol.meta import Meta

from .tensor import no_memory


class StridedNestedTensor(ComposedTensor):
    """A batch of tensors; ``_buffer`` has their elements and ``_sizes`` their shapes, which the client knows."""

    __slots__ = ("_buffer", "_sizes")

    __torch_function__: Any = classmethod(disabled_torch_function)
    _id = property(no_memory, lambda self, value: no_memory(self))

    def __init__(self, buffer: Tensor, sizes: Sequence[tuple[int, ...]]) -> None:
        self._buffer, self._sizes = buffer, tuple(sizes)
        self._session = buffer._session
        ndim = len(self._sizes[0]) if self._sizes else 0
        self._meta = Meta.of((len(self._sizes), *self._sizes[0]) if ndim else (0,), buffer.dtype, buffer.device)
        self._base = self._aliases = None

    @classmethod
    def of(cls, parts: Sequence[Tensor]) -> StridedNestedTensor:
        """Return copies of tensors as one nested tensor, through which gradients flow to them."""
        flat = [part.reshape(-1) for part in parts]
        return cls(function("cat")(flat), [tuple(part.shape) for part in parts])

    @property
    def stored(self) -> Tensor:
        """The vector of the elements of all tensors of the batch, one tensor behind the other."""
        return self._buffer

    def _hold(self, values: Tensor) -> None:
        self._buffer = values

    def _form(self) -> str:
        return "nested"

    def like(self, values: Tensor) -> StridedNestedTensor:
        """Return a tensor of the same sizes and other elements."""
        return StridedNestedTensor(values, self._sizes)

    def parts(self) -> list[Tensor]:
        """Return the tensors of the batch, as views of the vector."""
        pieces = self._buffer.split([math.prod(size) for size in self._sizes], 0)
        return [piece.view(size) for piece, size in zip(pieces, self._sizes, strict=True)]

    def wrapped(self, dim: int, more: int = 0) -> int:
        """Return a dimension counted from the front, of a result of ``more`` dimensions than this tensor has."""
        ndim = self._meta.ndim + more
        if not -ndim <= dim < ndim:
            raise DimensionError(f"dimension {dim} is out of range for a nested tensor of {ndim} dimensions")
        return dim % ndim

    def inner_dim(self, name: str, dim: int, more: int = 0) -> int:
        """Return the dimension of the tensors of the batch that one of this tensor is; refuse that of the batch."""
        wrapped = self.wrapped(dim, more)
        if not wrapped:
            raise ArgumentError(f"{name}(): not supported for nested tensors on dimension 0")
        return wrapped - 1

    @property
    def shape(self) -> Size:
        """Raise ShapeError: there is no one shape."""
        return self._no_shape()

    def _no_shape(self) -> NoReturn:
        raise ShapeError(
            "a nested tensor of the strided layout has no one shape; use size(dim), or layout=telegrad.jagged"
        )

    def size(self, dim: int | None = None) -> Any:
        """Return the size of a dimension in which all tensors of the batch agree."""
        if dim is None:
            self._no_shape()
        wrapped = self.wrapped(dim)
        if not wrapped:
            return len(self._sizes)
        seen = {size[wrapped - 1] for size in self._sizes}
        if len(seen) > 1:
            raise ShapeError(f"Given dimension {wrapped} is irregular and does not have a size.")
        return seen.pop()

    def stride(self, dim: int | None = None) -> Any:
        """Raise ShapeError: the tensors of the batch have their own strides."""
        self._no_shape()

    def __len__(self) -> int:
        self._no_shape()

    def storage_offset(self) -> int:
        """Return how many elements of the storage precede the first one."""
        return self._buffer.storage_offset()

    def numel(self) -> int:
        """Return the number of elements."""
        return self._buffer.numel()

    nelement = numel

    @property
    def nbytes(self) -> int:
        """The number of bytes of all elements."""
        return self._buffer.nbytes

    layout = property(lambda self: strided)
    is_nested = property(lambda self: True)

    def values(self) -> Tensor:
        """Return the vector of all elements, a view."""
        return self._buffer.view_as(self._buffer)

"""``NestedTensor``: a batch of tensors that differ in one size, packed along that dimension into one tensor.

Its layout is ``jagged``. The packed values carry its autograd history, so that derivatives are those of ordinary
operations on them.
"""

from __future__ import annotations

from typing import Any, NoReturn

from telegrad._ops.overriding import disabled_torch_function
from telegrad._tensor.composed import ComposedTensor
from telegrad._tensor.layouts import jagged
from telegrad._tensor.size import Size
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, DimensionError, NotSupportedError
from telegrad_protocol.meta import Meta

from .ragged import Ragged


def no_memory(tensor: Tensor) -> NoReturn:
    """Raise the error of what needs a tensor that the server knows."""
    raise NotSupportedError("a nested tensor is made of several tensors; use its values(), or unbind()")


class NestedTensor(ComposedTensor):
    """A tensor of sizes (n, ..., j, ...), of which j is another number in each of the n elements.

    ``_values`` has the dimensions behind the first, with all elements one after the other along the ragged one;
    ``_dim`` is the ragged dimension of the nested tensor.
    """

    __slots__ = ("_dim", "_ragged", "_values")
    _values: Tensor  # type: ignore[assignment]  # PyTorch's class has it too, in place of the method of sparse tensors

    __torch_function__: Any = classmethod(disabled_torch_function)
    _id = property(no_memory, lambda self, value: no_memory(self))

    def __init__(self, values: Tensor, ragged: Ragged, dim: int = 1) -> None:
        if not 1 <= dim <= values.ndim:
            raise ArgumentError(f"nested: the ragged dimension {dim} does not exist, with values of {values._meta}")
        if values.device != ragged.offsets.device:
            raise ArgumentError(
                f"nested: expected values and offsets on one device, got {values.device} and {ragged.offsets.device}"
            )
        self._values, self._ragged, self._dim = values, ragged, dim
        self._session = values._session
        self._meta = Meta.of((ragged.count, *values._meta.shape), values.dtype, values.device)
        self._base = self._aliases = None

    @property
    def stored(self) -> Tensor:
        """The packed values."""
        return self._values

    def _hold(self, values: Tensor) -> None:
        self._values = values

    def _form(self) -> str:
        return "nested"

    def like(self, values: Tensor, dim: int | None = None) -> NestedTensor:
        """Return a tensor that is divided as this one, of other values, which may be on another device."""
        return NestedTensor(values, self._ragged.to(values.device), self._dim if dim is None else dim)

    @property
    def shape(self) -> Size:
        """The sizes of the dimensions; the ragged one's has no number."""
        before, behind = self._meta.shape[: self._dim], self._meta.shape[self._dim + 1 :]
        return tuple.__new__(Size, (*before, self._ragged.size, *behind))

    def size(self, dim: int | None = None) -> Any:
        """Return the sizes of the dimensions, or that of one."""
        return self.shape if dim is None else self.shape[self._dimension(dim)]

    def stride(self, dim: int | None = None) -> Any:
        """Return the steps between neighbours along every dimension, or along one: those of the values behind it."""
        inner = self._values.stride()
        strides = (self._ragged.size * inner[self._dim - 1], *inner)
        return strides if dim is None else strides[self._dimension(dim)]

    def numel(self) -> int:
        """Return the number of elements; a tensor with gaps reads its lengths for that."""
        if self._ragged.lengths is None:
            return self._values.numel()
        return sum(self._ragged.listed()) * self._values[:1].transpose(0, self._dim - 1)[:1].numel()

    nelement = numel

    @property
    def nbytes(self) -> int:
        """The number of bytes of all elements."""
        return self.numel() * self.element_size()

    def storage_offset(self) -> int:
        """Return how many elements of the storage precede the first one."""
        return self._values.storage_offset()

    def wrapped(self, dim: int, more: int = 0) -> int:
        """Return a dimension counted from the front, of a result of ``more`` dimensions than this tensor has."""
        ndim = self._meta.ndim + more
        if not -ndim <= dim < ndim:
            raise DimensionError(f"dimension {dim} is out of range for a nested tensor of {ndim} dimensions")
        return dim % ndim

    def inner_dim(self, name: str, dim: int, more: int = 0, takes_ragged: bool = False) -> int:
        """Return the dimension of the values that one of this tensor is; the batch and the ragged one are refused."""
        wrapped = self.wrapped(dim, more)
        if wrapped == 0:
            raise ArgumentError(f"{name}(): not supported for NestedTensor on dim=0")
        if wrapped == self._dim and not takes_ragged:
            raise ArgumentError(f"{name}(): not supported for NestedTensor on ragged dim")
        return wrapped - 1

    def shares(self, other: NestedTensor) -> bool:
        """Whether another tensor is divided the same way along the same dimension, as far as sizes before it tell."""
        end = self._dim + 1
        return self._dim == other._dim and self.shape[:end] == other.shape[:end]

    layout = property(lambda self: jagged)
    is_nested = property(lambda self: True)

    def values(self) -> Tensor:
        """Return the packed values, a view."""
        return self._values.view_as(self._values) if self.requires_grad else self._values.detach()

    def offsets(self) -> Tensor:
        """Return where elements of the batch begin in the values, and where the last one ends: n + 1 numbers."""
        return self._ragged.offsets

    def lengths(self) -> Tensor | None:
        """Return the lengths of the elements where there are gaps between them, else None."""
        return self._ragged.lengths

    @property
    def _offsets(self) -> Tensor:
        return self._ragged.offsets

    @property
    def _lengths(self) -> Tensor | None:
        return self._ragged.lengths

    _ragged_idx = property(lambda self: self._dim)
    _max_seqlen = property(lambda self: self._ragged.longest_length())
    _min_seqlen = property(lambda self: self._ragged.shortest_length())
    _maybe_max_seqlen = property(lambda self: self._ragged.longest)
    _maybe_min_seqlen = property(lambda self: self._ragged.shortest)

    def _get_max_seqlen(self) -> int:
        return self._ragged.longest_length()

    def _get_min_seqlen(self) -> int:
        return self._ragged.shortest_length()

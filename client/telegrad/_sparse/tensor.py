"""``SparseTensor``: a tensor of which only some elements are stored, with their indices.

It is made of ordinary tensors: of indices and values in the coordinate layout; of compressed indices, plain indices and
values in the other ones. The values carry its autograd history, so that derivatives are those of ordinary operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from telegrad._ops.overriding import disabled_torch_function
from telegrad._session.thread_modes import thread
from telegrad._tensor.composed import ComposedTensor
from telegrad._tensor.layouts import Layout, sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, AutogradError, NotSupportedError
from telegrad_protocol.meta import Meta

BY_ROWS = frozenset((sparse_csr, sparse_bsr))
BY_COLUMNS = frozenset((sparse_csc, sparse_bsc))
BLOCKED = frozenset((sparse_bsr, sparse_bsc))
COMPRESSED = BY_ROWS | BY_COLUMNS
SPELLED = {
    sparse_coo: "Sparse", sparse_csr: "SparseCsr", sparse_csc: "SparseCsc", sparse_bsr: "SparseBsr",
    sparse_bsc: "SparseBsc",
}  # fmt: skip
"""The names of layouts in PyTorch's messages."""


def no_storage(tensor: SparseTensor) -> NoReturn:
    """Raise the error of what needs the one memory that a dense tensor has."""
    raise NotSupportedError(f"a {tensor._kind.name} tensor has no memory of its own; use to_dense(), or its values()")


def _as_leaf(values: Tensor, before: Tensor) -> Tensor:
    """Return values as a leaf in place of another, with its gradient where that fits."""
    made = values.detach().requires_grad_()
    if before._grad is not None and before.shape == made.shape:
        made.grad = before._grad
    return made


class SparseTensor(ComposedTensor):
    """A tensor in a sparse layout; ``_parts`` are the tensors that it is made of, the values last.

    ``_cell`` holds what products need of the indices, once they were needed. It is shared by all tensors of the same
    indices; where ``_is_flipped``, those of the transpose are in it.
    """

    __slots__ = ("_cell", "_is_coalesced", "_is_flipped", "_kind", "_parts")

    __torch_function__: Any = classmethod(disabled_torch_function)
    _id = property(no_storage, lambda self, value: no_storage(self))

    def __init__(self, kind: Layout, parts: Sequence[Tensor], shape: Sequence[int], is_coalesced: bool = False) -> None:
        values = parts[-1]
        self._kind = kind
        self._parts = tuple(parts)
        self._is_coalesced = is_coalesced or (kind is sparse_coo and values.shape[0] < 2)
        self._cell: list[Any] = [None]
        self._is_flipped = False
        self._session = values._session
        self._meta = Meta.of(tuple(shape), values.dtype, values.device)
        self._base = self._aliases = None

    def like(self, values: Tensor, *, is_coalesced: bool | None = None) -> SparseTensor:
        """Return a tensor with the same indices and other values."""
        known = self._is_coalesced if is_coalesced is None else is_coalesced
        made = SparseTensor(self._kind, (*self._parts[:-1], values), self.shape, known)
        made._cell, made._is_flipped = self._cell, self._is_flipped
        return made

    def become(self, other: Tensor, name: str) -> SparseTensor:
        """Become what an operation in place has computed."""
        if self.requires_grad and self.is_leaf and thread.modes.records:
            raise AutogradError(f"{name}: a leaf tensor that requires grad is modified in place; use no_grad()")
        if not isinstance(other, SparseTensor) or other._kind is not self._kind:
            raise ArgumentError(f"{name}: the result is not a {self._kind.name} tensor")
        values = other._parts[-1]
        values = values if values.dtype is self.dtype else values.to(self.dtype)
        if self.requires_grad and self.is_leaf:
            values = _as_leaf(values, self.stored)
        self._parts = (*other._parts[:-1], values)
        self._meta = Meta.of(other.shape, self.dtype, other.device)
        self._is_coalesced, self._cell, self._is_flipped = other._is_coalesced, other._cell, other._is_flipped
        return self

    @property
    def stored(self) -> Tensor:
        """The values, coalesced or not."""
        return self._parts[-1]

    def _hold(self, values: Tensor) -> None:
        self._parts = (*self._parts[:-1], values)

    def _form(self) -> str:
        return "sparse"

    def requires_grad_(self, requires_grad: bool = True) -> SparseTensor:
        """Set whether gradients flow into the values of this leaf."""
        super().requires_grad_(requires_grad)
        return self

    def _has_form_of(self, other: ComposedTensor) -> bool:
        return super()._has_form_of(other) and other._kind is self._kind  # type: ignore[attr-defined]

    @property
    def sparse_dims(self) -> int:
        """The number of sparse dimensions."""
        return int(self._parts[0].shape[0]) if self._kind is sparse_coo else 2

    @property
    def batch_dims(self) -> int:
        """The number of dimensions before the matrices of a compressed layout."""
        return 0 if self._kind is sparse_coo else self._parts[0].ndim - 1

    @property
    def dense_dims(self) -> int:
        """The number of dimensions of each stored element."""
        return self._meta.ndim - self.sparse_dims - self.batch_dims

    @property
    def count(self) -> int:
        """The number of stored elements, of each matrix of a batch."""
        return int(self._parts[-1].shape[self.batch_dims])

    @property
    def blocks(self) -> tuple[int, int] | None:
        """The sizes of the blocks that are stored; None where single elements are."""
        if self._kind not in BLOCKED:
            return None
        first = self.batch_dims + 1
        rows, columns = self._parts[-1].shape[first : first + 2]
        return int(rows), int(columns)

    def require(self, name: str, *kinds: Layout) -> None:
        """Raise NotSupportedError unless the layout is one of these."""
        if self._kind not in kinds:
            names = " or ".join(kind.name for kind in kinds)
            raise NotSupportedError(f"{name}: expected a {names} tensor, not {self._kind.name}; convert it first")

    def _become(self, other: Tensor) -> None:
        self.become(other, "out")

    @property
    def nbytes(self) -> int:
        """Raise NotSupportedError: indices and values have their own sizes."""
        raise NotSupportedError("nbytes: not defined for sparse tensors; add those of the indices and of the values")

    def stride(self, dim: int | None = None) -> Any:
        """Return zeros for a tensor in coordinates, as PyTorch does; other layouts have no strides."""
        self.require("stride", sparse_coo)
        return (0,) * self.ndim if dim is None else 0

    def storage_offset(self) -> int:
        """Return 0, as PyTorch does: a sparse tensor has no storage."""
        return 0

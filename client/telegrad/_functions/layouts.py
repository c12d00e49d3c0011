"""Functions and methods of sparse layouts, which every tensor has; what is behind them is imported when needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.layouts import Layout, sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr, strided
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import NotSupportedError


def _sparse(module: str) -> Any:
    import_module("telegrad._sparse.methods")
    return import_module(f"telegrad._sparse.{module}")


def _is_sparse(tensor: Any) -> bool:
    return tensor.layout is not strided


def to_dense(self: Tensor, dtype: DType | None = None, *, masked_grad: bool | None = None) -> Tensor:
    """Return a tensor with all elements, those that a sparse tensor does not store as zeros; a dense one itself.

    Gradients flow to the stored elements of a sparse tensor alone, whatever ``masked_grad`` says.
    """
    dense = _sparse("conversions").to_dense(self) if _is_sparse(self) else self
    return dense if dtype is None else dense.to(dtype)


def to_sparse(
    self: Tensor, sparse_dim: int | Layout | None = None, *, layout: Layout | None = None, blocksize: Any = None,
    dense_dim: int | None = None,
) -> Tensor:  # fmt: skip
    """Return the tensor in a sparse layout, that of coordinates by default.

    A dense tensor's elements that are not zero are stored; ``sparse_dim`` is the number of leading dimensions that
    are sparse, ``dense_dim`` that of trailing ones that are not. ``blocksize`` are the sizes of the blocks of blocked
    layouts. Waits for the server, which alone knows how many elements are stored.
    """
    return _sparse("conversions").to_sparse(self, sparse_dim, layout=layout, blocksize=blocksize, dense_dim=dense_dim)  # type: ignore[no-any-return]


def to_sparse_coo(self: Tensor) -> Tensor:
    """Return the tensor with the coordinates of its stored elements."""
    return to_sparse(self)


def to_sparse_csr(self: Tensor, dense_dim: int | None = None) -> Tensor:
    """Return the tensor with its stored elements by rows."""
    return _sparse("conversions").compress("to_sparse_csr", self, sparse_csr, None, dense_dim)  # type: ignore[no-any-return]


def to_sparse_csc(self: Tensor, dense_dim: int | None = None) -> Tensor:
    """Return the tensor with its stored elements by columns."""
    return _sparse("conversions").compress("to_sparse_csc", self, sparse_csc, None, dense_dim)  # type: ignore[no-any-return]


def to_sparse_bsr(self: Tensor, blocksize: Any, dense_dim: int | None = None) -> Tensor:
    """Return the tensor with its stored blocks by rows."""
    return _sparse("conversions").compress("to_sparse_bsr", self, sparse_bsr, blocksize, dense_dim)  # type: ignore[no-any-return]


def to_sparse_bsc(self: Tensor, blocksize: Any, dense_dim: int | None = None) -> Tensor:
    """Return the tensor with its stored blocks by columns."""
    return _sparse("conversions").compress("to_sparse_bsc", self, sparse_bsc, blocksize, dense_dim)  # type: ignore[no-any-return]


def sparse_mask(self: Tensor, mask: Tensor) -> Tensor:
    """Return a sparse tensor with the elements of this one at the stored indices of ``mask``."""
    if not _is_sparse(mask):
        raise NotSupportedError("sparse_mask: expected a sparse tensor as mask; use to_sparse()")
    return _sparse("conversions").masked(self, mask)  # type: ignore[no-any-return]


def coalesce(self: Tensor) -> Tensor:
    """Return a sparse tensor with each index once, in order, and the values of equal indices added up."""
    return _sparse("methods").coalesced(self)  # type: ignore[no-any-return]


def is_coalesced(self: Any) -> bool:
    """Tell whether a sparse tensor in coordinates has each index once, in order."""
    if self.layout is not sparse_coo:
        spelled = _sparse("tensor").SPELLED.get(self.layout, "Strided")
        raise NotSupportedError(f"is_coalesced: expected sparse coordinate tensor layout but got {spelled}")
    return bool(self._is_coalesced)


def sparse_dim(self: Any) -> int:
    """Return the number of sparse dimensions; 0 of a dense tensor."""
    return int(self.sparse_dims) if _is_sparse(self) else 0


def dense_dim(self: Any) -> int:
    """Return the number of dense dimensions of each stored element; all those of a dense tensor."""
    return int(self.dense_dims if _is_sparse(self) else self.ndim)


def _nnz(self: Any) -> int:
    if not _is_sparse(self):
        raise NotSupportedError("_nnz: expected a sparse tensor, not a dense one")
    return int(self.count)


def _coalesced_(self: Any, coalesced: bool) -> Any:
    if self.layout is not sparse_coo:
        raise NotSupportedError("_coalesced_: expected a sparse_coo tensor")
    self._is_coalesced = bool(coalesced)
    self._cell = [None]
    return self


def sparse_resize_(self: Tensor, size: Any, sparse_dim: int, dense_dim: int) -> Tensor:
    """Change the size of a sparse tensor in place; where elements are stored, sizes can grow only."""
    return _resized(self, size, sparse_dim, dense_dim, False)


def sparse_resize_and_clear_(self: Tensor, size: Any, sparse_dim: int, dense_dim: int) -> Tensor:
    """Drop all stored elements of a sparse tensor and change its size."""
    return _resized(self, size, sparse_dim, dense_dim, True)


def resize_as_sparse_(self: Tensor, the_template: Tensor) -> Tensor:
    """Change the size of a sparse tensor in place to that of another one; it can shrink where nothing is stored."""
    if not _is_sparse(self) or not _is_sparse(the_template):
        raise NotSupportedError("resize_as_sparse_: expected two sparse tensors; use resize_as_() for dense ones")
    return _sparse("shapes").resized_as(self, the_template)  # type: ignore[no-any-return]


def _resized(self: Tensor, size: Any, sparse_dim: int, dense_dim: int, clears: bool) -> Tensor:
    if not _is_sparse(self):
        raise NotSupportedError("sparse_resize_: expected a sparse tensor; use resize_() for a dense one")
    return _sparse("shapes").resize(self, size, sparse_dim, dense_dim, clears)  # type: ignore[no-any-return]


def _part(name: str, what: str) -> Any:
    def read(self: Tensor) -> Tensor:
        return _sparse("methods").part(self, name)  # type: ignore[no-any-return]

    read.__name__ = name
    read.__doc__ = f"Return {what} of a sparse tensor."
    return read


_PARTS = {
    "indices": "the indices", "values": "the stored elements",
    "crow_indices": "where rows begin", "col_indices": "the columns of the stored elements",
    "ccol_indices": "where columns begin", "row_indices": "the rows of the stored elements",
    "_indices": "the indices, coalesced or not,", "_values": "the stored elements, coalesced or not, without history,",
}  # fmt: skip


def _smm(self: Tensor, mat: Tensor) -> Tensor:
    """Multiply a sparse matrix by a dense one; the result is sparse."""
    return smm(self, mat)


def smm(input: Tensor, mat: Tensor) -> Tensor:
    """Multiply a sparse matrix by a dense one; the result is sparse."""
    return _sparse("products").smm(input, mat)  # type: ignore[no-any-return]


def hspmm(mat1: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Multiply a sparse matrix by a dense one; of the result, those rows are stored that have elements in ``mat1``."""
    return _sparse("functions").dispatch("hspmm", (mat1, mat2), {"out": out})  # type: ignore[no-any-return]


def sspaddmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1, out: Tensor | None = None
) -> Tensor:  # fmt: skip
    """Return beta * input + alpha * (mat1 @ mat2) as a sparse tensor."""
    options = {"beta": beta, "alpha": alpha, "out": out}
    return _sparse("functions").dispatch("sspaddmm", (input, mat1, mat2), options)  # type: ignore[no-any-return]


def _sspaddmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return beta * self + alpha * (mat1 @ mat2) as a sparse tensor."""
    return sspaddmm(self, mat1, mat2, beta=beta, alpha=alpha)


def spmm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Multiply two matrices, as ``mm`` does."""
    return function("mm")(input, mat2, out=out)  # type: ignore[no-any-return]


def _copy_of_part(name: str) -> Any:
    """Return the function that copies a part of a sparse tensor, such as ``indices_copy``."""
    read = METHODS[name]

    def copy(input: Tensor, *, out: Tensor | None = None) -> Tensor:
        part = read(input)
        return part.clone() if out is None else out.resize_(part.shape).copy_(part)

    copy.__name__ = copy.__qualname__ = f"{name}_copy"
    copy.__doc__ = f"Return a copy of {_PARTS[name]} of a sparse tensor."
    return copy


METHODS: dict[str, Any] = {
    "to_dense": to_dense, "to_sparse": to_sparse, "to_sparse_coo": to_sparse_coo, "to_sparse_csr": to_sparse_csr,
    "to_sparse_csc": to_sparse_csc, "to_sparse_bsr": to_sparse_bsr, "to_sparse_bsc": to_sparse_bsc,
    "sparse_mask": sparse_mask, "coalesce": coalesce, "is_coalesced": is_coalesced, "sparse_dim": sparse_dim,
    "dense_dim": dense_dim, "_nnz": _nnz, "_dimI": sparse_dim, "_dimV": dense_dim, "_coalesced_": _coalesced_,
    "sparse_resize_": sparse_resize_, "sparse_resize_and_clear_": sparse_resize_and_clear_,
    "resize_as_sparse_": resize_as_sparse_, "smm": _smm,
    "sspaddmm": _sspaddmm, **{name: _part(name, what) for name, what in _PARTS.items()},
}  # fmt: skip
indices_copy, values_copy = _copy_of_part("indices"), _copy_of_part("values")
crow_indices_copy, col_indices_copy = _copy_of_part("crow_indices"), _copy_of_part("col_indices")
ccol_indices_copy, row_indices_copy = _copy_of_part("ccol_indices"), _copy_of_part("row_indices")

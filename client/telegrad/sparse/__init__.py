"""``telegrad.sparse``: functions of sparse tensors, with PyTorch's names.

The products and sums here take sparse tensors in all layouts that can have them; ``docs/sparse.md`` has the table.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module as _import_module
from typing import Any

from telegrad._sparse import invariants as _invariants
from telegrad._sparse import methods as _methods
from telegrad._sparse import products as _products
from telegrad._sparse import reductions as _reductions
from telegrad._sparse.building import sparse_bsc_tensor as sparse_bsc_tensor
from telegrad._sparse.building import sparse_bsr_tensor as sparse_bsr_tensor
from telegrad._sparse.building import sparse_compressed_tensor as sparse_compressed_tensor
from telegrad._sparse.building import sparse_coo_tensor as sparse_coo_tensor
from telegrad._sparse.building import sparse_csc_tensor as sparse_csc_tensor
from telegrad._sparse.building import sparse_csr_tensor as sparse_csr_tensor
from telegrad._sparse.coalescing import coalesce as _coalesce
from telegrad._sparse.functions import dispatch as _dispatch
from telegrad._sparse.gradients import as_sparse_gradcheck as as_sparse_gradcheck
from telegrad._sparse.shown_nodes import named as _named
from telegrad._sparse.systems import spdiags as spdiags
from telegrad._sparse.systems import spsolve as spsolve
from telegrad._sparse.tensor import SparseTensor as _SparseTensor
from telegrad._tensor.layouts import sparse_coo as _sparse_coo
from telegrad._tensor.tensor import Tensor
from telegrad_protocol import dtypes as _dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import NotSupportedError as _NotSupportedError

__all__ = [
    "addmm", "as_sparse_gradcheck", "check_sparse_tensor_invariants", "log_softmax", "mm", "sampled_addmm", "softmax",
    "spdiags", "spsolve", "sum",
]  # fmt: skip

_ENTERED = _methods.ENTERED
_TYPES = {
    "FloatTensor": _dtypes.float32, "DoubleTensor": _dtypes.float64, "HalfTensor": _dtypes.float16,
    "BFloat16Tensor": _dtypes.bfloat16, "LongTensor": _dtypes.int64, "IntTensor": _dtypes.int32,
    "ShortTensor": _dtypes.int16, "CharTensor": _dtypes.int8, "ByteTensor": _dtypes.uint8,
}  # fmt: skip
"""The constructors of older programs, such as ``sparse.FloatTensor(indices, values, size)``."""


_SEMI_STRUCTURED = (
    "SparseSemiStructuredTensor", "SparseSemiStructuredTensorCUSPARSELT", "SparseSemiStructuredTensorCUTLASS",
    "to_sparse_semi_structured",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _SEMI_STRUCTURED:
        return getattr(_import_module("telegrad.sparse.semi_structured"), name)
    if name not in _TYPES:
        raise AttributeError(f"module 'telegrad.sparse' has no attribute {name!r}")
    dtype = _TYPES[name]

    def construct(*args: Any) -> Tensor:
        if all(isinstance(size, int) for size in args):
            return sparse_coo_tensor(args, dtype=dtype)
        return sparse_coo_tensor(*args, dtype=dtype)

    construct.__name__ = construct.__qualname__ = name
    return construct


def mm(input: Tensor, mat2: Tensor, reduce: str | None = None, *, out: Tensor | None = None) -> Tensor:
    """Multiply two matrices of which the first, or the second, is sparse; sparse where both are.

    ``reduce`` (sum, mean, amax or amin) says how the terms of each element are combined, for a first operand by rows.
    """
    if reduce is not None:
        return _products.reduced(input, mat2, reduce)  # type: ignore[arg-type]
    if not _any_sparse(input, mat2):
        return input.mm(mat2)
    is_sparse = isinstance(input, _SparseTensor) and isinstance(mat2, _SparseTensor)
    name = "SparseSparseMatmulBackward0" if is_sparse else "SparseAddmmBackward0"
    return _named(_dispatch("mm", (input, mat2), {"out": out}), name)  # type: ignore[no-any-return]


def _any_sparse(*operands: Any) -> bool:
    return any(isinstance(operand, _SparseTensor) for operand in operands)


def addmm(mat: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1.0, alpha: float = 1.0) -> Tensor:
    """Return beta * mat + alpha * (mat1 @ mat2), with gradients for a sparse ``mat1``."""
    result = _products.addmm(mat, mat1, mat2, beta=beta, alpha=alpha)
    return _named(result, "SparseAddmmBackward0")  # type: ignore[no-any-return]


def sampled_addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1.0, alpha: float = 1.0, out: Tensor | None = None
) -> Tensor:  # fmt: skip
    """Return beta * input + alpha * (mat1 @ mat2) at the indices that ``input`` stores by rows."""
    result = _products.sampled_addmm(input, mat1, mat2, beta=beta, alpha=alpha)  # type: ignore[arg-type]
    if out is None:
        return result
    if not isinstance(out, _SparseTensor):
        raise _NotSupportedError("sampled_addmm: out= must be a sparse_csr tensor")
    return out.become(result, "sampled_addmm")


def sum(input: Tensor, dim: Any = None, dtype: DType | None = None) -> Tensor:
    """Return the sum of all elements, or over dimensions: sparse unless all sparse dimensions are summed over."""
    if not isinstance(input, _SparseTensor):
        raise _NotSupportedError("sparse.sum: expected a sparse tensor; use telegrad.sum() for a dense one")
    if dim is None and input.dtype is _dtypes.bool_ and input._kind is _sparse_coo:
        input = _coalesce(input)
    kept = input.dtype if dtype is None and dim is not None else dtype  # unlike telegrad.sum()
    return _reductions.sum(input, dim, dtype=kept)  # type: ignore[no-any-return]


def softmax(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Return the softmax along a dimension, over stored elements alone."""
    return _reductions.softmax(input, dim, dtype, False)  # type: ignore[arg-type]


def log_softmax(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Return the logarithm of the softmax along a dimension, over stored elements alone."""
    return _reductions.softmax(input, dim, dtype, True)  # type: ignore[arg-type]


class check_sparse_tensor_invariants:
    """Let constructors check the elements of indices: in a ``with`` block, a function, or from ``enable()`` on."""

    def __init__(self, enable: bool = True) -> None:
        self._wanted = enable
        self._before: bool | None = None

    @staticmethod
    def is_enabled() -> bool:
        """Tell whether constructors of this thread check."""
        return _invariants.asked.is_on

    @staticmethod
    def enable() -> None:
        """Check from now on."""
        _invariants.asked.is_on = True

    @staticmethod
    def disable() -> None:
        """Check no more."""
        _invariants.asked.is_on = False

    def __enter__(self) -> None:
        if self._before is not None:
            raise RuntimeError("check_sparse_tensor_invariants: this context manager is in use already")
        self._before = _invariants.asked.is_on
        _invariants.asked.is_on = self._wanted

    def __exit__(self, *_: object) -> None:
        _invariants.asked.is_on = bool(self._before)
        self._before = None

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that runs with this setting."""

        def run(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self._wanted):
                return function(*args, **kwargs)

        return run

"""Matrices of which at most two of four neighbours in a row are not zero, under the names of ``torch.sparse``.

GPUs have instructions for such matrices, which are not used here: the matrix is kept whole, with zeros, and products
are those of dense matrices (docs/decisions/0122). What is checked, and what is computed, is the same.
"""

from __future__ import annotations

import warnings
from typing import Any, Final, NamedTuple, Self

from telegrad._session.grad_mode import no_grad
from telegrad._tensor.tensor import Tensor
from telegrad.utils._python_dispatch import return_and_correct_aliasing
from telegrad.utils._pytree import tree_map_only
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import NotSupportedError, ShapeError

__all__ = [
    "SparseSemiStructuredTensor", "SparseSemiStructuredTensorCUSPARSELT", "SparseSemiStructuredTensorCUTLASS",
    "to_sparse_semi_structured",
]  # fmt: skip
_GROUP: Final = 4
_KEPT: Final = 2
_ASKED: Final = ("detach", "t", "transpose", "clone", "_to_copy", "mm", "matmul", "addmm", "linear", "alias")
"""Operators that take such a matrix; what gives a matrix of the same kind is in ``_SAME``."""
_SAME: Final = ("detach", "t", "clone", "alias")


class _Least(NamedTuple):
    """The fewest rows and columns, of which sizes are multiples."""

    rows: int
    columns: int


class SparseSemiStructuredTensor(Tensor):
    """A matrix with at most two of four neighbours in a row; `to_sparse_semi_structured` makes them of dense ones.

    It takes part in ``mm``, ``addmm`` and ``linear``, and as the weight of a layer. It gets no gradient of its own.
    """

    packed: Tensor
    _DTYPE_SHAPE_CONSTRAINTS: dict[DType, _Least]
    _DEVICES: tuple[str, ...] = ("cuda",)
    _FORCE_CUTLASS = False
    _FUSE_TRANSPOSE = False
    _PROTOTYPE_WARNING_SHOWN = False

    @staticmethod
    def __new__(cls, shape: Any, packed: Tensor, requires_grad: bool = False) -> Any:
        make: Any = Tensor._make_wrapper_subclass
        made = make(cls, shape, dtype=packed.dtype, device=packed.device, requires_grad=requires_grad)
        made.packed = packed
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape})"

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["packed"], (self.shape, self.requires_grad)

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, Tensor], context: Any, size: Any, stride: Any) -> Any:
        shape, requires_grad = context
        return cls(shape, inner["packed"], requires_grad)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.partition("::")[2]
        if name not in _ASKED:
            raise NotSupportedError(
                f"{cls.__name__} only supports a specific set of operations, can't perform requested op ({name}); "
                "use to_dense()"
            )
        given, named = tree_map_only(SparseSemiStructuredTensor, lambda one: one.packed, (args, kwargs or {}))
        result = func(*given, **named)
        if name in _SAME:
            return return_and_correct_aliasing(func, args, kwargs, cls(result.shape, result))
        return result

    def to_dense(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the matrix with its zeros."""
        return self.packed.clone()

    def values(self) -> Tensor:
        """Return the kept elements of each row, two of each four, as a matrix with half of the columns."""
        places = _places(self.packed)
        return _grouped(self.packed).gather(2, places).reshape(self.packed.shape[0], -1)

    def indices(self) -> Tensor:
        """Return the places from 0 to 3 of the kept elements within their four, in the form of `values`."""
        return _places(self.packed).reshape(self.packed.shape[0], -1)

    @classmethod
    def from_dense(cls, original_tensor: Tensor, alg_id: int = 0) -> Self:
        """Return what is kept of a dense matrix: of each four neighbours the first two that are not zero."""
        cls._check(original_tensor)
        with no_grad():
            groups = _grouped(original_tensor.detach())
            is_kept = (groups != 0) & ((groups != 0).cumsum(2) <= _KEPT)
            packed = (groups * is_kept).reshape(original_tensor.shape)
        made: Self = cls(original_tensor.shape, packed, original_tensor.requires_grad)
        return made

    @classmethod
    def _check(cls, original: Tensor) -> None:
        """Raise what PyTorch raises where a matrix cannot be taken."""
        if original.device.type not in cls._DEVICES:
            raise NotSupportedError(
                f"Error original_tensor.device= {original.device} is not supported! Only CUDA tensors are currently "
                "supported."
            )
        if original.dim() != 2:
            raise ShapeError(
                f"Error original_tensor.dim = {original.dim()} is not supported! Only 2d tensors are currently "
                "supported."
            )
        if not original.is_contiguous():
            raise ShapeError("Error original_tensor is not contiguous!Only contiguous tensors are currently supported.")
        if original.dtype not in cls._DTYPE_SHAPE_CONSTRAINTS:
            raise NotSupportedError(f"Error original_tensor.dtype {original.dtype} is not a supported dtype for {cls}!")
        least, (rows, columns) = cls._DTYPE_SHAPE_CONSTRAINTS[original.dtype], original.shape
        if rows < least.rows or rows % least.rows or columns < least.columns or columns % least.columns:
            raise ShapeError(
                f"Error original_tensor.shape {original.shape} is not supported! Both dimensions must be larger or "
                f"equal than and a multiple of ({least.rows}, {least.columns})"
            )


def _grouped(matrix: Tensor) -> Tensor:
    return matrix.reshape(matrix.shape[0], -1, _GROUP)


def _places(packed: Tensor) -> Tensor:
    """Return for each four neighbours the places of two, in order: those that are not zero, then others."""
    is_kept = (_grouped(packed) != 0).int()
    return is_kept.argsort(dim=2, descending=True, stable=True)[..., :_KEPT].sort(dim=2)[0]


class SparseSemiStructuredTensorCUTLASS(SparseSemiStructuredTensor):
    """Such a matrix with the types and sizes that CUTLASS takes in PyTorch."""

    BACKEND = "cutlass"
    _DTYPE_SHAPE_CONSTRAINTS = {
        dtypes.int8: _Least(16, 128), dtypes.float16: _Least(32, 64), dtypes.bfloat16: _Least(32, 64),
        dtypes.float32: _Least(32, 32),
    }  # fmt: skip


class SparseSemiStructuredTensorCUSPARSELT(SparseSemiStructuredTensor):
    """Such a matrix with the types and sizes that cuSPARSELt takes in PyTorch."""

    BACKEND = "cusparselt"
    _DTYPE_SHAPE_CONSTRAINTS = {
        dtypes.int8: _Least(32, 32), dtypes.float16: _Least(16, 16), dtypes.bfloat16: _Least(16, 16),
    }  # fmt: skip


def to_sparse_semi_structured(
    original_tensor: Tensor, transposed: bool = False, alg_id: int = 0
) -> SparseSemiStructuredTensor:
    """Return a matrix on a GPU as one with at most two of four neighbours; of more than two the first two are kept."""
    if transposed:
        warnings.warn("Setting transpose from `to_sparse_semi_structured` is deprecated", FutureWarning, stacklevel=2)
    base = SparseSemiStructuredTensor
    if not base._PROTOTYPE_WARNING_SHOWN:
        base._PROTOTYPE_WARNING_SHOWN = True
        warnings.warn(
            "The PyTorch API of SparseSemiStructuredTensor is in prototype stage; here the matrix is kept whole, and "
            "products are those of dense matrices.", UserWarning, stacklevel=2,
        )  # fmt: skip
    is_cutlass = base._FORCE_CUTLASS or original_tensor.dtype is dtypes.float32
    kind: Any = SparseSemiStructuredTensorCUTLASS if is_cutlass else SparseSemiStructuredTensorCUSPARSELT
    made: SparseSemiStructuredTensor = kind.from_dense(original_tensor, alg_id)
    return made

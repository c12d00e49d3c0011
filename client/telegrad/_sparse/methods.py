"""What replaces methods of ``Tensor`` for sparse tensors: reading, parts, text. Importing this enters all of it."""

from __future__ import annotations

from typing import Any

from telegrad._ops.operand_classes import HANDLERS
from telegrad._tensor.layouts import sparse_coo
from telegrad._tensor.size import Size
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentTypeError, NotSupportedError, ShapeError

from . import elementwise as _elementwise
from . import products as _products
from . import reductions as _reductions
from . import shapes as _shapes
from . import systems as _systems
from .building import empty_coo, sparse_coo_tensor
from .coalescing import coalesce
from .conversions import to_dense
from .formatting import text
from .functions import dispatch
from .tensor import BY_COLUMNS, BY_ROWS, SPELLED, SparseTensor

ENTERED = (_elementwise, _products, _reductions, _shapes, _systems)
"""The modules that have entered their operations in the table."""


def _numpy(self: SparseTensor, *, force: bool = False) -> Any:
    """Raise ArgumentTypeError: a sparse tensor is no array."""
    raise ArgumentTypeError(f"numpy: a {self._kind.name} tensor cannot become an array; use to_dense().numpy()")


def _tolist(self: SparseTensor) -> Any:
    """Raise NotSupportedError: a sparse tensor is no list."""
    raise NotSupportedError(f"tolist: not supported for {self._kind.name} tensors; use to_dense().tolist()")


def _item(self: SparseTensor) -> Any:
    """Return the one element as a Python number."""
    if self.numel() != 1:
        raise ShapeError(f"item: a tensor with {self.numel()} elements cannot become a number")
    return to_dense(self).item()


def _is_contiguous(self: SparseTensor, memory_format: Any = None) -> bool:
    """Return False: sparse tensors have no strides."""
    if self._kind is not sparse_coo:
        raise NotSupportedError(f"is_contiguous: {self._kind.name} tensors do not have is_contiguous")
    return False


def _reshape(self: SparseTensor, *shape: Any) -> Any:
    """Raise NotSupportedError."""
    raise NotSupportedError("reshape: not implemented for sparse tensors; use to_dense().reshape()")


def _new(self: SparseTensor, *args: Any, device: Any = None) -> SparseTensor:
    """Return a tensor of this layout: of indices and values, or of a size and without stored elements."""
    if self._kind is not sparse_coo:
        raise NotSupportedError(f"new: not supported for {self._kind.name} tensors; use new_zeros()")
    if len(args) > 1 and isinstance(args[0], Tensor):
        if not isinstance(args[1], Tensor):
            raise ArgumentTypeError(f"new: expected indices and values as tensors, not {type(args[1]).__name__}")
        return sparse_coo_tensor(*args, device=device)
    if len(args) == 1 and isinstance(args[0], (Tensor, list, tuple)) and not isinstance(args[0], Size):
        raise ArgumentTypeError(
            f"new: a sparse tensor is made of sizes, or of indices and values, not of a {type(args[0]).__name__}; use "
            "sparse_coo_tensor()"
        )
    size = args[0] if args and isinstance(args[0], Size) else args or (0,)
    return empty_coo(size, dtype=self.dtype, device=self.device if device is None else device)


def _resize_as(self: SparseTensor, the_template: Any, *, memory_format: Any = None) -> Any:
    """Change the size in place to that of another sparse tensor."""
    return self.resize_as_sparse_(the_template)


def _bool(self: SparseTensor) -> bool:
    if self.numel() != 1:
        raise ShapeError("the truth value of a tensor with more than one value is ambiguous; use any()")
    return bool(_item(self))


def _setitem(self: SparseTensor, index: Any, value: Any) -> None:
    """Raise ArgumentTypeError: parts of a sparse tensor are no views that could be written to."""
    raise ArgumentTypeError("Cannot assign to a sparse tensor; use to_dense(), or write to its values()")


def _html(self: SparseTensor) -> str:
    return f"<pre>{text(self).replace('<', '&lt;')}</pre>"


def _bundle(self: SparseTensor, include: Any = None, exclude: Any = None) -> dict[str, str]:
    return {"text/plain": text(self)}


def _properties() -> dict[str, Any]:
    return {
        "layout": property(lambda self: self._kind),
        "is_sparse": property(lambda self: self._kind is sparse_coo),
        "is_sparse_csr": property(lambda self: self._kind.name == "sparse_csr"),
        "data": property(lambda self: dispatch("detach", (self,), {}), lambda self, value: self.become(value, "data")),
    }


for _name, _method in {
    **_properties(), "numpy": _numpy, "tolist": _tolist, "item": _item, "__array__": _numpy, "__repr__": text,
    "__bool__": _bool, "__setitem__": _setitem, "is_contiguous": _is_contiguous, "reshape": _reshape,
    "_repr_html_": _html, "_repr_mimebundle_": _bundle, "is_nonzero": _bool, "new": _new,
    "resize_as_": _resize_as,
}.items():  # fmt: skip
    setattr(SparseTensor, _name, _method)
HANDLERS[SparseTensor] = dispatch


def part(tensor: Tensor, name: str) -> Tensor:
    """Return the indices or the values of a tensor, by the name of the method that users call."""
    spelled = SPELLED[tensor._kind] if isinstance(tensor, SparseTensor) else "Strided"
    if name in ("indices", "values", "_indices", "_values"):
        return _part_of_coordinates(tensor, name, spelled)
    wanted = BY_ROWS if name in ("crow_indices", "col_indices") else BY_COLUMNS
    if not isinstance(tensor, SparseTensor) or tensor._kind not in wanted:
        kind = "row" if wanted is BY_ROWS else "column"
        raise NotSupportedError(f"{name}: expected sparse {kind} compressed tensor layout but got {spelled}")
    return tensor._parts[name in ("col_indices", "row_indices")]


def _part_of_coordinates(tensor: Tensor, name: str, spelled: str) -> Tensor:
    is_values = name.endswith("values")
    allowed = isinstance(tensor, SparseTensor) and (tensor._kind is sparse_coo or is_values)
    if not allowed:
        raise NotSupportedError(f"{name}: expected sparse coordinate tensor layout but got {spelled}")
    sparse: SparseTensor = tensor  # type: ignore[assignment]
    if sparse._kind is sparse_coo and not sparse._is_coalesced and not name.startswith("_"):
        raise ShapeError(f"Cannot get {name} on an uncoalesced tensor, please call .coalesce() first")
    if not is_values:
        return sparse._parts[0]
    return sparse.stored.detach() if name == "_values" else sparse.stored


def coalesced(tensor: Tensor) -> SparseTensor:
    """Return the tensor with each index once, in order."""
    if not isinstance(tensor, SparseTensor):
        raise NotSupportedError("coalesce: expected sparse coordinate tensor layout but got Strided")
    return coalesce(tensor)

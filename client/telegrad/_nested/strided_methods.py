"""What replaces methods of ``Tensor`` for nested tensors of the older layout. Importing this enters all of it."""

from __future__ import annotations

from typing import Any

from telegrad._ops.operand_classes import HANDLERS
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import NotSupportedError

from . import strided_layers as _layers
from . import strided_shapes as _shapes
from .formatting import elements
from .methods import SHARED
from .strided import StridedNestedTensor as Nested
from .strided_table import dispatch

ENTERED = (_layers, _shapes)
"""The modules that have entered their operations in the table."""


def _getitem(self: Nested, index: Any) -> Any:
    parts = index if isinstance(index, tuple) else (index,)
    result: Any = self
    if Ellipsis in [part for part in parts if not isinstance(part, Tensor)]:
        at = next(place for place, part in enumerate(parts) if part is Ellipsis)
        if at == 0 and all(isinstance(part, int) for part in parts[1:]):
            for place in reversed(parts[1:]):
                result = result.select(result.ndim - 1, place)
            return result
    if all(isinstance(part, int) for part in parts):
        for place in parts:
            result = result.select(0, place)
        return result
    raise NotSupportedError("index: a nested tensor of the strided layout is indexed by numbers alone")


def _to_dense(self: Nested, dtype: Any = None, *, masked_grad: Any = None) -> Nested:
    """Return the tensor itself, whose layout is strided already."""
    return self


def _is_contiguous(self: Nested, memory_format: Any = None) -> bool:
    """Return True: the elements lie one behind the other."""
    return True


def _contiguous(self: Nested, memory_format: Any = None) -> Nested:
    """Return the tensor itself, whose elements lie one behind the other already."""
    return self


def _clone(self: Nested, *, memory_format: Any = None) -> Nested:
    """Return a nested tensor of the same sizes on memory of its own; gradients flow through."""
    return self.like(self._buffer.clone())


for _name, _method in {
    **SHARED, "__repr__": elements, "__getitem__": _getitem, "to_padded_tensor": _layers.to_padded_tensor,
    "to_dense": _to_dense, "is_contiguous": _is_contiguous, "contiguous": _contiguous, "clone": _clone,
}.items():  # fmt: skip
    setattr(Nested, _name, _method)

HANDLERS[Nested] = dispatch

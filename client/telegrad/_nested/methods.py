"""What replaces methods of ``Tensor`` for jagged tensors: reading, indexing, text. Importing this enters all of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from telegrad._ops.operand_classes import HANDLERS
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentTypeError, NotSupportedError, ShapeError
from telegrad_protocol.memory_format import contiguous_format, preserve_format

from . import attention as _attention
from . import divisions as _divisions
from . import elementwise as _elementwise
from . import layers as _layers
from . import padding as _padding
from . import reductions as _reductions
from . import shapes as _shapes
from .building import of_list
from .formatting import summary
from .functions import TABLE, dispatch
from .tensor import NestedTensor

ENTERED = (_attention, _divisions, _elementwise, _layers, _padding, _reductions, _shapes)
"""The modules that have entered their operations in the table."""


def _refuse(name: str, instead: str) -> Any:
    def refuse(self: Tensor, *_: Any, **__: Any) -> Any:
        raise ArgumentTypeError(f"{name}: not supported for nested tensors; use {instead}")

    return refuse


def _item(self: NestedTensor) -> Any:
    """Return the one element as a Python number."""
    if self.numel() != 1:
        raise ShapeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
    return self._values.item()


def _bool(self: NestedTensor) -> bool:
    if self.numel() != 1:
        raise ShapeError("Boolean value of Tensor with more than one value is ambiguous")
    return bool(_item(self))


def _is_contiguous(self: NestedTensor, memory_format: Any = contiguous_format) -> bool:
    """Tell whether the values lie without gaps in the order of their dimensions."""
    if self._ragged.lengths is not None:
        return False
    return memory_format is preserve_format or self._values.is_contiguous(memory_format=memory_format)


def _contiguous(self: NestedTensor, memory_format: Any = contiguous_format) -> NestedTensor:
    """Return the tensor without gaps; itself if it has none. A tensor with gaps gets new offsets."""
    return self if _is_contiguous(self) else _clone(self, memory_format=contiguous_format)


def _clone(self: NestedTensor, *, memory_format: Any = preserve_format) -> NestedTensor:
    """Return a copy; in the contiguous format, one without gaps."""
    if memory_format is preserve_format:
        return TABLE["clone"](self)  # type: ignore[no-any-return]
    if self._ragged.lengths is not None:
        return of_list(list(self.unbind()), None, None)
    return self.like(self._values.clone(memory_format=memory_format))


def _iter(self: Tensor) -> Iterator[Tensor]:
    return iter(self.unbind())


def _new(name: str) -> Any:
    def make(self: NestedTensor, *size: Any, **options: Any) -> Tensor:
        sizes = size[0] if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
        if len(sizes):
            raise NotSupportedError(f"{name}: not supported for nested tensors with a shape other than ()")
        return getattr(self._values, name)((), **options)  # type: ignore[no-any-return]

    return make


def _setitem(self: Any, index: Any, value: Any) -> None:
    parts = index if isinstance(index, tuple) else (index,)
    if parts and all(isinstance(part, Tensor) and part.ndim for part in parts):
        given = value if isinstance(value, Tensor) else self._values.new_full((), value)
        self.index_put_(parts, given)
        return
    target = _divisions.indexed(self, index)
    if isinstance(value, Tensor):
        target.copy_(value)
    else:
        target.fill_(value)


def _html(self: Any) -> str:
    return f"<pre>{repr(self).replace('<', '&lt;')}</pre>"


def _bundle(self: Any, include: Any = None, exclude: Any = None) -> dict[str, str]:
    return {"text/plain": repr(self)}


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    if id(self) not in memo:
        copy = memo[id(self)] = self.detach().clone()
        if self.requires_grad:
            copy.requires_grad_()
    return memo[id(self)]


def _copy(self: Any) -> Any:
    copy = self.detach()
    return copy.requires_grad_() if self.requires_grad else copy


SHARED: dict[str, Any] = {
    "numpy": _refuse("numpy", "unbind() or values()"), "__array__": _refuse("numpy", "unbind() or values()"),
    "tolist": _refuse("tolist", "[part.tolist() for part in x.unbind()]"), "item": _item, "__bool__": _bool,
    "is_nonzero": _bool, "__iter__": _iter, "_repr_html_": _html, "_repr_mimebundle_": _bundle,
    "__deepcopy__": _deepcopy, "__copy__": _copy, "to_dense": _refuse("to_dense", "to_padded_tensor()"),
    "equal": _refuse("equal", "equal() of values() and offsets()"),
    "allclose": _refuse("allclose", "allclose() of values() and offsets()"),
}  # fmt: skip
"""Methods of nested tensors of both layouts."""


for _name, _method in {
    **SHARED, "__repr__": summary, "is_contiguous": _is_contiguous, "contiguous": _contiguous, "clone": _clone,
    "__getitem__": _divisions.indexed, "__setitem__": _setitem, "to_padded_tensor": _padding.to_padded_tensor,
    **{name: _new(name) for name in ("new_empty", "new_zeros", "new_ones")},
}.items():  # fmt: skip
    setattr(NestedTensor, _name, _method)
HANDLERS[NestedTensor] = dispatch

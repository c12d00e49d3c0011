"""``copy.copy``, ``copy.deepcopy`` and ``pickle`` of tensors, and ``Tensor.data``."""

from __future__ import annotations

from importlib import import_module
from io import BytesIO
from typing import Any

from telegrad._ops.duals import DualTensor
from telegrad._ops.functions import function
from telegrad._ops.operand_classes import DISPATCHING, HANDLERS, OVERRIDING, overrides
from telegrad._tensor.tensor import Tensor, require_one_session
from telegrad_protocol.errors import AutogradError


def _deepcopy(self: Tensor, memo: dict[int, Any]) -> Tensor:
    if not self.is_leaf:
        raise AutogradError("deepcopy: only leaf tensors can be copied deeply; use clone()")
    copy = memo[id(self)] = _like(self, self.detach().clone())
    if self._grad is not None:
        copy.grad = _deepcopy(self._grad, memo)
    return copy


def _copy(self: Tensor) -> Tensor:
    return _like(self, self.detach())


def _like(tensor: Tensor, data: Tensor) -> Tensor:
    """Return an object of the class of ``tensor``, with its attributes, that takes over the elements of ``data``."""
    copy: Tensor = type(tensor)._wrap(data)
    copy.__dict__.update(tensor.__dict__)
    return copy.requires_grad_() if tensor.requires_grad else copy


def _reduce(self: Tensor, protocol: Any) -> Any:
    """Pickle what ``telegrad.save`` writes of the tensor; its elements are read, which waits for the server."""
    written = BytesIO()
    import_module("telegrad.serialization").save(self, written)
    return _unpickled, (written.getvalue(),)


def _unpickled(written: bytes) -> Any:
    """Return the tensor in the current session, which is opened where there is none."""
    return import_module("telegrad.serialization").load(BytesIO(written))


def _get_data(self: Tensor) -> Tensor:
    """The same elements without history; what is written through them does not count as a modification for autograd."""
    kind = type(self)
    answers = kind in DISPATCHING or overrides.dispatch_modes or (kind in HANDLERS and kind not in OVERRIDING)
    return self.detach() if answers or kind is DualTensor else function("_unversioned")(self)


def _set_data(self: Tensor, other: Tensor) -> None:
    require_one_session("data", self, other)
    self._become(other.detach())


METHODS: dict[str, Any] = {
    "__deepcopy__": _deepcopy, "__copy__": _copy, "__reduce_ex__": _reduce, "data": property(_get_data, _set_data),
}  # fmt: skip

"""``copy.copy`` and ``copy.deepcopy`` of tensors, and ``Tensor.data``."""

from __future__ import annotations

from typing import Any

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


def _get_data(self: Tensor) -> Tensor:
    """The same elements without history."""
    return self.detach()


def _set_data(self: Tensor, other: Tensor) -> None:
    require_one_session("data", self, other)
    self._become(other.detach())


METHODS: dict[str, Any] = {"__deepcopy__": _deepcopy, "__copy__": _copy, "data": property(_get_data, _set_data)}

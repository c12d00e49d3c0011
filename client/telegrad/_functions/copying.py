"""``copy.copy``, ``copy.deepcopy`` and ``pickle`` of tensors, and ``Tensor.data``."""

from __future__ import annotations

import threading
from copy import deepcopy
from importlib import import_module
from io import BytesIO
from typing import Any

from telegrad._ops.duals import DualTensor
from telegrad._ops.functions import function
from telegrad._ops.operand_classes import DISPATCHING, HANDLERS, OVERRIDING, overrides
from telegrad._tensor.tensor import Tensor, require_one_session
from telegrad._tensor.torch_files.classes import attributes_of, slots_of, with_attributes
from telegrad_protocol.errors import AutogradError

_OWN_PACKAGES = ("telegrad", "torch")
"""Where telegrad's own classes say that they are from; it is PyTorch's place in programs that import ``torch``."""


def _deepcopy(self: Tensor, memo: dict[int, Any]) -> Any:
    if id(self) in memo:
        return memo[id(self)]
    if not self.is_leaf:
        raise AutogradError(
            "deepcopy: Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the "
            "moment; use detach().clone()"
        )
    has_views = self._base is not None or self._aliases is not None
    data = _copied_view(self, memo) if has_views else self.detach().clone()
    copy = memo[id(self)] = type(self)._wrap(data)
    _furnish(copy, self, deepcopy(self.__dict__, memo), deepcopy(slots_of(self), memo))
    if self._grad is not None:
        copy.grad = _deepcopy(self._grad, memo)
    return copy


def _copied_view(tensor: Tensor, memo: dict[int, Any]) -> Tensor:
    """Return the same view of a copy of the memory that a tensor shares with others: one for all that are copied."""
    root = tensor if tensor._base is None else tensor._base
    whole = memo.get(id(root._aliases))
    if whole is None:
        whole = root.detach().as_strided((root._meta.extent,), (1,), 0).clone()
        memo[id(root._aliases)] = whole
        memo.setdefault(id(memo), []).append(root._aliases)  # the number is its own as long as it lives
    meta = tensor._meta
    if meta.dtype is not whole.dtype:
        return tensor.detach().clone()
    shown: Tensor = whole.as_strided(meta.shape, meta.strides, meta.offset).detach()
    return shown


def _copy(self: Tensor) -> Tensor:
    copy: Tensor = type(self)._wrap(self.detach())
    _furnish(copy, self, self.__dict__, slots_of(self))
    return copy


def _furnish(copy: Tensor, original: Tensor, attributes: dict[str, Any], slots: dict[str, Any]) -> None:
    """Give a tensor that was just made attributes, and have it require a gradient if the original one does."""
    copy.__dict__.update(attributes)
    for name, value in slots.items():
        object.__setattr__(copy, name, value)
    if original.requires_grad:
        copy.requires_grad_()


def _reduce(self: Tensor, protocol: Any) -> Any:
    """Pickle what ``telegrad.save`` writes of the tensor; its elements are read, which waits for the server."""
    if self._session.holds_gradients:
        meta = self._meta
        given = (meta.shape, meta.strides, meta.offset, self.dtype, self.device, self.requires_grad)
        return _rewrapped, (type(self), given, attributes_of(self))
    written = BytesIO()
    import_module("telegrad.serialization").write_elements(self, written)
    kind: Any = type(self)
    own = next(base for base in kind.__mro__ if base.__module__.partition(".")[0] in _OWN_PACKAGES)
    # What is written tells own classes. Of one made from ``Parameter`` a parameter comes back, as in PyTorch.
    if kind is own or own is not Tensor:
        kind = None
    attributes = attributes_of(self)
    if kind is None and attributes is None:
        return _unpickled, (written.getvalue(),)
    return _rebuilt, (written.getvalue(), kind, attributes)


def _unpickled(written: bytes) -> Any:
    """Return the tensor in the current session, which is opened where there is none."""
    return import_module("telegrad.serialization").load(BytesIO(written))


def _rebuilt(written: bytes, kind: Any, attributes: Any) -> Any:
    """Return the same as an object of a program's own class, if one is given, with these attributes."""
    data = _unpickled(written)
    made = with_attributes(data if kind is None else kind._wrap(data.detach()), attributes)
    return made.requires_grad_() if data.requires_grad else made


def _rewrapped(kind: Any, given: tuple[Any, ...], attributes: Any) -> Any:
    """Return a tensor of a class that keeps its elements in these attributes."""
    shape, strides, offset, dtype, device, requires_grad = given
    make: Any = Tensor._make_wrapper_subclass
    made = make(kind, shape, strides, offset, dtype=dtype, device=device, requires_grad=requires_grad)
    return with_attributes(made, attributes)


class _Latest(threading.local):
    """The session of what ``data`` returned last in a thread, with its number and that of the tensor it is of."""

    pair = (0, 0, 0)


_latest = _Latest()


def _get_data(self: Tensor) -> Tensor:
    """The same elements without history; what is written through them does not count as a modification for autograd."""
    kind = type(self)
    answers = kind in DISPATCHING or overrides.dispatch_modes or (kind in HANDLERS and kind not in OVERRIDING)
    if answers or kind is DualTensor:
        return self.detach()
    data: Tensor = function("_unversioned")(self)
    _latest.pair = id(data._session), data._id, self._id
    return data


def _set_data(self: Tensor, other: Tensor) -> None:
    require_one_session("data", self, other)
    if self._requires_grad and not other.dtype.is_differentiable:
        raise AutogradError("data set to a tensor that requires gradients must be floating point or complex dtype")
    if (id(self._session), other._id, self._id) == _latest.pair and other._meta is self._meta:
        return  # ``x.data += y`` has written into the memory of ``x``, and sets its data to what it has
    if self._requires_grad and not self.is_leaf:
        other = import_module("telegrad.autograd.graph")._with_elements(self, other.detach())
        self._requires_grad, node = False, other._node
        self._become(other)
        self._requires_grad, self._node = True, node
    else:
        self._become(other.detach())


METHODS: dict[str, Any] = {
    "__deepcopy__": _deepcopy, "__copy__": _copy, "__reduce_ex__": _reduce, "data": property(_get_data, _set_data),
}  # fmt: skip

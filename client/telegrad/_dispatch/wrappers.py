"""Subclasses that have a shape and keep their elements in attributes of their own: wrappers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from telegrad._ops.overriding import answers_below_autograd
from telegrad._session.devices import as_device, default_device, session_for
from telegrad._session.shapes.shape_session import ShapeSession
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import get_default_dtype
from telegrad_protocol.errors import ArgumentTypeError, NotSupportedError
from telegrad_protocol.memory_format import strides_of
from telegrad_protocol.meta import CPU, META, Device, Meta


def _no_elements(what: str) -> NotSupportedError:
    return NotSupportedError(
        f"{what}: this tensor is a wrapper, whose elements are the program's own; its class answers operations by "
        "__torch_dispatch__"
    )


wrapper_session: Final = ShapeSession(
    (CPU, META, *[Device("cuda", index) for index in range(16)]), _no_elements, holds_gradients=True
)
"""The session of all wrappers."""


def make_wrapper(
    cls: type, size: Sequence[int], strides: Sequence[int] | None = None, storage_offset: int | None = None,
    memory_format: Any = None, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: bool = False,
    requires_grad: bool = False, dispatch_sizes_strides_policy: str | None = None, dispatch_device: bool = False,
    dispatch_layout: bool = False, _extra_dispatch_keys: Any = None, storage_size: int | None = None,
) -> Any:  # fmt: skip
    """Return a tensor of a subclass that has this shape, type and device, and no elements of its own.

    Raises ArgumentTypeError for a class without a ``__torch_dispatch__`` of its own.
    """
    if not answers_below_autograd(cls):
        raise ArgumentTypeError(f"_make_wrapper_subclass: {cls.__name__} must define __torch_dispatch__")
    place = default_device(session_for(None)) if device is None else as_device(device)
    place = place.on_server
    shape = tuple(size)
    given = tuple(strides) if strides is not None else strides_of(shape, memory_format) if memory_format else None
    meta = Meta.of(shape, dtype or get_default_dtype(), place, given, storage_offset or 0)
    made: Any = object.__new__(cls)
    Tensor.__init__(made, wrapper_session, wrapper_session.new_id(), meta)
    return made.requires_grad_() if requires_grad else made

"""Operands without elements beside others: the call is one of shapes alone, and the rule of devices decides.

A tensor of the ``meta`` device may stand beside numbers in 0-d tensors of the CPU, as a tensor of a GPU may.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telegrad._ops.functions import function
from telegrad._ops.operand_classes import _Overrides
from telegrad._session.devices import as_device
from telegrad._session.session import ClientSession
from telegrad._session.shapes.shape_session import ShapeSession, meta_session
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import NotSupportedError
from telegrad_protocol.meta import META, Device

NO_DATA = (
    "Cannot copy out of meta tensor; no data! Please use torch.nn.Module.to_empty() instead of torch.nn.Module.to() "
    "when moving module from meta to a different device."
)


def shape_of(
    tensor: Tensor, session: ClientSession, device: Device | None = None, dtype: DType | None = None
) -> Tensor:
    """Return a tensor of a session without elements that looks like another one, on another device if one is given."""
    meta = tensor._meta
    if device is not None or dtype is not None:
        meta = meta.like(device=device, dtype=dtype, strides=meta.strides if meta.is_dense else None)
    return Tensor(session, session.new_id(), meta)


def to_shape(tensor: Tensor, device: Device, dtype: DType) -> Tensor:
    """Return what ``to`` makes of a tensor where it or the device has no elements."""
    if isinstance(tensor._session, ShapeSession):
        raise NotSupportedError(f"to: {NO_DATA}")
    made = shape_of(tensor, meta_session, device, dtype)
    return made.requires_grad_() if tensor.requires_grad and dtype.is_differentiable else made


def mapped(arguments: Any, change: Callable[[Tensor], Any]) -> Any:
    """Return arguments with the tensors among them, and in lists, replaced."""
    if isinstance(arguments, Tensor):
        return change(arguments)
    if isinstance(arguments, (tuple, list)):
        items = [mapped(item, change) for item in arguments]
        return arguments._make(items) if hasattr(arguments, "_make") else type(arguments)(items)
    if isinstance(arguments, dict):
        return {name: mapped(value, change) for name, value in arguments.items()}
    return arguments


def run_on_shapes(public: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation some of whose operands have no elements; the others are taken for their shapes."""
    sessions: list[ShapeSession] = []

    def note(tensor: Tensor) -> None:
        if isinstance(tensor._session, ShapeSession):
            sessions.append(tensor._session)

    mapped((args, kwargs), note)
    own = sessions[0]
    is_copy = public == "copy_"
    if is_copy and own.stand_in is None and args and not isinstance(args[0]._session, ShapeSession):
        raise NotSupportedError(f"copy_: {NO_DATA}")

    def change(tensor: Tensor) -> Tensor:
        if tensor._session is own:
            return tensor
        if own.stand_in is not None:
            return own.stand_in(tensor)  # type: ignore[no-any-return]
        return shape_of(tensor, own, args[0].device if is_copy else None)

    given, named = mapped((args, kwargs), change)
    return function(public)(*given, **named)


def like_operand(device: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of a function that makes a tensor like its first, which may be of another session.

    The first one is replaced by one of the session of ``device`` where only one of the two has elements.
    """
    first = args[0] if args else None
    if not isinstance(first, Tensor):
        return args
    place = as_device(device).place
    is_shape = isinstance(first._session, ShapeSession)
    if place is META and not is_shape:
        return (shape_of(first, meta_session, META), *args[1:])
    if is_shape and first.device is META and place is not META:
        meta = first._meta
        made = function("empty_strided")(tuple(meta.shape), tuple(meta.strides), dtype=meta.dtype, device=place)
        return (made, *args[1:])
    return args


_Overrides.shape_handler = staticmethod(run_on_shapes)
_Overrides.like_operand = staticmethod(like_operand)

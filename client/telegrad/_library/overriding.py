"""Lets kernels that a program registers for PyTorch's operators answer the functions and methods of these names."""

from __future__ import annotations

from typing import Any

from telegrad._ops.functions import function
from telegrad._ops.replaced import REPLACED, passing, replace
from telegrad_protocol.errors import OperatorError
from telegrad_protocol.ops import PUBLIC

from . import aten
from .overloads import OpOverload


def note(qualname: str) -> None:
    """Have the function of an operator's name ask for kernels, from the first registration for it on."""
    namespace, _, name = qualname.partition("::")
    public = name.partition(".")[0]
    if namespace == aten.NAMESPACE and public in PUBLIC and public not in REPLACED:
        replace(public, lambda args, kwargs: _answered(public, args, kwargs))


def release(qualname: str) -> None:
    """Have the function run as before if no kernel is registered any more."""
    namespace, _, name = qualname.partition("::")
    public = name.partition(".")[0]
    packet = aten.packet(public) if namespace == aten.NAMESPACE else None
    if packet is not None and not packet.is_replaced():
        REPLACED.pop(public, None)


def _answered(public: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a call of a function by the overload that takes its arguments; by the function itself if none does."""
    packet = aten.packet(public)
    named = {("self" if name == "input" else name): value for name, value in kwargs.items()}
    if packet is not None:
        overload = _overload(packet, args, named)
        if overload is not None and overload._operator.kernels:
            return overload(*args, **named)
    with passing(public):
        return function(public)(*args, **kwargs)


def _overload(packet: aten.AtenPacket, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpOverload | None:
    try:
        return packet.resolve(args, kwargs)
    except OperatorError:
        return None

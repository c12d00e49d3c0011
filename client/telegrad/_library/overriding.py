"""Lets kernels that a program registers for PyTorch's operators answer the functions and methods of these names."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from telegrad._dispatch.lowerings import LOWERINGS
from telegrad._ops.functions import function
from telegrad._ops.replaced import REPLACED, passing, replace
from telegrad_protocol.errors import OperatorError
from telegrad_protocol.ops import PUBLIC

from . import aten
from .overloads import OpOverload

_PRODUCTS: Final = frozenset({"mm", "bmm", "mv", "dot"})
_COMPOSED: Final = {"matmul": _PRODUCTS, "linear": _PRODUCTS | {"addmm", "matmul"}}
"""Functions that are one operation here, and by which others PyTorch computes them."""


def note(qualname: str) -> None:
    """Have the function of an operator's name ask for kernels, from the first registration for it on.

    What PyTorch computes by that operator asks, too.
    """
    namespace, _, name = qualname.partition("::")
    public = name.partition(".")[0]
    if namespace == aten.NAMESPACE and public in PUBLIC:
        for asking in (public, *[whole for whole, parts in _COMPOSED.items() if public in parts]):
            if asking not in REPLACED:
                replace(asking, partial(_answered, asking))


def release(qualname: str) -> None:
    """Have the function run as before if no kernel is registered any more."""
    namespace, _, name = qualname.partition("::")
    public = name.partition(".")[0]
    if namespace != aten.NAMESPACE:
        return
    for asking in (public, *[whole for whole, parts in _COMPOSED.items() if public in parts]):
        if not any(map(_has_kernels, (asking, *_COMPOSED.get(asking, ())))):
            REPLACED.pop(asking, None)


def _has_kernels(public: str) -> bool:
    packet = aten.packet(public)
    return packet is not None and packet.is_replaced()


def _answered(public: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a call of a function by the overload that takes its arguments; by the function itself if none does."""
    packet = aten.packet(public)
    named = {("self" if name == "input" else name): value for name, value in kwargs.items()}
    if packet is not None:
        overload = _overload(packet, args, named)
        if overload is not None and overload._operator.kernels:
            return overload(*args, **named)
    if "out" not in kwargs and any(map(_has_kernels, _COMPOSED.get(public, ()))):
        composed = LOWERINGS[public](lambda part, *operands: function(part)(*operands), *args, **kwargs)
        if composed is not NotImplemented:
            return composed
    with passing(public):
        return function(public)(*args, **kwargs)


def _overload(packet: aten.AtenPacket, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpOverload | None:
    try:
        return packet.resolve(args, kwargs)
    except OperatorError:
        return None

"""Operators of telegrad's own, for operations that PyTorch has under no name: ``telegrad._squared_error.default``."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from telegrad._ops.functions import function
from telegrad_protocol.ops import TABLE, Op

_MUTATED: Final = {op.public: op.mutates for op in TABLE.values() if op.mutates}
"""By the public name of an operation, the places of the arguments that it writes to."""


class OwnPacket:
    """An operator by name; ``default`` is its only overload."""

    def __init__(self, name: str, run: Callable[..., Any]) -> None:
        self.__name__ = name
        self._qualified_op_name = f"telegrad::{name}"
        self.default = OwnOverload(self, run)

    def overloads(self) -> list[str]:
        """Return the names of the overloads."""
        return ["default"]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.default(*args, **kwargs)

    def __str__(self) -> str:
        return f"telegrad.{self.__name__}"


class OwnOverload:
    """The overload of such an operator. It has no schema; its arguments are those of telegrad's operation.

    ``mutates`` has the places of the arguments that it writes to.
    """

    namespace = "telegrad"
    _overloadname = "default"
    is_view = False

    def __init__(self, packet: OwnPacket, run: Callable[..., Any]) -> None:
        self._overloadpacket = self.overloadpacket = packet
        self._run = run
        self.mutates = _MUTATED.get(packet.__name__, ())
        self._opname = packet.__name__
        self._name = packet._qualified_op_name
        self.__name__ = f"{packet.__name__}.default"

    def name(self) -> str:
        """Namespace and name."""
        return self._name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<OpOverload(op='telegrad.{self._opname}', overload='default')>"

    def __str__(self) -> str:
        return f"telegrad.{self._opname}.default"


@cache
def _packet(name: str, run: Callable[..., Any]) -> OwnPacket:
    return OwnPacket(name, run)


def own_overload(op: Op | str, run: Callable[..., Any] | None = None) -> OwnOverload:
    """Return the operator of an operation, or of a function by its public name."""
    if isinstance(op, str):
        return _packet(op, run or function(op)).default
    return _packet(op.public, function(op.public)).default

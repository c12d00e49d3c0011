"""``torch._ops``: the classes of what ``torch.ops`` has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telegrad import ops as ops
from telegrad.ops import OpNamespace

from ..keys import DispatchKey as DispatchKey
from ..overloads import OpOverload as OpOverload
from ..overloads import OpOverloadPacket as OpOverloadPacket

_OpNamespace = OpNamespace
_OpsNamespace = OpNamespace
OperatorBase = OpOverload


class HigherOrderOperator:
    """An operator that takes functions, of which there are none: for ``isinstance``, and for packages that derive."""

    def __init__(self, name: str, *, cacheable: bool = False) -> None:
        self._name = self.__name__ = name

    def py_impl(self, key: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Return a decorator that keeps the function as it is."""
        return lambda function: function

    def name(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"<HigherOrderOperator {self._name}>"

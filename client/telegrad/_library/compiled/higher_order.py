"""Operators that take functions, ``torch.ops.higher_order``: what they are called, and who has defined them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

NAMESPACE: Final = "higher_order"
OPERATORS: Final[dict[str, HigherOrderOperator]] = {}
"""Those of telegrad and of the program, by name."""


class HigherOrderOperator:
    """An operator that takes functions; packages derive from it."""

    def __init__(self, name: str, *, cacheable: bool = False) -> None:
        self._name = self.__name__ = name
        self.__module__ = f"torch.ops.{NAMESPACE}"
        OPERATORS.setdefault(name, self)

    def py_impl(self, key: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Return a decorator that keeps the function as it is."""
        return lambda function: function

    def name(self) -> str:
        return self._name

    def __str__(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"<HigherOrderOperator {self._name}>"

    def __copy__(self) -> HigherOrderOperator:
        return self

    def __deepcopy__(self, memo: Any) -> HigherOrderOperator:
        return self

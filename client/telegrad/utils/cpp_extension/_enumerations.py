"""Enumerations that an extension gives Python: classes of numbers with names, which behave as those of pybind11 do."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final

from telegrad_protocol.errors import ArgumentTypeError

NUMBERS, ARITHMETIC, ORDERED = 1, 2, 4
"""What values are compared with: numbers; numbers by more than equality, with ``&``, ``|`` and ``^``; one another."""
_COMPARISONS: Final = ("lt", "gt", "le", "ge")
_BITWISE: Final = ("and", "or", "xor")


class ExtensionEnumeration:
    """A value of an enumeration of an extension's C++."""

    __slots__ = ("_value",)
    _is_of_extension = True
    _number = -1
    """The number of the enumeration among the classes of its extension."""
    __members__: ClassVar[dict[str, Any]] = {}

    def __init__(self, value: Any = None) -> None:
        if not isinstance(value, int):
            raise ArgumentTypeError(
                f"__init__(): incompatible constructor arguments. The following argument types are supported:\n"
                f"    1. {type(self).__qualname__}(value: int)\n\nInvoked with: {value!r}"
            )
        self._value = int(value)

    def __int__(self) -> int:
        return self._value

    __index__ = __int__

    @property
    def value(self) -> int:
        """The number that C++ knows the value by."""
        return self._value

    @property
    def name(self) -> str:
        """The name of the first value that is this number."""
        return next((name for name, one in self.__members__.items() if one._value == self._value), "???")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}.{self.name}: {self._value}>"

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._value == other._value

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._value)

    def __getstate__(self) -> int:
        return self._value

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._value,)


def enumeration_of(
    path: str, doc: str, number: int, arithmetic: int, told: Iterable[list[Any]]
) -> type[ExtensionEnumeration]:
    """Return the class of an enumeration: its path in the module, its number, and names, values and documentation."""
    names = [(name, value, about) for name, value, about in told]
    listed = "\n\n".join(f"  {name} : {about}" if about else f"  {name}" for name, _, about in names)
    body: dict[str, Any] = {
        "__slots__": (), "__doc__": f"{doc}\n\nMembers:\n\n{listed}" if doc else f"Members:\n\n{listed}",
        "_number": number, "_path": path, **_operators(arithmetic),
    }  # fmt: skip
    made: Any = type(path.rpartition(".")[2], (ExtensionEnumeration,), body)
    members = made.__members__ = {name: made(value) for name, value, _ in names}
    for name, one in members.items():
        setattr(made, name, one)
    return made  # type: ignore[no-any-return]


def _operators(arithmetic: int) -> dict[str, Any]:
    """Return the operators that values have beside equality among themselves."""
    if arithmetic == ORDERED:
        return {f"__{name}__": _strict(getattr(operator, name)) for name in _COMPARISONS}
    if not arithmetic:
        return {}
    made: dict[str, Any] = {
        "__eq__": lambda self, other: other is not None and self._value == _number(other),
        "__ne__": lambda self, other: other is None or self._value != _number(other),
        "__hash__": ExtensionEnumeration.__hash__,
    }
    if arithmetic == ARITHMETIC:
        for name in _COMPARISONS:
            made[f"__{name}__"] = _converting(getattr(operator, name))
        for name in _BITWISE:
            made[f"__{name}__"] = made[f"__r{name}__"] = _converting(getattr(operator, f"__{name}__"))
        made["__invert__"] = lambda self: ~self._value
    return made


def _number(value: Any) -> Any:
    return value._value if isinstance(value, ExtensionEnumeration) else value


def _converting(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda self, other: function(self._value, _number(other))


def _strict(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def compared(self: ExtensionEnumeration, other: Any) -> Any:
        if type(self) is not type(other):
            raise ArgumentTypeError("Expected an enumeration of matching type!")
        return function(self._value, other._value)

    return compared

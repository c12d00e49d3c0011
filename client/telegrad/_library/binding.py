"""Binds the arguments of a call to a schema: which is which, and whether they have the types that they must have."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any, Final

import numpy as np

from telegrad._session.devices import as_device
from telegrad._tensor.generator import Generator
from telegrad._tensor.layouts import Layout
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import OperatorError
from telegrad_protocol.memory_format import MemoryFormat
from telegrad_protocol.meta import Device

from .schemas.types import Argument, FunctionSchema, SchemaType

Convert = Callable[[Any], Any]
"""Returns an argument as a kernel gets it; raises TypeError where it has another type."""


def _integer(value: Any) -> Any:
    if isinstance(value, float):
        raise TypeError
    if isinstance(value, (Tensor, np.bool_)):
        return int(value)
    return value if type(value) is int else index(value)


def _truth(value: Any) -> bool:
    """Return whether a value is true; TypeError for one, such as a list, that has no truth of its own."""
    if value is not None and not hasattr(type(value), "__bool__"):
        raise TypeError
    return bool(value)


def _float(value: Any) -> Any:
    if isinstance(value, (str, bytes, complex)) or value is None:
        raise TypeError
    return value if type(value) is float else float(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, (bool, int, float, complex)):
        return value
    if (isinstance(value, Tensor) and value.numel() == 1) or (hasattr(value, "dtype") and hasattr(value, "item")):
        return value.item()
    raise TypeError


def _device(value: Any) -> Any:
    if isinstance(value, Device):
        return value
    if not isinstance(value, (str, int)):
        raise TypeError
    return as_device(value)


def _instance(*kinds: type) -> Convert:
    def convert(value: Any) -> Any:
        if not isinstance(value, kinds):
            raise TypeError
        return value

    return convert


_tensor_or_number: Final = _instance(Tensor, bool, int, float, complex)
_CONVERT: Final[dict[str, Convert]] = {
    "Tensor": _instance(Tensor),
    "int": _integer,
    "SymInt": _integer,
    "float": _float,
    "SymFloat": _float,
    "bool": _truth,
    "SymBool": _truth,
    "Scalar": _scalar,
    "number": _scalar,
    "complex": _scalar,
    "str": _instance(str),
    "Device": _device,
    "ScalarType": _instance(DType, int),
    "Layout": _instance(Layout, int),
    "MemoryFormat": _instance(MemoryFormat, int),
    "Generator": _instance(Generator),
}


def converter(type: SchemaType) -> Convert:
    """Return what converts an argument to a type."""
    element = type.element
    if element is None:
        return _CONVERT.get(type.kind, lambda value: value)
    inner = converter(element)
    if type.kind == "optional":
        return lambda value: None if value is None else inner(value)
    size, spreads = type.size, element.kind not in ("Tensor", "optional")

    def convert(value: Any) -> list[Any]:
        if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim):
            return [inner(item) for item in value]
        if size is None or not spreads:
            raise TypeError
        return [inner(value)] * size

    return convert


class Binder:
    """Binds calls of one overload; with ``takes_numbers`` a number may stand for a tensor."""

    def __init__(self, schema: FunctionSchema, takes_numbers: bool = False) -> None:
        self._schema = schema
        self._converters = [converter(argument.type) for argument in schema.arguments]
        if takes_numbers:
            self._converters = [_tensor_or_number if one is _CONVERT["Tensor"] else one for one in self._converters]
        self._names = {argument.name: place for place, argument in enumerate(schema.arguments)}
        self._most = sum(not argument.kwarg_only for argument in schema.arguments)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return positional arguments and keyword-only ones as kernels get them: those equal to defaults are left out.

        Raises OperatorError where the call does not fit the schema.
        """
        schema = self._schema
        if len(args) > self._most:
            self._too_many(len(args), len(kwargs))
        values = [*args, *[_MISSING] * (len(schema.arguments) - len(args))]
        for name, value in kwargs.items():
            place = self._names.get(name)
            if place is None:
                raise OperatorError(f"Unknown keyword argument {name!r} for operator {schema.name!r}. Schema: {schema}")
            if place < len(args):
                raise OperatorError(f"{schema.name}() got multiple values for argument {name!r}. Declaration: {schema}")
            values[place] = value
        for place, value in enumerate(values):
            argument = schema.arguments[place]
            if value is _MISSING:
                if not argument.has_default:
                    raise OperatorError(f"{schema.name}() is missing value for argument '{argument.name}'. "
                                        f"Declaration: {schema}")  # fmt: skip
                values[place] = argument.default_value
                continue
            try:
                values[place] = self._converters[place](value)
            except (TypeError, ValueError):
                raise self._mismatch(place, value) from None
        return self._split(values)

    def _split(self, values: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        arguments, most = self._schema.arguments, self._most
        named = {
            argument.name: value
            for argument, value in zip(arguments[most:], values[most:], strict=True)
            if not _is_default(argument, value)
        }
        count = most
        while count and _is_default(arguments[count - 1], values[count - 1]):
            count -= 1
        return tuple(values[:count]), named

    def _too_many(self, given: int, named: int) -> None:
        schema, most = self._schema, self._most
        if most < len(schema.arguments):
            raise OperatorError(
                f"{schema.name}() takes {most} positional argument(s) but {given} was/were given.  "
                f"Declaration: {schema}"
            )
        raise OperatorError(
            f"{schema.name}() expected at most {most} argument(s) but received {given + named} argument(s). "
            f"Declaration: {schema}"
        )

    def _mismatch(self, place: int, value: Any) -> OperatorError:
        argument = self._schema.arguments[place]
        shown = repr(value) if not isinstance(value, Tensor) else str(value._meta)
        return OperatorError(
            f"{self._schema.name}() Expected a value of type '{argument.type}' for argument '{argument.name}' but "
            f"instead found type '{type(value).__name__}'.\nPosition: {place}\nValue: {shown}\n"
            f"Declaration: {self._schema}"
        )


_MISSING: Final[Any] = object()


def _is_default(argument: Argument, value: Any) -> bool:
    if not argument.has_default or isinstance(value, Tensor):
        return False
    default = argument.default_value
    if isinstance(value, list) and any(isinstance(item, Tensor) for item in value):
        return False
    return value is default or (type(value) is type(default) and bool(value == default))

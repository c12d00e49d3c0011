"""Arguments of a program's steps: as JSON in the description, and bound to the operation's parameters.

In JSON, a tensor is its number, a number in a tensor's place a list of it, a dtype or device its name, and an integer
that depends on symbols a formula. What JSON cannot say of floats is ``{"float": "inf"}``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from telegrad_protocol.dtypes import BY_NAME, DType
from telegrad_protocol.errors import ProgramError, TelegradError
from telegrad_protocol.meta import Device
from telegrad_protocol.ops import Op
from telegrad_protocol.ops.params import Param

from .description import formula_of
from .sizes import LARGEST, Formula

_FLOATS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def encoded(value: Any, number_of: Callable[[Any], int | None]) -> Any:
    """Return a canonical argument as JSON has it; ``number_of`` returns the number of a tensor, None for all else."""
    number = number_of(value)
    if number is not None:
        return number
    if isinstance(value, (tuple, list)):
        return [encoded(item, number_of) for item in value]
    if isinstance(value, (DType, Device)):
        return value.name
    if isinstance(value, complex):
        return [encoded(value.real, number_of), encoded(value.imag, number_of)]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


def encoded_for(param: Param, value: Any, number_of: Callable[[Any], int | None]) -> Any:
    """Return the argument of a parameter as JSON; a number in a tensor's place becomes a list."""
    is_number = param.kind.holds_tensors and value is not None and not isinstance(value, tuple)
    item = encoded(value, number_of)
    return [item] if is_number and number_of(value) is None and not isinstance(value, complex) else item


class Binder:
    """Binds arguments: ``slot`` makes what stands for the tensor of a number, which ``is_tensor`` must accept."""

    def __init__(
        self, slot: Callable[[int], Any], is_tensor: Callable[[Any], bool],
        device: Callable[[Device], Device] = lambda device: device,
    ) -> None:  # fmt: skip
        self._slot, self._is_tensor, self._device = slot, is_tensor, device

    def bind(self, op: Op, args: Mapping[str, Any], sizes: Mapping[str, int]) -> tuple[Any, ...]:
        """Return arguments in declared order and canonical form. ProgramError for what does not fit."""
        unknown = args.keys() - {param.name for param in op.params}
        if unknown:
            raise ProgramError(f"{op.name}: the program names an unknown argument {min(unknown)!r}: {op.signature}")
        return tuple([self._bound(op, param, args, sizes) for param in op.params])

    def _bound(self, op: Op, param: Param, args: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
        if param.name not in args and param.required:
            raise ProgramError(f"{op.name}: the program gives no argument {param.name!r}: {op.signature}")
        try:
            value = self._value(param, args[param.name], sizes) if param.name in args else param.default
            accepted, canonical = param.kind.accept(value, self._is_tensor)
        except TelegradError as error:
            raise ProgramError(f"{op.name}: argument {param.name!r} of the program: {error.message}") from None
        except (TypeError, ValueError, AttributeError, KeyError, IndexError, OverflowError, RecursionError) as error:
            raise ProgramError(f"{op.name}: argument {param.name!r} of the program is malformed: {error}") from None
        if not accepted:
            raise ProgramError(f"{op.name}: argument {param.name!r} of the program must be {param.kind.described}")
        return canonical

    def _value(self, param: Param, item: Any, sizes: Mapping[str, int]) -> Any:
        if item is None:
            return None
        if not param.kind.holds_tensors:
            return self._attribute(param.kind.name.rstrip("?"), item, sizes)
        if param.kind.name.startswith("tensors"):
            return tuple([None if number is None else self._tensor(number) for number in item])
        if not isinstance(item, list):
            return self._tensor(item)
        numbers = [_number(part, sizes) for part in item]
        return complex(*numbers) if len(numbers) == 2 else numbers[0]

    def _tensor(self, number: Any) -> Any:
        if type(number) is not int:
            raise ProgramError(f"expected the number of a tensor, not {number!r:.40}")
        return self._slot(number)

    def _attribute(self, kind: str, item: Any, sizes: Mapping[str, int]) -> Any:
        if kind == "dtype":
            return BY_NAME[item]
        if kind == "device":
            return self._device(Device(item))
        if kind == "scalar" and isinstance(item, list):
            return complex(*[_number(part, sizes) for part in item])
        if isinstance(item, list):
            return tuple([self._attribute(kind, part, sizes) for part in item])
        return item if isinstance(item, (str, bool)) or item is None else _number(item, sizes)


def number_of_dict(item: dict[str, Any]) -> float | Formula:
    """Return what stands for a number that JSON has no form for: a float that is not finite, or a formula."""
    if item.keys() != {"float"}:
        return formula_of(item)
    if item["float"] not in (*_FLOATS,):
        raise ProgramError(f"expected inf, -inf or nan, not {item['float']!r:.40}")
    return _FLOATS[item["float"]]


def _number(item: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(item, dict):
        item = number_of_dict(item)
    if isinstance(item, Formula):
        return item.value(sizes)
    if type(item) is int and abs(item) > LARGEST * 4:
        raise ProgramError(f"the integer {item} does not fit into 64 bits")
    if isinstance(item, (bool, int, float)):
        return item
    raise ProgramError(f"expected a number, not {item!r:.40}")

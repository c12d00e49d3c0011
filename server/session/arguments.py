"""Arguments of operations from the wire: ids become the session's values, attributes are decoded by their kinds.

Clients are not trusted: an argument that does not fit its parameter is refused here, before a shape rule sees it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from server.engine.dispatcher import is_value
from server.engine.operators import BY_INDEX, Operator
from server.engine.value import Value
from telegrad_protocol.errors import ProtocolError, ShapeError, TelegradError
from telegrad_protocol.meta import MAX_DIMENSIONS
from telegrad_protocol.ops import Op
from telegrad_protocol.ops.contract import describe
from telegrad_protocol.ops.params import Param, decode_scalar

from .state import SessionState

__all__ = ["BY_INDEX", "READERS", "describe_operands", "describe_values"]

_TENSOR, _LIST, _ATTRIBUTE = range(3)
_SHOWN_OPERANDS = 8
_ONLY_INTEGERS, _ONLY_VALUES = {int}, {Value}
_LARGEST = 2**63 - 1


def _mode(param: Param) -> int:
    if not param.kind.holds_tensors:
        return _ATTRIBUTE
    return _LIST if param.kind.name.startswith("tensors") else _TENSOR


_TAKEN_AS_THEY_ARE = {
    "int": (int,), "float": (int, float), "bool": (bool,), "str": (str,), "scalar": (bool, int, float),
}  # fmt: skip


def _plain(param: Param) -> frozenset[type]:
    """Classes whose instances need no decoding; everything else is left to the kind's own decoder."""
    name = param.kind.name
    absent = (type(None),) if name.endswith("?") and name != "tensors?" and not param.kind.holds_tensors else ()
    return frozenset((*_TAKEN_AS_THEY_ARE.get(name.rstrip("?"), ()), *absent))


def _decoder(param: Param) -> Any:
    decode = param.kind.decode
    return _bounded(decode) if decode is not None and param.kind.name in SIZES else decode


def _bounded(decode: Any) -> Any:
    """``decode`` of sizes: the usual list of integers is taken as it is."""

    def read(item: Any) -> Any:
        if item.__class__ is list and len(item) <= MAX_DIMENSIONS:
            if {*map(type, item)} == _ONLY_INTEGERS and max(item) <= _LARGEST:
                return tuple(item)
        else:
            check_length(item)
        return decode(item)

    return read


def check_length(item: Any) -> Any:
    """``item``, unless it is a size of more dimensions than a tensor can have: shape rules multiply these up."""
    if isinstance(item, list) and len(item) > MAX_DIMENSIONS:
        raise ShapeError(f"shape: a tensor has at most {MAX_DIMENSIONS} dimensions, not {len(item)}")
    return item


SIZES = ("size", "size?")
_MOST_LAYOUTS = 64
"""The most combinations of argument classes whose layout is kept, per operation: a client decides what it sends."""


class WireLayout(NamedTuple):
    """Positions of ids of tensors, of arguments that are decoded and how, and of lists of tensors."""

    ids: tuple[int, ...]
    decoded: tuple[tuple[int, Callable[[Any], Any]], ...]
    lists: tuple[tuple[int, Param], ...]


class Reader:
    """Reads one operation's arguments, by a layout that their classes determine."""

    __slots__ = ("_layouts", "_params", "operator")

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self._params = [(_mode(p), _plain(p), _decoder(p), p) for p in operator.op.params]
        self._layouts: dict[tuple[type, ...], WireLayout] = {}

    def read(self, state: SessionState, raw: list[Any]) -> tuple[Any, ...]:
        """Bound arguments in declared order."""
        layout = self._layouts.get(tuple(map(type, raw)))
        if layout is None:
            return self._read_first(state, raw)
        ids, decoded, lists = layout
        bound, values = raw.copy(), state.values
        try:
            for position in ids:
                bound[position] = value = values[raw[position]]
                if value.__class__ is not Value:
                    return self._read_slowly(state, raw)
            for position, decode in decoded:
                bound[position] = decode(raw[position])
            for position, param in lists:
                bound[position] = _decode_list(state, self.operator.op, param, raw[position])
        except Exception:  # reading one by one tells what is wrong
            return self._read_slowly(state, raw)
        return tuple(bound)

    def _read_first(self, state: SessionState, raw: list[Any]) -> tuple[Any, ...]:
        bound = self._read_slowly(state, raw)
        if len(self._layouts) < _MOST_LAYOUTS:
            self._layouts[tuple(map(type, raw))] = self.layout(raw)
        return bound

    def layout(self, raw: list[Any]) -> WireLayout:
        """How to read arguments of the classes of ``raw``, which were accepted."""
        ids, decoded, lists = [], [], []
        for position, ((mode, plain, decode, param), item) in enumerate(zip(self._params, raw)):
            if mode == _TENSOR and item.__class__ is int:
                ids.append(position)
            elif mode == _TENSOR and item is not None:
                decoded.append((position, partial(_number, self.operator.op, param)))
            elif mode == _LIST:
                lists.append((position, param))
            elif mode == _ATTRIBUTE and item.__class__ not in plain:
                decoded.append((position, decode))
        return WireLayout(tuple(ids), tuple(decoded), tuple(lists))

    def _read_slowly(self, state: SessionState, raw: list[Any]) -> tuple[Any, ...]:
        op = self.operator.op
        if len(raw) != len(self._params):
            raise ProtocolError(f"{op.name}: {len(raw)} arguments, expected {len(self._params)}: {op.signature}")
        try:
            return tuple([self._read_one(state, *param, item) for param, item in zip(self._params, raw)])
        except TelegradError:
            raise
        except Exception as error:  # MessagePack can hold values that decoders do not expect
            raise ProtocolError(f"{op.name}: malformed argument: {error}") from error

    def _read_one(
        self, state: SessionState, mode: int, plain: frozenset[type], decode: Any, param: Param, item: Any
    ) -> Any:
        if mode == _TENSOR:
            return _accepted(self.operator.op, param, _decode_item(state, self.operator.op, param, item))
        if item.__class__ in plain:
            return item
        return decode(item) if mode == _ATTRIBUTE else _decode_list(state, self.operator.op, param, item)


READERS: dict[int, Reader] = {operator.op.index: Reader(operator) for operator in BY_INDEX}


def _number(op: Op, param: Param, item: list[Any]) -> Any:
    """A number in the place of a tensor, where one was accepted before."""
    if len(item) == 1:
        number = item[0]
        if number.__class__ is float or (number.__class__ is int and -_LARGEST <= number <= _LARGEST):
            return number
    return _accepted(op, param, decode_scalar(item[0] if len(item) == 1 else item))


def _decode_item(state: SessionState, op: Op, param: Param, item: Any) -> Any:
    if item is None:
        return None
    if isinstance(item, list) and len(item) in (1, 2):
        return decode_scalar(item[0] if len(item) == 1 else item)
    if type(item) is int:
        return state.value(item)
    raise ProtocolError(f"{op.name}: argument '{param.name}' must be the number of a tensor, not {describe(item)}")


def _decode_list(state: SessionState, op: Op, param: Param, items: Any) -> Any:
    if isinstance(items, list):
        if {*map(type, items)} == _ONLY_INTEGERS:
            values = tuple(map(state.values.get, items))
            if {*map(type, values)} == _ONLY_VALUES:
                return values
        items = tuple([_decode_item(state, op, param, item) for item in items])
    elif items is not None:
        raise ProtocolError(f"{op.name}: argument '{param.name}' must be a list of tensors, not {describe(items)}")
    return _accepted(op, param, items)


def _accepted(op: Op, param: Param, value: Any) -> Any:
    accepted, canonical = param.kind.accept(value, is_value)
    if not accepted:
        raise ProtocolError(f"{op.name}: argument '{param.name}' must be {param.kind.described}, not {describe(value)}")
    return canonical


def describe_operands(state: SessionState, op: Op, raw: list[Any]) -> str:
    """The tensors among raw arguments as ``float32[2,3]``, as far as they can be told."""
    try:
        bound = READERS[op.index].read(state, raw)
    except TelegradError:
        return ""
    return describe_values([item for arg in bound for item in (arg if isinstance(arg, tuple) else (arg,))])


def describe_values(items: list[Any]) -> str:
    """The tensors among ``items`` as ``float32[2,3]``; the first of them where there are many."""
    shown = [str(item.meta) for item in items if item.__class__ is Value]
    rest = len(shown) - _SHOWN_OPERANDS
    return ", ".join(shown if rest <= 0 else [*shown[:_SHOWN_OPERANDS], f"and {rest} more"])

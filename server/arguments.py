"""Arguments of operations from the wire: ids become the session's values, attributes what their kind says.

What comes is not trusted: whatever does not fit its parameter is refused here, before a shape rule sees it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from telegrad_protocol.errors import ProtocolError, ShapeError, TelegradError
from telegrad_protocol.meta import MAX_DIMENSIONS
from telegrad_protocol.ops import Op
from telegrad_protocol.ops.contract import describe
from telegrad_protocol.ops.params import Param, decode_scalar

from .engine.dispatcher import is_value
from .engine.operators import BY_INDEX
from .engine.value import Value

if TYPE_CHECKING:
    from .session import Session

__all__ = ["BY_INDEX", "decode_arguments", "describe_operands", "describe_values"]

_TENSOR, _LIST, _ATTRIBUTE = range(3)
_SHOWN_OPERANDS = 8


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
    return lambda item: decode(check_length(item))


def check_length(item: Any) -> Any:
    """``item``, unless it is a size of more dimensions than a tensor can have: shape rules multiply these up."""
    if isinstance(item, list) and len(item) > MAX_DIMENSIONS:
        raise ShapeError(f"shape: a tensor has at most {MAX_DIMENSIONS} dimensions, not {len(item)}")
    return item


SIZES = ("size", "size?")
_MODES: list[tuple[tuple[int, frozenset[type], Any, Param], ...]] = [
    tuple((_mode(p), _plain(p), _decoder(p), p) for p in operator.op.params) for operator in BY_INDEX
]


def decode_arguments(session: Session, op: Op, raw: list[Any]) -> tuple[Any, ...]:
    """Bound arguments in declared order."""
    modes = _MODES[op.index]
    if len(raw) != len(modes):
        raise ProtocolError(f"{op.name}: {len(raw)} arguments, expected {len(modes)}: {op.signature}")
    values = session.values
    found = []
    try:
        for (mode, plain, decode, param), item in zip(modes, raw):
            if mode == _TENSOR:
                value = values.get(item) if item.__class__ is int else None
                found.append(value if value.__class__ is Value else _unusual(session, op, param, item))
            elif item.__class__ in plain:
                found.append(item)
            elif mode == _ATTRIBUTE:
                found.append(decode(item))
            else:
                found.append(_decode_list(session, op, param, item))
    except TelegradError:
        raise
    except Exception as error:  # decoders do not foresee all that MessagePack can say
        raise ProtocolError(f"{op.name}: malformed argument: {error}") from error
    return tuple(found)


def _unusual(session: Session, op: Op, param: Param, item: Any) -> Any:
    """A tensor argument that is no plain id: a number in a list, None, an unknown or absent tensor."""
    return _accepted(op, param, _decode_item(session, op, param, item))


def _decode_item(session: Session, op: Op, param: Param, item: Any) -> Any:
    if item is None:
        return None
    if isinstance(item, list) and len(item) in (1, 2):
        return decode_scalar(item[0] if len(item) == 1 else item)
    if type(item) is int:
        return session.value(item)
    raise ProtocolError(f"{op.name}: argument '{param.name}' must be the number of a tensor, not {describe(item)}")


def _decode_list(session: Session, op: Op, param: Param, items: Any) -> Any:
    if isinstance(items, list):
        items = tuple([_decode_item(session, op, param, item) for item in items])
    elif items is not None:
        raise ProtocolError(f"{op.name}: argument '{param.name}' must be a list of tensors, not {describe(items)}")
    return _accepted(op, param, items)


def _accepted(op: Op, param: Param, value: Any) -> Any:
    accepted, canonical = param.kind.accept(value, is_value)
    if not accepted:
        raise ProtocolError(f"{op.name}: argument '{param.name}' must be {param.kind.described}, not {describe(value)}")
    return canonical


def describe_operands(session: Session, op: Op, raw: list[Any]) -> str:
    """The tensors among raw arguments as ``float32[2,3]``, as far as they can be told."""
    try:
        bound = decode_arguments(session, op, raw)
    except TelegradError:
        return ""
    return describe_values([item for arg in bound for item in (arg if isinstance(arg, tuple) else (arg,))])


def describe_values(items: list[Any]) -> str:
    """The tensors among ``items`` as ``float32[2,3]``; the first of them where there are many."""
    shown = [str(item.meta) for item in items if item.__class__ is Value]
    rest = len(shown) - _SHOWN_OPERANDS
    return ", ".join(shown if rest <= 0 else [*shown[:_SHOWN_OPERANDS], f"and {rest} more"])

"""Arguments of operations from the wire: ids become the session's values, attributes what their kind says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from telegrad_protocol.errors import ProtocolError, TelegradError
from telegrad_protocol.ops import Op
from telegrad_protocol.ops.params import Kind, decode_scalar

from .engine.operators import BY_INDEX
from .engine.value import Value

if TYPE_CHECKING:
    from .session import Session

__all__ = ["BY_INDEX", "decode_arguments", "describe_operands"]

_TENSOR, _LIST, _ATTRIBUTE, _PLAIN = range(4)


def _mode(kind: Kind) -> int:
    if not kind.holds_tensors:
        return _ATTRIBUTE if kind.decode else _PLAIN
    return _LIST if kind.name.startswith("tensors") else _TENSOR


_MODES: list[tuple[tuple[int, Any], ...]] = [
    tuple((_mode(p.kind), p.kind.decode) for p in operator.op.params) for operator in BY_INDEX
]


def decode_arguments(session: Session, op: Op, raw: list[Any]) -> tuple[Any, ...]:
    """Bound arguments in declared order."""
    modes = _MODES[op.index]
    if len(raw) != len(modes):
        raise ProtocolError(f"{op.name}: {len(raw)} arguments, expected {len(modes)}: {op.signature}")
    values = session.values
    found = []
    for (mode, decode), item in zip(modes, raw, strict=True):
        if mode == _TENSOR:
            value = values.get(item) if item.__class__ is int else None
            found.append(value if value.__class__ is Value else _unusual(session, op, item))
        elif mode == _ATTRIBUTE:
            found.append(decode(item))
        else:
            found.append(_decode_list(session, op, item))
    return tuple(found)


def _unusual(session: Session, op: Op, item: Any) -> Any:
    """A tensor argument that is no plain id: a number in a list, None, an unknown or absent tensor."""
    if item is None:
        return None
    if isinstance(item, list) and len(item) in (1, 2):
        return decode_scalar(item[0] if len(item) == 1 else item)
    if type(item) is int:
        return session.value(item)
    raise ProtocolError(f"{op.name}: expected the number of a tensor, not {type(item).__name__}")


def _decode_list(session: Session, op: Op, items: Any) -> Any:
    if items is None:
        return None
    if not isinstance(items, list):
        raise ProtocolError(f"{op.name}: expected a list of tensors, not {type(items).__name__}")
    return tuple([None if item is None else _unusual(session, op, item) for item in items])


def describe_operands(session: Session, op: Op, raw: list[Any]) -> str:
    """The tensors among raw arguments as ``float32[2,3]``, as far as they can be told."""
    try:
        bound = decode_arguments(session, op, raw)
    except TelegradError:
        return ""
    flat = [item for arg in bound for item in (arg if isinstance(arg, tuple) else (arg,))]
    return ", ".join(str(item.meta) for item in flat if isinstance(item, Value))

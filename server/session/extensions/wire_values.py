"""Arguments and results of extensions' functions in messages; ``telegrad_protocol.extension_messages`` says how."""

from __future__ import annotations

from typing import Any, Final

from server.engine.extensions.words import Enumerator, Instance
from server.engine.value import Value
from server.session.state import SessionState
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import NotSupportedError, ProtocolError, TelegradError, UnknownIdError
from telegrad_protocol.extension_messages import COMPLEX, DEVICE, DICT, DTYPE, ENUMERATOR, INSTANCE, LIST, SET, TUPLE
from telegrad_protocol.meta import Device

PLAIN: Final = frozenset((int, float, bool, str, type(None)))
"""Classes of values that travel as they are."""


def from_wire(state: SessionState, item: Any, tensors: list[Value]) -> Any:
    """Return the argument that an element of a message stands for; its tensors are added to ``tensors``."""
    if item.__class__ in PLAIN:
        return item
    try:
        if len(item) == 1:
            value = state.value(item[0])
            tensors.append(value)
            return value
        kind, content = item[0], item[1]
        if kind == LIST:
            return [from_wire(state, part, tensors) for part in content]
        if kind == TUPLE:
            return tuple([from_wire(state, part, tensors) for part in content])
        if kind == DTYPE:
            return dtypes.of_code(content)
        if kind == DEVICE:
            return Device(content).on_server
        if kind == COMPLEX:
            return complex(content, item[2])
        if kind == INSTANCE:
            return _instance(state, content)
        if kind == ENUMERATOR:
            return Enumerator(_int64(content), _int64(item[2]))
        if kind == SET:
            return {from_wire(state, part, tensors) for part in content}
        if kind == DICT:
            return {from_wire(state, k, tensors): from_wire(state, v, tensors) for k, v in content}
    except TelegradError:
        raise
    except Exception as error:  # MessagePack can hold what is no argument
        raise ProtocolError(f"malformed argument of an extension's function: {error}") from error
    raise ProtocolError(f"malformed argument of an extension's function: {item!r}")


def _int64(word: Any) -> int:
    if word.__class__ is not int or not -(1 << 63) <= word < 1 << 63:
        raise ProtocolError(f"malformed argument of an extension's function: expected an integer, got {word!r}")
    return int(word)


def _instance(state: SessionState, id: int) -> Instance:
    value: Any = state.values.get(id)
    if value.__class__ is not Instance:
        raise UnknownIdError(f"the session has no instance number {id}")
    return value


def to_wire(value: Any, tensor: Any = None) -> Any:
    """Return a value as an element of a message; ``tensor`` says how tensors and instances travel."""
    kind = value.__class__
    if kind in PLAIN:
        return value
    if (kind is Value or kind is Instance) and tensor is not None:
        return tensor(value)
    if kind is list or kind is tuple:
        return [LIST if kind is list else TUPLE, [to_wire(item, tensor) for item in value]]
    if kind is DType:
        return [DTYPE, value.code]
    if kind is Device:
        return [DEVICE, value.name]
    if kind is complex:
        return [COMPLEX, value.real, value.imag]
    if kind is dict:
        return [DICT, [[to_wire(k, tensor), to_wire(v, tensor)] for k, v in value.items()]]
    if kind is Enumerator:
        return [ENUMERATOR, *value]
    if kind is set:
        return [SET, [to_wire(item, tensor) for item in value]]
    raise NotSupportedError(f"extension: a {kind.__name__} cannot travel to the client")

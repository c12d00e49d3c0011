"""What containers of modules and parameters read of places, names and pairs, and print of what they hold."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad.nn.parameter import Parameter
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError


def position(index: Any, length: int) -> int:
    """Return the place of an index among so many, counted from the end if it is negative; raises IndexError."""
    place = operator.index(index)
    if not -length <= place < length:
        raise IndexError(f"index {place} is out of range")
    return place % length


def pairs(who: str, given: Any) -> Iterator[tuple[Any, Any]]:
    """Return the pairs of name and value that ``update`` of a dictionary of modules or parameters was given."""
    if not isinstance(given, Iterable):
        kind = type(given).__name__
        raise ArgumentTypeError(f"{who}.update should be called with an iterable of key/value pairs, but got {kind}")
    for place, pair in enumerate(given):
        if not isinstance(pair, Iterable):
            kind = type(pair).__name__
            raise ArgumentTypeError(f"{who} update sequence element #{place} should be Iterable; is {kind}")
        found = tuple(pair)
        if len(found) != 2:
            raise ArgumentError(f"{who} update sequence element #{place} has length {len(found)}; 2 is required")
        yield found


def text_key(key: Any) -> str:
    """Return the name of a parameter, which is a string."""
    if not isinstance(key, str):
        kind = type(key).__name__
        raise ArgumentTypeError(f"index given to ParameterDict cannot be used as a key: it is not a string but {kind}")
    return key


def as_parameter(value: Any) -> Any:
    """Return a parameter in place of a tensor, and everything else as it is."""
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def description(value: Any, by_type: bool = False) -> str:
    """Return what containers print of a value, with the name of its type or of its class."""
    if not isinstance(value, Tensor):
        return f"Object of type: {type(value).__name__}"
    size = "x".join(map(str, value.shape))
    place = f" ({value.device})" if value.is_cuda else ""
    kind = value.type() if by_type else value.dtype
    return f"{type(value).__name__} containing: [{kind} of size {size}{place}]"

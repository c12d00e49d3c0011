"""Classes of tensors that answer operations themselves: who is asked where an operand is one of these.

Knows none of them: a class enters itself with its first import. Operations on other tensors never look here once the
pattern of their call is cached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from telegrad_protocol.errors import ArgumentTypeError

Handler = Callable[[str, tuple[Any, ...], dict[str, Any]], Any]
"""Runs an operation, given its public name and arguments."""
HANDLERS: dict[type, Handler] = {}


class OperandHasHandler(ArgumentTypeError):
    """A call's cached pattern does not fit, since a list among its arguments holds a tensor of such a class."""


def handler_of(values: Iterable[Any]) -> Handler | None:
    """Return who answers a call with these arguments; None if all operands are ordinary."""
    if not HANDLERS:
        return None
    for value in values:
        kind = value.__class__
        handler = HANDLERS.get(kind)
        if handler is None and (kind is list or kind is tuple):
            handler = next((HANDLERS[item.__class__] for item in value if item.__class__ in HANDLERS), None)
        if handler is not None:
            return handler
    return None

"""Calls of operations from the wire: how a session finds what executes one.

The classes of the raw arguments lead to a `lookup`, which finds calls like earlier ones in one step. Everything else is
read and checked by `arguments` and dispatched, so that nothing is executed that was not accepted in the same form.
"""

from __future__ import annotations

from typing import Any

from server.engine.dispatcher import dispatch_and_cache, dispatch_uncached
from server.engine.lookup import Layout, Lookup, make_lookup
from server.engine.operators import Operator

from .arguments import READERS, Reader
from .state import SessionState

_MOST_LOOKUPS = 64
"""The most combinations of argument classes that have a lookup, per operation: a client decides what it sends."""


class Caller:
    """Executes one operation on raw arguments."""

    __slots__ = ("first_call", "lookups", "operator", "reader")

    def __init__(self, reader: Reader) -> None:
        self.operator = reader.operator
        self.reader = reader
        self.lookups: dict[tuple[type, ...], Lookup] = {}
        """By the classes of the raw arguments."""
        self.first_call: Lookup = self._call_and_make_lookup
        """What executes calls of arguments whose classes have no lookup."""

    def _call_and_make_lookup(self, raw: list[Any], state: SessionState) -> Any:
        result = self.call_uncached(raw, state)
        if len(self.lookups) < _MOST_LOOKUPS:
            self.lookups[tuple(map(type, raw))] = self._make_lookup(raw)
        return result

    def call_uncached(self, raw: list[Any], state: SessionState) -> Any:
        """Read the arguments and dispatch; raises what is wrong with them."""
        return dispatch_uncached(self.operator, self.reader.read(state, raw))

    def _make_lookup(self, raw: list[Any]) -> Lookup:
        """The lookup of arguments of the classes of ``raw``, which were accepted."""
        wire = self.reader.layout(raw)
        if wire.lists or self.operator.op.updates:
            return self.call_uncached
        floats = tuple([position for position, item in enumerate(raw) if item.__class__ is float])
        scalars = tuple([position for position, _ in wire.decoded if _is_scalar(self.operator, position)])
        layout = Layout(wire.ids, floats, wire.decoded, scalars)
        return make_lookup(self.operator, layout, self.call_uncached, dispatch_and_cache)

    def clear_caches(self) -> None:
        """Forget what was worked out for earlier calls."""
        self.lookups.clear()
        self.operator.clear_caches()


CALLERS: dict[int, Caller] = {index: Caller(reader) for index, reader in READERS.items()}


def _is_scalar(operator: Operator, position: int) -> bool:
    """Whether equal numbers in this position may differ: 1, 1.0 and True, or 0.0 and -0.0."""
    if position < operator.leading_tensors:
        return True
    if position >= operator.first_attribute:
        return position in operator.scalar_attributes
    return not operator.middle_is_plain[position - operator.leading_tensors]

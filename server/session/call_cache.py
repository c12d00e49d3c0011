"""Calls of operations from the wire: how a session finds what executes one.

The classes of the raw arguments lead to a `lookup`, which finds calls like earlier ones in one step. Everything else is
read and checked by `arguments` and dispatched, so that nothing is executed that was not accepted in the same form.
Calls of no result or of several are executed here, those of one by ``Session.run``.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Any

from server.engine.dispatcher import dispatch_and_cache, dispatch_uncached
from server.engine.lookup import Layout, Lookup, make_lookup
from server.engine.operators import Operator
from server.engine.value import Value
from telegrad_protocol import messages
from telegrad_protocol.errors import ProtocolError
from telegrad_protocol.ops import Op
from telegrad_protocol.programs.messages import RunProgram

from .arguments import READERS, Reader
from .programs.ending import RunStretch
from .state import SessionState
from .tensors import forget

FREE = messages.Free([])
"""What the history of memory shows as the instruction that frees the tensors named in ``Call.freed``."""

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
        if self.operator.op.updates:
            return self.call_uncached
        floats = tuple([position for position, item in enumerate(raw) if item.__class__ is float])
        scalars = tuple([position for position, _ in wire.decoded if _is_scalar(self.operator, position)])
        lists = tuple([position for position, _ in wire.lists if raw[position] is not None])
        layout = Layout(wire.ids, floats, wire.decoded, scalars, lists)
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


def first_call(inbox: deque[Any]) -> messages.Call | None:
    """Return the first call of the next few instructions: lines of the program and what is freed come before it."""
    for one in islice(inbox, 8):
        if one.__class__ is messages.Call:
            return one
        if one.__class__ is RunStretch:
            return one.stretch.begins  # type: ignore[no-any-return]
    return None


def call(state: SessionState, call: messages.Call) -> None:
    """Execute a call of no result, or of several; ``run`` executes those of one itself."""
    if call.freed:
        free_before(state, call)
    caller = CALLERS.get(call.op)
    if caller is None:
        raise ProtocolError(f"there is no operation number {call.op}")
    outs, raw = call.outs, call.args
    if len(outs) > 1:
        _check_count(outs, caller.operator.op)
    result = caller.lookups.get(tuple(map(type, raw)), caller.first_call)(raw, state)
    state.operations += 1
    if result.__class__ is not Value:
        if outs:
            bind(state.values, outs, result if isinstance(result, tuple) else ())
    elif outs or not caller.operator.op.mutates:
        bind(state.values, outs, (result,))


def _check_count(outs: tuple[int, ...], op: Op) -> None:
    if op.mutates and len(outs) != len(op.mutates):
        raise ProtocolError(f"{op.name}: {len(outs)} ids for {len(op.mutates)} results")


def bind(values: dict[int, Any], outs: tuple[int, ...], results: tuple[Any, ...]) -> None:
    """Give results the client's ids."""
    if len(outs) != len(results):
        raise ProtocolError(f"{len(outs)} ids for {len(results)} results")
    values.update(zip(outs, results))


def free_before(state: SessionState, call: messages.Call | RunProgram) -> None:
    """Free what a call or a run says was dropped before it; a history of memory shows this as an instruction."""
    state.instruction = FREE
    forget(state, call.freed)
    state.instruction = call

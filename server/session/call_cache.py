"""Calls of operations from the wire: what was found out about one is looked up in one step when the like of it comes.

A way to read raw arguments is found by their classes. What then decides how an operation runs is a key: the dispatch
keys of its values under the session's modes, the default dtype, the values' metas, and everything else by its value.
Equal keys lead to what was run before, all others to `dispatch`. Nothing is taken on trust: what was not read and
accepted under the same classes goes through `arguments`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from server.engine import context
from server.engine.dispatcher import dispatch_anew, settle, told_apart
from server.engine.operators import Operator
from telegrad_protocol import dtypes

from .arguments import READERS, Reader
from .state import SessionState

Way: TypeAlias = Callable[[SessionState, list[Any]], Any]
_WAYS = 64
"""So many combinations of classes an operation's caller remembers."""


class Caller:
    """Runs one operation on raw arguments."""

    __slots__ = ("first", "operator", "reader", "ways")

    def __init__(self, reader: Reader) -> None:
        self.operator = reader.operator
        self.reader = reader
        self.ways: dict[tuple[type, ...], Way] = {}
        self.first = self._first
        """The way of arguments whose classes were not met before."""

    def _first(self, state: SessionState, raw: list[Any]) -> Any:
        result = self.anew(state, raw)
        if len(self.ways) < _WAYS:
            self.ways[tuple(map(type, raw))] = _way(self, raw)
        return result

    def anew(self, state: SessionState, raw: list[Any]) -> Any:
        """Read the arguments and dispatch; raises what is wrong with them."""
        return dispatch_anew(self.operator, self.reader.read(state, raw))


CALLERS: dict[int, Caller] = {index: Caller(reader) for index, reader in READERS.items()}


def _way(caller: Caller, raw: list[Any]) -> Way:
    """The way of arguments of the classes of ``raw``, which were found good."""
    reading = caller.reader.reading(raw)
    if reading.lists or caller.operator.op.updates:
        return caller.anew
    floats = [position for position, item in enumerate(raw) if item.__class__ is float]
    leading = len(reading.ids)
    if not reading.decoded and not floats and reading.ids == tuple(range(leading)) and 0 < leading <= len(_LEADING):
        return _LEADING[leading - 1](caller)
    return _general(caller, reading.ids, reading.decoded, floats)


def _one(caller: Caller) -> Way:
    """One tensor, and what is as it came."""
    operator, mark, plans, anew = caller.operator, object(), caller.operator.plans, caller.anew

    def run(state: SessionState, raw: list[Any]) -> Any:
        rest = tuple(raw)[1:]
        ctx = context.current
        try:
            a: Any = state.values[raw[0]]
            key = (mark, dtypes._default, (ctx.included | a.keys) & ~ctx.excluded, a.meta, rest)
        except (KeyError, AttributeError):  # there is none, or it was never computed
            return anew(state, raw)
        known = plans.get(key)
        if known is None or ctx.trace is not None:
            return settle(operator, (a,) + rest, key)
        return known((a,) + rest)

    return run


def _two(caller: Caller) -> Way:
    operator, mark, plans, anew = caller.operator, object(), caller.operator.plans, caller.anew

    def run(state: SessionState, raw: list[Any]) -> Any:
        rest = tuple(raw)[2:]
        values: Any = state.values
        ctx = context.current
        try:
            a, b = values[raw[0]], values[raw[1]]
            key = (mark, dtypes._default, (ctx.included | a.keys | b.keys) & ~ctx.excluded, a.meta, b.meta, rest)
        except (KeyError, AttributeError):
            return anew(state, raw)
        known = plans.get(key)
        if known is None or ctx.trace is not None:
            return settle(operator, (a, b) + rest, key)
        return known((a, b) + rest)

    return run


def _three(caller: Caller) -> Way:
    operator, mark, plans, anew = caller.operator, object(), caller.operator.plans, caller.anew

    def run(state: SessionState, raw: list[Any]) -> Any:
        rest = tuple(raw)[3:]
        values: Any = state.values
        ctx = context.current
        try:
            a, b, c = values[raw[0]], values[raw[1]], values[raw[2]]
            key_set = (ctx.included | a.keys | b.keys | c.keys) & ~ctx.excluded
            key = (mark, dtypes._default, key_set, a.meta, b.meta, c.meta, rest)
        except (KeyError, AttributeError):
            return anew(state, raw)
        known = plans.get(key)
        if known is None or ctx.trace is not None:
            return settle(operator, (a, b, c) + rest, key)
        return known((a, b, c) + rest)

    return run


_LEADING = (_one, _two, _three)
"""By how many tensors come first and need no more than looking up, where nothing else needs more either."""


def _general(
    caller: Caller, ids: tuple[int, ...], decoded: tuple[tuple[int, Callable[[Any], Any]], ...], floats: list[int]
) -> Way:
    """Tensors anywhere, attributes to be decoded, and floats, of which 0 and -0 are equal and not the same."""
    operator, mark, plans, anew = caller.operator, object(), caller.operator.plans, caller.anew
    numbers = [position for position, _ in decoded if _is_number(caller.operator, position)]

    def run(state: SessionState, raw: list[Any]) -> Any:
        found, key = raw.copy(), raw.copy()
        values: Any = state.values
        ctx = context.current
        key_set = ctx.included
        try:
            for position in ids:
                found[position] = value = values[raw[position]]
                key[position] = value.meta
                key_set |= value.keys
            for position, decode in decoded:
                found[position] = key[position] = decode(raw[position])
        except Exception:  # it is found out below what is wrong
            return anew(state, raw)
        for position in floats:
            if not raw[position]:
                key.append(repr(raw[position]))
        for position in numbers:
            item = found[position]
            key.append(item.__class__ if item and item.__class__ is not complex else told_apart(item))
        whole = (mark, dtypes._default, key_set & ~ctx.excluded, tuple(key))
        known = plans.get(whole)
        if known is None or ctx.trace is not None:
            return settle(operator, tuple(found), whole)
        return known(tuple(found))

    return run


def _is_number(operator: Operator, position: int) -> bool:
    """Whether equal arguments there may mean different things: 1, 1.0 and True, 0.0 and -0.0."""
    if position < operator.leading:
        return True
    if position >= operator.tail:
        return position in operator.scalars
    return not operator.readings[position - operator.leading]

"""Where the integers of a recorded program come from: what indices can be is known of many before anything runs.

Moving elements makes no new ones: those of a copy are among those of its operand. Positions that an operation finds lie
in the dimension that it has searched, and what ``arange`` or ``randint`` makes is told by their arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from server.engine.integers.elements import Bounds, is_integral
from server.engine.integers.ranges import IndexRange, indices_in
from server.engine.integers.rules import MOVES, PLACES, RULES, is_widened, places_found
from server.engine.operators import Operator
from server.engine.signature import metas_of
from server.engine.value import Storage, Value, memory_of
from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta

from .indices import IndexCheck


class Origin(NamedTuple):
    """Elements are among those of inputs, each given by number and layout, and those from ``low`` to ``high``.

    None for both where there are no others. ``version`` is that of the memory when they were written.
    """

    version: int
    inputs: tuple[tuple[int, Meta], ...]
    low: int | None = None
    high: int | None = None


class Origins:
    """What is known of the integers in memory, while a program is recorded."""

    def __init__(self) -> None:
        self._inputs: dict[int, tuple[int, int]] = {}
        """The number and the version of each input by its memory."""
        self._made: WeakKeyDictionary[Storage, Origin] = WeakKeyDictionary()

    def enter(self, value: Value, number: int) -> None:
        """Note an input."""
        self._inputs.setdefault(id(memory_of(value.storage)), (number, value.storage.version))

    def note(self, operator: Operator, args: tuple[Any, ...], result: Any) -> None:
        """Note where the integers that an operation has made come from, where that can be told."""
        op = operator.op
        if op.view_of is not None or op.mutates:
            return
        for number, value in enumerate(result if result.__class__ is tuple else (result,)):
            if value.__class__ is Value and is_integral(value.meta):
                named = {p.name: arg for p, arg in zip(op.params, args, strict=False)}
                origin = self._origin(op.base.name, named, number)
                if origin is not None:
                    self._made[value.storage] = origin

    def _origin(self, name: str, args: dict[str, Any], number: int) -> Origin | None:
        if number:
            return Origin(0, (), *places_found(args)) if number == 1 and name in PLACES else None
        if name in MOVES and (name != "_to_copy" or is_widened(args)):
            return self._union(_tensors(args[MOVES[name]]))
        bounds = RULES[name](args, self._bounds_of_operand) if name in RULES else None
        return None if bounds is None else Origin(0, (), *bounds)

    def _bounds_of_operand(self, operand: Any) -> Bounds | None:
        return (operand, operand) if operand.__class__ is int else self.bounds_of(operand)

    def _union(self, values: Iterable[Value]) -> Origin | None:
        origins = [self.of(value) for value in values]
        known = [origin for origin in origins if origin is not None]
        if len(known) < len(origins):
            return None
        lows = [origin.low for origin in known if origin.low is not None]
        highs = [origin.high for origin in known if origin.high is not None]
        inputs = tuple(dict.fromkeys([pair for origin in known for pair in origin.inputs]))
        return Origin(0, inputs, min(lows, default=None), max(highs, default=None))

    def of(self, value: Value) -> Origin | None:
        """Return what is known of a value's elements; None where nothing is, or somebody has written there."""
        storage = value.storage
        if value.dtype is dtypes.bool_:
            return Origin(0, (), 0, 1)
        number, version = self._inputs.get(id(memory_of(storage)), (-1, -1))
        if number >= 0:
            return Origin(0, ((number, value.meta),)) if version == storage.version else None
        origin = self._made.get(storage)
        return origin if origin is not None and origin.version == storage.version else None

    def bounds_of(self, value: Any) -> Bounds | None:
        """Return the least and the greatest integer that a value can hold, whatever the inputs hold."""
        origin = self.of(value) if value.__class__ is Value and is_integral(value.meta) else None
        if origin is None or origin.inputs or origin.low is None or origin.high is None:
            return None
        return origin.low, origin.high

    def checks(self, operator: Operator, args: tuple[Any, ...]) -> list[IndexCheck] | None:
        """Return what must hold of inputs so that an operation's indices are in range; None where nobody can tell."""
        indices = indices_in(operator.op, metas_of(args))
        if indices is None:
            return None
        checks: list[IndexCheck] = []
        for one in indices:
            origin = self.of(one.of(args))
            if origin is None or not _is_inside(origin, one.range):
                return None
            checks += [IndexCheck(number, meta, one.range) for number, meta in origin.inputs]
        return checks


def _is_inside(origin: Origin, range: IndexRange) -> bool:
    return origin.low is None or origin.high is None or (origin.low >= range.low and origin.high < range.end)


def _tensors(arg: Any) -> Iterable[Value]:
    return arg if arg.__class__ is tuple else (arg,)

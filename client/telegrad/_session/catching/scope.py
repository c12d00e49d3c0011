"""A piece of code with the names that it sees: where errors are caught that are raised at a place in it.

``except`` clauses are told from the exception table, and ``with`` blocks from what they call: ``pytest.raises``,
``suppress`` and their like by their names, functions of ``contextlib.contextmanager`` and classes by their code.
"""

from __future__ import annotations

import builtins
import dis
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any, Final

from telegrad._session.own_code import is_own
from telegrad_protocol.errors import (
    ArgumentError,
    AutogradError,
    IndexOutOfRangeError,
    InplaceError,
    LinearAlgebraError,
    OutOfMemoryError,
    ShapeError,
)

_LATE = (
    ArgumentError, AutogradError, IndexOutOfRangeError, InplaceError, LinearAlgebraError, OutOfMemoryError, ShapeError,
)  # fmt: skip
"""The errors that only the server finds."""
_CATCHING_BLOCKS = ("raises", "assertraises", "suppress")
"""Beginnings, in small letters, of the names of what makes blocks that catch errors."""
_GLOBALS = frozenset(("LOAD_GLOBAL", "LOAD_NAME"))
_ATTRIBUTES = frozenset(("LOAD_ATTR", "LOAD_METHOD"))
_IGNORED = frozenset(("CACHE", "NOP", "PUSH_NULL", "EXTENDED_ARG"))
_ENDS = frozenset(("CHECK_EXC_MATCH", "POP_EXCEPT", "PUSH_EXC_INFO", "RERAISE"))
_LONGEST_EXPRESSION: Final = 64


class Scope:
    """A code object, and the namespaces in which it looks names up."""

    def __init__(self, code: CodeType, *namespaces: Mapping[str, Any]) -> None:
        self._namespaces = namespaces
        self._entries = list(_entries(code))
        self._instructions = [i for i in dis.get_instructions(code) if i.opname not in _IGNORED]

    def catching_targets(self, place: int) -> list[int]:
        """Return where an error of telegrad's that is raised at a place would be caught, innermost first."""
        return [target for target in self._targets(place) if self._catches(target)]

    def catches_at_a_yield(self) -> bool:
        """Tell whether a generator catches what is raised where it yields."""
        yields = [i.offset for i in self._instructions if i.opname == "YIELD_VALUE"]
        return any(self.catching_targets(place) for place in yields)

    def may_return_true(self) -> bool:
        """Tell whether a function returns anything but None and False."""
        before = [None, *self._instructions]
        returned = [one for one, i in zip(before, self._instructions) if i.opname == "RETURN_VALUE"]
        constants = [one for one in returned if one is not None and one.opname == "LOAD_CONST"]
        constants += [i for i in self._instructions if i.opname == "RETURN_CONST"]
        return len(constants) < len(returned) or any(i.argval for i in constants)

    def _targets(self, place: int) -> list[int]:
        """Return where an error that is raised at a place goes, and where it goes on if it is not caught there."""
        targets: list[int] = []
        while True:
            target = next((to for start, end, to in self._entries if start <= place < end), None)
            if target is None or target in targets:
                return targets
            targets.append(target)
            place = target

    def _catches(self, target: int) -> bool:
        here = [i for i in self._instructions if i.offset >= target][:2]
        if len(here) < 2 or here[0].opname != "PUSH_EXC_INFO":
            return False  # what restores the state after a clause
        if here[1].opname == "POP_TOP":
            return True  # a clause without a type
        if here[1].opname == "WITH_EXCEPT_START":
            return self._is_catching_block(min(start for start, _, to in self._entries if to == target))
        return any(map(_may_be_late, self._types(here[1].offset)))

    def _is_catching_block(self, start: int) -> bool:
        """Tell whether what a ``with`` calls, whose block starts at a place, catches errors."""
        entered = [i for i in self._instructions if i.offset < start][-1].positions
        made = [i for i in self._instructions if i.offset < start and _is_within(i.positions, entered)]
        names = [str(i.argval).lower() for i in made if i.opname in _GLOBALS | _ATTRIBUTES]
        if any(name.startswith(_CATCHING_BLOCKS) for name in names):
            types = self._errors_among(made)
            return not types or any(map(_may_be_late, types))
        return _lets_no_error_out(self._first_named(made))

    def _errors_among(self, instructions: list[Any]) -> list[Any]:
        """Return the classes of errors that an expression names."""
        value, values = None, []
        for instruction in instructions:
            if instruction.opname in _GLOBALS:
                value = self._named(instruction.argval, None)
            elif instruction.opname in _ATTRIBUTES:
                value = getattr(value, instruction.argval, None)
            values.append(value)
        return [one for one in values if isinstance(one, type) and issubclass(one, BaseException)]

    def _first_named(self, instructions: list[Any]) -> Any:
        """Return what the first name of an expression stands for, with the attributes that follow; None if local."""
        found: Any = None
        for number, instruction in enumerate(instructions):
            if not number and instruction.opname in _GLOBALS:
                found = self._named(instruction.argval, None)
            elif number and instruction.opname in _ATTRIBUTES:
                found = getattr(found, instruction.argval, None)
            else:
                break
        return found

    def _named(self, name: str, default: Any) -> Any:
        return next((names[name] for names in self._namespaces if name in names), default)

    def _types(self, place: int) -> Iterator[Any]:
        """Return what the clauses at a place name, one by one; ``BaseException`` where only running would tell."""
        by_place = {i.offset: number for number, i in enumerate(self._instructions)}
        number = by_place[place]
        stack: list[Any] = []
        while number < len(self._instructions):
            instruction = self._instructions[number]
            number += 1
            name = instruction.opname
            if name in _GLOBALS:
                stack.append(self._named(instruction.argval, BaseException))
            elif name in _ATTRIBUTES and stack:
                stack.append(getattr(stack.pop(), instruction.argval, BaseException))
            elif name == "BUILD_TUPLE":
                pass  # each of its elements counts
            elif name == "CHECK_EXC_MATCH":
                yield from stack
                stack.clear()
                following = self._instructions[number].argval  # the next clause of this ``try``
                number = by_place.get(following, len(self._instructions))
            elif name.startswith("LOAD_"):
                stack.append(BaseException)
            else:  # code that decides which errors are caught, a ``finally``, or the end of the clauses
                ahead = (i.opname for i in self._instructions[number - 1 : number + _LONGEST_EXPRESSION])
                if next((name for name in ahead if name in _ENDS), None) == "CHECK_EXC_MATCH":
                    yield BaseException
                return


def _entries(code: CodeType) -> Iterator[tuple[int, int, int]]:
    """Read the exception table: where a guarded range starts and ends, and where it goes on after an error."""
    data = iter(code.co_exceptiontable)
    while (first := next(data, None)) is not None:
        start = 2 * _number(data, first)
        size, target, _ = [_number(data, next(data)) for _ in range(3)]
        yield start, start + 2 * size, 2 * target


def _number(data: Iterator[int], byte: int) -> int:
    number = byte & 63
    while byte & 64:
        byte = next(data)
        number = number << 6 | byte & 63
    return number


def _is_within(inner: Any, outer: Any) -> bool:
    if None in (*inner, *outer):
        return False
    return bool(
        (outer.lineno, outer.col_offset) <= (inner.lineno, inner.col_offset)
        and (inner.end_lineno, inner.end_col_offset) <= (outer.end_lineno, outer.end_col_offset)
    )


def _lets_no_error_out(manager: Any) -> bool:
    """Tell whether a context manager, its class or the function that makes it, has code that ends an error."""
    generator = getattr(manager, "__wrapped__", None)
    if isinstance(generator, FunctionType):
        scope = _scope_of(generator)
        return scope is not None and scope.catches_at_a_yield()
    leave = getattr(manager if isinstance(manager, type) else type(manager), "__exit__", None)
    scope = _scope_of(leave) if isinstance(leave, FunctionType) else None
    return scope is not None and scope.may_return_true()


def _scope_of(function: FunctionType) -> Scope | None:
    code = function.__code__
    return None if is_own(code.co_filename) else Scope(code, function.__globals__, vars(builtins))


def _may_be_late(given: Any) -> bool:
    types = given if isinstance(given, tuple) else (given,)
    return any(isinstance(type_, type) and any(issubclass(late, type_) for late in _LATE) for type_ in types)

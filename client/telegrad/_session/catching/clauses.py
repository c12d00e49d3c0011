"""Which clauses of a frame would catch an error of telegrad's: read from the bytecode, once for each place in it.

``except`` clauses count, and blocks such as ``with pytest.raises(...)`` and ``with contextlib.suppress(...)``. Python's
own library and telegrad count for nothing; what runs tests or notebooks is no part of the program. Knows no sessions.
"""

from __future__ import annotations

import dis
import sysconfig
from collections.abc import Iterator
from types import CodeType, FrameType
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
_STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"]
_INSTALLED = ("site-packages", "dist-packages")
_RUNNERS = ("_pytest.python", "IPython.", "ipykernel.")
"""Beginnings of names of modules that run programs: what they catch is no business of the program."""
_CATCHING_BLOCKS = ("raises", "assertraises", "suppress")
"""Beginnings, in small letters, of the names of what makes blocks that catch errors."""
_LOADS = frozenset(("LOAD_GLOBAL", "LOAD_NAME"))
_ATTRIBUTES = frozenset(("LOAD_ATTR", "LOAD_METHOD"))
_IGNORED = frozenset(("CACHE", "NOP", "PUSH_NULL", "EXTENDED_ARG"))
_ENDS = frozenset(("CHECK_EXC_MATCH", "POP_EXCEPT", "PUSH_EXC_INFO", "RERAISE"))
_LONGEST_EXPRESSION: Final = 64
_MOST_KNOWN: Final = 1 << 14


class Clause:
    """A clause that would catch an error; ``patience`` is how many more calls are awaited for it in vain."""

    __slots__ = ("patience",)

    PATIENCE: Final = 64

    def __init__(self) -> None:
        self.patience = self.PATIENCE


Clauses = tuple[Clause, ...]
known_places: dict[tuple[int, int], tuple[CodeType, Clauses | None]] = {}
"""What ``look_up`` has found, by the id of a code object and the place in it, with the object, so that it is kept."""
_by_target: dict[tuple[int, int], Clause] = {}


def look_up(frame: FrameType) -> Clauses | None:
    """Return the clauses around the instruction that a frame executes, innermost first; None for what runs programs."""
    if len(known_places) >= _MOST_KNOWN:
        known_places.clear()
        _by_target.clear()
    clauses = _find(frame)
    known_places[id(frame.f_code), frame.f_lasti] = frame.f_code, clauses
    return clauses


def _find(frame: FrameType) -> Clauses | None:
    code, module = frame.f_code, str(frame.f_globals.get("__name__"))
    if module.startswith(_RUNNERS):
        return None
    if is_own(code.co_filename) or _is_standard(code.co_filename):
        is_caught = module == "unittest.case" and code.co_name == "handle"  # ``assertRaises(Error, function)``
        return (_clause(code, 0),) if is_caught else ()
    if not code.co_exceptiontable:
        return ()
    entries, instructions = list(_entries(code)), [i for i in dis.get_instructions(code) if i.opname not in _IGNORED]
    return tuple(
        _clause(code, target)
        for target in _targets(entries, frame.f_lasti)
        if _catches(frame, entries, instructions, target)
    )


def _is_standard(file: str) -> bool:
    return file.startswith("<frozen") or (
        file.startswith(_STANDARD_LIBRARY) and not any(folder in file for folder in _INSTALLED)
    )


def _clause(code: CodeType, target: int) -> Clause:
    return _by_target.setdefault((id(code), target), Clause())


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


def _targets(entries: list[tuple[int, int, int]], place: int) -> list[int]:
    """Return where an error that is raised at a place goes, and where it goes on if it is not caught there."""
    targets: list[int] = []
    while True:
        target = next((to for start, end, to in entries if start <= place < end), None)
        if target is None or target in targets:
            return targets
        targets.append(target)
        place = target


def _catches(frame: FrameType, entries: list[tuple[int, int, int]], instructions: list[Any], target: int) -> bool:
    here = [i for i in instructions if i.offset >= target][:2]
    if len(here) < 2 or here[0].opname != "PUSH_EXC_INFO":
        return False  # what restores the state after a clause
    if here[1].opname == "POP_TOP":
        return True  # a clause without a type
    if here[1].opname == "WITH_EXCEPT_START":
        return _is_catching_block(instructions, min(start for start, _, to in entries if to == target))
    return any(_may_be_late(given) for given in _types(frame, instructions, here[1].offset))


def _is_catching_block(instructions: list[Any], start: int) -> bool:
    """Tell by its name whether what a ``with`` calls, whose block starts at a place, catches errors."""
    entered = [i for i in instructions if i.offset < start][-1].positions
    return any(
        str(i.argval).lower().startswith(_CATCHING_BLOCKS)
        for i in instructions
        if i.offset < start and i.opname in _LOADS | _ATTRIBUTES and _is_within(i.positions, entered)
    )


def _is_within(inner: Any, outer: Any) -> bool:
    if None in (*inner, *outer):
        return False
    return bool(
        (outer.lineno, outer.col_offset) <= (inner.lineno, inner.col_offset)
        and (inner.end_lineno, inner.end_col_offset) <= (outer.end_lineno, outer.end_col_offset)
    )


def _types(frame: FrameType, instructions: list[Any], place: int) -> Iterator[Any]:
    """Return what the clauses at a place name, one after the other; ``BaseException`` where only running would tell."""
    by_place = {i.offset: number for number, i in enumerate(instructions)}
    number = by_place[place]
    stack: list[Any] = []
    while number < len(instructions):
        instruction = instructions[number]
        number += 1
        name = instruction.opname
        if name in _LOADS:
            stack.append(
                frame.f_globals.get(instruction.argval, frame.f_builtins.get(instruction.argval, BaseException))
            )
        elif name in _ATTRIBUTES and stack:
            stack.append(getattr(stack.pop(), instruction.argval, BaseException))
        elif name == "BUILD_TUPLE":
            pass  # each of its elements counts
        elif name == "CHECK_EXC_MATCH":
            yield from stack
            stack.clear()
            number = by_place.get(instructions[number].argval, len(instructions))  # the next clause of this ``try``
        elif name.startswith("LOAD_"):
            stack.append(BaseException)
        else:  # code that decides which errors are caught, a ``finally``, or the end of the clauses
            ahead = (i.opname for i in instructions[number - 1 : number + _LONGEST_EXPRESSION])
            if next((name for name in ahead if name in _ENDS), None) == "CHECK_EXC_MATCH":
                yield BaseException
            return


def _may_be_late(given: Any) -> bool:
    types = given if isinstance(given, tuple) else (given,)
    return any(isinstance(type_, type) and any(issubclass(late, type_) for late in _LATE) for type_ in types)

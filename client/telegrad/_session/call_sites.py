"""Numbers for the lines of the user's program that call operations; the server is told of a line at its first call."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count, islice
from types import CodeType, FrameType
from typing import Any

from telegrad_protocol.failures import described
from telegrad_protocol.messages import Site

from .own_code import is_own, other_files, own_files, shown_name

_getframe = sys._getframe
stand_ins: dict[int, tuple[CodeType, CodeType]] = {}
"""By the id of code that was made of a function's source: the code, and that of the function, whose lines it has."""


class CallSites:
    """The lines that the server of one session has been told of."""

    __slots__ = ("_codes", "_new_number", "_numbers", "_submit")

    def __init__(self, submit: Callable[[Any], None]) -> None:
        self._numbers: dict[tuple[int, int], int] = {}
        self._codes: dict[int, CodeType] = {}
        """Code objects by their id. They are kept, so that no other object gets such an id."""
        self._new_number = count(1).__next__
        self._submit = submit

    def introduced(self) -> list[CodeType]:
        """The code objects of the lines that the server was told of."""
        return list(self._codes.values())

    def forget(self) -> None:
        """Introduce every line anew when it is met again."""
        self._numbers = {}  # another one, since C knows numbers by the dictionary that has them
        self._codes.clear()

    def current(self, depth: int = 0) -> int:
        """Return the number of the line of the innermost caller that is not telegrad's; skips ``depth`` callers."""
        frame = _getframe(depth + 1)
        code = frame.f_code
        while (file := code.co_filename) in own_files or (file not in other_files and is_own(file)):
            outer = frame.f_back
            if outer is None:  # all callers are telegrad's, as in a thread that it started
                break
            frame = outer
            code = frame.f_code
        key = (id(code), frame.f_lasti)
        return self._numbers.get(key) or self._introduce(key, frame)

    def describe(self, number: int) -> str:
        """Return a line by its number, as messages name it; empty where it is not known."""
        site = self.site(number)
        return "" if site is None else described(site)

    def site(self, number: int) -> Site | None:
        """Return a line by its number; None where it is not known."""
        for (owner, place), known in list(self._numbers.items()):
            code = self._codes.get(owner)
            if known == number and code is not None:
                return _site(number, code, (_position(code, place) or (0,))[0] or 0)
        return None

    def _introduce(self, key: tuple[int, int], frame: FrameType) -> int:
        code = frame.f_code
        number = self._number_in_original(code, frame.f_lasti) if id(code) in stand_ins else None
        if number is not None:
            self._codes[id(code)] = code
            self._numbers[key] = number
            return number
        number = self._new_number()
        self._submit(_site(number, code, frame.f_lineno or 0))
        self._codes[id(code)] = code
        self._numbers[key] = number  # this comes last, since another thread may look the line up meanwhile
        return number

    def _number_in_original(self, code: CodeType, place: int) -> int | None:
        """Return the number that an expression has in the code that another one stands for; None where it has none."""
        original, wanted = stand_ins[id(code)][1], _position(code, place)
        known = [(lasti, number) for (owner, lasti), number in list(self._numbers.items()) if owner == id(original)]
        return next((number for lasti, number in known if _position(original, lasti) == wanted), None)


def _site(number: int, code: CodeType, line: int) -> Site:
    return Site(number, _encodable(shown_name(code.co_filename)), line, _encodable(code.co_name))


def _position(code: CodeType, place: int) -> Any:
    """Return where the expression stands that an instruction belongs to: lines and columns."""
    return next(islice(code.co_positions(), place // 2, None), None)


def stand_in(code: CodeType, original: CodeType) -> None:
    """Let lines of ``code``, and of functions in it, count as those of the code that it was made of."""
    stand_ins[id(code)] = code, original
    inner = [[one for one in each.co_consts if isinstance(one, CodeType)] for each in (code, original)]
    for ours, theirs in zip(*inner):
        stand_in(ours, theirs)


def _encodable(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()

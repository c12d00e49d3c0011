"""Which line of the user's program calls: numbers for lines, introduced to the server the first time each is seen."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from itertools import count
from types import CodeType, FrameType
from typing import Any

from telegrad_protocol.messages import Site

_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep

_is_own: dict[int, tuple[CodeType, bool]] = {}
"""By the id of a code object, which is kept so that the id stays its own."""


def _belongs_to_telegrad(code: CodeType) -> bool:
    known = _is_own.get(id(code))
    if known is None:
        known = _is_own[id(code)] = (code, code.co_filename.startswith(_OWN))
    return known[1]


class Sites:
    """The lines that one session has introduced."""

    __slots__ = ("_new_number", "_numbers", "_submit")

    def __init__(self, submit: Callable[[Any], None]) -> None:
        self._numbers: dict[tuple[int, int], int] = {}
        self._new_number = count(1).__next__
        self._submit = submit

    def current(self, depth: int = 0) -> int:
        """The number of the line of the innermost caller that is not telegrad's; ``depth`` are known to be its own."""
        frame = sys._getframe(depth + 1)
        while True:
            code = frame.f_code
            known = _is_own.get(id(code))
            if not (known[1] if known else _belongs_to_telegrad(code)):
                break
            outer = frame.f_back
            if outer is None:
                break
            frame = outer
        key = (id(code), frame.f_lasti)
        return self._numbers.get(key) or self._introduce(key, frame)

    def _introduce(self, key: tuple[int, int], frame: FrameType) -> int:
        number = self._new_number()
        code = frame.f_code
        self._submit(Site(number, _encodable(code.co_filename), frame.f_lineno or 0, _encodable(code.co_name)))
        self._numbers[key] = number  # last: another thread may be on the same line
        return number


def _encodable(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()

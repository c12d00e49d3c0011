"""Which line of the user's program calls: numbers for lines, introduced to the server the first time each is seen."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from itertools import count
from types import CodeType, FrameType
from typing import Any

from telegrad_protocol.messages import Site

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
"""The folder of the package ``telegrad``."""

_own_files: set[str] = set()
_other_files: set[str] = set()
"""Names of files as code objects have them, once they were met."""


def _is_own(file: str) -> bool:
    """Whether a file that was not met before is telegrad's; remembered."""
    own = file.startswith(_OWN)
    (_own_files if own else _other_files).add(file)
    return own


class CallSites:
    """The lines that one session has introduced."""

    __slots__ = ("_codes", "_new_number", "_numbers", "_submit")

    def __init__(self, submit: Callable[[Any], None]) -> None:
        self._numbers: dict[tuple[int, int], int] = {}
        self._codes: dict[int, CodeType] = {}
        """By the id of a code object, which is kept so that the id stays its own."""
        self._new_number = count(1).__next__
        self._submit = submit

    def current(self, depth: int = 0) -> int:
        """The number of the line of the innermost caller that is not telegrad's; ``depth`` are known to be its own."""
        frame = inner = sys._getframe(depth + 1)
        own = _own_files
        try:
            while (file := frame.f_code.co_filename) in own or (file not in _other_files and _is_own(file)):
                inner = frame
                frame = frame.f_back  # type: ignore[assignment]
        except AttributeError:  # the outermost is telegrad's too
            frame = inner
        key = (id(frame.f_code), frame.f_lasti)
        return self._numbers.get(key) or self._introduce(key, frame)

    def _introduce(self, key: tuple[int, int], frame: FrameType) -> int:
        number = self._new_number()
        code = frame.f_code
        self._submit(Site(number, _encodable(code.co_filename), frame.f_lineno or 0, _encodable(code.co_name)))
        self._codes[id(code)] = code
        self._numbers[key] = number  # last: another thread may be on the same line
        return number


def _encodable(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()

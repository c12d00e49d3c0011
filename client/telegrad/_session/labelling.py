"""Labels of a program's work: whose work a profile labels, as those register it, and ranges and marks in instructions.

The worker notes ranges where a session is profiled. Where it emits them for a profiler that is attached to it,
``emissions`` has what tells it of ranges and marks of ``cuda.nvtx``. Nobody waits for such an instruction. Knows
neither those whose work is labelled nor the profiler.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Any, Final, NamedTuple

from telegrad_protocol.errors import ArgumentTypeError
from telegrad_protocol.messages import Mode

from .session import ClientSession
from .thread_modes import thread


class Labelled(NamedTuple):
    """A class with a method that has hooks before and after it, and with ``zero_grad``.

    ``before`` and ``after`` register hooks for all objects of the class, and return what removes them.
    """

    kind: Any
    method: str
    before: Callable[[Callable[..., None]], Any]
    after: Callable[[Callable[..., None]], Any]


class LabelledMethod(NamedTuple):
    """A method of a class, whose label has the name of the class of the object that it is called on after ``text``."""

    kind: Any
    method: str
    text: str


LABELLED: Final[list[Labelled]] = []
LABELLED_METHODS: Final[list[LabelledMethod]] = []

_new_number: Final = count(1).__next__


def open_range(session: ClientSession, name: str) -> int:
    """Mark the beginning of a range in a session's instructions; return its number."""
    number = _new_number()
    session.queue(Mode("range", [number, name]), thread.modes)
    return number


def close_range(session: ClientSession, number: int) -> None:
    """Mark the end of a range."""
    session.queue(Mode("range", [number]), thread.modes)


class _Stacks(threading.local):
    """The numbers of the ranges that a thread has pushed, the last one at the end."""

    def __init__(self) -> None:
        self.numbers: list[int] = []


class Emission:
    """A session that emits ranges, from here on until ``stop``."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session
        self._stacks = _Stacks()
        emissions[:] = [self]

    def push(self, name: Any) -> int:
        """Begin a range of this thread; return how many it lies in."""
        numbers = self._stacks.numbers
        numbers.append(self.start(name))
        return len(numbers) - 1

    def pop(self) -> int | None:
        """End the range that this thread has begun last; return how many it lay in, None if there is none."""
        numbers = self._stacks.numbers
        if not numbers:
            return None
        self.end(numbers.pop())
        return len(numbers)

    def start(self, name: Any) -> int:
        """Begin a range; return its number."""
        return open_range(self.session, _checked("a name", name, str))

    def end(self, number: Any) -> None:
        """End the range of this number."""
        close_range(self.session, _checked("the number of a range", number, int))

    def mark(self, name: Any) -> None:
        """Mark a moment."""
        self.session.queue(Mode("mark", _checked("a name", name, str)), thread.modes)

    def stop(self) -> None:
        """Emit nothing any more."""
        emissions.clear()
        self.session.queue(Mode("stop_ranges", None), thread.modes)


emissions: Final[list[Emission]] = []
"""The emission that is going on, if there is one."""


def _checked(what: str, given: Any, kind: type) -> Any:
    if not isinstance(given, kind):
        raise ArgumentTypeError(f"nvtx: expected {what}, got a {type(given).__name__}")
    return given

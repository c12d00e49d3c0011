"""What the client itself notes while a session is profiled: calls, frames, waits; and clocks at both ends.

Calls in C are noted there; where calls are Python's, the function that they pass is replaced meanwhile, and so are
methods of the session's transport.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

from telegrad._native.binding import native
from telegrad._ops import functions
from telegrad._session.own_code import is_own, other_files, own_files, shown_name
from telegrad._session.session import ClientSession
from telegrad._tensor.tensor import Tensor

from ._requests import Wait, listen, stop_listening

now: Final = time.monotonic_ns
_getframe = sys._getframe
MOST: Final = 1 << 20
"""So many calls are noted; later ones are missing."""
DEEPEST: Final = 64
_FIELDS: Final = 6
"""What is noted of a call: its pattern, when it began and ended, its thread, its tensor's id, and its stack."""
Stack = tuple[Any, ...]
"""Code objects and places of instructions in them in turns, the innermost first: lines are looked up when asked for."""
_FRAMES: Final = range(2 * DEEPEST)
_MOST_LINES: Final = 1 << 14
_lines: dict[tuple[int, int], tuple[CodeType, str]] = {}
"""By the id of a code object and a place in it: the object, so that no other one gets the id, and what is shown."""


class CallNote(NamedTuple):
    """One call of an operation, in nanoseconds.

    ``out`` is what ``EventRow.out`` says of what it was executed as, 0 where that is not known.
    """

    name: str
    begin: int
    end: int
    thread: int
    stack: Stack
    out: int


class FrameNote(NamedTuple):
    """A frame that was sent: when the transport took it, for how long it kept the program, and its bytes."""

    begin: int
    end: int
    nbytes: int


class ClientLog:
    """Notes of one session, from ``start`` to ``stop``."""

    def __init__(self, session: ClientSession, with_stack: bool) -> None:
        self._session = session
        self._with_stack = with_stack
        self.calls: list[CallNote] = []
        self._noted: list[Any] = []
        """The fields of calls, one after the other.

        They are no tuples, which Python's garbage collector would go through again and again, and hold no tensors.
        """
        self.frames: list[FrameNote] = []
        self.waits: list[Wait] = []
        self.threads: dict[int, str] = {}
        self._plain_call: Any = None
        self._is_in_c = False

    def start(self) -> None:
        """Begin to note."""
        session, transport = self._session, self._session.transport
        self._plain_call = call = vars(functions)["call"]
        is_usual = native is not None and call is native.call
        self._is_in_c = is_usual and native.begin_notes(MOST, self._with_stack, _id_of)
        if not self._is_in_c:
            vars(functions)["call"] = self._noting_call(call)
        transport.send_batch = self._noting_send(transport.send_batch)  # type: ignore[method-assign, assignment]
        transport.send_chunk = self._noting_chunk(transport.send_chunk)  # type: ignore[method-assign, assignment]
        listen(session, self.waits.append)

    def stop(self) -> None:
        """Note no more."""
        session, transport = self._session, self._session.transport
        self._leave_calls()
        for name in ("send_batch", "send_chunk"):
            vars(transport).pop(name, None)
        stop_listening(session, self.waits.append)
        noted = native.end_notes() if self._is_in_c else self._noted
        self.calls = list(_calls(noted))[:MOST]
        noted.clear()
        named = {thread.ident: thread.name for thread in threading.enumerate()}
        self.threads = {call.thread: named.get(call.thread, f"thread {call.thread}") for call in self.calls}

    def _leave_calls(self) -> None:
        """Put back the function that calls operations without noting them."""
        vars(functions)["call"] = self._plain_call

    def _noting_call(self, call: Callable[..., Any]) -> Callable[..., Any]:
        noting = _noting_with_stacks(call, self._noted) if self._with_stack else _noting(call, self._noted)
        noting.plain = call  # type: ignore[attr-defined]
        return noting

    def _noting_send(self, send: Callable[[bytes], None]) -> Callable[[bytes], None]:
        def noted(body: bytes) -> None:
            begin = now()
            try:
                send(body)
            finally:
                self.frames.append(FrameNote(begin, now(), len(body)))
                if len(self._noted) >= MOST * _FIELDS:  # looked at once for a batch of calls
                    self._leave_calls()

        return noted

    def _noting_chunk(self, send: Callable[[int, int, memoryview], None]) -> Callable[[int, int, memoryview], None]:
        def noted(owner: int, offset: int, data: memoryview) -> None:
            begin = now()
            try:
                send(owner, offset, data)
            finally:
                self.frames.append(FrameNote(begin, now(), data.nbytes))

        return noted


def _noting(call: Callable[..., Any], noted: list[Any]) -> Callable[..., Any]:
    """Return the function that calls operations, with each call noted."""
    extend, identify, clock, tensor = noted.extend, threading.get_ident, now, Tensor

    def noting(pattern: Any, values: tuple[Any, ...]) -> Any:
        begin = clock()
        try:
            result = call(pattern, values)
        except BaseException:
            extend((pattern, begin, clock(), identify(), _id_of(pattern, values, None), None))
            raise
        id = result._id if result.__class__ is tensor else _id_of(pattern, values, result)
        extend((pattern, begin, clock(), identify(), id, None))
        return result

    return noting


def _noting_with_stacks(call: Callable[..., Any], noted: list[Any]) -> Callable[..., Any]:
    """Return the same with the stack of each call."""
    extend, identify, clock, tensor, stack = noted.extend, threading.get_ident, now, Tensor, stack_of

    def noting(pattern: Any, values: tuple[Any, ...]) -> Any:
        begin = clock()
        try:
            result = call(pattern, values)
        except BaseException:
            extend((pattern, begin, clock(), identify(), _id_of(pattern, values, None), stack(_getframe(1))))
            raise
        id = result._id if result.__class__ is tensor else _id_of(pattern, values, result)
        extend((pattern, begin, clock(), identify(), id, stack(_getframe(1))))
        return result

    return noting


def _id_of(pattern: Any, values: tuple[Any, ...], result: Any) -> int:
    """Return the id of the first tensor of a call's result; of one that returns None, of what it writes into."""
    if result is None and pattern.op.mutates:
        source = pattern.sources[pattern.op.mutates[0]]
        result = None if source is None else values[source]
    while isinstance(result, (tuple, list)):
        result = result[0] if result else None
    return result._id if isinstance(result, Tensor) else 0


def _calls(noted: list[Any]) -> Iterator[CallNote]:
    items = iter(noted)
    for pattern, begin, end, thread, id, stack in zip(*[items] * _FIELDS, strict=True):
        op = pattern.op
        yield CallNote(op.name, begin, end, thread, stack or (), -id if op.mutates else id)


def stack_of(frame: FrameType | None) -> Stack:
    """Return a frame and those around it; which are telegrad's own is found out by ``told``, not at every call."""
    stack: list[Any] = []
    note = stack.append
    for _ in _FRAMES:
        if frame is None:
            break
        note(frame.f_code)
        note(frame.f_lasti)
        frame = frame.f_back
    return tuple(stack)


def told(stack: Stack) -> list[str]:
    """Return a stack as PyTorch's profiler shows it: ``file.py(12): function``, the innermost frame first.

    Telegrad's own frames are left out.
    """
    items = iter(stack)
    lines = [_line_of(code, place) for code, place in zip(items, items, strict=True) if not _is_own(code)]
    return lines[:DEEPEST]


def _is_own(code: CodeType) -> bool:
    file = code.co_filename
    return file not in other_files and (file in own_files or is_own(file))


def _line_of(code: CodeType, place: int) -> str:
    known = _lines.get((id(code), place))
    if known is None:
        if len(_lines) >= _MOST_LINES:
            _lines.clear()
        line = next((line for begin, end, line in code.co_lines() if begin <= place < end), None)
        known = _lines[id(code), place] = code, f"{shown_name(code.co_filename)}({line or 0}): {code.co_name}"
    return known[1]

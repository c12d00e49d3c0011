"""Calls of compiled functions: what a call queues is sent as runs of programs, each up to the next graph break.

The function itself runs as ever. Whatever it does in Python it does in each call; what it queues is held back up to
its end, or to where it waits for the server, and is sent as one instruction where the server knows the sequence.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from functools import partial
from traceback import FrameSummary
from types import FrameType
from typing import Any, Final, NamedTuple, TypeVar

from telegrad._session.current import session_if_any
from telegrad._session.own_code import is_own
from telegrad._session.parts import mark
from telegrad._session.parts.template_runs import expanded
from telegrad._session.session import ClientSession
from telegrad_protocol import messages
from telegrad_protocol.programs.messages import RunProgram

from . import exporting, logs, prints, reports
from .breaks import GraphBreak, Unsupported, reason_of
from .captured import heading_of, is_captured
from .counters import counters
from .guarded.arguments import Arguments
from .guarded.calls import Calls, Part
from .guarded.notes import Notes
from .guarded.situation import Situation
from .guarded.watcher import watched

Instruction = TypeVar("Instruction")

_MOST_HELD: Final = 1024
"""A part has so many instructions at most: the server works meanwhile on what the one before it has."""
_MOST_WAITING: Final = 1 << 14
"""Another thread that queues so much is not held back by a function any longer."""


class Observer:
    """Is told what a call of a function queues: what ``explain`` makes its answer of, and the logs what they tell."""

    def __init__(self) -> None:
        self.parts: list[ObservedPart] = []
        self.breaks: list[GraphBreak] = []

    @property
    def programs(self) -> list[int]:
        """The numbers of the programs that were run, each once."""
        return list(dict.fromkeys([number for part in self.parts for number in part.programs]))


class ObservedPart(NamedTuple):
    """The calls of operations in a part, and the numbers of the programs that it was sent as."""

    calls: list[messages.Call]
    programs: list[int]


class Options(NamedTuple):
    """What ``compile`` was told: a graph break is an error, what runs as one is compared, products are measured."""

    fullgraph: bool = False
    verify: bool = False
    tunes: bool = False


DEFAULT_OPTIONS: Final = Options()


class _Active(threading.local):
    region: Region | None = None
    disabled = 0
    stance = "default"
    epoch: object = None
    """Is another object after each ``reset``."""
    errors_on_breaks = False
    observer: Observer | None = None
    forced: Any = None
    """What calls compiled functions in the place of their own backends; None, unless ``set_stance`` was told so."""


active: Final = _Active()
"""The call of a compiled function that the thread is in, in how many blocks nothing is compiled, and whether graph
breaks are errors."""


class Region:
    """One call of a compiled function, from its first instruction to its last. It is its session's ``holder``."""

    def __init__(self, session: ClientSession, function: Any, options: Options) -> None:
        self._session = session
        self.parts: list[Part] = []
        """What each part has queued, its first number, and what is sent for it."""
        self._options = options
        self._thread = threading.get_ident()
        self._frame: FrameType | None = None
        """The frame that the call is made in, which is kept: another one might get its ``id``."""
        self._teller = reports.teller_of(function) if logs.enabled else None
        self._observer = active.observer or (None if self._teller is None else Observer())

    def __enter__(self) -> Region:
        self._frame = sys._getframe(1)
        active.region = self
        self._session.send_gathered()
        self.resume()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        active.region = self._frame = None
        if self._session.holder is self:
            self._end_part()
        if self._session.is_open:
            self._session.release(sends=error is None)
            if self._teller is not None and self._observer is not None and error is None:
                self._teller.tell(self._session, self._observer.parts)

    @property
    def is_observed(self) -> bool:
        """Whether somebody is told what the call queues."""
        return self._observer is not None

    @property
    def waits_for_errors(self) -> bool:
        """Whether a factorization whose error the program would catch may be a graph break."""
        return not (self._options.fullgraph or self._options.verify or active.errors_on_breaks)

    @property
    def first(self) -> int:
        """The number that the part began with."""
        return self._part.first

    @property
    def is_abandoned(self) -> bool:
        """Whether the call is over, and an interrupt has kept it from saying so: its frame is not of this thread."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame is not self._frame:
            frame = frame.f_back
        return frame is None and threading.get_ident() == self._thread

    def abandon(self) -> None:
        """Let the thread compile again, and the session send what the call has held back."""
        self._frame = None
        if active.region is self:
            active.region = None
        if self._session.holder is self:
            self._session.holder = None

    def holds(self) -> bool:
        """Hold instructions back until there are very many of them."""
        session, count = self._session, self._session.operations - self._begun
        if threading.get_ident() != self._thread:
            return count < _MOST_WAITING
        if count < _MOST_HELD:
            return True
        self._end_part()
        session.release(sends=True)
        self.resume()
        return True

    def pause(self, why: Any) -> Region | None:
        """End the part before an instruction that is sent at once; Unsupported where the program wants one graph."""
        if threading.get_ident() != self._thread:
            return None
        reason = reason_of(why)
        if reason:
            self._note_break(reason, why)
        self._end_part()
        return self

    def resume(self) -> None:
        """Begin a part."""
        session = self._session
        self._begun = session.operations
        self._part = part = mark.Part(session.new_id())
        session.begin_part(part, self)

    def split(self, reason: str) -> None:
        """End a part, and begin another one."""
        self._note_break(reason)
        self._end_part()
        self.resume()

    def leave(self, reason: str) -> None:
        """End a part; until ``resume`` nothing is held back."""
        if reason:
            self._note_break(reason)
        self._end_part()

    def _note_break(self, reason: str, why: Any = None) -> None:
        is_full = self._options.fullgraph
        wants_one = is_full or active.errors_on_breaks
        is_error = wants_one and not is_captured(why, sys._getframe(1), self._frame, is_full)
        counters["graph_break"][reason] += 1
        if self._observer is None and not is_error:
            return
        stack = _stack_of_program()
        line = stack[-1] if stack else None
        if "graph_breaks" in logs.enabled:
            reports.tell_break(reason, stack)
        if is_error:
            raise Unsupported(reason, line, heading_of(reason, why, sys._getframe(1)))
        if self._observer is not None:
            self._observer.breaks.append(GraphBreak(reason, line))

    def _end_part(self) -> None:
        session, observer = self._session, self._observer
        session.end_part(self._part, self._replace if observer is None else partial(self._observed, observer))

    def _replace(self, queued: list[Any], first: int) -> list[Any] | None:
        sent = self._session.programs.replace(queued, first, self._options.verify, self._options.tunes)
        self.parts.append((queued, first, sent))
        return sent

    def _observed(self, observer: Observer, queued: list[Any], first: int) -> list[Any] | None:
        sent = self._replace(queued, first)
        observer.parts.append(
            ObservedPart(_all_of(messages.Call, queued), [run.program for run in _all_of(RunProgram, sent or ())])
        )
        return sent


def _all_of(kind: type[Instruction], entries: Iterable[Any]) -> list[Instruction]:
    """Return the instructions of a kind among entries of a queue, some of which have modes with them."""
    instructions = [entry[1] if entry.__class__ is tuple else entry for entry in expanded(list(entries))]
    return [one for one in instructions if one.__class__ is kind]


def run(
    function: Callable[..., Any], args: Any, kwargs: Any, options: Options = DEFAULT_OPTIONS, calls: Calls | None = None
) -> Any:  # fmt: skip
    """Call a function, in a region of its own unless this is a part of one, or nothing is to be compiled.

    Its Python is left out where ``calls`` know what the call comes to.
    """
    region = active.region
    if region is not None and region.is_abandoned:
        region.abandon()
        region = None
    session = None if region is not None or active.disabled else session_if_any()
    if session is None:
        return function(*args, **kwargs)
    if active.forced is not None:
        return active.forced(function, args, kwargs, options)
    if session.holder.__class__ is Region and session.holder.is_abandoned:
        session.holder.abandon()
    if session.holder is not None or session.blocking or not session.is_open:
        return function(*args, **kwargs)
    is_seen = options.verify or bool(logs.enabled) or active.observer is not None or exporting.state.is_active
    if calls is None or is_seen:
        region = Region(session, function, options)
        if calls is None or region.is_observed or options.verify or exporting.state.is_active:
            with region:
                return function(*args, **kwargs)
    if calls.is_hopeful:
        situation = Situation.of(session)
        standing = calls.find(situation, args, kwargs)
        if standing is not None:
            record, tensors, found = standing
            return record.replay(tensors, found)
        if calls.watches():
            notes, given, region = Notes(), Arguments(args, kwargs), Region(session, function, options)
            with region:
                result = watched(function, args, kwargs, given, notes, region.first)
            calls.learn(situation, given, notes, region.parts, result)
            return result
    region = Region(session, function, options)
    if options.fullgraph and calls.is_new and sys.getprofile() is None:
        with prints.ending_programs(active), region:
            result = function(*args, **kwargs)
    else:
        with region:
            result = calls.made(session, function, args, kwargs)
    calls.note(session, region.parts)
    return result


def run_disabled(function: Callable[..., Any], args: Any, kwargs: Any, reason: str) -> Any:
    """Call a function outside of the region that the thread is in; what it calls is not compiled.

    Without a reason that is no graph break: the function is a part of the graph that is not looked into.
    """
    region = active.region
    if region is not None:
        region.leave(reason)
    active.region, active.disabled = None, active.disabled + 1
    try:
        return function(*args, **kwargs)
    finally:
        active.region, active.disabled = region, active.disabled - 1
        if region is not None:
            region.resume()


def _stack_of_program() -> list[FrameSummary]:
    """Return the lines that lead here, outermost first, up to the innermost one that is not telegrad's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_own(frame.f_code.co_filename):
        frame = frame.f_back
    stack: list[FrameSummary] = []
    while frame is not None:
        file = frame.f_code.co_filename
        if not is_own(file) and not file.startswith("<frozen "):
            stack.append(FrameSummary(file, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return stack[::-1]

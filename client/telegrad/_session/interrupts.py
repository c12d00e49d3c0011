"""Ctrl-C: what the interrupted program has queued and the server has not started is dropped.

While sessions are connected, a handler stands before Python's own for SIGINT, and before no other: a program that
handles the signal itself decides what becomes of its work. The handler notes in the queue of each session where the
interrupt came, and leaves it to a thread to tell the server, since the program may have been stopped anywhere. Then it
raises KeyboardInterrupt, as Python's does. Python ignores what is raised while an object is deleted, so an interrupt
that comes while a tensor is released is raised after that.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from types import FrameType
from typing import Final, Protocol

from telegrad_protocol.errors import CommunicationError

from .own_code import is_own, running_shell

_SECONDS_BETWEEN_SIGNALS: Final = 0.02


class Interruptible(Protocol):
    """A session, as far as interrupts are concerned."""

    def note_interrupt(self) -> int:
        """Note in the queue that an interrupt came here, and return its number; a signal handler calls this."""

    def announce_interrupt(self, number: int) -> None:
        """Tell the server of it, past the queue."""


class _Announcer:
    """A thread that does what a signal handler may not. ``SimpleQueue.put`` may be called wherever a signal arrives."""

    def __init__(self) -> None:
        self._actions: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.is_interrupting = False
        """Whether the main thread has still to take an interrupt that came while a tensor was released."""
        self._thread = threading.Thread(target=self._run, name="telegrad-interrupts", daemon=True)
        self._thread.start()

    def announce(self, session: Interruptible, number: int) -> None:
        """Tell the session's server of an interrupt."""
        self._actions.put(lambda: session.announce_interrupt(number))

    def interrupt_again(self) -> None:
        """Send the main thread the signal until it takes it: it has left the destructor by then, or will have soon."""
        if not self.is_interrupting:
            self.is_interrupting = True
            self._actions.put(self._interrupt)

    def stop(self) -> None:
        """Do what is left to do, and end the thread."""
        self._actions.put(None)
        self._thread.join()

    def _interrupt(self) -> None:
        """Send it until it is taken: one that comes just before the program begins to wait does not end that wait."""
        while self.is_interrupting:
            _signal_main_thread()
            time.sleep(_SECONDS_BETWEEN_SIGNALS)
            self.is_interrupting = self.is_interrupting and _is_handled()

    def _run(self) -> None:
        while (action := self._actions.get()) is not None:
            with contextlib.suppress(CommunicationError, OSError):  # the user's next call raises it
                action()


def _signal_main_thread() -> None:
    identifier = threading.main_thread().ident
    if identifier is not None:
        signal.pthread_kill(identifier, signal.SIGINT)  # what it waits for ends, as when the user interrupts


_announcer: _Announcer | None = None


def _no_sessions() -> Iterable[Interruptible]:
    """Stand for the function that ``watch`` is given."""
    return ()


_sessions_of_thread: Callable[[], Iterable[Interruptible]] = _no_sessions


def interrupt(session: Interruptible) -> None:
    """Have the server drop what this session has queued up to now and what has not started."""
    number = session.note_interrupt()
    if _announcer is not None:
        _announcer.announce(session, number)


def forget_thread() -> None:
    """In a forked process: there is no thread that tells servers until ``watch`` starts one."""
    global _announcer
    _announcer = None


def note_unhandled(session: Interruptible) -> None:
    """Drop what is queued after an interrupt came into a wait, where the handler of interrupts was replaced."""
    if not _is_handled():
        interrupt(session)


def _is_handled() -> bool:
    return signal.getsignal(signal.SIGINT) is _handle


def _handle(number: int, frame: FrameType | None) -> None:
    if _announcer is not None:
        if _is_deleting(frame):
            _announcer.interrupt_again()
            return
        _announcer.is_interrupting = False
    for session in _sessions_of_thread():
        interrupt(session)
    signal.default_int_handler(number, frame)


def _is_deleting(frame: FrameType | None) -> bool:
    """Tell whether the frame is one of telegrad's destructors, or was called by one."""
    while frame is not None:
        if frame.f_code.co_name == "__del__" and is_own(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False


def watch(sessions_of_thread: Callable[[], Iterable[Interruptible]]) -> None:
    """Notice interrupts from here on, which concern the sessions of the main thread; call this for every connection."""
    global _announcer, _sessions_of_thread
    _sessions_of_thread = sessions_of_thread
    if _announcer is None:
        _announcer = _Announcer()
        _each_cell("register")
    _stand_before_python()


def stop_watching() -> None:
    """Give the signal back to Python; call this after the last connection has ended."""
    global _announcer
    if _announcer is None:
        return
    _announcer.stop()
    _announcer = None
    _each_cell("unregister")
    if _is_handled() and _is_main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _stand_before_python(*_: object) -> None:
    if _is_main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _handle)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _each_cell(action: str) -> None:
    """Let IPython call ``_stand_before_python`` before each cell, since it sets Python's handler for each."""
    shell = running_shell()
    if shell is not None:
        with contextlib.suppress(ValueError):  # the shell was replaced meanwhile
            getattr(shell.events, action)("pre_run_cell", _stand_before_python)

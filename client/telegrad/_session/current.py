"""Which session the calling thread talks to, and which sessions are open. Opens none itself: ``connect`` does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from telegrad_protocol.errors import InternalError

from .session import ClientSession


class _ThreadSessions(threading.local):
    """The sessions that each thread has entered, the current one last."""

    entered: tuple[ClientSession, ...] = ()


_thread: Final = _ThreadSessions()
_shared: list[ClientSession] = []
"""Sessions for threads that entered none; the last one is used."""
_open: list[ClientSession] = []


def _open_default() -> ClientSession:
    """Stand for the function that ``open_default_with`` puts in this place."""
    raise InternalError("no function opens a default session; import telegrad, not its private modules")


def open_default_with(function: Callable[[], ClientSession]) -> None:
    """Have ``current_session`` call ``function`` where there is no session."""
    global _open_default
    _open_default = function


def current_session() -> ClientSession:
    """Return the session that new tensors belong to; opens one on a private local server where there is none.

    A thread that has entered no session shares the main thread's.
    """
    entered = _thread.entered
    if entered and entered[-1].was_left:
        entered = _thread.entered = tuple([session for session in entered if not session.was_left])
    if entered:
        return entered[-1]
    return _shared[-1] if _shared else _open_default()


def has_session() -> bool:
    """Tell whether ``current_session`` would return a session without opening one."""
    return bool(_shared) or any(not session.was_left for session in _thread.entered)


def session_if_any() -> ClientSession | None:
    """Return what ``current_session`` would return without opening a session; None where it would open one."""
    entered = _thread.entered
    if entered and not entered[-1].was_left:
        return entered[-1]
    return current_session() if has_session() else None


def enter(session: ClientSession, is_block: bool = False) -> None:
    """Make ``session`` the current one of this thread.

    It also becomes the session that other threads share if this is the main thread or if there is no shared session;
    a session entered by a ``with`` block (``is_block``) is this thread's alone where another one can be shared.
    """
    _thread.entered = (*[other for other in _thread.entered if other is not session], session)
    if session not in _open:
        _open.append(session)
    if is_block and len(_shared) > 1 and session in _shared:
        _shared.remove(session)
    elif not is_block and (not _shared or threading.current_thread() is threading.main_thread()):
        _shared[:] = [*[other for other in _shared if other is not session], session]


def share_with_this_thread(session: ClientSession) -> None:
    """Make ``session`` the current one of the calling thread alone, for a thread that works for another one."""
    _thread.entered = (*_thread.entered, session)


@contextmanager
def using(session: ClientSession) -> Iterator[None]:
    """Have this thread make its tensors in ``session`` within the block."""
    before = _thread.entered
    _thread.entered = (*before, session)
    try:
        yield
    finally:
        _thread.entered = before


def leave(session: ClientSession) -> None:
    """Forget ``session`` in all threads."""
    session.was_left = True
    _thread.entered = tuple([other for other in _thread.entered if other is not session])
    for sessions in (_shared, _open):
        if session in sessions:
            sessions.remove(session)


def thread_sessions() -> list[ClientSession]:
    """Return the open sessions that this thread has entered or shares."""
    return [session for session in dict.fromkeys((*_shared, *_thread.entered)) if session.is_open]


def open_sessions() -> list[ClientSession]:
    """Return all sessions that instructions can be submitted to."""
    return [session for session in _open if session.is_open]


def entered_sessions() -> set[ClientSession]:
    """Return the sessions that were entered and not left, of this thread and shared ones, open or not."""
    return {session for session in (*_open, *_shared, *_thread.entered) if not session.was_left}

"""Forked processes of programs that know of no sessions: each opens one of its own, on the server of its parent.

A program that calls ``connect`` calls it again in a process that it forks, and is told so where it does not. One that
was written for PyTorch makes tensors there as in any process.
"""

from __future__ import annotations

import os

from telegrad._session.connect import Connection, _open_default, current_connection
from telegrad._session.current import entered_sessions, has_session, leave, open_default_with
from telegrad._session.session import ClientSession

_is_watching = False
_inherited: Connection | None = None
"""The connection that the process had which was forked last."""


def connect_in_forks() -> None:
    """From now on have processes that are forked open a session when they make their first tensor."""
    global _is_watching
    if not _is_watching and hasattr(os, "register_at_fork"):
        _is_watching = True
        os.register_at_fork(before=_note, after_in_child=_leave_inherited)


def _note() -> None:
    global _inherited
    _inherited = current_connection() if has_session() else None


def _leave_inherited() -> None:
    if _inherited is not None and _inherited.reopen is not None:
        for session in entered_sessions():
            leave(session)
        open_default_with(_open_again)


def _open_again() -> ClientSession:
    open_default_with(_open_default)
    if _inherited is None or _inherited.reopen is None:
        return _open_default()
    return _inherited.reopen().session

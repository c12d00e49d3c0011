"""Errors that only the server finds are raised where they belong, if the program would catch them there.

A call that may fail for what its elements are waits for the server where a clause of the program around it would catch
its error; elsewhere the program goes on, and learns of the error later (docs/decisions/0082).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from telegrad._session import sync_debug

from .clauses import Clause, found, look_up

if TYPE_CHECKING:
    from types import FrameType

    from telegrad._session.session import ClientSession

PATIENTLY: Final = 1
"""A call that is awaited until its clauses have caught nothing many times: PyTorch does not wait for GPUs there."""
ALWAYS: Final = 2
"""A call that is awaited each time: PyTorch waits for the device there, too."""
_MOST_FRAMES: Final = 64


def wait_where_caught(session: ClientSession, how: int) -> None:
    """Wait for what was just queued, where the program would catch its error.

    What is held back is awaited for calls alone that are awaited each time, and not by every holder.
    """
    if session.blocking or sync_debug.mode:
        return
    holder = session.holder
    if holder is None or (how == ALWAYS and getattr(holder, "waits_for_errors", False)):
        check_where_caught(session.synchronize, how)


def check_where_caught(check: Callable[[], None], how: int = PATIENTLY) -> None:
    """Call what raises an error after a round trip, where the program would catch that."""
    clause = _clause_that_waits(how)
    if clause is None:
        return
    try:
        check()
    except Exception:
        clause.patience = Clause.PATIENCE
        raise


def _clause_that_waits(how: int) -> Clause | None:
    frame: FrameType | None = sys._getframe(2)
    known, ends = found, _MOST_FRAMES
    while frame is not None and ends:
        try:
            clauses = known[id(frame.f_code), frame.f_lasti]
        except KeyError:
            clauses = look_up(frame)
        if clauses:
            for clause in clauses:
                if how == ALWAYS:
                    return clause
                if clause.patience:
                    clause.patience -= 1
                    return clause
        elif clauses is None:
            return None
        frame = frame.f_back
        ends -= 1
    return None

"""The end of a notebook's cell: what has failed of its work is learned there, so that the error is the cell's own.

Operations run after the line that calls them, so a cell can end before one of them fails. At the end of a cell that
used a session, what is queued is sent, and the server has ``TELEGRAD_CELL_SECONDS`` to finish. A failure that it finds
meanwhile fails this cell; one that comes later is raised by the next use of the session.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, Final

from telegrad_protocol.errors import TelegradError

from .current import open_sessions
from .own_code import running_shell
from .session import ClientSession
from .settings import seconds_from

DEFAULT_SECONDS: Final = 0.25


class _CellEnd:
    """Called by IPython at the end of each cell."""

    def __init__(self, shell: Any, seconds: float) -> None:
        self.shell = shell
        self.deferred: list[TelegradError] = []
        self._seconds = seconds
        self._seen: weakref.WeakKeyDictionary[ClientSession, int] = weakref.WeakKeyDictionary()
        """How many operations a session had been given when it was looked at last."""

    def __call__(self, result: Any) -> None:
        errors, self.deferred = self.deferred, []
        if isinstance(getattr(result, "error_in_exec", None), KeyboardInterrupt):
            return
        try:
            for session in open_sessions():
                errors += self._failures_of(session)
        except KeyboardInterrupt:
            pass
        for error in errors:
            if result is not None and result.success:
                result.error_in_exec = error
            self.shell.showtraceback((type(error), error, error.__traceback__))

    def _failures_of(self, session: ClientSession) -> list[TelegradError]:
        if self._seen.get(session) == session.operations:
            return []
        try:
            session.settle(self._seconds)
            return []
        except TelegradError as error:
            return [error]
        finally:
            self._seen[session] = session.operations


_watched: list[_CellEnd] = []


def watch() -> None:
    """Learn of failures at the end of each cell from now on, if this program runs in IPython."""
    shell = running_shell()
    if shell is None or (_watched and _watched[0].shell is shell):
        return
    _watched[:] = [_CellEnd(shell, seconds_from("TELEGRAD_CELL_SECONDS", DEFAULT_SECONDS))]
    shell.events.register("post_run_cell", _watched[0])


def raise_at_end(error: TelegradError) -> bool:
    """Let the running cell end with ``error``; returns False where there is no cell, and the caller has to raise it.

    IPython shows an error of a representation and then goes on as if the cell had succeeded.
    """
    if not _watched or threading.current_thread() is not threading.main_thread():
        return False
    _watched[0].deferred.append(error)
    return True

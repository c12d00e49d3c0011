"""The end of a session: what of its work has failed and was not raised is learned there, within a limit of time."""

from __future__ import annotations

import time
from typing import Final

from telegrad._transport.transport import TOO_LATE
from telegrad_protocol.errors import CommunicationError, TelegradError

from .session import ClientSession

DISCONNECT_SECONDS: Final = 30.0
UNREACHABLE_SECONDS: Final = 5.0
"""A session that is to end waits so long for a server that cannot be reached."""
MAX_FAILURES: Final = 16
"""So many failures are looked for: each thread may have one, and a thread that goes on may have more."""


def finish(session: ClientSession, seconds: float | None) -> list[TelegradError]:
    """Wait until all that was queued has run, and return what has failed and was not raised yet, of all threads.

    ``seconds``: how long to wait at most; with None only what has arrived counts. That the server is gone, or needs
    longer, counts as a failure only where something of the program's is unanswered.
    """
    errors: list[TelegradError] = []
    if session.is_open and seconds is None:
        session.receive_arrived()
    elif session.is_open and seconds is not None:
        errors = _settle(session, seconds)
    return errors + session.unraised()


def _settle(session: ClientSession, seconds: float) -> list[TelegradError]:
    is_confirmed = session.is_confirmed
    session.transport.give_up_after(seconds, 0.0 if is_confirmed else UNREACHABLE_SECONDS)
    deadline = time.monotonic() + seconds
    errors: list[TelegradError] = []
    for _ in range(MAX_FAILURES):
        try:
            is_done = session.settle(deadline - time.monotonic())
        except CommunicationError as error:
            return errors if is_confirmed else [*errors, error]
        except TelegradError as error:
            errors.append(error)
            continue
        return errors if is_done or is_confirmed else [*errors, CommunicationError(TOO_LATE.format(seconds))]
    return errors

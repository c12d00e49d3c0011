"""The end of a session: what of its work has failed and was not raised is learned there, within a limit of time.

``DetachedSession`` is what is needed to come back to a session that was left instead.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
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


@dataclass(frozen=True)
class DetachedSession:
    """A session that this program has left, and that goes on.

    ``connect(url, session=session, key=key)`` comes back to it, from any process, within ``lease`` seconds. ``key`` is
    a secret: who has it can use the session. ``kept`` are the names under which the session keeps tensors.
    """

    url: str
    session: str
    key: str
    lease: float
    kept: tuple[str, ...]

    def __repr__(self) -> str:
        kept = ", ".join(self.kept) or "nothing"
        return (
            f"detached from session {self.session}, which keeps {kept}; it ends after {self.lease:g} s, or come back:\n"
            f"tg.connect({self.url!r}, session={self.session!r}, key={self.key!r})"
        )

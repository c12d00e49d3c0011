"""For how long a session that ends is waited for, and what is wrong where its server cannot be reached meanwhile."""

from __future__ import annotations

import time
from typing import NamedTuple

from telegrad_protocol.errors import CommunicationError

from .transport import TOO_LATE


class Limits(NamedTuple):
    """For how many seconds since a time a server is waited for, and one that cannot be reached."""

    since: float
    seconds: float
    unreachable: float

    def exceeded(self, is_reached: bool, url: str, cause: str) -> CommunicationError | None:
        """Return what ends a session whose server could not be reached for too long, for this cause; None otherwise.

        Raises CommunicationError where the server is only waited for no longer.
        """
        waited = time.monotonic() - self.since
        if not is_reached and waited >= self.unreachable:
            return CommunicationError(
                f"the server at {url} cannot be reached ({cause}), so it is unknown whether the last operations of the "
                "session have failed"
            )
        if waited >= self.seconds:
            raise CommunicationError(TOO_LATE.format(self.seconds))
        return None

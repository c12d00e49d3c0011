"""For how long a session that ends is waited for, and what is wrong where its server cannot be reached meanwhile."""

from __future__ import annotations

from typing import NamedTuple

from telegrad_protocol.errors import CommunicationError


class Limits(NamedTuple):
    """For how many seconds since a time a server is waited for, and one that cannot be reached."""

    since: float
    seconds: float
    unreachable: float


def out_of_reach(url: str, cause: str) -> CommunicationError:
    """Return the error of a session that ends while its server cannot be reached for this cause."""
    return CommunicationError(
        f"the server at {url} cannot be reached ({cause}), so it is unknown whether the last operations of the "
        "session have failed"
    )

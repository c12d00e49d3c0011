"""``wire_stats``: how much a session has sent, received and waited, and how far ahead of the server it is."""

from __future__ import annotations

from typing import NamedTuple

from .current import current_session


class WireStats(NamedTuple):
    """Counts since the session was opened, and how far its queue is ahead now."""

    round_trips: int
    frames: int
    operations: int
    bytes_sent: int
    bytes_received: int
    ahead: int
    """Instructions that were sent and are not known to be completed."""
    max_ahead: float
    """The most instructions that may be ahead at present; infinite where there is no bound."""


def wire_stats() -> WireStats:
    """Round trips, frames, operations and bytes of the current session so far. Costs nothing."""
    session = current_session()
    stats = session.transport.stats
    return WireStats(
        session.round_trips, stats.frames, session.operations, stats.bytes_sent, stats.bytes_received,
        session.ahead.pace.ahead, session.ahead.limit,
    )  # fmt: skip

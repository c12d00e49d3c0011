"""``wire_stats``: how much a session has sent, received and waited."""

from __future__ import annotations

from typing import NamedTuple

from .current import current_session


class WireStats(NamedTuple):
    """Counts since the session was opened."""

    round_trips: int
    frames: int
    operations: int
    bytes_sent: int
    bytes_received: int


def wire_stats() -> WireStats:
    """Round trips, frames, operations and bytes of the current session so far. Costs nothing."""
    session = current_session()
    stats = session.transport.stats
    return WireStats(session.round_trips, stats.frames, session.operations, stats.bytes_sent, stats.bytes_received)

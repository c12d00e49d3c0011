"""How much of a device each session may have in use.

Knows sessions by number only; the core refuses what is beyond the limits that are set here.
"""

from __future__ import annotations

from server.allocator.core.cache_layer import CacheLayer
from telegrad_protocol.errors import ArgumentError


class SessionLimits:
    """The quotas that the operator granted, and the tighter ones that sessions chose within them."""

    def __init__(self, below: CacheLayer) -> None:
        self._below = below
        self._books = below.core.books
        self._upstream = below.core.upstream
        self._granted: dict[int, int | None] = {}

    def set_quota(self, owner: int, nbytes: int | None) -> None:
        """Limit the bytes in use by one session, as the operator may; None lifts the limit."""
        self._granted[owner] = nbytes
        self._below.set_quota(owner, nbytes)

    def set_session_fraction(self, fraction: float, owner: int) -> None:
        """Limit the bytes in use by a session to a fraction of the device's memory, within its quota."""
        if not 0.0 <= fraction <= 1.0:
            raise ArgumentError(f"set_per_process_memory_fraction: {fraction} is not between 0 and 1")
        wanted = None if fraction == 1.0 else int(fraction * self._upstream.free_and_total()[1])
        limits = [limit for limit in (self._granted.get(owner), wanted) if limit is not None]
        self._below.set_quota(owner, min(limits, default=None))

    def session_fraction(self, owner: int) -> float:
        """Return the share of the device's memory that a session may have in use."""
        quota, total = self._books.account(owner).quota_bytes, self._upstream.free_and_total()[1]
        return 1.0 if quota is None or not total else min(1.0, quota / total)

    def forget(self, owner: int) -> None:
        """Drop the quota of a session that has ended."""
        self._granted.pop(owner, None)

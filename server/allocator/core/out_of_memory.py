"""The out-of-memory errors: what was wanted, who holds what, and what is left.

Formats numbers that it is given; knows no blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

from server.allocator.core.sizes import human
from telegrad_protocol.errors import OutOfMemoryError


@dataclass(frozen=True, slots=True)
class MemoryUsage:
    """Where the bytes of a device are when a request cannot be served; all amounts are bytes."""

    device: str
    wanted: int
    owner: int
    held: int
    quota: int | None
    others: int
    reserved: int
    cached: int
    limit: int
    largest: int

    def describe(self, cause: str, remedy: str) -> OutOfMemoryError:
        """Return the error to raise."""
        quota = "no quota" if self.quota is None else f"quota {human(self.quota)}"
        holder = "the server" if self.owner == 0 else "this session"
        return OutOfMemoryError(
            f"allocate: {cause} on {self.device}: wanted {human(self.wanted)}, {holder} holds {human(self.held)}"
            f" ({quota}), others hold {human(self.others)}, {human(self.cached)} of {human(self.reserved)} reserved"
            f" are cached, the limit is {human(self.limit)}, the largest free block is {human(self.largest)}; {remedy}"
        )


def device_exhausted(usage: MemoryUsage) -> OutOfMemoryError:
    """Return the error for a request that the device has no room for."""
    remedy = "free tensors, or ask for smaller ones"
    if usage.cached >= usage.wanted:
        remedy += "; enough is cached but in pieces: TELEGRAD_ALLOC_CONF=expandable_segments:True may avoid that"
    return usage.describe("out of memory", remedy)


def over_quota(usage: MemoryUsage) -> OutOfMemoryError:
    """Return the error for a request that is beyond the session's quota; it tells nothing of what others hold."""
    return OutOfMemoryError(
        f"allocate: session quota exceeded on {usage.device}: wanted {human(usage.wanted)}, this session holds "
        f"{human(usage.held)} (quota {human(usage.quota or 0)}); free tensors of this session, or of its tenant's "
        "others, or have the quota raised (TELEGRAD_MEMORY_SHARE, or memory of the tenant)"
    )

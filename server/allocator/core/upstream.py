"""What the core of the allocator asks of a device.

The modules of ``server/allocator/upstream`` implement it. Knows nothing of blocks, pools or sessions.
"""

from __future__ import annotations

from typing import Any, Protocol

from server.allocator.core.block import Segment


class Upstream(Protocol):
    """A source of memory. ``None`` from ``obtain`` means that the device has no room."""

    # Whether the memory that ``obtain`` returns is always zero.
    is_zeroed: bool

    def obtain(self, nbytes: int, stream: int) -> Segment | None: ...
    def give_back(self, segment: Segment) -> None: ...
    def zero(self, segment: Segment, offset: int, nbytes: int, stream: int) -> None: ...
    def free_and_total(self) -> tuple[int, int]: ...
    def record_event(self, stream: int) -> Any: ...
    def is_done(self, event: Any) -> bool: ...
    def wait_for(self, event: Any) -> None: ...

    def fault(self) -> str:
        """Return why the device can serve nobody any more; empty while it can."""

    def reserve(self, nbytes: int, page: int, stream: int) -> Segment | None:
        """Reserve addresses without memory behind them, for ``map``; ``give_back`` takes them once all is unmapped."""

    def map(self, segment: Segment, offset: int, nbytes: int) -> bool:
        """Put memory behind whole pages; return False, and put none there, where the device has no room."""

    def unmap(self, segment: Segment, offset: int, nbytes: int) -> None:
        """Take the memory away from whole pages; their addresses stay reserved."""

"""What the caching policy asks of a device.

`host.py`, `simulated.py` and `cuda.py` answer. Knows nothing of blocks, pools or sessions.
"""

from __future__ import annotations

from typing import Any, Protocol

from server.allocator.core.block import Segment


class Upstream(Protocol):
    """A source of memory. ``None`` from ``obtain`` means that the device has no room."""

    # Whether what ``obtain`` returns holds nobody's data.
    is_zeroed: bool

    def obtain(self, nbytes: int, stream: int) -> Segment | None: ...
    def give_back(self, segment: Segment) -> None: ...
    def zero(self, segment: Segment, offset: int, nbytes: int, stream: int) -> None: ...
    def free_and_total(self) -> tuple[int, int]: ...
    def record_event(self, stream: int) -> Any: ...
    def is_done(self, event: Any) -> bool: ...
    def wait_for(self, event: Any) -> None: ...

    def fault(self) -> str:
        """Why the device can serve nobody any more, whatever is asked of it; empty while it can."""

    def reserve(self, nbytes: int, page: int, stream: int) -> Segment | None:
        """Addresses without memory behind them, for ``map``; ``give_back`` takes them once all is unmapped."""

    def map(self, segment: Segment, offset: int, nbytes: int) -> bool:
        """Put memory behind whole pages; all of them or, where the device has no room, none."""

    def unmap(self, segment: Segment, offset: int, nbytes: int) -> None:
        """Take the memory away from whole pages; their addresses stay reserved."""

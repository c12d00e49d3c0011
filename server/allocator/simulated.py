"""A device that exists only as addresses, for tests and studies.

Knows no blocks; its events are done when the test says so.
"""

from __future__ import annotations

from server.allocator.block import Segment


class SimulatedUpstream:
    """A device of a given size whose segments lie one behind the other."""

    def __init__(self, size: int, *, first_address: int = 1 << 40, scrubbed: bool = False) -> None:
        self.size = size
        self.scrubbed = scrubbed
        self.live: dict[int, int] = {}
        self.zeroed: list[tuple[int, int, int]] = []
        self.unfinished: set[int] = set()
        self._used = 0
        self._next_address = first_address
        self._events = 0

    def obtain(self, nbytes: int, stream: int) -> Segment | None:
        if self._used + nbytes > self.size:
            return None
        pointer = self._next_address
        self._next_address += nbytes
        self._used += nbytes
        self.live[pointer] = nbytes
        return Segment(pointer, nbytes)

    def give_back(self, segment: Segment) -> None:
        if self.live.pop(segment.pointer, None) != segment.size:
            raise RuntimeError(f"simulated device: {segment.pointer:#x} was not obtained from it")
        self._used -= segment.size

    def zero(self, segment: Segment, offset: int, nbytes: int, stream: int) -> None:
        self.zeroed.append((segment.pointer + offset, nbytes, stream))

    def free_and_total(self) -> tuple[int, int]:
        return self.size - self._used, self.size

    def record_event(self, stream: int) -> int:
        self._events += 1
        self.unfinished.add(self._events)
        return self._events

    def is_done(self, event: int) -> bool:
        return event not in self.unfinished

    def wait_for(self, event: int) -> None:
        self.unfinished.discard(event)

    def finish_events(self) -> None:
        """Let every stream catch up."""
        self.unfinished.clear()

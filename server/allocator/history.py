"""The recorded history of the allocator: what happened, when, and which line of whose program caused it.

Entries have PyTorch's names. Knows addresses, not blocks; is told where the client stands by `locate`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from telegrad_protocol.errors import ArgumentError

Frame = dict[str, Any]
Entry = dict[str, Any]
Observer = Callable[[Entry], None]


class History:
    """A ring of the last entries, and the frames of what is allocated now."""

    def __init__(self) -> None:
        self.enabled: str | None = None
        self.entries: deque[Entry] = deque(maxlen=0)
        self.observers: list[Observer] = []
        # The client's stack as dicts of filename, line and name, innermost first; set by who executes operations.
        self.locate: Callable[[], list[Frame]] = list
        self._frames: dict[int, list[Frame]] = {}
        self._segment_frames: dict[int, list[Frame]] = {}

    @property
    def is_wanted(self) -> bool:
        """Whether anybody wants to see what happens."""
        return self.enabled is not None or bool(self.observers)

    def record_memory_history(self, enabled: str | None = "all", max_entries: int | None = None) -> None:
        """Keep a trace (``all``), only the frames of what is allocated (``state``), or nothing (None)."""
        if enabled not in (None, "state", "all"):
            raise ArgumentError(f"record_memory_history: enabled must be None, 'state' or 'all', not {enabled!r}")
        if max_entries is not None and max_entries < 0:
            raise ArgumentError(f"record_memory_history: max_entries must not be negative, but is {max_entries}")
        self.enabled = enabled
        self.entries = deque(self.entries, maxlen=max_entries if enabled == "all" else 0)
        if enabled is None:
            self._frames.clear()
            self._segment_frames.clear()

    def record(self, action: str, address: int, size: int, stream: int, owner: int) -> None:
        """Note one event."""
        frames = self._keep_frames(action, address)
        entry = {
            "action": action,
            "device_free" if action == "oom" else "addr": address,
            "size": size,
            "stream": stream,
            "time_us": time.time_ns() // 1000,
            "compile_context": "N/A",
            "user_metadata": "",
            "frames": frames,
            "owner": owner,
        }
        self.entries.append(entry)
        for observe in self.observers:
            observe(entry)

    def _keep_frames(self, action: str, address: int) -> list[Frame]:
        if action == "free_completed":
            return self._frames.pop(address, [])
        if action in ("segment_free", "segment_unmap"):
            return self._segment_frames.pop(address, [])
        frames = self.locate()
        if action == "alloc":
            self._frames[address] = frames
        elif action in ("segment_alloc", "segment_map"):
            self._segment_frames[address] = frames
        return frames

    def frames_of(self, address: int) -> list[Frame]:
        """The stack that allocated the block at this address, if it was recorded."""
        return self._frames.get(address, [])

    def frames_of_segment(self, address: int) -> list[Frame]:
        """The stack that made the allocator obtain the segment at this address, if it was recorded."""
        return self._segment_frames.get(address, [])

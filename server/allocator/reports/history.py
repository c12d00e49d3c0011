"""The recorded history of the allocator: what happened, when, and which line of whose program caused it.

Entries have PyTorch's names. The operator's ring buffer has all of them, a session's only its own. Knows addresses, not
blocks; whoever executes operations tells by ``locate`` where the client's program stands.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from telegrad_protocol.errors import ArgumentError

Frame = dict[str, Any]
Entry = dict[str, Any]
Observer = Callable[[Entry], None]

# How many entries a session may record, at about 500 bytes each; operators may record any number.
MOST_ENTRIES_OF_A_SESSION = 100_000


class Ring:
    """A ring buffer of the last entries that somebody wants."""

    __slots__ = ("enabled", "entries", "skipped", "with_frames")

    def __init__(self, enabled: str, entries: deque[Entry], with_frames: bool, skipped: Collection[str]) -> None:
        self.enabled = enabled
        self.entries = entries
        self.with_frames = with_frames
        self.skipped = frozenset(skipped)


class History:
    """The ring buffers of those who record, and the frames that allocated what is in use now."""

    def __init__(self) -> None:
        # The ring buffers by session; that of None is the operator's.
        self.rings: dict[int | None, Ring] = {}
        self.observers: list[Observer] = []
        # The client's stack as dicts of filename, line and name, innermost first; set by who executes operations.
        self.locate: Callable[[], list[Frame]] = list
        self._frames: dict[int, list[Frame]] = {}
        self._segment_frames: dict[int, list[Frame]] = {}

    @property
    def is_wanted(self) -> bool:
        """Whether anybody wants to see what happens."""
        return bool(self.rings) or bool(self.observers)

    def record_memory_history(
        self, enabled: str | None = "all", max_entries: int | None = None, owner: int | None = None, *,
        context: str | None = "all", clear_history: bool = False, skip_actions: Collection[str] = (),
    ) -> None:  # fmt: skip
        """Keep a trace (``all``), only the frames of what is allocated (``state``), or nothing (None)."""
        if enabled not in (None, "state", "all"):
            raise ArgumentError(f"record_memory_history: enabled must be None, 'state' or 'all', not {enabled!r}")
        if context not in (None, "state", "alloc", "all"):
            raise ArgumentError(f"record_memory_history: unknown context {context!r}")
        if max_entries is not None and max_entries < 0:
            raise ArgumentError(f"record_memory_history: max_entries must not be negative, but is {max_entries}")
        before = self.rings.pop(owner, None)
        if enabled is not None:
            entries = () if before is None or clear_history else before.entries
            most = most_entries(enabled, max_entries, owner)
            self.rings[owner] = Ring(enabled, deque(entries, maxlen=most), context is not None, skip_actions)
        if not self.rings:
            self._frames.clear()
            self._segment_frames.clear()

    def forget(self, owner: int) -> None:
        """Drop what a session had recorded."""
        if owner in self.rings:
            self.record_memory_history(None, owner=owner)

    def entries_of(self, owner: int | None) -> list[Entry]:
        """Return the operator's trace or a session's; a session without one sees its part of the operator's."""
        ring = self.rings.get(owner)
        if ring is not None:
            return list(ring.entries)
        ring = self.rings.get(None)
        return [] if ring is None else [entry for entry in ring.entries if entry["owner"] == owner]

    @property
    def entries(self) -> list[Entry]:
        """The operator's trace."""
        return self.entries_of(None)

    def record(self, action: str, address: int, size: int, stream: int, owner: int) -> None:
        """Record one event for everybody who wants it."""
        rings = [ring for whose in (None, owner) if (ring := self.rings.get(whose)) and action not in ring.skipped]
        if not rings and not self.observers:
            return
        frames = self._keep_frames(action, address, any(ring.with_frames for ring in rings) or bool(self.observers))
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
        for ring in rings:
            ring.entries.append(entry)
        for observe in self.observers:
            observe(entry)

    def _keep_frames(self, action: str, address: int, is_wanted: bool) -> list[Frame]:
        if action == "free_completed":
            return self._frames.pop(address, [])
        if action in ("segment_free", "segment_unmap"):
            return self._segment_frames.pop(address, [])
        frames = self.locate() if is_wanted else []
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


def most_entries(enabled: str, wanted: int | None, owner: int | None) -> int | None:
    """Return how many entries the ring of a session, or with None the operator's, keeps; None for any number."""
    if enabled == "state":
        return 0
    if owner is None:
        return wanted
    return MOST_ENTRIES_OF_A_SESSION if wanted is None else min(wanted, MOST_ENTRIES_OF_A_SESSION)

"""Where a client's program stands, as stack frames: what the allocators' history shows beside every block.

Reads what a session keeps of its client; knows nothing of memory.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from telegrad_protocol import messages

from .arguments import BY_INDEX
from .state import SessionState

Frame = dict[str, Any]


def frames_of(state: SessionState) -> list[Frame]:
    """Return the operation that a session executes and the client's line that called it, innermost first."""
    instruction = state.instruction
    if instruction is None:
        return []
    site = state.sites.get(getattr(instruction, "site", 0), "")
    return _frames(_operation(instruction), site)


def _operation(instruction: Any) -> str:
    if isinstance(instruction, messages.Call) and 0 <= instruction.op < len(BY_INDEX):
        return BY_INDEX[instruction.op].op.public
    return type(instruction).__name__.lower()


@lru_cache(4096)
def _frames(operation: str, site: str) -> list[Frame]:
    """Return the same list for all entries of a line, so that a long history stays small."""
    frames: list[Frame] = [{"filename": "telegrad", "line": 0, "name": operation}]
    if site:
        place, _, function = site.rpartition(" in ")
        filename, _, line = place.rpartition(":")
        frames.append({"filename": filename, "line": int(line), "name": function})
    return frames

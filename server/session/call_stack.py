"""Where a client's program stands: stack frames for the allocators' history, and the line that a failure names.

Reads what a session keeps of its client; knows nothing of memory.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from telegrad_protocol import messages
from telegrad_protocol.errors import LimitExceededError
from telegrad_protocol.failures import described

from .arguments import BY_INDEX
from .state import SessionState

Frame = dict[str, Any]

LONGEST_SITE: Final = 1 << 13
"""Characters of a line's file and function together."""


def add_site(state: SessionState, site: messages.Site) -> None:
    """Handle the instruction: note a line of the client's program under its number."""
    if len(site.file) + len(site.function) > LONGEST_SITE:
        raise LimitExceededError(f"site: names of a file and its function may have {LONGEST_SITE} characters together")
    state.sites[site.number] = site


def frames_of(state: SessionState) -> list[Frame]:
    """Return the operation that a session executes and the client's line that called it, innermost first."""
    instruction = state.instruction
    if instruction is None:
        return []
    return _frames(_operation(instruction), state.sites.get(getattr(instruction, "site", 0)))


def describe_site(state: SessionState, instruction: Any) -> str:
    """Return the client's line that an instruction comes from, as messages name it; empty where it is not known."""
    return name_of_site(state, getattr(instruction, "site", 0))


def name_of_site(state: SessionState, number: int) -> str:
    """Return a line of the client's program by its number; empty where it is not known."""
    site = state.sites.get(number)
    return "" if site is None else described(site)


def _operation(instruction: Any) -> str:
    if isinstance(instruction, messages.Call) and 0 <= instruction.op < len(BY_INDEX):
        return BY_INDEX[instruction.op].op.public
    return type(instruction).__name__.lower()


@lru_cache(4096)
def _frames(operation: str, site: messages.Site | None) -> list[Frame]:
    """Return the same list for all entries of a line, so that a long history stays small."""
    frames: list[Frame] = [{"filename": "telegrad", "line": 0, "name": operation}]
    if site is not None:
        frames.append({"filename": site.file, "line": site.line, "name": site.function})
    return frames

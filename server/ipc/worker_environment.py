"""What a worker's process needs: what the C library reads from its environment, a stack in one piece, and an end.

Knows no session and no engine.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from typing import Final, TypeVar

Result = TypeVar("Result")

MALLOC: Final = {"MALLOC_MMAP_THRESHOLD_": str(256 << 20), "MALLOC_TRIM_THRESHOLD_": str(256 << 20)}
"""NumPy's temporaries come from the C library: kept for the next one, they save a page fault for every 4 KiB."""


DESCRIPTORS: Final = ("--fd", "--notes", "--heartbeat")
"""The worker's options that are numbers of descriptors, in the order in which these are passed or sent to it."""

_PR_SET_PDEATHSIG: Final = 1


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the process ``parent``, which has started it, ends in whatever way.

    A worker that hangs would not notice that its gateway is gone. Systems that cannot do it leave it undone.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it has ended before the kernel was told
        os._exit(1)


def on_one_stack(function: Callable[[], Result]) -> Result:
    """Call ``function`` where all the frames below it lie in one piece of memory.

    CPython takes memory for frames in pieces of 16 KiB and gives a piece back when its first frame returns: a loop
    whose calls cross the end of a piece pays for fresh memory at every turn (docs/decisions/0007). For a frame that
    says it needs a large stack a piece of twice that size is made, and who is called from it uses the rest.
    """
    return function()


on_one_stack.__code__ = on_one_stack.__code__.replace(co_stacksize=1 << 15)

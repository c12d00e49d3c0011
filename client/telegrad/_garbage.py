"""Pauses Python's garbage collector while telegrad is imported: nothing that an import makes is garbage.

An import makes so many objects that the collector would look at all of them several times, for a quarter of the time.
"""

from __future__ import annotations

import gc

_collected = gc.isenabled()
gc.disable()


def resume() -> None:
    """Let the collector run again, if it ran before."""
    if _collected:
        gc.enable()

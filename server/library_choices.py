"""How often this worker has asked the heuristics of NVIDIA's libraries how to compute something in given sizes.

Imports nothing of the project: the engine counts, and the worker's loop, which knows no engine, tells the gateway.
"""

from __future__ import annotations

from typing import Final


class LibraryChoices:
    """Counts of one process. ``borrowed``: what was proposed for neighbouring sizes was taken, and nothing asked."""

    __slots__ = ("asked", "borrowed")

    def __init__(self) -> None:
        self.asked = self.borrowed = 0


library_choices: Final = LibraryChoices()
"""Those of this process."""

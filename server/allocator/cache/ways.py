"""The functions by which calls are remembered and carried out: those of Python, or the same in C.

Knows what a block is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from server.allocator.core.block import Block


class Ways(NamedTuple):
    """The functions of a `Recall` by which calls are answered, and carried out: in Python, or the same in C."""

    allocate: Callable[..., Block]
    free: Callable[[Block], None]
    allocate_anew: Callable[[int, int, int], Block]
    free_anew: Callable[[Block], None]
    free_in_cooldown: Callable[[Block], None]

"""What a process asks of its surroundings: its place on its machine, and how much groups tell of themselves."""

from __future__ import annotations

import os
from enum import Enum
from typing import Any

from telegrad_protocol.errors import ArgumentError


class DebugLevel(Enum):
    """How much groups check and tell. One process has nothing to check."""

    OFF = 0
    INFO = 1
    DETAIL = 2


def _level_of_environment() -> DebugLevel:
    return DebugLevel.__members__.get(os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper(), DebugLevel.OFF)


_level = _level_of_environment()


def get_debug_level() -> DebugLevel:
    """Return the level that was set, at first that of ``TORCH_DISTRIBUTED_DEBUG``."""
    return _level


def set_debug_level(level: DebugLevel) -> None:
    """Set the level, which ``get_debug_level`` returns."""
    global _level
    _level = level


def set_debug_level_from_env() -> None:
    """Set the level of ``TORCH_DISTRIBUTED_DEBUG``."""
    set_debug_level(_level_of_environment())


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """Return the place of this process on its machine, which a launcher has told it, or else ``fallback_rank``."""
    told = os.environ.get("LOCAL_RANK", fallback_rank)
    if told is None:
        raise ArgumentError("get_node_local_rank: LOCAL_RANK is not in the environment; pass fallback_rank=0")
    return int(told)


def supports_complex(reduceOp: Any) -> bool:
    """Tell whether processes may combine complex tensors so: those have no order and no bits."""
    return reduceOp.name not in ("MAX", "MIN", "PRODUCT", "BAND", "BOR", "BXOR")

"""What runs of programs take and leave, in C where that is compiled: as ``programs.described`` and the session say.

Functions return None, or False, where something is unusual, and have changed nothing then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from server.allocator import Block
from server.engine.in_c import histories as histories
from server.engine.in_c.values import module
from server.engine.value import Backend, Storage, Value

Rows: TypeAlias = tuple[tuple[int, int, int], ...]
"""Slots or places of values, each with the number of the output that it is, -1 for nothing, and that value's keys."""


def _unknown(*given: Any) -> None:
    """Leave it to Python."""


blocks_of: Final[Callable[[Sequence[Any]], tuple[Block, ...] | None]] = _unknown if module is None else module.blocks_of
"""Returns the blocks that values lie in; None where something is no value."""
storages_over: Final[Callable[[Backend, tuple[Any, ...]], list[Storage] | None]] = (
    _unknown if module is None else module.storages_over
)
"""Returns storages of a backend over memory that a launch has left."""
values_over: Final[Callable[[tuple[Any, ...], int, list[Storage]], tuple[Value, ...] | None]] = (
    _unknown if module is None else module.values_over
)
"""Returns the results of an execution of so many inputs; None where one is an input or a view, or lies in an input."""
named_by: Final[Callable[[Rows, tuple[Any, ...]], list[tuple[int, Any]] | None]] = (
    _unknown if module is None else module.named_by
)
"""Returns what slots name after a run, given its outputs."""
give_gradients: Final[Callable[[list[Any], Rows, tuple[Any, ...]], bool | None]] = (
    _unknown if module is None else module.give_gradients
)
"""Gives values gradients, of which those are outputs that are there; returns whether it has."""
bind_pairs: Final[Callable[[dict[int, Any], list[int], list[tuple[int, Any]]], list[int]] | None] = (
    None if module is None else module.bind_pairs
)
"""Lets numbers name what pairs say, by slot; returns those whose slots name nothing any more."""

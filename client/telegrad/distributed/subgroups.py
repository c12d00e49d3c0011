"""Groups that are parts of the group of one process: this process, or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad_protocol.errors import ArgumentError

from .single import ProcessGroup, default_group, get_world_size, new_group


def new_subgroups(
    group_size: int | None = None, group: ProcessGroup | None = None, *args: Any, **options: Any
) -> tuple[Any, list[Any]]:
    """Divide the processes into groups of a size, and return that of this process and all of them."""
    size = get_world_size(group)
    if group_size is not None and group_size > size:
        raise ArgumentError(f"The arg 'group_size' ({group_size}) must not exceed the world size ({size})")
    if group_size is not None and group_size <= 0:
        raise ArgumentError(f"The arg 'group_size' ({group_size}) must be positive")
    return new_subgroups_by_enumeration([[0]])


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]], *args: Any, **options: Any
) -> tuple[Any, list[Any]]:
    """Make a group of each list of ranks, and return that of this process and all of them."""
    if not ranks_per_subgroup_list:
        raise ArgumentError("The arg 'ranks_per_subgroup_list' cannot be empty")
    default_group("new_subgroups_by_enumeration")
    groups = [new_group(ranks) for ranks in ranks_per_subgroup_list]
    return next((group for group in groups if isinstance(group, ProcessGroup)), None), groups

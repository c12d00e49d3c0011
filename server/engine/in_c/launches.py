"""Launches that wait for each other, in C where that is compiled: the same as `device.launch_queue` says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from server.engine.in_c.values import module

Work = Callable[[Any, Any], None]


def prepare(queue: type, most: int) -> None:
    """Have work wait in C; called once, with the class of queues, and how many launches wait at most."""
    if module is not None:
        module.prepare_launches({"LaunchQueue": queue, "most_waiting": most})


def deferring(queue: Any, work: Work) -> Work | None:
    """Return what ``LaunchQueue.deferring`` does; None where that is Python's."""
    return None if module is None else module.bound_to_queue((queue, work))
